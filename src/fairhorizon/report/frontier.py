"""Accuracy against fairness, as in the paper's figure: a curve per method, a point per level.

curves: method without its level -> its rows, one for each level; the level of a single one may be
None.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group
from rich.text import Text

from fairhorizon.files import write_copies, written_together
from fairhorizon.metrics.hypervolume import dominated_area
from fairhorizon.report import charts
from fairhorizon.report.charts import Axis, Chart, Spec, Style, save_figure, styles_of
from fairhorizon.report.limits import (
    best_sentence,
    limit_content,
    limits_sentence,
    methods_section,
    of_row,
)
from fairhorizon.report.page import Page, Section, commands_section
from fairhorizon.report.tables import (
    MISSING,
    Cell,
    Grid,
    group_items,
    percent_cell,
    placed,
    terminal,
    write_grids,
)
from fairhorizon.studies.compare import HypervolumeRow
from fairhorizon.studies.rows import LimitRow, OverSeeds, SummaryRow
from fairhorizon.vocabulary import POPULAR

Curves = Mapping[str, Sequence[OverSeeds]]

INTRO = (
    "Each line is one method at all its levels of fairness. Up is more accurate, right is fairer: "
    "a line above and to the right of another is better at every level."
)

# What fairness is drawn as, larger is fairer: metric -> offset of the negated metric.
PLANES = {"gini": 0.0, "popularity_rate": 1.0}
READING = (
    "Up and to the right is better. A line joins the levels of one method, in their order; the "
    "number at a point is its level."
)
AREA_NOTE = (
    "In percent: the area of all points (NDCG, 1 - Gini), or (NDCG, {rate}), that some level of "
    "the method dominates. More levels can only enlarge it: compare methods that ran at equally "
    "many levels."
)


@written_together()
def write_frontier(
    out: Path,
    curves: Mapping[str, Sequence[SummaryRow]],
    k: int,
    *,
    group: str = POPULAR,
    command: str = "",
    json_file: Path | None = None,
    limits: Sequence[LimitRow] = (),
    made_by: Mapping[str, Any] | None = None,
) -> None:
    """frontier.json, .csv and .tex, index.html, and the figure as PNG, SVG and PDF.

    group: the name of G0; limits: those that were measured, if any; made_by: what made the rows,
    for frontier.json.
    """
    rows = [row for line in curves.values() for row in line]
    content = {
        "group": group,
        "rows": [row.to_json() | {"level": row.level} for row in rows],
        "hypervolume": [row.to_json() for row in hypervolume_rows(curves, k)],
        **limit_content(limits),
        **({"made_by": made_by} if made_by else {}),
    }
    measured = [methods_section(limits)] if limits else []
    write_grids(out, {"frontier": _area_grid(hypervolume_rows(curves, k), k, group)})
    save_figure(out, "frontier", frontier_chart(curves, k, group))
    best = best_sentence(rows, f"ndcg@{k}", f"NDCG@{k}")
    kept = limits_sentence([of_row(row, k) for row in rows], group)
    page = Page(
        title=f"Accuracy and fairness on {rows[0].dataset}",
        finding=" ".join([best, *largest_area(curves, k, group), kept]),
        intro=INTRO,
        sections=[*frontier_sections(curves, k, group), *measured, commands_section([command])],
    )
    page.write(out / "index.html")
    write_copies(content, out / "frontier.json", json_file)


def rate_name(group: str) -> str:
    """What the share of the items outside of the group is called within a sentence."""
    return "long-tail rate" if group == POPULAR else "share of other items"


def plane_names(group: str) -> dict[str, str]:
    """What the fairness of each plane is called within a sentence."""
    return {"gini": "negative Gini", "popularity_rate": rate_name(group)}


def largest_area(curves: Curves, k: int, group: str) -> list[str]:
    """A sentence on the method with the best trade-off, where there are several."""
    rows = hypervolume_rows(curves, k)
    if len(rows) < 2:
        return []
    area = f"{rows[0].popularity_area:.2%}".replace("%", " %")
    return [
        f"Over all levels {rows[0].method} dominates most: {area} of NDCG x {rate_name(group)}."
    ]


def frontier_chart(
    curves: Curves, k: int = 20, group: str = POPULAR, *, subject: str = ""
) -> Chart:
    """NDCG@K over the negative Gini index and over the share of items outside of the group."""
    series = _series(curves)
    styles = styles_of(series)
    panels = []
    for metric, fairness in plane_names(group).items():
        x, y = Axis(f"{_capital(fairness)}@{k}, %"), Axis(f"NDCG@{k}, %")
        layers = _layers(series, styles, metric, k, group, x, y)
        title = f"NDCG@{k} against {fairness}@{k}"
        panels.append(charts.panel(layers, height=380, title=title))
    title = "Accuracy against fairness" + (f", {subject}" if subject else "")
    return Chart(title, panels, styles, reading=READING + _other_items(group))


def frontier_sections(
    curves: Curves, k: int = 20, group: str = POPULAR, *, subject: str = ""
) -> list[Section]:
    """Both planes, and what each method dominates; `subject` ends titles."""
    chart = frontier_chart(curves, k, group, subject=subject)
    area = _area_grid(hypervolume_rows(curves, k), k, group)
    title = "Dominated area" + (f", {subject}" if subject else "")
    return [Section(chart.title, [chart]), Section(title, [area], area_note(group))]


def area_note(group: str) -> str:
    return AREA_NOTE.format(rate=rate_name(group)) + _other_items(group)


def _other_items(group: str) -> str:
    return "" if group == POPULAR else f" Other items: all but {group_items(group)}."


def _layers(
    series: Curves,
    styles: Mapping[str, Style],
    metric: str,
    k: int,
    group: str,
    x: Axis,
    y: Axis,
) -> list[Spec]:
    """Lines and points, and beside each point its level, on the side that has room."""
    rows: list[dict[str, Any]] = [
        {"series": name, "x": _fairness(row, metric, k), "y": _percent(row, f"ndcg@{k}")}
        | {"level": "" if row.level is None else f"{row.level:g}", "marked": 1}
        | {"ndcg": _hover(row, k), "gini": _shown(row, f"gini@{k}")}
        | {"share": _shown(row, f"popularity_rate@{k}")}
        for name, own in series.items()
        for row in own
    ]
    names = {"level": "Level", "ndcg": "NDCG, %", "gini": "Gini, %", "share": f"{group}, %"}
    more = [charts.word(field, title=title) for field, title in names.items()]
    sides = sides_of([(row["x"], row["y"], len(row["level"])) for row in rows])
    rows = [row | {"side": side.value} for row, side in zip(rows, sides, strict=True)]
    drawn = charts.lines(rows, charts.by_series(styles), x, y)
    line, points = drawn["layer"]
    points["encoding"]["tooltip"] = [charts.word("series", title=" "), *more]
    # A text without room is shown when its line is pointed at.
    texts = [
        charts.mark(
            "text",
            {
                **{"x": x.of("x"), "y": y.of("y"), "text": charts.word("level")},
                "opacity": charts.if_(charts.IS_FOCUS, 1, 0)
                if side is Side.NONE
                else charts.in_focus(),
            },
            fontSize=10,
            **style,
        )
        | {"transform": [{"filter": f"datum.side == '{side.value}'"}]}
        for side, style in SIDES.items()
        if side.value in {row["side"] for row in rows}
    ]
    return [drawn | {"layer": [line, points, *texts]}]


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _series(curves: Curves) -> dict[str, list[OverSeeds]]:
    """Every method's rows in the order of its level; a method without rows is left out."""
    return {
        name: sorted(rows, key=lambda row: row.level or 0.0)
        for name, rows in curves.items()
        if rows
    }


def _mean(row: OverSeeds, metric: str) -> float:
    """NaN where it was not measured: no chart draws that."""
    value = row.spread(metric).mean
    return math.nan if value is None else value


def _percent(row: OverSeeds, metric: str) -> float | None:
    value = row.spread(metric).mean
    return None if value is None else 100 * value


def _fairness(row: OverSeeds, metric: str, k: int) -> float | None:
    value = row.spread(f"{metric}@{k}").mean
    return None if value is None else 100 * (PLANES[metric] - value)


def _hover(row: OverSeeds, k: int) -> str:
    std = row.spread(f"ndcg@{k}").std
    spread = f" ± {100 * std:.2f}" if std is not None and len(row.seeds) > 1 else ""
    return f"{_shown(row, f'ndcg@{k}')}{spread}"


def _shown(row: OverSeeds, metric: str) -> str:
    value = _percent(row, metric)
    return MISSING if value is None else f"{value:.2f}"


def hypervolume_rows(curves: Curves, k: int = 20) -> list[HypervolumeRow]:
    """For each method the area it dominates above the origin, largest first."""
    rows = []
    for name, levels in _series(curves).items():
        accuracy = [_mean(row, f"ndcg@{k}") for row in levels]
        by_gini, by_rate = (
            dominated_area(
                np.column_stack([accuracy, [1 - _mean(row, f"{plane}@{k}") for row in levels]])
            )
            for plane in PLANES
        )
        rows.append(HypervolumeRow(name, len(levels), by_gini, by_rate))
    return sorted(rows, key=lambda row: (-row.popularity_area, -row.gini_area))


def hypervolume_table(
    curves: Curves, k: int = 20, group: str = POPULAR, *, caption: str = "Dominated area"
) -> Group:
    """For a terminal."""
    area = _area_grid(hypervolume_rows(curves, k), k, group)
    return Group(terminal(replace(area, caption=caption)), Text(area_note(group)))


def _area_grid(rows: Sequence[HypervolumeRow], k: int, group: str) -> Grid:
    rate = "long-tail" if group == POPULAR else "other items"
    headings = ("Method", "Levels", f"NDCG@{k} x (1 - Gini)", f"NDCG@{k} x {rate}")
    lines = [
        [
            Cell(row.method),
            Cell(str(row.levels), row.levels),
            percent_cell(row.gini_area),
            percent_cell(row.popularity_area),
        ]
        for row in rows
    ]
    return Grid(headings, placed(lines, {2: "more", 3: "more"}), 3)


# ---- Where to write beside the points of a chart: neither on points nor on other texts -----------

Box = tuple[float, float, float, float]  # left, bottom, right, top

# Sizes of a panel in letters: a letter is 6 pixels wide and 11 high.
PANEL_WIDTH, PANEL_HEIGHT = 58.0, 34.0
POINT = 0.6  # half the width of a point


class Side(Enum):
    """Of a point, where its text stands."""

    ABOVE = "above"
    BELOW = "below"
    RIGHT = "right"
    LEFT = "left"
    NONE = "none"  # no room


# The properties of a text mark.
SIDES: dict[Side, dict[str, Any]] = {
    Side.ABOVE: {"dy": -10},
    Side.BELOW: {"dy": 11},
    Side.RIGHT: {"dx": 7, "align": "left"},
    Side.LEFT: {"dx": -7, "align": "right"},
    Side.NONE: {"dy": -10},
}


def sides_of(points: Sequence[tuple[float | None, float | None, int]]) -> list[Side]:
    """The side of each point (x, y, letters) with room, taken one after the other."""
    placed = _in_letters(points)
    # All points are obstacles from the start, texts as they are placed; NaN is not equal to itself.
    taken = [_around(x, y, POINT, POINT) for x, y in placed if x == x]
    sides = []
    for (x, y), (_, _, letters) in zip(placed, points, strict=True):
        for side in SIDES:
            box = _box(x, y, letters, side)
            if side is Side.NONE or not any(_overlap(box, other) for other in taken):
                break
        sides.append(side)
        if side is not Side.NONE:
            taken.append(box)
    return sides


def _in_letters(
    points: Sequence[tuple[float | None, float | None, int]],
) -> list[tuple[float, float]]:
    """Points on the panel; NaN where there is none."""
    known = [(x, y) for x, y, _ in points if x is not None and y is not None]
    if not known:
        return [(float("nan"), float("nan"))] * len(points)
    (left, bottom), (right, top) = (
        tuple(edge(values) for values in zip(*known, strict=True)) for edge in (min, max)
    )
    across, up = (right - left) or 1.0, (top - bottom) or 1.0
    return [
        (PANEL_WIDTH * (x - left) / across, PANEL_HEIGHT * (y - bottom) / up)
        if x is not None and y is not None
        else (float("nan"), float("nan"))
        for x, y, _ in points
    ]


def _box(x: float, y: float, letters: int, side: Side) -> Box:
    half = letters / 2
    right, up = {
        Side.RIGHT: (1.2 + half, 0.0),
        Side.LEFT: (-1.2 - half, 0.0),
        Side.BELOW: (0.0, -1.1),
    }.get(side, (0.0, 1.1))
    return _around(x + right, y + up, half, 0.45)


def _around(x: float, y: float, width: float, height: float) -> Box:
    return x - width, y - height, x + width, y + height


def _overlap(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
