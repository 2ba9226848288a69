"""Accuracy against fairness, as in the paper's figure: a curve a method, a point a level.

curves: method without its level -> its rows, each with a "level"; points: rows of methods without.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
from matplotlib.figure import Figure
from rich.console import Group

from fairhorizon.metrics.hypervolume import dominated_area
from fairhorizon.report import grid
from fairhorizon.report.figures import style
from fairhorizon.report.grid import Cell, Grid
from fairhorizon.report.page import Section, chart_id, chart_section, verbatim
from fairhorizon.report.series import Style, legend, styles
from fairhorizon.report.tables import MISSING, Row

Curves = Mapping[str, Sequence[Row]]

# what fairness is drawn as, larger is fairer: metric -> (name, offset of the negated metric)
PLANES = {"gini": ("Negative Gini", 0.0), "popularity_rate": ("Long-tail rate", 1.0)}
AREA_NOTE = (
    "In percent: the area of all points (NDCG, 1 - Gini), or (NDCG, long-tail rate), that some "
    "level of the method dominates. More levels can only add to it: compare methods whose dial was "
    "swept alike."
)


def frontier_figure(curves: Curves, k: int = 20, *, points: Sequence[Row] = ()) -> Figure:
    """NDCG@K over the negative Gini index and over the long-tail rate, in percent."""
    series = _series(curves, points)
    looks = styles(series)
    rows_of_legend = math.ceil(len(series) / 4)
    figure = Figure(figsize=(10, 4.4 + 0.22 * rows_of_legend), layout="constrained")
    for axes, (metric, (fairness, _)) in zip(figure.subplots(1, 2), PLANES.items(), strict=True):
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
        style(axes, f"NDCG@{k} against {fairness[0].lower()}{fairness[1:]}@{k}")
        axes.set(xlabel=f"{fairness}@{k}, %", ylabel=f"NDCG@{k}, %")
    figure.legend(
        loc="outside lower center",
        ncols=min(4, len(series)),
        frameon=False,
        fontsize=9,
        handlelength=4,
    )
    return figure


def frontier_sections(
    curves: Curves, k: int = 20, *, points: Sequence[Row] = (), subject: str = ""
) -> list[Section]:
    """Both planes as interactive charts, and what each method dominates; `subject` ends titles."""
    series = _series(curves, points)
    looks = styles(series)
    ending = f", {subject}" if subject else ""
    charts = []
    for metric, (fairness, _) in PLANES.items():
        title = f"NDCG@{k} against {fairness[0].lower()}{fairness[1:]}@{k}{ending}"
        charts.append(_chart(title, fairness, metric, series, looks, k))
    area = _area_grid(hypervolume_rows(curves, k, points=points), k)
    return [*charts, Section(f"Dominated area{ending}", grid.html(area), AREA_NOTE)]


def _chart(
    title: str,
    fairness: str,
    metric: str,
    series: Curves,
    looks: Mapping[str, Style],
    k: int,
) -> Section:
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
            text=[_hover(name, row, k) for row in rows],
            hovertemplate="%{text}<extra></extra>",
        )
    chart.update_xaxes(title_text=f"{fairness}@{k}, %")
    chart.update_yaxes(title_text=f"NDCG@{k}, %")
    note = "Up and to the right is better. A line joins the levels of one method, in their order."
    section = chart_section(title, chart, note, height=460, showlegend=False, hovermode="closest")
    return replace(section, html=legend(chart_id(title), dict(looks)) + section.html)


def _series(curves: Curves, points: Sequence[Row]) -> dict[str, list[Row]]:
    """Every method's rows in the order of its level; a row that was not measured is left out."""
    series = {name: sorted(rows, key=_level) for name, rows in curves.items()}
    for row in points:
        series.setdefault(row["method"], []).append(row)
    return {name: rows for name, rows in series.items() if rows}


def _level(row: Row) -> Any:
    return row["level"]


def _mean(row: Row, key: str) -> float:
    """NaN where it was not measured: no chart draws that."""
    value = (row["metrics"].get(key) or {}).get("mean")
    return math.nan if value is None else float(value)


def _percent(row: Row, key: str) -> float | None:
    value = _mean(row, key)
    return None if math.isnan(value) else 100 * value


def _fairness(row: Row, metric: str, k: int) -> float | None:
    value = _mean(row, f"{metric}@{k}")
    return None if math.isnan(value) else 100 * (PLANES[metric][1] - value)


def _hover(name: str, row: Row, k: int) -> str:
    level = row.get("level")
    std = (row["metrics"].get(f"ndcg@{k}") or {}).get("std")
    spread = f" ± {100 * std:.2f}" if std is not None and len(row.get("seeds", ())) > 1 else ""
    lines = [
        f"<b>{verbatim(name)}</b>" + ("" if level is None else f" at {verbatim(_text(level))}"),
        f"NDCG {_shown(row, f'ndcg@{k}')}{spread}",
        f"Gini {_shown(row, f'gini@{k}')}",
        f"popular {_shown(row, f'popularity_rate@{k}')}",
    ]
    return "<br>".join(lines)


def _text(level: Any) -> str:
    return f"{level:g}" if isinstance(level, float) else str(level)


def _shown(row: Row, key: str) -> str:
    value = _percent(row, key)
    return MISSING if value is None else f"{value:.2f}"


def hypervolume_rows(
    curves: Curves, k: int = 20, *, points: Sequence[Row] = ()
) -> list[dict[str, Any]]:
    """For each method the area it dominates above the origin, as a fraction, largest first.

    gini_area: of (NDCG, 1 - Gini); popularity_area: of (NDCG, 1 - popularity rate).
    """
    rows = []
    for name, levels in _series(curves, points).items():
        accuracy = [_mean(row, f"ndcg@{k}") for row in levels]
        areas = {
            f"{plane.removesuffix('_rate')}_area": dominated_area(
                np.column_stack([accuracy, [1 - _mean(row, f"{plane}@{k}") for row in levels]])
            )
            for plane in PLANES
        }
        rows.append({"method": name, "levels": len(levels), **areas})
    return sorted(rows, key=lambda row: (-row["popularity_area"], -row["gini_area"]))


def hypervolume_table(
    curves: Curves, k: int = 20, *, points: Sequence[Row] = (), caption: str = "Dominated area"
) -> Group:
    """For a terminal."""
    area = _area_grid(hypervolume_rows(curves, k, points=points), k)
    return Group(grid.terminal(replace(area, caption=caption)), AREA_NOTE)


def hypervolume_markdown(curves: Curves, k: int = 20, *, points: Sequence[Row] = ()) -> str:
    """For GitHub."""
    area = _area_grid(hypervolume_rows(curves, k, points=points), k)
    return f"{grid.markdown(area)}\n\n{AREA_NOTE}\n"


def _area_grid(rows: Sequence[Row], k: int) -> Grid:
    headings = ("Method", "Levels", f"NDCG@{k} x (1 - Gini)", f"NDCG@{k} x long-tail")
    lines = [
        [
            Cell(row["method"]),
            Cell(str(row["levels"]), row["levels"]),
            grid.number(100 * row["gini_area"]),
            grid.number(100 * row["popularity_area"]),
        ]
        for row in rows
    ]
    return Grid(headings, grid.placed(lines, {2: "more", 3: "more"}), 3)
