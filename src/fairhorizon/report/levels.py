"""Accuracy at levels of fairness: a table per level, and ours against the best rival."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Group
from rich.text import Text

from fairhorizon.files import write_copies, write_text, written_together
from fairhorizon.report import grid
from fairhorizon.report.charts import Chart, save_png
from fairhorizon.report.comparison import metric_cell
from fairhorizon.report.findings import listed, percent
from fairhorizon.report.footnotes import mark_notes, marked
from fairhorizon.report.frontier import frontier_chart
from fairhorizon.report.grid import Cell, Grid
from fairhorizon.report.page import Folded, Section, commands_section, glossary_section, write_page
from fairhorizon.report.tables import MISSING, group_items, metric_columns, short_title, units
from fairhorizon.results.studies import GainRow, LevelRow
from fairhorizon.vocabulary import POPULAR

COLUMNS = ("ndcg", "gini", "popularity_rate", "recall")
INTRO = (
    "Every method under the same limits on the share of {items} in its lists. FCPO is served at "
    "the limit; each rival is shown with its best setting that keeps it."
)
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
    """levels.json for programs, levels.md, levels.png and index.html; `group` is the name of G0."""
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
    chart = levels_chart(rows, k, group)
    save_png(out / "levels.png", chart)
    first = rows[0]
    write_page(
        out / "index.html",
        title=f"Accuracy at levels of fairness on {first.dataset}",
        finding=finding(rows, gains, k, group),
        intro=INTRO.format(items=group_items(group)),
        sections=[
            *levels_sections(rows, gains, k, group),
            Section(chart.title, [chart]),
            glossary_section(COLUMNS, (first.protocol, first.mode), group),
            commands_section([command]),
        ],
    )


def finding(
    rows: Sequence[LevelRow], gains: Sequence[GainRow], k: int, group: str = POPULAR
) -> str:
    """How ours compares with the best rival at each level, and whether each level was kept."""
    sentences = [_compared(row, k, group) for row in gains]
    if not gains:
        best = max(rows, key=lambda row: row.spread(f"ndcg@{k}").mean or 0.0)
        mean = best.spread(f"ndcg@{k}").mean
        if mean is not None:
            at = f"at most {100 * best.level:g} % {group_items(group)}"
            sentences.append(f"With {at} {best.method} is the best: NDCG@{k} {percent(mean)}.")
    measured = [row for row in rows if row.metrics]
    above = [f"{row.method} at {100 * row.level:g} %" for row in measured if row.above]
    missed = [f"{row.method} at {100 * row.level:g} %" for row in rows if not row.metrics]
    kept = f"All {len(measured)} results keep their limit."
    if above:
        kept = f"{len(measured) - len(above)} of {len(measured)} results keep their limit; under "
        kept += f"some seed {listed(above)} is above it."
    sentences.append(kept)
    if missed:
        sentences.append(f"No setting reached the limit for {listed(missed)}.")
    return " ".join(sentences)


def _compared(row: GainRow, k: int, group: str) -> str:
    behind = row.ndcg < row.rival_ndcg
    by = "" if row.gain is None else f", {abs(row.gain):.1%} {'less' if behind else 'more'} than"
    by = by.replace("%", " %") or ", against"
    at = f"With at most {100 * row.level:g} % {group_items(group)}"
    return f"{at} {row.method} has an NDCG@{k} of {percent(row.ndcg)}{by} {row.rival}."


def levels_sections(
    rows: Sequence[LevelRow], gains: Sequence[GainRow], k: int, group: str = POPULAR
) -> list[Section]:
    """A table per level, the first open; and ours against the best rival."""
    blocks = _blocks(rows, k, group)
    parts = [
        Folded(block.caption, replace(block, caption=""), is_open=number == 0)
        for number, block in enumerate(blocks)
    ]
    note = f"{units(COLUMNS)} Best bold, second underlined. {_notes(rows)}"
    sections = [Section("At each level", parts, note)]
    if gains:
        table = _gains_grid(gains, k, group)
        sections.append(Section(table.caption, [replace(table, caption="")], _gains_note(group)))
    return sections


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


def levels_chart(rows: Sequence[LevelRow], k: int = 20, group: str = POPULAR) -> Chart:
    """The accuracy of each method at the levels, as a frontier."""
    curves: dict[str, list[LevelRow]] = {}
    for row in rows:
        curves.setdefault(row.method, []).append(row)
    return frontier_chart(curves, k, group)


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
