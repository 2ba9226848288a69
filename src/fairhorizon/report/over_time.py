"""A number of a long run against the step: a line per method, its mean over seeds, and a band.

steps: one row per method, seed and step, shares as fractions.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.report import marks
from fairhorizon.report.marks import Axis, Spec
from fairhorizon.report.tables import group_title
from fairhorizon.vocabulary import POPULAR


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


def step_axis(span: Span) -> Axis:
    return Axis("Step", domain=span.range, whole=True)


def line_rows(by_series: Mapping[str, Line]) -> list[dict[str, Any]]:
    """The lines as rows of a chart, thinned to what it can show."""
    has_bands = any(line.has_band for line in by_series.values())
    rows: list[dict[str, Any]] = []
    for position, (series, line) in enumerate(by_series.items()):
        kept = marks.thinned(len(line.steps), marks.points_each(len(by_series)))
        start = position / len(by_series)
        rows += [
            {
                "series": series,
                "x": int(line.steps[i]),
                "y": _rounded(line.mean[i]),
                "marked": marks.is_marked(number, len(kept), start),
            }
            | ({"low": _rounded(line.low[i]), "high": _rounded(line.high[i])} if has_bands else {})
            for number, i in enumerate(kept)
        ]
    return rows


def _rounded(value: float) -> float:
    return round(float(value), 3)


def warm_up_layers(span: Span) -> list[Spec]:
    """The warm-up in grey, below all else."""
    if not span.has_warm_up:
        return []
    return [marks.shade_layer(span.first, span.warm_up_end, step_axis(span))]


def limit_layers(span: Span, y: Axis) -> list[Spec]:
    """The limit as a dashed line."""
    if not span.has_limit:
        return []
    label = "limit"
    return [marks.limit_layer(span.limit, span.range[1], label, step_axis(span), y)]
