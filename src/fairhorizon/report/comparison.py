"""A comparison of methods, as in the paper's table: mean and spread over seeds, best marked.

Only rows of the same data, protocol and mode are compared.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from rich.console import Group

from fairhorizon.files import write_copies, write_text, written_together
from fairhorizon.report.limits import (
    best_sentence,
    limit_content,
    limits_sentence,
    mark_notes,
    marked,
    methods_markdown,
    methods_section,
    of_row,
)
from fairhorizon.report.page import (
    Folded,
    Heading,
    Page,
    Part,
    Section,
    commands_section,
    glossary_section,
)
from fairhorizon.report.tables import (
    LEGEND,
    PAPER_METRICS,
    Cell,
    Grid,
    format_value,
    interval_cell,
    markdown,
    metric_columns,
    p_value_cell,
    percent_cell,
    placed,
    seeds_text,
    terminal,
    units,
    write_grids,
)
from fairhorizon.studies.compare import PAPER_NAMES, SignificanceRow, UserGroupRow
from fairhorizon.studies.rows import LimitRow, OverSeeds, SummaryRow
from fairhorizon.vocabulary import POPULAR, Protocol

KS = (5, 10, 20)
INTRO = (
    "Every method is trained and evaluated on the same data: mean and standard "
    "deviation over the seeds. When to stop training is decided on validation items, "
    "never on test items."
)
PAPER_NOTE = (
    "The paper's figures are from its own runs, under its own protocol, in which training items "
    "may be recommended again."
)
SECOND_NOTE = "Second: the best of another model, not a re-ranking of the best."
USERS_NOTE = (
    "In percent, of users with test items; Diff.: the group less all other users, with Welch's "
    "interval of 95 %, not corrected for the number of lines."
)
SIGNIFICANCE_NOTE = (
    "Difference in percentage points, p-values two-sided and paired over users; Holm: the p-value "
    "before it, corrected for the number of lines."
)


@written_together()
def write_comparison(
    out: Path,
    rows: Sequence[SummaryRow],
    tests: Sequence[SignificanceRow],
    *,
    ks: Sequence[int] = KS,
    group: str = POPULAR,
    command: str = "",
    json_file: Path | None = None,
    limits: Sequence[LimitRow] = (),
    against: Sequence[SignificanceRow] = (),
    by_user: Sequence[UserGroupRow] = (),
    made_by: Mapping[str, Any] | None = None,
) -> None:
    """comparison.json for programs, tables as Markdown, CSV and LaTeX, index.html for a browser.

    The tables are table.md; table-K for each K, tests, against and users as .csv and .tex.

    tests: the best method against the second; against: one against each other one, if asked for.
    group: the name of the limited group; limits: those that were measured, if any.
    by_user: accuracy by groups of users; made_by: what made the rows, for comparison.json.
    """
    content = {
        "group": group,
        "rows": [row.to_json() for row in rows],
        "significance": [test.to_json() for test in tests],
        **({"against": [test.to_json() for test in against]} if against else {}),
        **limit_content(limits),
        **({"user_groups": [row.to_json() for row in by_user]} if by_user else {}),
        **({"made_by": made_by} if made_by else {}),
    }
    paper = measured_as_in_paper(rows, group)
    text = comparison_markdown(rows, ks=ks, paper=paper, group=group)
    sections = [comparison_section(rows, ks=ks, paper=paper, group=group)]
    blocks = [block for _, some in _blocks(rows, PAPER_METRICS, ks, paper, group) for block in some]
    grids = {f"table-{k}": block for k, block in zip(ks, blocks, strict=False)}
    for compared, against_all in ((tests, False), (against, True)):
        if compared:
            text += "\n" + significance_markdown(compared, against_all=against_all)
            sections.append(significance_section(compared, against_all=against_all))
            grids["against" if against_all else "tests"] = _significance(compared, against_all)
    if by_user:
        grids["users"] = _users(by_user)
        text += f"\n{markdown(grids['users'])}\n\n{USERS_NOTE}\n"
        table = replace(grids["users"], caption="")
        sections.append(Section(grids["users"].caption, [table], USERS_NOTE))
    if limits:
        text += "\n" + methods_markdown(limits)
        sections.append(methods_section(limits))
    glossary = glossary_section(PAPER_METRICS, (rows[0].protocol, rows[0].mode), group)
    page = Page(
        title=f"Fair recommenders on {rows[0].dataset}",
        finding=finding(rows, tests, max(ks), group),
        intro=INTRO,
        sections=[*sections, glossary, commands_section([command])],
    )
    write_copies(content, out / "comparison.json", json_file)
    write_text(out / "table.md", text)
    write_grids(out, grids)
    page.write(out / "index.html")


def finding(
    rows: Sequence[SummaryRow], tests: Sequence[SignificanceRow], k: int, group: str = POPULAR
) -> str:
    """Which method is the most accurate, by how much, and who kept its limit."""
    sentences = [best_sentence(rows, f"ndcg@{k}", f"NDCG@{k}")]
    for test in tests:
        if test.metric == f"ndcg@{k}":
            points = f"{100 * test.difference:.2f} points"
            p = p_value_cell(test.t_test_corrected).text
            sentences.append(
                f"The next method, {test.second}, is {points} behind (p {_equals(p)})."
            )
    sentences.append(limits_sentence([of_row(row, k) for row in rows], group))
    return " ".join(sentences)


def _equals(p: str) -> str:
    return p if p.startswith("<") else f"= {p}"


def measured_as_in_paper(rows: Sequence[SummaryRow], group: str = POPULAR) -> bool:
    """Whether the paper's figures can be shown beside ours: same protocol, same group."""
    return group == POPULAR and all(row.protocol is Protocol.PAPER for row in rows)


def comparison_table(
    rows: Sequence[SummaryRow],
    metrics: Sequence[str] = PAPER_METRICS,
    ks: Sequence[int] = KS,
    *,
    paper: bool,
    group: str = POPULAR,
) -> Group:
    """For a terminal: a block per data, protocol, mode and K; the paper's figures below ours."""
    found = _blocks(rows, metrics, ks, paper, group)
    blocks = [block for _, blocks in found for block in blocks]
    notes = [f"{units(metrics)} {LEGEND}.", *([PAPER_NOTE] if _has_paper(blocks) else [])]
    notes += mark_notes(rows)
    parts: list[Any] = []
    for block in blocks:
        parts += [terminal(block), ""]
    return Group(*parts, *notes)


def comparison_markdown(
    rows: Sequence[SummaryRow],
    metrics: Sequence[str] = PAPER_METRICS,
    ks: Sequence[int] = KS,
    *,
    paper: bool,
    group: str = POPULAR,
) -> str:
    """For GitHub: best bold, second italic, the paper's figures in brackets."""
    found = _blocks(rows, metrics, ks, paper, group)
    blocks = [block for _, blocks in found for block in blocks]
    notes = [f"{units(metrics)} Best **bold**, second _italic_.", *mark_notes(rows)]
    if _has_paper(blocks):
        notes.append(f"In brackets: the paper. {PAPER_NOTE}")
    return "\n\n".join([*(markdown(block) for block in blocks), " ".join(notes)]) + "\n"


def comparison_section(
    rows: Sequence[SummaryRow],
    metrics: Sequence[str] = PAPER_METRICS,
    ks: Sequence[int] = KS,
    *,
    paper: bool,
    group: str = POPULAR,
    title: str = "Comparison",
) -> Section:
    """For a page: the longest lists open, the others folded; a click on a heading sorts."""
    parts: list[Part] = []
    blocks = []
    for caption, of_each_k in _blocks(rows, metrics, ks, paper, group):
        parts.append(Heading(caption))
        for k, block in sorted(zip(ks, of_each_k, strict=True), reverse=True, key=lambda b: b[0]):
            parts.append(Folded(f"K = {k}", replace(block, caption=""), is_open=k == max(ks)))
            blocks.append(block)
    notes = [units(metrics), "Best bold, second underlined; a click on a heading sorts."]
    notes += mark_notes(rows)
    if _has_paper(blocks):
        notes.append(f"Small and grey: the paper. {PAPER_NOTE}")
    return Section(title, parts, " ".join(notes))


def _blocks(
    rows: Sequence[SummaryRow], metrics: Sequence[str], ks: Sequence[int], paper: bool, group: str
) -> list[tuple[str, list[Grid]]]:
    """Rows that may be compared, under what they share: a grid for each K."""
    blocks = []
    # Figures of another protocol or mode are no better or worse: they measure something else.
    for chosen in dict.fromkeys((row.dataset, row.protocol, row.mode) for row in rows):
        same = [row for row in rows if (row.dataset, row.protocol, row.mode) == chosen]
        data, protocol, mode = chosen
        caption = f"{data}, {protocol} protocol, {mode}, {_seeds(same)}"
        grids = [_block(same, metrics, k, paper, group, f"{caption}, K = {k}") for k in ks]
        blocks.append((caption, grids))
    return blocks


def _seeds(rows: Sequence[SummaryRow]) -> str:
    counts = sorted({len(row.seeds) for row in rows})
    return f"{counts[0]} to {counts[-1]} seeds" if len(counts) > 1 else seeds_text(counts[0])


def _block(
    rows: Sequence[SummaryRow],
    metrics: Sequence[str],
    k: int,
    paper: bool,
    group: str,
    caption: str,
) -> Grid:
    columns = metric_columns(group)
    lines = []
    for row in rows:
        theirs = paper_row(row.dataset, row.name, row.level) if paper else None
        name = Cell(marked(row), paper=f"paper {theirs.name}" if theirs else "")
        of_paper = theirs.metrics if theirs else {}
        lines.append(
            [
                name,
                *(metric_cell(row, metric, k, of_paper.get(f"{metric}@{k}")) for metric in metrics),
            ]
        )
    better: dict[int, Literal["more", "less"]] = {}
    for column, metric in enumerate(metrics, 1):
        direction = columns[metric].better
        if direction != "zero":
            better[column] = direction
    headings = ["Method", *(columns[metric].heading for metric in metrics)]
    return Grid(headings, placed(lines, better), len(metrics), caption)


def metric_cell(row: OverSeeds, metric: str, k: int, paper: float | None = None) -> Cell:
    """Mean, deviation if there are several seeds, and the paper's figure."""
    found = row.spread(f"{metric}@{k}")
    has_spread = found.mean is not None and found.std is not None and len(row.seeds) > 1
    return Cell(
        format_value(metric, found.mean),
        found.mean,
        spread=f"±{format_value(metric, found.std)}" if has_spread else "",
        paper="" if paper is None else format_value(metric, paper),
    )


def _has_paper(blocks: Sequence[Grid]) -> bool:
    return any(cell.paper for block in blocks for line in block.lines for cell in line)


def significance_table(tests: Sequence[SignificanceRow], *, against_all: bool = False) -> Group:
    """For a terminal: is a method better than another, user by user?

    against_all: the lines are one method against each other one, not the best against the second.
    """
    return Group(terminal(_significance(tests, against_all)), _significance_note(against_all))


def significance_markdown(tests: Sequence[SignificanceRow], *, against_all: bool = False) -> str:
    """For GitHub."""
    table = _significance(tests, against_all)
    return f"{markdown(table)}\n\n{_significance_note(against_all)}\n"


def significance_section(tests: Sequence[SignificanceRow], *, against_all: bool = False) -> Section:
    """For a page."""
    table = _significance(tests, against_all)
    return Section(table.caption, [replace(table, caption="")], _significance_note(against_all))


def _significance_note(against_all: bool) -> str:
    return SIGNIFICANCE_NOTE if against_all else f"{SECOND_NOTE} {SIGNIFICANCE_NOTE}"


def _significance(tests: Sequence[SignificanceRow], against_all: bool) -> Grid:
    names, caption = ("Best", "Second"), "Best against second"
    if against_all:
        names, caption = ("Method", "Rival"), f"{tests[0].best} against each other method"
    headings = ("Metric", *names, "Diff.", "t-test", "Holm", "bootstr.", "Holm", "Users")
    lines = [
        [
            *(Cell(text) for text in (test.metric, test.best, test.second)),
            percent_cell(test.difference),
            p_value_cell(test.t_test),
            p_value_cell(test.t_test_corrected),
            p_value_cell(test.bootstrap),
            p_value_cell(test.bootstrap_corrected),
            Cell(str(test.users), test.users),
        ]
        for test in tests
    ]
    return Grid(headings, lines, len(headings) - 3, caption)


def users_table(rows: Sequence[UserGroupRow]) -> Group:
    """For a terminal: accuracy by groups of users."""
    return Group(terminal(_users(rows)), USERS_NOTE)


def _users(rows: Sequence[UserGroupRow]) -> Grid:
    name = rows[0].metric.replace("ndcg", "NDCG")
    headings = ("Method", "Group", "Users", name, "Others", "Diff.", "95 %")
    lines = [
        [
            Cell(row.method),
            Cell(row.group),
            Cell(f"{row.users:,}", row.users),
            percent_cell(row.mean),
            percent_cell(row.others),
            percent_cell(row.difference),
            interval_cell(row.low, row.high),
        ]
        for row in rows
    ]
    return Grid(headings, lines, 5, "Groups of users")


# ---- What the paper itself reports ---------------------------------------------------------------

PAPER_METRICS_AT = (5, 10, 20)
NEAR = 0.05  # a level this near to the popularity rate that a row of the paper reached


def _read_table() -> dict[str, dict[str, dict[str, tuple[float, ...]]]]:
    """The paper's table: dataset -> its name there -> metric -> percent at 5, 10 and 20."""
    table: dict[str, dict[str, dict[str, tuple[float, ...]]]] = {}
    text = (files("fairhorizon.report") / "paper.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        values = tuple(float(line[f"at_{k}"]) for k in PAPER_METRICS_AT)
        methods = table.setdefault(line["dataset"], {})
        methods.setdefault(line["method"], {})[line["metric"]] = values
    return table


PAPER_TABLE = _read_table()
FCPO = "fcpo:paper"
FCPO_LEVELS = ("FCPO-1", "FCPO-2", "FCPO-3")  # trained at alpha' = 1, 0.8 and 0.4

# Dataset -> what makes the lists -> candidates per user (None: all items) -> hours on one core for
# all users, lists of 100.
PAPER_HOURS: dict[str, dict[str, dict[int | None, float]]] = {
    "ml-100k": {"foe": {200: 1.5, 400: 6.5, 800: 60.5}, "fcpo": {None: 3.0}},
    "ml-1m": {"foe": {200: 10.5, 400: 43.5, 800: 397.0}, "fcpo": {None: 11.55}},
}


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's table: its name there, and metrics as fractions."""

    name: str
    metrics: Mapping[str, float]


def paper_row(dataset: str, method: str, level: float | None = None) -> PaperRow | None:
    """The paper's row for a method of ours, named without its level; None where it has none.

    A level (`fcpo:paper` at 0.65, `mf+foe` at 0.9) has to be within 0.05 of the popularity rate
    at 20 that the paper's row reached: the two are compared at the same fairness.
    """
    table = PAPER_TABLE.get(dataset, {})
    # Without a level there is no saying which of the three it is.
    if method == FCPO and level is None:
        return None
    names = FCPO_LEVELS if method == FCPO else (PAPER_NAMES.get(method, ""),)
    reached = {
        name: table[name]["popularity_rate"][PAPER_METRICS_AT.index(20)] / 100
        for name in names
        if name in table
    }
    if not reached:
        return None
    name = names[0]
    if level is not None:
        name = min(reached, key=lambda name: abs(reached[name] - level))
        if abs(reached[name] - level) > NEAR:
            return None
    return PaperRow(name, _fractions(table[name]))


def paper_hours(dataset: str, step: str, candidates: int | None) -> float | None:
    """The paper's hours for `fcpo`, or for any ranker behind `foe`; None where it gives none."""
    hours = PAPER_HOURS.get(dataset, {}).get(step, {})
    return hours.get(None if step == "fcpo" else candidates)


def _fractions(percents: dict[str, tuple[float, ...]]) -> dict[str, float]:
    return {
        f"{metric}@{k}": value / 100
        for metric, values in percents.items()
        for k, value in zip(PAPER_METRICS_AT, values, strict=True)
    }
