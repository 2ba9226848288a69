"""Accuracy at levels of fairness: a table a level, and ours against the best rival of each.

rows, gains: as experiments/levels.py makes them.
"""

from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.figure import Figure
from rich.console import Group

from fairhorizon.report import grid
from fairhorizon.report.frontier import frontier_figure
from fairhorizon.report.grid import Cell, Grid
from fairhorizon.report.tables import METRICS, MISSING, Row, format_value, units

COLUMNS = ("ndcg", "gini", "popularity_rate", "recall")
BEST_RIVAL, ABOVE = " ^", " !"
NOTE = (
    "A rival is picked with hindsight, in its favour: of its settings whose test lists keep the "
    "level, under each seed the one with the best NDCG on the test items. FCPO is served at the "
    "level itself, without any choice."
)
BEST_RIVAL_NOTE = "^ the best rival."
ABOVE_NOTE = "! under some seed the popularity rate is over the level by more than 0.05 points."
MISSED_NOTE = "n of m seeds: under the others no setting keeps the level."
GAINS_NOTE = (
    "Gain: of NDCG over the best rival, relative, in percent. Gini and Pop.: the difference to "
    "that rival in percentage points. p: two-sided t-test, paired over users."
)


def levels_table(rows: Sequence[Row], gains: Sequence[Row], k: int = 20) -> Group:
    """For a terminal."""
    parts: list[Any] = []
    for block in _blocks(rows, k):
        parts += [grid.terminal(block), ""]
    parts.append(f"{units(COLUMNS)} {grid.LEGEND}. {_notes(rows)}")
    if gains:
        caption = "FCPO against the best rival"
        parts += ["", grid.terminal(_gains_grid(gains, k, caption)), GAINS_NOTE]
    return Group(*parts)


def levels_markdown(rows: Sequence[Row], gains: Sequence[Row], k: int = 20) -> str:
    """For GitHub: best bold, second italic."""
    parts = [grid.markdown(block) for block in _blocks(rows, k)]
    parts.append(f"{units(COLUMNS)} Best **bold**, second _italic_. {_notes(rows)}")
    if gains:
        parts += [grid.markdown(_gains_grid(gains, k, "FCPO against the best rival")), GAINS_NOTE]
    return "\n\n".join(parts) + "\n"


def levels_figure(rows: Sequence[Row], k: int = 20) -> Figure:
    """What each method reaches at the levels, as a frontier."""
    curves: dict[str, list[Row]] = {}
    for row in rows:
        curves.setdefault(row["method"], []).append(row)
    return frontier_figure(curves, k)


def _notes(rows: Sequence[Row]) -> str:
    said = {
        BEST_RIVAL_NOTE: any(row["best_rival"] for row in rows),
        ABOVE_NOTE: any(row["above"] for row in rows),
        MISSED_NOTE: any(None in row["settings"] for row in rows),
        NOTE: True,
    }
    return " ".join(note for note, applies in said.items() if applies)


def _blocks(rows: Sequence[Row], k: int) -> list[Grid]:
    """A grid a level."""
    blocks = []
    for level in dict.fromkeys(row["level"] for row in rows):
        same = [row for row in rows if row["level"] == level]
        first, seeds = same[0], len(same[0]["seeds"])
        caption = (
            f"Popularity rate@{k} of at most {100 * level:g} %: {first['dataset']}, "
            f"{first['protocol']} protocol, {first['mode']}, {seeds} seed{'s' * (seeds > 1)}"
        )
        better: dict[int, Literal["more", "less"]] = {}
        for column, metric in enumerate(COLUMNS, 2):
            direction = METRICS[metric].better
            if direction != "zero" and metric != "popularity_rate":  # it is given, and no merit
                better[column] = direction
        headings = ["Method", "Dial", *(METRICS[metric].heading for metric in COLUMNS)]
        lines = grid.placed([_line(row, k) for row in same], better)
        blocks.append(Grid(headings, lines, len(COLUMNS), caption))
    return blocks


def _line(row: Row, k: int) -> list[Cell]:
    mark = (BEST_RIVAL if row["best_rival"] else "") + (ABOVE if row["above"] else "")
    return [
        Cell(row["method"] + mark),
        Cell(_dials(row["settings"])),
        *(_cell(row, metric, k) for metric in COLUMNS),
    ]


def _dials(settings: Sequence[str | None]) -> str:
    """Where the dial stood, from the least to the most over the seeds."""
    if None in settings:
        reached = sum(setting is not None for setting in settings)
        return f"{reached} of {len(settings)} seeds"
    dials = [float(setting.partition("@")[2]) for setting in settings if setting and "@" in setting]
    if not dials:
        return MISSING
    low, high = f"{min(dials):g}", f"{max(dials):g}"
    return low if low == high else f"{low} to {high}"


def _cell(row: Row, metric: str, k: int) -> Cell:
    found = row["metrics"].get(f"{metric}@{k}") or {}
    mean, std = found.get("mean"), found.get("std")
    has_spread = mean is not None and std is not None and len(row["seeds"]) > 1
    spread = f"±{format_value(metric, std)}" if has_spread else ""
    return Cell(format_value(metric, mean), mean, spread)


def _gains_grid(gains: Sequence[Row], k: int, caption: str) -> Grid:
    headings = ("Level", "Method", "Best rival", f"NDCG@{k}", "Rival", "Gain", "Gini", "Pop.", "p")
    lines = [
        [
            Cell(f"{100 * row['level']:g} %"),
            Cell(row["method"]),
            Cell(row["rival"]),
            *(_percent(row[key]) for key in ("ndcg", "rival_ndcg")),
            *(_percent(row[key]) for key in ("gain", "gini_difference", "rate_difference")),
            _p_value(row["t_test"]),
        ]
        for row in gains
    ]
    return Grid(headings, lines, len(headings) - 3, caption)


def _percent(value: float | None) -> Cell:
    return grid.number(None if value is None else 100 * value)


def _p_value(p: float | None) -> Cell:
    return Cell("<0.001", p) if p is not None and p < 0.001 else grid.number(p, 3)
