"""How well the limit is kept at every step: a panel per method, means over seeds."""

from collections.abc import Mapping

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.report import charts, marks, over_time
from fairhorizon.report.charts import Chart
from fairhorizon.report.looks import BROKEN, GREY, Look
from fairhorizon.report.marks import Axis, Spec
from fairhorizon.report.over_time import Line, Span
from fairhorizon.report.tables import group_items

TITLE = "The limit at every moment"
RUNNING = "limited_rate"  # what the limit is on
# column of a single step -> what it is called, its dashes; both thin and grey
OF_A_STEP: dict[str, tuple[str, list[int]]] = {
    "step_popularity_rate_initial": ("this step, by the groups at the start", [2, 3]),
    "step_popularity_rate": ("this step, by the groups of the moment", [1, 0]),
}
SO_FAR = "all shown so far"
READING = (
    "The share of {items} in what is shown. Thick, in the colour of the method: all shown so far, "
    "which the limit is on; where it is above the limit after the warm-up, the gap is filled. "
    "Thin and grey: of single steps, by the groups of the moment (solid) and by those at the start "
    "(dotted). {moved}Means over seeds; over each panel the worst seed."
)
MOVED = "Where the two grey lines part, items have changed group. "


def control_chart(steps: pl.DataFrame, looks: Mapping[str, Look], span: Span) -> Chart:
    """The group's share of each step by both groupings, and of all so far, against the limit."""
    by_column = {column: over_time.lines(steps, column) for column in (*OF_A_STEP, RUNNING)}
    y = Axis(span.share_title, domain=(0, _top(by_column, span)))
    points = marks.points_each(3 * len(looks))
    panels = []
    for method, look in looks.items():
        own = {column: found[method].without_band() for column, found in by_column.items()}
        layers = [
            *over_time.warm_up_layers(span),
            *(
                _line(
                    own[column], name, span, y, points, strokeDash=dash, color=GREY, strokeWidth=1
                )
                for column, (name, dash) in OF_A_STEP.items()
            ),
            _over_limit(own[RUNNING], span, y),
            _line(own[RUNNING], SO_FAR, span, y, points, color=look.colour, strokeWidth=3),
            *over_time.limit_layers(span, y),
        ]
        remark = verdict(steps, method, span)
        panels.append(charts.panel(layers, height=210, title=method, remark=remark))
    moved = MOVED if span.has_moving_groups else ""
    reading = READING.format(items=group_items(span.group), moved=moved)
    return Chart(TITLE, panels, reading=reading)


def _line(
    line: Line, name: str, span: Span, y: Axis, points: int, **look: str | float | list[int]
) -> Spec:
    rows = [
        {"x": int(line.steps[i]), "y": round(float(line.mean[i]), 3), "name": name}
        for i in marks.thinned(len(line.steps), points)
    ]
    x = over_time.step_axis(span)
    place = {"x": x.of("x"), "y": y.of("y")}
    tooltip = [marks.word("name", title=" "), x.tooltip("x"), y.tooltip("y")]
    layers = [
        marks.mark("line", place, **look),
        marks.mark("point", {**place, "tooltip": tooltip}, opacity=0, filled=True, size=60),
    ]
    return marks.layered(layers, rows)


def _over_limit(running: Line, span: Span, y: Axis) -> Spec:
    steps, upper = over_limit(running, span)
    rows = [
        {"x": int(steps[i]), "y": round(float(upper[i]), 3), "limit": span.limit}
        for i in marks.thinned(len(steps), 200)
    ]
    encoding = {"x": over_time.step_axis(span).of("x"), "y": y.of("y"), "y2": {"field": "limit"}}
    return marks.mark("area", encoding, rows, color=BROKEN, opacity=0.45)


def _top(by_column: Mapping[str, Mapping[str, Line]], span: Span) -> float:
    """The end of the axis of all panels, so that they can be compared."""
    highest = [float(line.mean.max(initial=0)) for by in by_column.values() for line in by.values()]
    return 1.05 * max(*highest, span.limit if span.has_limit else 0, 1)


def verdict(steps: pl.DataFrame, method: str, span: Span) -> str:
    """How often the method was over the limit, mean over seeds, and by how much in the worst."""
    shares = over_time.lines(steps, "violation_share")[method].mean
    overshoot = over_time.lines(steps, "largest_overshoot")[method].high
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
