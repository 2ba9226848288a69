"""Accuracy at levels of fairness: a table per level, and ours against the best rival."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure
from rich.console import Group
from rich.text import Text

from fairhorizon.files import write_copies, write_text, written_together
from fairhorizon.report import grid
from fairhorizon.report.comparison import metric_cell
from fairhorizon.report.figures import save_figure
from fairhorizon.report.frontier import frontier_figure
from fairhorizon.report.grid import Cell, Grid
from fairhorizon.report.marks import mark_notes, marked
from fairhorizon.report.tables import MISSING, group_items, metric_columns, short_title, units
from fairhorizon.results.studies import GainRow, LevelRow
from fairhorizon.vocabulary import POPULAR

COLUMNS = ("ndcg", "gini", "popularity_rate", "recall")
BEST_RIVAL, ABOVE = " ^", " !"
NOTE = (
    "A rival is picked with hindsight, in its favour: of its settings whose test lists keep the "
    "level, under each seed the one with the best NDCG on the test items. FCPO is served at the "
    "level itself, without any choice."
)
BEST_RIVAL_NOTE = "^ the best rival."
ABOVE_NOTE = "! under some seed the share is above the level by more than 0.05 points."
MISSED_NOTE = "n of m seeds: under the others no setting keeps the level."
GAINS_NOTE = (
    "Gain: of NDCG over the best rival, relative, in percent. Gini and {share}: the difference to "
    "that rival in percentage points. p: two-sided t-test, paired over users."
)


@written_together()
def write_levels(
    out: Path,
    rows: Sequence[LevelRow],
    gains: Sequence[GainRow],
    k: int,
    *,
    group: str = POPULAR,
    command: str = "",
    json_file: Path | None = None,
) -> None:
    """levels.json for programs, levels.md and levels.png; `group` is the name of G0."""
    content = {
        "command": command,
        "group": group,
        "k": k,
        "levels": list(dict.fromkeys(row.level for row in rows)),
        "note": NOTE,
        "rows": [row.to_json() for row in rows],
        "gains": [row.to_json() for row in gains],
    }
    write_copies(content, out / "levels.json", json_file)
    write_text(out / "levels.md", levels_markdown(rows, gains, k, group))
    save_figure(out / "levels.png", levels_figure(rows, k, group))


def levels_table(
    rows: Sequence[LevelRow], gains: Sequence[GainRow], k: int = 20, group: str = POPULAR
) -> Group:
    """For a terminal."""
    parts: list[Any] = []
    for block in _blocks(rows, k, group):
        parts += [grid.terminal(block), ""]
    parts.append(Text(f"{units(COLUMNS)} {grid.LEGEND}. {_notes(rows)}"))
    if gains:
        parts += ["", grid.terminal(_gains_grid(gains, k, group)), Text(_gains_note(group))]
    return Group(*parts)


def levels_markdown(
    rows: Sequence[LevelRow], gains: Sequence[GainRow], k: int = 20, group: str = POPULAR
) -> str:
    """For GitHub: best bold, second italic."""
    parts = [grid.markdown(block) for block in _blocks(rows, k, group)]
    parts.append(f"{units(COLUMNS)} Best **bold**, second _italic_. {_notes(rows)}")
    if gains:
        parts += [grid.markdown(_gains_grid(gains, k, group)), _gains_note(group)]
    return "\n\n".join(parts) + "\n"


def levels_figure(rows: Sequence[LevelRow], k: int = 20, group: str = POPULAR) -> Figure:
    """The accuracy of each method at the levels, as a frontier."""
    curves: dict[str, list[LevelRow]] = {}
    for row in rows:
        curves.setdefault(row.method, []).append(row)
    return frontier_figure(curves, k, group)


def _notes(rows: Sequence[LevelRow]) -> str:
    applicable = {
        BEST_RIVAL_NOTE: any(row.best_rival for row in rows),
        ABOVE_NOTE: any(row.above for row in rows),
        MISSED_NOTE: any(None in row.settings for row in rows),
        NOTE: True,
    }
    notes = [note for note, applies in applicable.items() if applies]
    return " ".join([*mark_notes(rows), *notes])


def _gains_note(group: str) -> str:
    return GAINS_NOTE.format(share=short_title(group))


def _blocks(rows: Sequence[LevelRow], k: int, group: str) -> list[Grid]:
    """A grid per level."""
    blocks, columns = [], metric_columns(group)
    for level in dict.fromkeys(row.level for row in rows):
        same = [row for row in rows if row.level == level]
        first = same[0]
        caption = (
            f"At most {100 * level:g} % {group_items(group)} in lists of {k}: {first.dataset}, "
            f"{first.protocol} protocol, {first.mode}, {grid.counted(len(first.seeds))}"
        )
        better: dict[int, Literal["more", "less"]] = {}
        for column, metric in enumerate(COLUMNS, 2):
            direction = columns[metric].better
            if direction != "zero" and metric != "popularity_rate":  # the level sets it
                better[column] = direction
        headings = ["Method", "Dial", *(columns[metric].heading for metric in COLUMNS)]
        lines = grid.placed([_line(row, k) for row in same], better)
        blocks.append(Grid(headings, lines, len(COLUMNS), caption))
    return blocks


def _line(row: LevelRow, k: int) -> list[Cell]:
    mark = (BEST_RIVAL if row.best_rival else "") + (ABOVE if row.above else "")
    return [
        Cell(marked(row) + mark),
        Cell(_dials(row)),
        *(metric_cell(row, metric, k) for metric in COLUMNS),
    ]


def _dials(row: LevelRow) -> str:
    """Where the dial stood, from the least to the most over the seeds."""
    if None in row.settings:
        reached = sum(setting is not None for setting in row.settings)
        return f"{reached} of {len(row.settings)} seeds"
    if not row.dials:
        return MISSING
    low, high = f"{min(row.dials):g}", f"{max(row.dials):g}"
    return low if low == high else f"{low} to {high}"


def _gains_grid(gains: Sequence[GainRow], k: int, group: str) -> Grid:
    headings = (
        *("Level", "Method", "Best rival", f"NDCG@{k}", "Rival", "Gain", "Gini"),
        *(short_title(group), "p"),
    )
    lines = [
        [
            Cell(f"{100 * row.level:g} %"),
            Cell(row.method),
            Cell(row.rival),
            *(grid.percent(value) for value in (row.ndcg, row.rival_ndcg, row.gain)),
            *(grid.percent(value) for value in (row.gini_difference, row.rate_difference)),
            grid.p_value(row.t_test),
        ]
        for row in gains
    ]
    return Grid(headings, lines, len(headings) - 3, "FCPO against the best rival")
