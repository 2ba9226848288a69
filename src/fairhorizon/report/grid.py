"""A table as cells: printed on a terminal and as Markdown here, on a page by a template.

The best of a column and the second are marked so that the marks outlive a loss of colour:
`*` and `+` on a terminal, bold and italic in Markdown, bold and underlined in HTML.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from fairhorizon.report.tables import MISSING, folded

Better = Literal["more", "less"]

BEST, SECOND = 1, 2
MARKS = {BEST: "*", SECOND: "+"}
LOOKS = {BEST: "bold", SECOND: "underline"}
WIDEST = 20  # characters of a heading on a terminal; more are folded, as of a group's name
NOT_SHOWN = "not shown"
LEGEND = "* best, + second of a column"


@dataclass(frozen=True)
class Cell:
    """What is printed; a cell with a value is a number, and sorts by it."""

    text: str
    value: float | None = None
    spread: str = ""  # as ±0.31
    paper: str = ""  # the paper's figure for the same
    place: int = 0  # BEST, SECOND or neither


@dataclass(frozen=True)
class Grid:
    """Headings over lines of cells; `numbers` says how many columns at the right are numbers."""

    template: ClassVar[str] = "grid.html.j2"

    headings: Sequence[str]
    lines: Sequence[Sequence[Cell]]
    numbers: int
    caption: str = ""

    def is_number(self, column: int) -> bool:
        return column >= len(self.headings) - self.numbers


def number(value: float | None, decimals: int = 2, *, spread: str = "", paper: str = "") -> Cell:
    """A cell of a number, or of none."""
    if value is None or math.isnan(value):
        return Cell(MISSING, paper=paper)
    return Cell(f"{value:.{decimals}f}", value, spread, paper)


def as_read(text: str) -> Cell:
    """A cell of a text that sorts as a number if it reads as one: 1,204 or 4.17% or -2 points."""
    plain = text.replace(",", "").removesuffix("%").removesuffix(" points")
    try:
        return Cell(text, float(plain))
    except ValueError:
        return Cell(text)


def percent(value: float | None) -> Cell:
    """A cell of a fraction, in percent."""
    return number(None if value is None else 100 * value)


def p_value(p: float | None) -> Cell:
    return Cell("<0.001", p) if p is not None and p < 0.001 else number(p, 3)


def interval(low: float | None, high: float | None) -> Cell:
    """An interval of fractions, in percent."""
    if low is None or high is None:
        return Cell(MISSING)
    return Cell(f"{100 * low:.2f} to {100 * high:.2f}", low)


def counted(seeds: int) -> str:
    """For a caption: 1 seed, 3 seeds."""
    return f"{seeds} seed{'s' * (seeds > 1)}"


def placed(lines: Sequence[Sequence[Cell]], better: Mapping[int, Better]) -> list[list[Cell]]:
    """Mark the best and the second of the given columns; what reads alike is placed alike."""
    marked = [list(line) for line in lines]
    for column, direction in better.items():
        sign = -1 if direction == "more" else 1
        shown = {
            position: sign * float(line[column].text)
            for position, line in enumerate(lines)
            if line[column].value is not None
        }
        if len(shown) < 2:  # nothing to compare
            continue
        for position, own in shown.items():
            place = 1 + sum(other < own for other in shown.values())
            cell = marked[position][column]
            marked[position][column] = replace(cell, place=place if place in MARKS else 0)
    return marked


def terminal(grid: Grid, widest: int = WIDEST) -> Group:
    """For a terminal; the paper's figures stand in a line below ours. widest: of headings."""
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    columns = []
    for position, heading in enumerate(grid.headings):
        cells = [line[position] for line in grid.lines]
        is_number = grid.is_number(position)
        lines = folded(heading, widest).split("\n")
        columns.append(_number_column(lines, cells) if is_number else _words(cells))
        width = max((len(line) for text in columns[-1] for line in text.split()), default=0)
        if is_number:
            lines = [line.rjust(width - 1) for line in lines]
        table.add_column(
            Text("\n".join(lines)),
            overflow="fold",
            no_wrap=is_number,
        )
    for texts in zip(*columns, strict=True):
        table.add_row(*texts)
    # not the table's own title, which would be folded to the width of the table
    return Group(*([Text(grid.caption, style="bold")] if grid.caption else []), table)


def _words(cells: Sequence[Cell]) -> list[Text]:
    return [
        Text.assemble(cell.text, (f"\n{cell.paper}" if cell.paper else "", "dim")) for cell in cells
    ]


def _number_column(heading: Sequence[str], cells: Sequence[Cell]) -> list[Text]:
    """Numbers with their decimal points in line: each part has its own width."""
    after = max((len(cell.spread) + 1 for cell in cells if cell.spread), default=0)
    texts = [text for cell in cells for text in (cell.text, cell.paper)]
    before = max(max(map(len, heading)) - after, max(map(len, texts), default=0))
    return [
        Text.assemble(
            " " * (before - len(cell.text)),
            (cell.text, LOOKS.get(cell.place, "")),
            f" {cell.spread}".rjust(after) if after else "",
            MARKS.get(cell.place, " "),
            (f"\n{cell.paper:>{before}}" if cell.paper else "", "dim"),
        )
        for cell in cells
    ]


def markdown(grid: Grid) -> str:
    """For GitHub; the paper's figures stand in brackets."""
    rule = ["---:" if grid.is_number(c) else "---" for c in range(len(grid.headings))]
    lines = [
        [_escaped(heading) for heading in grid.headings],
        rule,
        *([_markdown_cell(cell) for cell in line] for line in grid.lines),
    ]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{_escaped(grid.caption)}\n\n{table}" if grid.caption else table


def _markdown_cell(cell: Cell) -> str:
    fence = {BEST: "**", SECOND: "_"}.get(cell.place, "")
    parts = [f"{fence}{_escaped(cell.text)}{fence}", cell.spread]
    parts.append(f"({_escaped(cell.paper)})" if cell.paper else "")
    return " ".join(part for part in parts if part)


def _escaped(text: str) -> str:
    """Shown as written by Markdown."""
    for character in "\\|*_<>`[]":
        text = text.replace(character, f"\\{character}")
    return text
