"""Charts of long runs: values over time, the limit at every moment, items that change groups."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.report import charts
from fairhorizon.report.charts import BROKEN, GREY, Axis, Chart, Spec, Style
from fairhorizon.report.tables import group_items, group_title, the_group
from fairhorizon.studies.long_results import CountsOverTime
from fairhorizon.vocabulary import POPULAR

CONTROL_TITLE = "The limit at every moment"
RUNNING = "limited_rate"  # what the limit is on
# column of a single step -> what it is called, its dashes; both thin and grey
OF_A_STEP: dict[str, tuple[str, list[int]]] = {
    "step_popularity_rate_initial": ("this step, by the groups at the start", [2, 3]),
    "step_popularity_rate": ("this step, by the groups of the moment", [1, 0]),
}
SO_FAR = "all shown so far"
CONTROL_READING = (
    "The share of {items} in what is shown. Thick, in the colour of the method: all shown so far, "
    "which the limit is on; where it is above the limit after the warm-up, the gap is filled. "
    "Thin and grey: of single steps, by the groups of the moment (solid) and by those at the start "
    "(dotted). {moved}Means over seeds; over each panel the worst seed."
)
MOVED = "Where the two grey lines part, items have changed group. "
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
    # NaN stands for "not defined at this step"; polars would let it spread to the mean of all
    # seeds.
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
        kept = charts.thinned(len(line.steps), charts.points_each(len(by_series)))
        start = position / len(by_series)
        rows += [
            {
                "series": series,
                "x": int(line.steps[i]),
                "y": _rounded(line.mean[i]),
                "marked": charts.is_marked(number, len(kept), start),
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
    return [charts.shade_layer(span.first, span.warm_up_end, step_axis(span))]


def limit_layers(span: Span, y: Axis) -> list[Spec]:
    """The limit as a dashed line."""
    if not span.has_limit:
        return []
    label = "limit"
    return [charts.limit_layer(span.limit, span.range[1], label, step_axis(span), y)]


def control_chart(steps: pl.DataFrame, styles: Mapping[str, Style], span: Span) -> Chart:
    """The group's share of each step by both groupings, and of all so far, against the limit."""
    by_column = {column: lines(steps, column) for column in (*OF_A_STEP, RUNNING)}
    y = Axis(span.share_title, domain=(0, _control_top(by_column, span)))
    points = charts.points_each(3 * len(styles))
    panels = []
    for method, style in styles.items():
        own = {column: found[method].without_band() for column, found in by_column.items()}
        layers = [
            *warm_up_layers(span),
            *(
                _control_line(
                    own[column], name, span, y, points, strokeDash=dash, color=GREY, strokeWidth=1
                )
                for column, (name, dash) in OF_A_STEP.items()
            ),
            _over_limit(own[RUNNING], span, y),
            _control_line(own[RUNNING], SO_FAR, span, y, points, color=style.colour, strokeWidth=3),
            *limit_layers(span, y),
        ]
        remark = verdict(steps, method, span)
        panels.append(charts.panel(layers, height=210, title=method, remark=remark))
    moved = MOVED if span.has_moving_groups else ""
    reading = CONTROL_READING.format(items=group_items(span.group), moved=moved)
    return Chart(CONTROL_TITLE, panels, reading=reading)


def _control_line(
    line: Line, name: str, span: Span, y: Axis, points: int, **style: str | float | list[int]
) -> Spec:
    rows = [
        {"x": int(line.steps[i]), "y": round(float(line.mean[i]), 3), "name": name}
        for i in charts.thinned(len(line.steps), points)
    ]
    x = step_axis(span)
    place = {"x": x.of("x"), "y": y.of("y")}
    tooltip = [charts.word("name", title=" "), x.tooltip("x"), y.tooltip("y")]
    layers = [
        charts.mark("line", place, **style),
        charts.mark("point", {**place, "tooltip": tooltip}, opacity=0, filled=True, size=60),
    ]
    return charts.layered(layers, rows)


def _over_limit(running: Line, span: Span, y: Axis) -> Spec:
    steps, upper = over_limit(running, span)
    rows = [
        {"x": int(steps[i]), "y": round(float(upper[i]), 3), "limit": span.limit}
        for i in charts.thinned(len(steps), 200)
    ]
    encoding = {"x": step_axis(span).of("x"), "y": y.of("y"), "y2": {"field": "limit"}}
    return charts.mark("area", encoding, rows, color=BROKEN, opacity=0.45)


def _control_top(by_column: Mapping[str, Mapping[str, Line]], span: Span) -> float:
    """The end of the axis of all panels, so that they can be compared."""
    highest = [float(line.mean.max(initial=0)) for by in by_column.values() for line in by.values()]
    return 1.05 * max(*highest, span.limit if span.has_limit else 0, 1)


def verdict(steps: pl.DataFrame, method: str, span: Span) -> str:
    """How often the method was over the limit, mean over seeds, and by how much in the worst."""
    shares = lines(steps, "violation_share")[method].mean
    overshoot = lines(steps, "largest_overshoot")[method].high
    if not span.has_limit:
        return "no limit"
    if not len(shares):
        return "no step after the warm-up yet"
    if not shares[-1]:
        return "never over the limit after the warm-up"
    return f"over the limit at {shares[-1]:.1f} % of steps, by up to {overshoot[-1]:.1f} points"


def over_limit(running: Line, span: Span) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Steps after the warm-up, and the running rate there, or the limit where that is higher."""
    after = running.steps > span.warm_up
    return running.steps[after], np.maximum(running.mean[after], span.limit)


class Move(Enum):
    """What became of an item."""

    ENTERED = "entered"
    LEFT = "left"
    RETURNED = "came back"


DRAWN = {Move.ENTERED: 4, Move.LEFT: 4, Move.RETURNED: 2}  # lines of a panel


MOVE_DASHES = {Move.ENTERED: [1, 0], Move.LEFT: [6, 3], Move.RETURNED: [1, 3]}


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
    # Groups by an attribute do not change and are not the items of the highest ranks.
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
    kept = charts.thinned(len(counts.steps), MOMENTS)
    ranks = exposure_ranks(counts.counts[kept])
    begin, end = labels[0], labels[-1]
    changed = (labels[1:] != labels[:-1]).any(axis=0)
    kinds = {
        Move.ENTERED: changed & ~begin & end,
        Move.LEFT: changed & begin & ~end,
        Move.RETURNED: changed & (begin == end),
    }
    # How far each moved on the axis of square roots, also for those that came back.
    moved = np.ptp(np.sqrt(ranks), axis=0)
    order = np.argsort(-moved, kind="stable")
    items = {move: order[member[order]] for move, member in kinds.items()}
    return Tracks(counts.steps[kept], ranks, int(begin.sum()), items)


def ranks_chart(
    runs: Mapping[str, Tracks], styles: Mapping[str, Style], span: Span
) -> Chart | None:
    """A panel per method; None where no run shows ranks."""
    panels = [
        charts.panel(
            _ranks_layers(runs[method], style.colour, runs[method].span(span)),
            height=260,
            title=method,
            remark=runs[method].remark(),
        )
        for method, style in styles.items()
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
    x = step_axis(span)
    y = {
        **{"field": "rank", "type": "quantitative"},
        "scale": {"type": "sqrt", "domain": [own.n_items, 1], "nice": False, "zero": False},
        "axis": {"title": "Rank by exposure", "values": rank_ticks(own.n_items)},
    }
    place = {"x": x.of("x"), "y": y}
    dash = {"domain": [move.value for move in Move], "range": [MOVE_DASHES[move] for move in Move]}
    line = place | {
        "detail": charts.word("series"),
        "strokeDash": charts.word("move", scale=dash, legend=None),
        "strokeWidth": charts.if_(charts.IS_FOCUS, 4, 1.6),
        "opacity": charts.in_focus(),
    }
    names = [charts.word("series", title=" "), charts.word("move", title=" ")]
    rank = {"field": "rank", "type": "quantitative", "title": "Rank by exposure"}
    name = place | {"text": charts.word("series"), "opacity": charts.if_(charts.IS_FOCUS, 1, 0)}
    layers = [
        charts.mark("line", line, color=colour),
        charts.mark(
            "point", {**place, "tooltip": [*names, x.tooltip("x"), rank]}, opacity=0, filled=True
        ),
        charts.mark("text", name, align="right", dx=-2, dy=-7)
        | {"transform": [{"filter": "datum.is_last"}]},
    ]
    boundary = charts.mark(
        "rule", {"y": y}, [{"rank": own.boundary}], strokeDash=[6, 3], strokeWidth=1.5
    )
    return [*warm_up_layers(span), charts.layered(layers, rows), boundary]


def changes_chart(steps: pl.DataFrame, styles: Mapping[str, Style], span: Span) -> Chart:
    """How often items changed group, counted from the first step on."""
    so_far = steps.sort("step").with_columns(pl.col("churn").cum_sum().over("method", "seed"))
    found = lines(so_far, "churn", scale=1)
    rows = line_rows({method: found[method].without_band() for method in styles})
    x, y = step_axis(span), Axis("Changes", zero=True, format=".1f")
    layers = [
        *warm_up_layers(span),
        charts.lines(rows, charts.by_series(styles), x, y),
    ]
    reading = CHANGES_READING.format(group=the_group(span.group))
    return Chart(CHANGES_TITLE, [charts.panel(layers)], styles, reading=reading, columns=1)


def rank_ticks(n_items: int) -> list[int]:
    """Round ranks with room between them on an axis of square roots."""
    # At least 9 % of the axis between two numbers.
    gap = 0.09 * math.sqrt(n_items)
    ticks = [1]
    for tick in (digit * 10**power for power in range(7) for digit in (1, 2, 5)):
        if tick <= n_items and math.sqrt(tick) - math.sqrt(ticks[-1]) >= gap:
            ticks.append(tick)
    return ticks
