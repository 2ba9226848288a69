"""Accuracy against fairness, as in the paper's figure: a curve per method, a point per level.

curves: method without its level -> its rows, one for each level; the level of a single one may be
None.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
from matplotlib.figure import Figure
from rich.console import Group
from rich.text import Text

from fairhorizon.files import write_copies, written_together
from fairhorizon.metrics.hypervolume import dominated_area
from fairhorizon.report import grid
from fairhorizon.report.figures import save_figure, style
from fairhorizon.report.grid import Cell, Grid
from fairhorizon.report.page import (
    Section,
    chart_id,
    chart_section,
    commands_section,
    verbatim,
    write_page,
)
from fairhorizon.report.series import Style, legend, styles
from fairhorizon.report.tables import MISSING, group_items
from fairhorizon.results.studies import HypervolumeRow, OverSeeds, SummaryRow
from fairhorizon.vocabulary import POPULAR

Curves = Mapping[str, Sequence[OverSeeds]]

INTRO = (
    "Each line is one method at all its levels of fairness. Up is more accurate, right is fairer: "
    "a line above and to the right of another is better at every level."
)

# what fairness is drawn as, larger is fairer: metric -> offset of the negated metric
PLANES = {"gini": 0.0, "popularity_rate": 1.0}
CHART_NOTE = "Up and to the right is better. A line joins the levels of one method, in their order."
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
) -> None:
    """frontier.json for programs, frontier.png and frontier.html; `group` is the name of G0."""
    rows = [row for line in curves.values() for row in line]
    content = {
        "group": group,
        "rows": [row.to_json() | {"level": row.level} for row in rows],
        "hypervolume": [row.to_json() for row in hypervolume_rows(curves, k)],
    }
    save_figure(out / "frontier.png", frontier_figure(curves, k, group))
    write_page(
        out / "frontier.html",
        title=f"Accuracy and fairness on {rows[0].dataset}",
        intro=INTRO,
        sections=[*frontier_sections(curves, k, group), commands_section([command])],
    )
    write_copies(content, out / "frontier.json", json_file)


def rate_name(group: str) -> str:
    """What the share of the items outside of the group is called within a sentence."""
    return "long-tail rate" if group == POPULAR else "share of other items"


def plane_names(group: str) -> dict[str, str]:
    """What the fairness of each plane is called within a sentence."""
    return {"gini": "negative Gini", "popularity_rate": rate_name(group)}


def frontier_figure(curves: Curves, k: int = 20, group: str = POPULAR) -> Figure:
    """NDCG@K over the negative Gini index and over the share of items outside of the group."""
    series = _series(curves)
    looks = styles(series)
    rows_of_legend = math.ceil(len(series) / 4)
    figure = Figure(figsize=(10, 4.4 + 0.22 * rows_of_legend), layout="constrained")
    planes = plane_names(group).items()
    for axes, (metric, fairness) in zip(figure.subplots(1, 2), planes, strict=True):
        for name, rows in series.items():
            look = looks[name]
            axes.plot(
                [_fairness(row, metric, k) for row in rows],
                [_percent(row, f"ndcg@{k}") for row in rows],
                color=look.colour,
                marker=look.marker,
                markersize=5,
                linestyle=look.matplotlib_dash,
                linewidth=1.4,
                label=name if metric == "gini" else None,
            )
        style(axes, f"NDCG@{k} against {fairness}@{k}")
        axes.set(xlabel=f"{_capital(fairness)}@{k}, %", ylabel=f"NDCG@{k}, %")
    figure.legend(
        loc="outside lower center",
        ncols=min(4, len(series)),
        frameon=False,
        fontsize=9,
        handlelength=4,
    )
    return figure


def frontier_sections(
    curves: Curves, k: int = 20, group: str = POPULAR, *, subject: str = ""
) -> list[Section]:
    """Both planes as interactive charts, and what each method dominates; `subject` ends titles."""
    series = _series(curves)
    looks = styles(series)
    ending = f", {subject}" if subject else ""
    charts = []
    for metric, fairness in plane_names(group).items():
        title = f"NDCG@{k} against {fairness}@{k}{ending}"
        note = f"{CHART_NOTE}{_other_items(group)}" if metric == "popularity_rate" else CHART_NOTE
        chart = _chart(series, looks, metric, k, group)
        chart.update_xaxes(title_text=f"{_capital(fairness)}@{k}, %")
        section = chart_section(
            title, chart, note, height=460, showlegend=False, hovermode="closest"
        )
        buttons = legend(chart_id(title), dict(looks))
        charts.append(replace(section, html=buttons + section.html))
    area = _area_grid(hypervolume_rows(curves, k), k, group)
    return [*charts, Section(f"Dominated area{ending}", grid.html(area), area_note(group))]


def area_note(group: str) -> str:
    return AREA_NOTE.format(rate=rate_name(group)) + _other_items(group)


def _other_items(group: str) -> str:
    return "" if group == POPULAR else f" Other items: all but {group_items(group)}."


def _chart(
    series: Curves, looks: Mapping[str, Style], metric: str, k: int, group: str
) -> go.Figure:
    chart = go.Figure()
    for name, rows in series.items():
        look = looks[name]
        chart.add_scatter(
            x=[_fairness(row, metric, k) for row in rows],
            y=[_percent(row, f"ndcg@{k}") for row in rows],
            name=verbatim(name),
            mode="lines+markers",
            line={"color": look.colour, "width": 1.8, "dash": look.plotly_dash},
            marker={"color": look.colour, "symbol": look.symbol, "size": 8},
            text=[_hover(name, row, k, group) for row in rows],
            hovertemplate="%{text}<extra></extra>",
        )
    chart.update_yaxes(title_text=f"NDCG@{k}, %")
    return chart


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


def _hover(name: str, row: OverSeeds, k: int, group: str) -> str:
    std = row.spread(f"ndcg@{k}").std
    spread = f" ± {100 * std:.2f}" if std is not None and len(row.seeds) > 1 else ""
    lines = [
        f"<b>{verbatim(name)}</b>" + ("" if row.level is None else f" at {row.level:g}"),
        f"NDCG {_shown(row, f'ndcg@{k}')}{spread}",
        f"Gini {_shown(row, f'gini@{k}')}",
        f"{verbatim(group)} {_shown(row, f'popularity_rate@{k}')}",
    ]
    return "<br>".join(lines)


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
    return Group(grid.terminal(replace(area, caption=caption)), Text(area_note(group)))


def _area_grid(rows: Sequence[HypervolumeRow], k: int, group: str) -> Grid:
    rate = "long-tail" if group == POPULAR else "other items"
    headings = ("Method", "Levels", f"NDCG@{k} x (1 - Gini)", f"NDCG@{k} x {rate}")
    lines = [
        [
            Cell(row.method),
            Cell(str(row.levels), row.levels),
            grid.percent(row.gini_area),
            grid.percent(row.popularity_area),
        ]
        for row in rows
    ]
    return Grid(headings, grid.placed(lines, {2: "more", 3: "more"}), 3)
