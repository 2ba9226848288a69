"""Items that enter and leave the popular group: ranks by exposure during a run.

counts: of one run per method, exposure counts and labels of all items at some of its steps.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.report import charts, marks, over_time
from fairhorizon.report.charts import Chart
from fairhorizon.report.looks import Look
from fairhorizon.report.marks import Axis, Spec
from fairhorizon.report.over_time import Span
from fairhorizon.report.tables import the_group
from fairhorizon.studies.long_results import CountsOverTime

MOMENTS = 40  # of a line: more cannot be distinguished in a small panel
RANKS_TITLE = "Items that enter and leave the popular group"
CHANGES_TITLE = "Changes of group so far"
RANKS_READING = (
    "Each line is an item, the most shown at the top; above the dashed line it is popular. Of the "
    "first seed of each method, the items that moved furthest: solid if they entered the group, "
    "dashed if they left it, dotted if they changed and came back. "
    "Ranks are drawn by their square root, which gives the top more room."
)
HINT = "Point at a line to follow it."
CHANGES_READING = "How often an item entered or left {group} so far, mean over seeds."


class Move(Enum):
    """What became of an item."""

    ENTERED = "entered"
    LEFT = "left"
    RETURNED = "came back"


DRAWN = {Move.ENTERED: 4, Move.LEFT: 4, Move.RETURNED: 2}  # lines of a panel
DASHES = {Move.ENTERED: [1, 0], Move.LEFT: [6, 3], Move.RETURNED: [1, 3]}


@dataclass(frozen=True)
class Tracks:
    """The ranks of all items of one run at some moments, and what became of each item."""

    steps: NDArray[np.int64]  # (s,)
    ranks: NDArray[np.int64]  # (s, n_items), from 1 on
    group_size: int
    items: Mapping[Move, NDArray[np.int64]]  # those that moved furthest come first

    @property
    def n_items(self) -> int:
        return int(self.ranks.shape[1])

    @property
    def boundary(self) -> float:
        """Between the last rank of the popular group and the next."""
        return self.group_size + 0.5

    def drawn(self, move: Move) -> NDArray[np.int64]:
        """The items of a kind that are drawn."""
        return self.items[move][: DRAWN[move]]

    def span(self, span: Span) -> Span:
        """From the first moment on, which lies before the first step."""
        return replace(span, first=min(span.first, int(self.steps[0])))

    def remark(self) -> str:
        entered, left, back = (len(self.items[move]) for move in Move)
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
    kept = marks.thinned(len(counts.steps), MOMENTS)
    ranks = exposure_ranks(counts.counts[kept])
    begin, end = labels[0], labels[-1]
    changed = (labels[1:] != labels[:-1]).any(axis=0)
    kinds = {
        Move.ENTERED: changed & ~begin & end,
        Move.LEFT: changed & begin & ~end,
        Move.RETURNED: changed & (begin == end),
    }
    # on the axis of square roots, and also for those who came back
    moved = np.ptp(np.sqrt(ranks), axis=0)
    order = np.argsort(-moved, kind="stable")
    items = {move: order[member[order]] for move, member in kinds.items()}
    return Tracks(counts.steps[kept], ranks, int(begin.sum()), items)


def ranks_chart(runs: Mapping[str, Tracks], looks: Mapping[str, Look], span: Span) -> Chart | None:
    """A panel per method; None where no run shows ranks."""
    panels = [
        charts.panel(
            _ranks_layers(runs[method], look.colour, runs[method].span(span)),
            height=260,
            title=method,
            remark=runs[method].remark(),
        )
        for method, look in looks.items()
        if method in runs
    ]
    return Chart(RANKS_TITLE, panels, reading=RANKS_READING, hint=HINT) if panels else None


def _ranks_layers(own: Tracks, colour: str, span: Span) -> list[Spec]:
    rows: list[dict[str, Any]] = [
        {"series": f"item {item}", "move": move.value, "x": int(step), "rank": int(rank)}
        | {"is_last": int(number == len(own.steps) - 1)}
        for move in Move
        for item in own.drawn(move).tolist()
        for number, (step, rank) in enumerate(zip(own.steps, own.ranks[:, item], strict=True))
    ]
    x = over_time.step_axis(span)
    y = {
        **{"field": "rank", "type": "quantitative"},
        "scale": {"type": "sqrt", "domain": [own.n_items, 1], "nice": False, "zero": False},
        "axis": {"title": "Rank by exposure", "values": rank_ticks(own.n_items)},
    }
    place = {"x": x.of("x"), "y": y}
    dash = {"domain": [move.value for move in Move], "range": [DASHES[move] for move in Move]}
    line = place | {
        "detail": marks.word("series"),
        "strokeDash": marks.word("move", scale=dash, legend=None),
        "strokeWidth": marks.if_(marks.IS_FOCUS, 4, 1.6),
        "opacity": marks.in_focus(),
    }
    names = [marks.word("series", title=" "), marks.word("move", title=" ")]
    rank = {"field": "rank", "type": "quantitative", "title": "Rank by exposure"}
    name = place | {"text": marks.word("series"), "opacity": marks.if_(marks.IS_FOCUS, 1, 0)}
    layers = [
        marks.mark("line", line, color=colour),
        marks.mark(
            "point", {**place, "tooltip": [*names, x.tooltip("x"), rank]}, opacity=0, filled=True
        ),
        marks.mark("text", name, align="right", dx=-2, dy=-7)
        | {"transform": [{"filter": "datum.is_last"}]},
    ]
    boundary = marks.mark(
        "rule", {"y": y}, [{"rank": own.boundary}], strokeDash=[6, 3], strokeWidth=1.5
    )
    return [*over_time.warm_up_layers(span), marks.layered(layers, rows), boundary]


def changes_chart(steps: pl.DataFrame, looks: Mapping[str, Look], span: Span) -> Chart:
    """How often items changed group, counted from the first step on."""
    so_far = steps.sort("step").with_columns(pl.col("churn").cum_sum().over("method", "seed"))
    found = over_time.lines(so_far, "churn", scale=1)
    rows = over_time.line_rows({method: found[method].without_band() for method in looks})
    x, y = over_time.step_axis(span), Axis("Changes", zero=True, format=".1f")
    layers = [
        *over_time.warm_up_layers(span),
        marks.lines(rows, marks.by_series(looks), x, y),
    ]
    reading = CHANGES_READING.format(group=the_group(span.group))
    return Chart(CHANGES_TITLE, [charts.panel(layers)], looks, reading=reading, columns=1)


def rank_ticks(n_items: int) -> list[int]:
    """Round ranks with room between them on an axis of square roots."""
    gap = 0.09 * math.sqrt(n_items)
    ticks = [1]
    for tick in (digit * 10**power for power in range(7) for digit in (1, 2, 5)):
        if tick <= n_items and math.sqrt(tick) - math.sqrt(ticks[-1]) >= gap:
            ticks.append(tick)
    return ticks
