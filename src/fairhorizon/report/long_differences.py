"""The first method of a long run against each other one: a table, and a sentence."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Group

from fairhorizon.report import grid
from fairhorizon.report.findings import listed
from fairhorizon.report.grid import Cell, Grid
from fairhorizon.report.level_grids import NOT_SHOWN, interval
from fairhorizon.report.page import Section
from fairhorizon.studies.long_results import LongDifference

NOTE = (
    "NDCG at the end, in percentage points: paired over users, each with the mean over the seeds, "
    "and the interval of 95 % confidence. More or less only where the interval excludes 0."
)


def differences_table(rows: Sequence[LongDifference]) -> Group:
    """For a terminal."""
    return Group(grid.terminal(differences_grid(rows)), NOTE)


def differences_section(rows: Sequence[LongDifference]) -> Section:
    """For a page."""
    table = differences_grid(rows)
    return Section(table.caption, [replace(table, caption="")], NOTE)


def differences_markdown(rows: Sequence[LongDifference]) -> str:
    """For GitHub."""
    return f"{grid.markdown(differences_grid(rows))}\n\n{NOTE}\n"


def differences_grid(rows: Sequence[LongDifference]) -> Grid:
    """A line per rival."""
    headings = ("Method", "Rival", "Shown", "Diff.", "95 %", "Users")
    lines = [
        [
            Cell(row.method),
            Cell(row.rival),
            Cell(_verdict(row)),
            grid.percent(row.difference),
            interval(row.low, row.high),
            Cell(f"{row.users:,}", row.users),
        ]
        for row in rows
    ]
    caption = f"{rows[0].method} against each other method"
    return Grid(headings, lines, numbers=3, caption=caption)


def differences_finding(rows: Sequence[LongDifference]) -> list[str]:
    """A sentence on each difference that is shown, and one on all others; none without rows."""
    shown = [row for row in rows if row.is_shown]
    unclear = [row.rival for row in rows if not row.is_shown]
    sentences = []
    for word in ("more", "less"):
        rivals = [f"{row.rival} ({_by(row)})" for row in shown if _verdict(row) == word]
        if rivals:
            sentences.append(
                f"The NDCG of {rows[0].method} is {word} than that of {listed(rivals)}."
            )
    if unclear:
        sentences.append(f"No difference of {rows[0].method} to {listed(unclear)} is shown.")
    return sentences


def _verdict(row: LongDifference) -> str:
    if not row.is_shown or row.difference is None:
        return NOT_SHOWN
    return "more" if row.difference > 0 else "less"


def _by(row: LongDifference) -> str:
    """The difference with its interval."""
    ends = [100 * end for end in (row.difference, row.low, row.high) if end is not None]
    return "{:+.2f} points, 95 % interval {:+.2f} to {:+.2f}".format(*ends)
