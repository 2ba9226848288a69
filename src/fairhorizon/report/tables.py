"""Result rows as a table: for a terminal, a page, and as Markdown, LaTeX and CSV."""

import csv
import io
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from fairhorizon.data.splits import Statistics
from fairhorizon.files import write_text
from fairhorizon.vocabulary import POPULAR

if TYPE_CHECKING:  # commands that only read a log print tables, and need no torch
    from fairhorizon.evaluation.short_term import ByHistory, EvaluationRow

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


def number_cell(
    value: float | None, decimals: int = 2, *, spread: str = "", paper: str = ""
) -> Cell:
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


def percent_cell(value: float | None) -> Cell:
    """A cell of a fraction, in percent."""
    return number_cell(None if value is None else 100 * value)


def p_value_cell(p: float | None) -> Cell:
    return Cell("<0.001", p) if p is not None and p < 0.001 else number_cell(p, 3)


def interval_cell(low: float | None, high: float | None) -> Cell:
    """An interval of fractions, in percent."""
    if low is None or high is None or math.isnan(low) or math.isnan(high):
        return Cell(MISSING)
    return Cell(f"{100 * low:.2f} to {100 * high:.2f}", low)


def seeds_text(seeds: int) -> str:
    """For a caption: 1 seed, 3 seeds."""
    return f"{seeds} seed{'s' * (seeds > 1)}"


def placed(lines: Sequence[Sequence[Cell]], better: Mapping[int, Better]) -> list[list[Cell]]:
    """Mark the best and the second of the given columns; what reads alike is placed alike."""
    marked = [list(line) for line in lines]
    for column, direction in better.items():
        sign = -1 if direction == "more" else 1
        # By what is printed: two numbers that look the same are not one better than the other.
        shown = {
            position: sign * float(line[column].text)
            for position, line in enumerate(lines)
            if line[column].value is not None
        }
        # A single number is neither best nor second.
        if len(shown) < 2:
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
    # Not the table's own title, which would be folded to the width of the table.
    return Group(*([Text(grid.caption, style="bold")] if grid.caption else []), table)


def _words(cells: Sequence[Cell]) -> list[Text]:
    return [
        Text.assemble(cell.text, (f"\n{cell.paper}" if cell.paper else "", "dim")) for cell in cells
    ]


def _number_column(heading: Sequence[str], cells: Sequence[Cell]) -> list[Text]:
    """Numbers with their decimal points in line: each part has its own width."""
    # Room for the deviations, so that numbers with one and without are in line.
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


LATEX = str.maketrans(
    {
        **{character: f"\\{character}" for character in "&%$#_{}"},
        **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
        **{"<": r"\textless{}", ">": r"\textgreater{}", "±": r"$\pm$", "\n": " "},
    }
)


def latex(grid: Grid, label: str = "") -> str:
    r"""A `tabular` with the rules of the package booktabs, for `\input`.

    Best bold, second underlined, the paper's figures in brackets. label: makes it a floating
    `table` with the caption of the grid, to be cited as `\ref{label}`.
    """
    columns = "".join("r" if grid.is_number(c) else "l" for c in range(len(grid.headings)))
    lines = [
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _latex_line([heading.translate(LATEX) for heading in grid.headings]),
        r"\midrule",
        *(_latex_line([_latex_cell(cell) for cell in line]) for line in grid.lines),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    if label:
        caption = rf"\caption{{{grid.caption.translate(LATEX)}}}"
        above = [r"\begin{table}", r"\centering", caption, rf"\label{{{label}}}"]
        lines = [*above, *lines, r"\end{table}"]
    elif grid.caption:
        lines.insert(0, f"% {grid.caption}")
    return "\n".join(lines) + "\n"


def _latex_line(cells: Sequence[str]) -> str:
    # A first cell that begins with [ would be read as the distance to the line above.
    first = f"{{}}{cells[0]}" if cells[0].startswith("[") else cells[0]
    return f"{' & '.join([first, *cells[1:]])} \\\\"


def _latex_cell(cell: Cell) -> str:
    command = {BEST: r"\textbf", SECOND: r"\underline"}.get(cell.place)
    text = cell.text.translate(LATEX)
    parts = [f"{command}{{{text}}}" if command else text]
    parts.append(rf"{{\scriptsize {cell.spread.translate(LATEX)}}}" if cell.spread else "")
    parts.append(f"({cell.paper.translate(LATEX)})" if cell.paper else "")
    return " ".join(part for part in parts if part)


def csv_text(grid: Grid) -> str:
    """Comma-separated values, as they are printed; nothing where a number is missing.

    A column whose cells have a spread, or a figure of the paper, is followed by one with these.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    columns: list[tuple[str, Sequence[str]]] = []
    for position, heading in enumerate(grid.headings):
        cells = [line[position] for line in grid.lines]
        texts = ["" if cell.text == MISSING else cell.text for cell in cells]
        columns.append((heading, texts))
        if any(cell.spread for cell in cells):
            columns.append((f"{heading} ±", [cell.spread.removeprefix("±") for cell in cells]))
        if any(cell.paper for cell in cells):
            columns.append((f"{heading} (paper)", [cell.paper for cell in cells]))
    writer.writerow(heading for heading, _ in columns)
    writer.writerows(zip(*(texts for _, texts in columns), strict=True))
    return out.getvalue()


def write_grids(folder: Path, grids: Mapping[str, Grid]) -> None:
    """Each grid, by its name, as NAME.tex and NAME.csv in the folder."""
    for name, grid in grids.items():
        write_text(folder / f"{name}.tex", latex(grid))
        write_text(folder / f"{name}.csv", csv_text(grid))


# ---- Metrics: how they are called and printed ----------------------------------------------------

MISSING = "-"
HEADINGS = ("Data", "Method", "alpha'", "Protocol", "Mode", "Seed", "K")
N_WORDS = 5  # the columns up to Mode; from the seed on they are numbers
NARROW = 9  # characters of a heading over several lines


@dataclass(frozen=True)
class MetricColumn:
    """How a metric is headed, explained and printed."""

    heading: str
    meaning: str
    better: Literal["more", "less", "zero"]
    percent: bool = True
    short: str = ""  # where the heading is wider than its numbers


def group_title(group: str) -> str:
    """What a column or an axis of the group's share is headed: Popular, or seller = MegaMart."""
    return "Popular" if group == POPULAR else group


def short_title(group: str) -> str:
    """The same over a narrow column."""
    return "Pop." if group == POPULAR else group


def group_items(group: str) -> str:
    """The items of a group within a sentence."""
    return "popular items" if group == POPULAR else f"items with {group}"


def the_group(group: str) -> str:
    """A group within a sentence."""
    return "the popular group" if group == POPULAR else f"the group {group}"


def metric_columns(group: str = POPULAR) -> dict[str, MetricColumn]:
    """All metrics by name; where groups are by an attribute, they are called by it."""
    by_popularity = group == POPULAR
    of_group = "that are popular" if by_popularity else f"with {group}"
    others = "the long tail" if by_popularity else "all other items"
    each = "per popular item minus per long-tail item"
    each = each if by_popularity else f"per item with {group} minus per other item"
    return {
        "recall": MetricColumn(
            "Recall", "share of a user's test items that the list found", "more", short="Rec."
        ),
        "f1": MetricColumn(
            "F1", "harmonic mean of recall and of the share of the list that hit", "more"
        ),
        "ndcg": MetricColumn(
            "NDCG", "hits weighted by rank, against the best list possible", "more"
        ),
        "gini": MetricColumn(
            "Gini",
            "inequality of exposure over the whole catalogue: 0 % when all items alike",
            "less",
        ),
        "popularity_rate": MetricColumn(
            group_title(group),
            f"share of the shown items {of_group} (group G0)",
            "less",
            short=folded(short_title(group), NARROW),
        ),
        "weighed_rate": MetricColumn(
            "Weighed",
            f"share of exposure {of_group}, a place counting 1/log2(1 + place)",
            "less",
        ),
        "lists_above": MetricColumn(
            "Lists over",
            f"share of lists with more {group_items(group)} than the level, rounded up",
            "less",
        ),
        "coverage": MetricColumn(
            "Coverage", "share of the catalogue shown to anyone at all", "more"
        ),
        "exposure_ratio": MetricColumn(
            "G0/G1", f"exposure of {the_group(group)} over that of {others}", "less", percent=False
        ),
        "demographic_parity_gap": MetricColumn(
            "Parity gap", f"exposure {each}", "zero", percent=False
        ),
        "worst_off": MetricColumn(
            "Worst-off",
            f"exposure per item of the group behind, {the_group(group)} or {others}, over that of "
            "all items",
            "more",
        ),
        "exact_k_violation": MetricColumn(
            "Over limit",
            f"share of lists with more {group_items(group)} than alpha' allows",
            "less",
        ),
    }


def folded(heading: str, width: int) -> str:
    """A heading over several lines, cut between words."""
    return "\n".join(textwrap.wrap(heading, width, break_long_words=False))


METRICS = metric_columns()
PAPER_METRICS = ("recall", "f1", "ndcg", "gini", "popularity_rate")


def statistics_table(name: str, statistics: Statistics) -> Table:
    """The paper's table of data sets, one row."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("Dataset", "#users", "#items", "#act./user", "#act./item", "#act.", "density"):
        table.add_column(heading, justify="left" if heading == "Dataset" else "right")
    means = (statistics.per_user, statistics.per_item)
    table.add_row(
        escape(name),
        str(statistics.users),
        str(statistics.items),
        *(f"{mean:.0f}" if mean >= 100 else f"{mean:.2f}" for mean in means),
        f"{statistics.interactions:,}",
        f"{100 * statistics.density:.3f}%",
    )
    return table


def format_value(metric: str, value: float | None) -> str:
    """Two decimals, of a percentage where the metric is a share."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{100 * value if METRICS[metric].percent else value:.2f}"


def table_headings(
    metrics: Sequence[str], *, group: str = POPULAR, short: bool = False
) -> list[str]:
    """Headings of the columns that `table_lines` fills."""
    unknown = sorted(set(metrics) - set(METRICS))
    if unknown:
        raise ValueError(f"unknown metric {unknown[0]!r}; known are {', '.join(METRICS)}")
    columns = metric_columns(group)
    chosen = [columns[name] for name in metrics]
    return [*HEADINGS, *((short and metric.short) or metric.heading for metric in chosen)]


def units(metrics: Sequence[str]) -> str:
    """The sentence that says which columns are percentages."""
    plain = [METRICS[name].heading for name in metrics if not METRICS[name].percent]
    return "Metrics in percent" + (f", except {' and '.join(plain)}." if plain else ".")


def group_of(rows: "Sequence[EvaluationRow]") -> str:
    """The group that all rows of a table are about."""
    return rows[0].group if rows else POPULAR


def table_lines(
    rows: "Sequence[EvaluationRow]", metrics: Sequence[str], ks: Sequence[int]
) -> list[list[str]]:
    """One line of cells per row and K, each with its protocol, mode and seed."""
    return [
        [
            *map(_text, (row.dataset, row.method, row.alpha_prime)),
            *map(_text, (row.protocol, row.mode, row.seed)),
            str(k),
            *(format_value(name, row.metrics.get(f"{name}@{k}")) for name in metrics),
        ]
        for row in rows
        for k in ks
    ]


def metrics_table(
    rows: "Sequence[EvaluationRow]", metrics: Sequence[str], ks: Sequence[int]
) -> Table:
    """The rows for a terminal, those of one result set apart from the next."""
    group = group_of(rows)
    headings = table_headings(metrics, group=group, short=True)
    # A heading over several lines is hard to read: the caption has the name in one.
    note = "" if group == POPULAR else f" The group is {group}."
    # One space between columns: the five metrics of the paper fit into 80.
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        caption=units(metrics) + note,
        caption_justify="left",
    )
    for position, heading in enumerate(headings):
        is_word = position < N_WORDS
        justify: Literal["left", "right"] = "left" if is_word else "right"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=not is_word)
    for number, line in enumerate(table_lines(rows, metrics, ks), 1):
        table.add_row(*map(escape, line), end_section=len(ks) > 1 and number % len(ks) == 0)
    return table


def history_table(found: "ByHistory") -> Table | None:
    """Accuracy by training interactions of the user; None if no user has fewer than three."""
    rows = [row for row in found.users if row.users]
    if not any(row.users for row in found.users[:-1]):
        return None
    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    table.add_column("Training interactions of a user")
    for heading in ("Users", f"NDCG@{found.k}", f"Recall@{found.k}"):
        table.add_column(heading, justify="right")
    for row in rows:
        values = (format_value("ndcg", row.ndcg), format_value("recall", row.recall))
        table.add_row(row.history, f"{row.users:,}", *values)
    return table


def new_items_line(found: "ByHistory") -> str | None:
    """How many new items there were to find and how many were found; None if there were none."""
    new = found.new_items
    if not new.interactions:
        return None
    return (
        f"New items: {new.interactions:,} of {new.of:,} test interactions "
        f"({100 * new.interactions / new.of:.1f} %) are with items that are not in the training "
        f"log; the lists of {found.k} have {new.found:,} of them."
    )


def _text(value: Any) -> str:
    return MISSING if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
