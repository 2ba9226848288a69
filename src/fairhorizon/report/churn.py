"""Items that enter and leave the popular group: ranks by exposure during a run.

counts: of one run per method, exposure counts and labels of all items at some of its steps.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, ScalarFormatter
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from fairhorizon.report import over_time, page
from fairhorizon.report.figures import COLOURS, GREY
from fairhorizon.report.over_time import Span
from fairhorizon.report.page import Section, chart_id, chart_section
from fairhorizon.report.series import Style, legend, styles
from fairhorizon.report.tables import the_group
from fairhorizon.results.long_term import CountsOverTime

MOMENTS = 80  # of a line: more cannot be distinguished in a small panel
TICKS = tuple(digit * 10**power for power in range(7) for digit in (1, 2, 5))
RANKS_TITLE = "Items that enter and leave the popular group"
CHANGES_TITLE = "Group changes at each step"
RANKS_NOTE = (
    "Each line is an item, the most shown at the top; above the dashed boundary it is popular. "
    "The figure shows the first seed of each method, and a sample of each kind of item, evenly "
    "spread over the time of the first change or, if there is none, over the ranks. An item that "
    "came back between two recorded moments counts as never changed. Ranks are drawn by their "
    "square root, which gives the top more room."
)
CHANGES_NOTE = "How many items entered or left {group} at that step, mean over seeds."


class Move(Enum):
    """What became of an item."""

    STAYED = "never changed group"
    RETURNED = "changed and came back"
    LEFT = "left the popular group"
    ENTERED = "entered the popular group"


SAMPLE = {Move.STAYED: 20, Move.RETURNED: 10, Move.LEFT: 15, Move.ENTERED: 15}  # lines of a panel
COLOUR_OF = {
    Move.STAYED: GREY,
    Move.RETURNED: COLOURS[1],
    Move.LEFT: COLOURS[0],
    Move.ENTERED: COLOURS[3],
}
OPACITY_OF = {Move.STAYED: 0.35, Move.RETURNED: 0.9, Move.LEFT: 0.9, Move.ENTERED: 0.9}


@dataclass(frozen=True)
class Tracks:
    """The ranks of all items of one run at some moments, and what became of each item."""

    steps: NDArray[np.int64]  # (s,)
    ranks: NDArray[np.int64]  # (s, n_items), from 1 on
    group_size: int
    items: Mapping[Move, NDArray[np.int64]]

    @property
    def n_items(self) -> int:
        return int(self.ranks.shape[1])

    @property
    def boundary(self) -> float:
        """Between the last rank of the popular group and the next."""
        return self.group_size + 0.5

    def drawn(self, move: Move) -> NDArray[np.int64]:
        """The sample of the items of a kind."""
        items = self.items[move]
        return items[page.thinned(len(items), SAMPLE[move])]

    def span(self, span: Span) -> Span:
        """From the first moment on, which lies before the first step."""
        return replace(span, first=min(span.first, int(self.steps[0])))

    def remark(self) -> str:
        entered, left, back = (
            len(self.items[move]) for move in (Move.ENTERED, Move.LEFT, Move.RETURNED)
        )
        return f"of {self.n_items} items {entered} entered, {left} left, {back} came back"


def first_runs(
    counts: Mapping[tuple[str, int], CountsOverTime],
) -> dict[str, Tracks]:
    """The run of the first seed of each method; none where ranks do not show the groups.

    That is, before a second moment is recorded, and if groups do not follow from exposure.
    """
    runs: dict[str, Tracks] = {}
    for method, seed in sorted(counts):
        run = counts[method, seed]
        if method not in runs and len(run.steps) > 1 and follows_exposure(run):
            runs[method] = tracks(run)
    return runs


def follows_exposure(run: CountsOverTime) -> bool:
    """Whether the popular are those of the highest ranks, at the first moment or after a change."""
    labels = run.sensitive
    by_rank = exposure_ranks(run.counts[0]) <= labels[0].sum()
    return bool((labels != labels[0]).any() or (labels[0] == by_rank).all())


def exposure_ranks(counts: NDArray[np.integer]) -> NDArray[np.int64]:
    """Ranks along the last axis, 1 for the highest count; ties to the smaller index, as groups."""
    order = np.argsort(-counts.astype(np.int64), axis=-1, kind="stable")
    ranks = np.empty(counts.shape, dtype=np.int64)
    places = np.broadcast_to(np.arange(1, counts.shape[-1] + 1), counts.shape)
    np.put_along_axis(ranks, order, places, axis=-1)
    return ranks


def tracks(counts: CountsOverTime) -> Tracks:
    """Ranks, thinned to what can be drawn; what became of an item, from all recorded moments."""
    labels = counts.sensitive
    kept = page.thinned(len(counts.steps), MOMENTS)
    ranks = exposure_ranks(counts.counts[kept])
    begin, end = labels[0], labels[-1]
    changes = labels[1:] != labels[:-1]
    changed = changes.any(axis=0)
    kinds = {
        Move.STAYED: ~changed,
        Move.RETURNED: changed & (begin == end),
        Move.LEFT: changed & begin & ~end,
        Move.ENTERED: changed & ~begin & end,
    }
    when = changes.argmax(axis=0) if len(changes) else np.zeros_like(ranks[0])
    order = np.lexsort((ranks[0], when))  # by the first change; without one, by rank
    items = {move: order[member[order]] for move, member in kinds.items()}
    return Tracks(counts.steps[kept], ranks, int(begin.sum()), items)


def churn_figure(steps: pl.DataFrame, runs: Mapping[str, Tracks], span: Span) -> Figure:
    """Ranks, a panel per method, above the changes at each step."""
    methods = [method for method in over_time.methods_of(steps) if method in runs]
    n_columns = 2 if len(methods) > 1 else 1
    n_rows = math.ceil(len(methods) / n_columns)
    figure = Figure(figsize=(11, 3.3 * n_rows + 3.2), layout="constrained")
    grid = figure.add_gridspec(n_rows + 1, n_columns, height_ratios=[*[1.2] * n_rows, 1])
    for position, method in enumerate(methods):
        axes = figure.add_subplot(grid[divmod(position, n_columns)])
        own, title = runs[method], over_time.shortened(method)
        over_time.step_axes(axes, title, own.span(span), remark=own.remark())
        _draw_ranks(axes, own)
    changes = figure.add_subplot(grid[n_rows, :])
    _draw_changes(changes, steps, span)
    if methods:
        lines = [
            Line2D([], [], color=COLOUR_OF[move], alpha=OPACITY_OF[move], label=move.value)
            for move in reversed(Move)
        ]
        boundary = Line2D([], [], color="black", linestyle="--", label="boundary of the group")
        figure.legend(
            handles=[*lines, boundary],
            loc="outside upper center",
            ncols=5,
            frameon=False,
            fontsize=9,
        )
    figure.legend(
        handles=changes.lines,
        loc="outside lower center",
        ncols=over_time.legend_columns(over_time.methods_of(steps), 11),
        frameon=False,
        fontsize=9,
        handlelength=4,
    )
    return figure


def _draw_ranks(axes: Axes, own: Tracks) -> None:
    axes.set_yscale("function", functions=(np.sqrt, np.square))
    axes.set_ylim(own.n_items, 1)
    axes.yaxis.set_major_locator(FixedLocator(rank_ticks(own.n_items)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("Rank by exposure")
    for move in Move:
        lines = [np.column_stack([own.steps, own.ranks[:, item]]) for item in own.drawn(move)]
        collection = LineCollection(
            lines, colors=COLOUR_OF[move], alpha=OPACITY_OF[move], linewidths=0.9
        )
        axes.add_collection(collection, autolim=False)
    axes.axhline(own.boundary, color="black", linestyle="--", linewidth=1.2)
    axes.annotate(
        f" {own.group_size}", (1, own.boundary), xycoords=("axes fraction", "data"), va="center"
    )


def _draw_changes(axes: Axes, steps: pl.DataFrame, span: Span) -> None:
    looks = styles(over_time.methods_of(steps))
    for position, (method, line) in enumerate(over_time.lines(steps, "churn", scale=1).items()):
        label, start = over_time.shortened(method), position / len(looks)
        look = looks[method]
        over_time.draw(axes, line.without_band(), look, label=label, start=start, width=1.2)
    over_time.step_axes(axes, "Items that changed group at the step", span)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def churn_sections(steps: pl.DataFrame, runs: Mapping[str, Tracks], span: Span) -> list[Section]:
    """The same for the page."""
    methods = [method for method in over_time.methods_of(steps) if method in runs]
    charts = [_ranks_panel(method, runs[method], span) for method in methods]
    if not charts:
        return [_changes_section(steps, span)]
    looks = {move.value: Style(COLOUR_OF[move], "None", "circle", "", ()) for move in Move}
    ids = " ".join(chart_id(_chart_title(method)) for method in methods)
    ranks = Section(RANKS_TITLE, legend(ids, looks) + page.panels(charts), RANKS_NOTE)
    return [ranks, _changes_section(steps, span)]


def _ranks_panel(method: str, own: Tracks, span: Span) -> Section:
    chart = make_subplots(rows=1, cols=1, x_title="Step")
    for move in Move:
        xs: list[int | None] = []
        ys: list[float | None] = []
        facts: list[list[int] | None] = []
        for item in own.drawn(move).tolist():
            ranks = own.ranks[:, item]
            xs += [*own.steps.tolist(), None]
            ys += [*np.round(np.sqrt(ranks), 2).tolist(), None]
            facts += [*([item, rank] for rank in ranks.tolist()), None]
        chart.add_scatter(
            x=xs,
            y=ys,
            customdata=facts,
            name=move.value,
            mode="lines",
            opacity=OPACITY_OF[move],
            line={"color": COLOUR_OF[move], "width": 1.2},
            hovertemplate="item %{customdata[0]}, step %{x}: rank %{customdata[1]}",
        )
    ticks = rank_ticks(own.n_items)
    chart.update_yaxes(
        title_text="Rank by exposure",
        range=[math.sqrt(own.n_items), 1],
        tickvals=[math.sqrt(tick) for tick in ticks],
        ticktext=[str(tick) for tick in ticks],
    )
    over_time.add_span(chart, own.span(span))
    chart.add_hline(
        y=math.sqrt(own.boundary),
        line={"color": GREY, "width": 1.5, "dash": "dash"},
        annotation={"text": str(own.group_size), "x": 1, "xanchor": "left", "yanchor": "middle"},
    )
    section = chart_section(
        _chart_title(method),
        chart,
        height=340,
        showlegend=False,
        hovermode="closest",
        margin=over_time.MARGIN,
    )
    return replace(section, title=method, note=own.remark())


def _changes_section(steps: pl.DataFrame, span: Span) -> Section:
    looks = styles(over_time.methods_of(steps))
    chart = make_subplots(rows=1, cols=1, x_title="Step")
    for method, line in over_time.lines(steps, "churn", scale=1).items():
        over_time.add(chart, line.without_band(), looks[method], method, width=1.5)
    over_time.add_span(chart, span)
    chart.update_yaxes(title_text="Items", rangemode="tozero")
    note = CHANGES_NOTE.format(group=the_group(span.group))
    section = chart_section(CHANGES_TITLE, chart, note, height=340, showlegend=False)
    return replace(section, html=legend(chart_id(CHANGES_TITLE), looks, traces=2) + section.html)


def rank_ticks(n_items: int) -> list[int]:
    """Round ranks with room between them on an axis of square roots."""
    gap = 0.09 * math.sqrt(n_items)
    ticks = [1]
    for tick in TICKS:
        if tick <= n_items and math.sqrt(tick) - math.sqrt(ticks[-1]) >= gap:
            ticks.append(tick)
    return ticks


def _chart_title(method: str) -> str:
    return f"{RANKS_TITLE}, {method}"
