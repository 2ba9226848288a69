"""Methods beside each other, as in the paper's table: mean and spread over seeds, best marked.

rows: dataset, method, protocol, mode, seeds, and metrics: `ndcg@20` -> {"mean", "std"}, fractions.
Only rows of the same data, protocol and mode are compared.
"""

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Any, Literal

from rich.console import Group

from fairhorizon.report import grid
from fairhorizon.report.grid import Cell, Grid
from fairhorizon.report.page import Section
from fairhorizon.report.paper import PAPER_TABLE, paper_row
from fairhorizon.report.tables import METRICS, PAPER_METRICS, Row, format_value, units

__all__ = [
    "PAPER_TABLE",
    "comparison_markdown",
    "comparison_section",
    "comparison_table",
    "paper_row",
    "significance_markdown",
    "significance_section",
    "significance_table",
]

KS = (5, 10, 20)
PAPER_NOTE = (
    "The paper's figures are of its own protocol, in which training items may be recommended "
    "again, and of its own runs."
)
P_VALUES = {
    "t_test": "t-test",
    "t_test_corrected": "Holm",
    "bootstrap": "bootstr.",
    "bootstrap_corrected": "Holm",
}
SIGNIFICANCE_NOTE = (
    "Difference in percentage points, p-values two-sided and paired over users; Holm: the p-value "
    "before it, corrected for the number of lines."
)


def comparison_table(
    rows: Sequence[Row],
    metrics: Sequence[str] = PAPER_METRICS,
    ks: Sequence[int] = KS,
    *,
    paper: bool,
) -> Group:
    """For a terminal: a block per data, protocol, mode and K; the paper's figures below ours."""
    blocks = [block for _, blocks in _blocks(rows, metrics, ks, paper) for block in blocks]
    notes = [f"{units(metrics)} {grid.LEGEND}.", *([PAPER_NOTE] if _has_paper(blocks) else [])]
    parts: list[Any] = []
    for block in blocks:
        parts += [grid.terminal(block), ""]
    return Group(*parts, *notes)


def comparison_markdown(
    rows: Sequence[Row],
    metrics: Sequence[str] = PAPER_METRICS,
    ks: Sequence[int] = KS,
    *,
    paper: bool,
) -> str:
    """For GitHub: best bold, second italic, the paper's figures in brackets."""
    blocks = [block for _, blocks in _blocks(rows, metrics, ks, paper) for block in blocks]
    notes = [f"{units(metrics)} Best **bold**, second _italic_."]
    if _has_paper(blocks):
        notes.append(f"In brackets: the paper. {PAPER_NOTE}")
    return "\n\n".join([*(grid.markdown(block) for block in blocks), " ".join(notes)]) + "\n"


def comparison_section(
    rows: Sequence[Row],
    metrics: Sequence[str] = PAPER_METRICS,
    ks: Sequence[int] = KS,
    *,
    paper: bool,
    title: str = "Comparison",
) -> Section:
    """For a page: the longest lists open, the others folded; a click on a heading sorts."""
    html, blocks = "", []
    for caption, of_each_k in _blocks(rows, metrics, ks, paper):
        html += f"<h3>{escape(caption)}</h3>\n"
        for k, block in sorted(zip(ks, of_each_k, strict=True), reverse=True, key=lambda b: b[0]):
            is_open = " open" if k == max(ks) else ""
            table = grid.html(replace(block, caption=""))
            html += f"<details{is_open}><summary>K = {k}</summary>\n{table}</details>\n"
            blocks.append(block)
    notes = [units(metrics), "Best bold, second underlined; a click on a heading sorts."]
    if _has_paper(blocks):
        notes.append(f"Small and grey: the paper. {PAPER_NOTE}")
    return Section(title, html, " ".join(notes))


def _blocks(
    rows: Sequence[Row], metrics: Sequence[str], ks: Sequence[int], paper: bool
) -> list[tuple[str, list[Grid]]]:
    """Rows that may be compared, under what they share: a grid for each K."""
    setting = ("dataset", "protocol", "mode")
    settings = dict.fromkeys(tuple(str(row[key]) for key in setting) for row in rows)
    blocks = []
    for chosen in settings:
        same = [row for row in rows if tuple(str(row[key]) for key in setting) == chosen]
        data, protocol, mode = chosen
        caption = f"{data}, {protocol} protocol, {mode}, {_seeds(same)}"
        grids = [_block(same, metrics, k, paper, f"{caption}, K = {k}") for k in ks]
        blocks.append((caption, grids))
    return blocks


def _seeds(rows: Sequence[Row]) -> str:
    counts = sorted({len(row["seeds"]) for row in rows})
    several = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return f"{several} seed{'' if several == '1' else 's'}"


def _block(rows: Sequence[Row], metrics: Sequence[str], k: int, paper: bool, caption: str) -> Grid:
    lines = []
    for row in rows:
        theirs = paper_row(row["dataset"], row["method"]) if paper else None
        name = Cell(row["method"], paper=f"paper {theirs['name']}" if theirs else "")
        of_paper = theirs["metrics"] if theirs else {}
        lines.append(
            [name, *(_cell(row, metric, k, of_paper.get(f"{metric}@{k}")) for metric in metrics)]
        )
    better: dict[int, Literal["more", "less"]] = {}
    for column, metric in enumerate(metrics, 1):
        direction = METRICS[metric].better
        if direction != "zero":
            better[column] = direction
    headings = ["Method", *(METRICS[metric].heading for metric in metrics)]
    return Grid(headings, grid.placed(lines, better), len(metrics), caption)


def _cell(row: Row, metric: str, k: int, paper: float | None) -> Cell:
    found = row["metrics"].get(f"{metric}@{k}") or {}
    mean, std = found.get("mean"), found.get("std")
    has_spread = mean is not None and std is not None and len(row["seeds"]) > 1
    return Cell(
        format_value(metric, mean),
        mean,
        spread=f"±{format_value(metric, std)}" if has_spread else "",
        paper="" if paper is None else format_value(metric, paper),
    )


def _has_paper(blocks: Sequence[Grid]) -> bool:
    return any(cell.paper for block in blocks for line in block.lines for cell in line)


def significance_table(tests: Sequence[Row], caption: str = "Best against second") -> Group:
    """For a terminal: is the best better than the second, user by user?"""
    return Group(grid.terminal(_significance(tests, caption)), SIGNIFICANCE_NOTE)


def significance_markdown(tests: Sequence[Row], caption: str = "") -> str:
    """For GitHub."""
    return f"{grid.markdown(_significance(tests, caption))}\n\n{SIGNIFICANCE_NOTE}\n"


def significance_section(tests: Sequence[Row], *, title: str = "Best against second") -> Section:
    """For a page."""
    return Section(title, grid.html(_significance(tests, "")), SIGNIFICANCE_NOTE)


def _significance(tests: Sequence[Row], caption: str) -> Grid:
    headings = ("Metric", "Best", "Second", "Diff.", *P_VALUES.values(), "Users")
    lines = [
        [
            *(Cell(test[key]) for key in ("metric", "best", "second")),
            grid.number(100 * test["difference"]),
            *(_p_value(test[key]) for key in P_VALUES),
            Cell(str(test["users"]), test["users"]),
        ]
        for test in tests
    ]
    return Grid(headings, lines, len(headings) - 3, caption)


def _p_value(p: float | None) -> Cell:
    return Cell("<0.001", p) if p is not None and p < 0.001 else grid.number(p, 3)
