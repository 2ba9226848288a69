"""A number of a long run against the step: a line per method, its mean over seeds, and a band.

steps: one row per method, seed and step, shares as fractions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import plotly.graph_objects as go
import polars as pl
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from fairhorizon.report.figures import GREY, style
from fairhorizon.report.page import MAX_POINTS, thinned, verbatim
from fairhorizon.report.series import Style
from fairhorizon.report.tables import group_title
from fairhorizon.vocabulary import POPULAR

MARKERS = 8  # on a line: enough to identify it, few enough to see it
OPACITY = 0.18  # of a band
SHADE = 0.12  # of the warm-up
MARGIN = {
    "l": 64,
    "r": 48,
    "t": 12,
    "b": 56,
}  # of a chart on the page: room for a word at the right
NAME_WIDTH = 34  # characters of a name in a figure; on the page it is whole


@dataclass(frozen=True)
class Line:
    """Mean of the seeds, the lowest and the highest; steps without a value are left out."""

    steps: NDArray[np.int64]
    mean: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def has_band(self) -> bool:
        return bool((self.high > self.low).any())

    def without_band(self) -> Self:
        return replace(self, low=self.mean, high=self.mean)


@dataclass(frozen=True)
class Span:
    """What all panels of a run share: its steps, its warm-up, and the limit on a group."""

    first: int
    last: int
    warm_up: int
    alpha_prime: float
    group: str = POPULAR  # the limited one

    @property
    def range(self) -> tuple[int, int]:
        """Of an axis of steps; one step alone stands in the middle."""
        alone = self.first == self.last
        return (self.first - alone, self.last + alone)

    @property
    def has_moving_groups(self) -> bool:
        """Whether groups follow from exposure."""
        return self.group == POPULAR

    @property
    def share_title(self) -> str:
        """Of an axis with the share of the group."""
        return f"{group_title(self.group)}, %"

    @property
    def limit(self) -> float:
        """In percent."""
        return 100 * self.alpha_prime

    @property
    def has_limit(self) -> bool:
        return self.alpha_prime < 1

    @property
    def warm_up_end(self) -> int:
        return min(self.warm_up, self.last)

    @property
    def has_warm_up(self) -> bool:
        return self.warm_up_end > self.first


def methods_of(steps: pl.DataFrame) -> list[str]:
    """In the order of their first rows."""
    return steps["method"].unique(maintain_order=True).to_list()


def lines(steps: pl.DataFrame, column: str, *, scale: float = 100) -> dict[str, Line]:
    """The line of each method; by default a share becomes percent."""
    value = (scale * pl.col(column).cast(pl.Float64)).fill_nan(None)
    means = (
        steps.select("method", "step", value=value)
        .drop_nulls("value")
        .group_by("method", "step")
        .agg(
            mean=pl.col("value").mean(),
            low=pl.col("value").min(),
            high=pl.col("value").max(),
        )
        .sort("step")
    )
    result = {}
    for method in methods_of(steps):
        own = means.filter(pl.col("method") == method)
        result[method] = Line(
            own["step"].to_numpy().astype(np.int64),
            *(own[name].to_numpy() for name in ("mean", "low", "high")),
        )
    return result


def reading(steps: pl.DataFrame, span: Span) -> str:
    """How lines, bands and shades are to be read."""
    several = steps["seed"].n_unique() > 1
    line = "Lines are means over seeds, bands reach from the lowest seed to the highest"
    parts = [
        *([line] if several else ["One seed"]),
        *(["dashed: the limit"] if span.has_limit else []),
        *(["grey: the warm-up"] if span.has_warm_up else []),
    ]
    return "; ".join(parts) + "."


def legend_columns(labels: Sequence[str], width: float) -> int:
    """How many entries of a legend fit side by side into so many inches, in even rows."""
    entry = 0.9 + 0.075 * max(len(shortened(label)) for label in labels)
    rows = math.ceil(len(labels) / max(1, int(width / entry)))
    return math.ceil(len(labels) / rows)


def shortened(name: str) -> str:
    """A name that fits into a figure."""
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1]}…"


def draw(
    axes: Axes, line: Line, look: Style, *, label: str, start: float = 0, width: float = 1.6
) -> None:
    """With matplotlib; `start` in [0, 1) shifts the markers, which else lie over each other."""
    every = max(1, len(line.steps) // MARKERS)
    if line.has_band:
        axes.fill_between(
            line.steps, line.low, line.high, color=look.colour, alpha=OPACITY, linewidth=0
        )
    axes.plot(
        line.steps,
        line.mean,
        color=look.colour,
        linestyle=look.matplotlib_dash,
        linewidth=width,
        marker=look.marker,
        markersize=4.5,
        markevery=(int(start * every), every),
        label=label,
    )


def step_axes(axes: Axes, title: str, span: Span, *, remark: str = "") -> None:
    """The look of a panel over steps, the warm-up shaded; the remark stands below the title."""
    style(axes, f"{title}\n" if remark else title)
    if remark:
        axes.annotate(
            remark,
            (0, 1),
            xytext=(0, 6),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=9,
            color="#505050",
        )
    axes.set_xlabel("Step")
    axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10], integer=True))
    axes.set_xlim(*span.range)
    if span.has_warm_up:
        axes.axvspan(span.first, span.warm_up_end, color=GREY, alpha=SHADE, linewidth=0)


def draw_limit(axes: Axes, span: Span) -> None:
    if span.has_limit:
        axes.axhline(span.limit, color="black", linestyle="--", linewidth=1)


def keys(span: Span) -> list[Artist]:
    """Entries of a legend for the limit and the warm-up, where there are such."""
    limit = Line2D([], [], color="black", linestyle="--", linewidth=1)
    limit.set_label(f"limit, {span.limit:g} %")
    warm_up = Patch(color=GREY, alpha=SHADE, linewidth=0)
    warm_up.set_label(f"warm-up, {span.warm_up} steps")
    return [*([limit] if span.has_limit else []), *([warm_up] if span.has_warm_up else [])]


def add(
    chart: go.Figure, line: Line, look: Style, name: str, row: int = 1, *, width: float = 2
) -> None:
    """With plotly, two traces: the band, empty where there is none, and the line."""
    kept = thinned(len(line.steps), MAX_POINTS)
    steps = line.steps[kept].tolist()
    high, low = (np.round(values[kept], 4).tolist() for values in (line.high, line.low))
    chart.add_scatter(
        x=[*steps, *reversed(steps)] if line.has_band else [],
        y=[*high, *reversed(low)] if line.has_band else [],
        name=verbatim(name),
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=faded(look.colour, OPACITY),
        hoverinfo="skip",
        row=row,
        col=1,
    )
    chart.add_scatter(
        x=steps,
        y=np.round(line.mean[kept], 4).tolist(),
        name=verbatim(name),
        mode="lines+markers",
        line={"color": look.colour, "width": width, "dash": look.plotly_dash},
        marker={
            "color": look.colour,
            "symbol": look.symbol,
            "size": 7,
            "maxdisplayed": MARKERS,
        },
        hovertemplate="%{y:.2f}",
        row=row,
        col=1,
    )


def add_span(chart: go.Figure, span: Span, *, limit_in: int = 0) -> None:
    """With plotly: steps and warm-up in every panel, the limit in the panel of that row, if any."""
    chart.update_xaxes(range=list(span.range), dtick=1 if span.last - span.first < 5 else None)
    if span.has_warm_up:
        chart.add_vrect(
            x0=span.first,
            x1=span.warm_up_end,
            fillcolor=GREY,
            opacity=SHADE,
            line_width=0,
            layer="below",
        )
    if span.has_limit and limit_in:
        chart.add_hline(
            y=span.limit,
            line={"color": GREY, "width": 1.5, "dash": "dash"},
            annotation={"text": "limit", "x": 1, "xanchor": "left", "yanchor": "middle"},
            row=limit_in,
            col=1,
        )


def faded(colour: str, opacity: float) -> str:
    """#0072B2 as a translucent colour."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"
