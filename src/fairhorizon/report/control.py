"""How well the limit is kept at every step: a panel per method, means over seeds."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import polars as pl
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from fairhorizon.report import over_time, page
from fairhorizon.report.figures import COLOURS, as_written
from fairhorizon.report.over_time import Line, Span
from fairhorizon.report.page import Section, chart_id, chart_section
from fairhorizon.report.series import MARKERS, Style, legend
from fairhorizon.report.tables import group_items

TITLE = "The limit at every moment"
OVER = COLOURS[3]  # where the limit is broken
OVER_OPACITY = 0.35
RUNNING = "popularity_rate"  # what the limit is on
# column -> what it is called, and its look; the running rate lies on top
SERIES = {
    "step_popularity_rate_initial": (
        "this step, by the groups at the start",
        Style(COLOURS[1], *MARKERS[1], (2, 2)),
    ),
    "step_popularity_rate": (
        "this step, by the groups of the moment",
        Style(COLOURS[5], *MARKERS[2], ()),
    ),
    RUNNING: (
        "all shown so far, by the groups of their moment",
        Style(COLOURS[0], *MARKERS[0], ()),
    ),
}
NOTE = (
    "The share of {items} in what is shown. The limit holds for the line of all shown so "
    "far; where that line is above it after the warm-up, the gap is filled. {moved}Means over "
    "seeds, but the points are those of the worst seed; grey: the warm-up."
)
MOVED = (
    "Where the two lines of single steps part, groups have moved: what was popular at the start no "
    "longer is, or other items have become so. "
)


def control_figure(steps: pl.DataFrame, span: Span) -> Figure:
    """The group's share of each step by both groupings, and of all so far, against the limit."""
    methods = over_time.methods_of(steps)
    n_columns = min(2, len(methods))
    n_rows = math.ceil(len(methods) / n_columns)
    figure = Figure(figsize=(11, 2.8 * n_rows + 0.9), layout="constrained")
    grid = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True)
    by_column = {column: over_time.lines(steps, column) for column in SERIES}
    grid.flat[0].set_ylim(0, _top(by_column, span))
    share = as_written(over_time.shortened(span.share_title))
    for position, (axes, method) in enumerate(zip(grid.flat, methods, strict=False)):
        for number, (column, (label, look)) in enumerate(SERIES.items()):
            line = by_column[column][method].without_band()
            start, width = number / len(SERIES), 2 if column == RUNNING else 1
            over_time.draw(axes, line, look, label=label, start=start, width=width)
        area = over_limit(by_column[RUNNING][method], span)
        axes.fill_between(*area, span.limit, color=OVER, alpha=OVER_OPACITY, linewidth=0)
        over_time.draw_limit(axes, span)
        title = over_time.shortened(method)
        over_time.step_axes(axes, title, span, remark=verdict(steps, method, span))
        axes.set_xlabel("Step" if position >= len(methods) - n_columns else "")
        axes.set_ylabel(share if position % n_columns == 0 else "")
    for axes in grid.flat[len(methods) :]:
        axes.remove()
    over = Patch(color=OVER, alpha=OVER_OPACITY, linewidth=0, label="over the limit")
    figure.legend(
        handles=[*grid.flat[0].lines[: len(SERIES)], over, *over_time.keys(span)],
        loc="outside lower center",
        ncols=2,
        frameon=False,
        fontsize=9,
        handlelength=4,
    )
    return figure


def control_section(steps: pl.DataFrame, span: Span) -> Section:
    """The same for the page, a small chart per method."""
    by_column = {column: over_time.lines(steps, column) for column in SERIES}
    top = _top(by_column, span)
    charts = []
    for method in over_time.methods_of(steps):
        chart = make_subplots(rows=1, cols=1, x_title="Step")
        for column, (label, look) in SERIES.items():
            line = by_column[column][method].without_band()
            over_time.add(chart, line, look, label, width=2.5 if column == RUNNING else 1.2)
        _add_over_limit(chart, by_column[RUNNING][method], span)
        over_time.add_span(chart, span, limit_in=1)
        chart.update_yaxes(title_text=page.verbatim(span.share_title), range=[0, top])
        section = chart_section(
            _chart_title(method), chart, height=300, showlegend=False, margin=over_time.MARGIN
        )
        charts.append(replace(section, title=method, note=verdict(steps, method, span)))
    ids = " ".join(chart_id(_chart_title(chart.title)) for chart in charts)
    buttons = legend(ids, dict(SERIES.values()), traces=2)
    moved = MOVED if span.has_moving_groups else ""
    note = NOTE.format(items=group_items(span.group), moved=moved)
    return Section(TITLE, buttons + page.panels(charts), note)


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


def _add_over_limit(chart: go.Figure, running: Line, span: Span) -> None:
    steps, upper = over_limit(running, span)
    kept = page.thinned(len(steps), page.MAX_POINTS)
    xs = steps[kept].tolist()
    chart.add_scatter(
        x=[*xs, *reversed(xs)],
        y=[*np.round(upper[kept], 4).tolist(), *[span.limit] * len(xs)],
        mode="lines",
        line={"width": 0},
        fill="toself",
        fillcolor=over_time.faded(OVER, OVER_OPACITY),
        hoverinfo="skip",
    )


def _chart_title(method: str) -> str:
    return f"{TITLE}, {method}"
