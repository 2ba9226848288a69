"""Tables of long runs: how they ended, how limits were kept, who stayed, method against method."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import polars as pl
from rich.console import Group

from fairhorizon.report import grid
from fairhorizon.report.grid import NOT_SHOWN, Cell, Grid, interval
from fairhorizon.report.headline import listed
from fairhorizon.report.long_charts import methods_of
from fairhorizon.report.page import Folded, Section
from fairhorizon.report.tables import MISSING, group_title, the_group
from fairhorizon.studies.long_results import LimitSummary, LongDifference
from fairhorizon.vocabulary import POPULAR, Labels

MILESTONES = (50, 100, 200, 400)  # steps with a block in the table, if a run has them
LIMITS_NOTE = (
    "Reached: the share, or the Gini index, of all that was shown, mean and standard deviation "
    "over seeds. Steps over: in percent, the steps after the warm-up at which the limit or floor "
    "was broken; overshoot: in percentage points, by how much at most; all seeds together."
)
COUNTED = {
    Labels.FIRST: "by the groups that the run began with",
    Labels.MOMENT: "by the groups when it was shown",
    Labels.LAGGED: "by the groups some steps before it was shown",
    Labels.RETROSPECTIVE: "by the groups of now for everything that was shown",
}
BY_LABELS = [
    ("limited_rate", "Limited", "the share that the limit is on"),
    (
        "popularity_rate_retrospective",
        "Retrospective",
        "of all that was shown so far, the share of the items that are popular now: what a limit "
        "has come to",
    ),
    ("popularity_rate", "Moment", "each showing under the label of its moment, as in the paper"),
    ("popularity_rate_lagged", "Lagged", "each showing under the label of {lag} steps before"),
    ("popularity_rate_initial", "First", "each showing under the label at the start"),
    (
        "lorenz_share",
        "Most shown",
        "share of the showings of as many items as G0 has, those shown most: the Lorenz curve, "
        "which no label can change",
    ),
]
UNITS = "In percent, overshoot in percentage points, changes in items"


@dataclass(frozen=True)
class Column:
    """A number of the table: what it is of a row, and how it is headed and explained."""

    name: str
    heading: str
    meaning: str
    better: Literal["more", "less"] | None
    scale: float = 100
    decimals: int = 2


def columns_of(group: str, labels: Labels = Labels.RETROSPECTIVE) -> list[Column]:
    """The columns, where the limit is on this group, by these labels."""
    by_popularity = group == POPULAR
    in_group = "of popular items" if by_popularity else f"with {group}"
    counted = f", {COUNTED[labels]}" if by_popularity else ""
    share = "the popular share" if by_popularity else f"the share of {group}"
    return [
        Column(
            "ndcg",
            "NDCG",
            "hits weighted by when they were shown, against the best order possible; all that was "
            "shown from the first step on counts as one list",
            "more",
        ),
        Column(
            "recall", "Recall", "share of what users want that was shown to them so far", "more"
        ),
        Column(
            "gini",
            "Gini",
            "inequality of what was shown so far over the whole catalogue: 0 % when all items "
            "alike",
            "less",
        ),
        Column(
            "limited_rate",
            group_title(group),
            f"share of all that was shown so far {in_group} (group G0){counted}, which the limit "
            "is on",
            "less",
        ),
        Column(
            "violation_share",
            "Steps over",
            f"share of the steps after the warm-up at which {share} so far was above the limit",
            "less",
        ),
        Column(
            "largest_overshoot",
            "Overshoot",
            f"how far above the limit {share} so far was at its worst, after the warm-up",
            "less",
        ),
        Column(
            "churn",
            "Changes",
            f"how often an item entered or left {the_group(group)} so far; neither good nor bad",
            None,
            scale=1,
            decimals=0,
        ),
    ]


def summary_table(steps: pl.DataFrame, group: str = POPULAR) -> Group:
    """For a terminal: the last step alone; with spreads in two parts, or 80 columns are too few."""
    last = _milestones(steps)[-1]
    columns = columns_of(group)
    parts = [columns] if steps["seed"].n_unique() == 1 else [columns[:4], columns[4:]]
    first, *others = [_block(steps, last, part) for part in parts]
    tables = [grid.terminal(block) for block in (first, *(replace(b, caption="") for b in others))]
    return Group(*tables, f"{UNITS}. {grid.LEGEND}.")


def summary_markdown(steps: pl.DataFrame, group: str = POPULAR) -> str:
    """For GitHub: the last step first, then the way there."""
    columns, milestones = columns_of(group), reversed(_milestones(steps))
    blocks = [grid.markdown(_block(steps, step, columns)) for step in milestones]
    note = f"{UNITS}; ± is the standard deviation over seeds. Best **bold**, second _italic_."
    return "\n\n".join([*blocks, note]) + "\n"


def summary_section(
    steps: pl.DataFrame, group: str = POPULAR, *, title: str = "In numbers"
) -> Section:
    """For a page: the last step open, the others folded; a click on a heading sorts."""
    blocks = [_block(steps, step, columns_of(group)) for step in reversed(_milestones(steps))]
    parts = [
        Folded(block.caption, replace(block, caption=""), is_open=block is blocks[0])
        for block in blocks
    ]
    note = (
        f"{UNITS}; ± is the standard deviation over seeds. Best bold, second underlined; "
        "a click on a heading sorts."
    )
    return Section(title, parts, note)


def labels_section(steps: pl.DataFrame, lag: int) -> Section:
    """The share of the group under all labels, side by side, and what each means."""
    columns = labels_columns(lag)[1:]
    block = replace(_block(steps, max(steps["step"]), columns), caption="")
    note = " ".join(f"{column.heading}: {column.meaning}." for column in columns)
    return Section("The same showings under other labels", [block], f"In percent. {note}")


def labels_markdown(steps: pl.DataFrame, lag: int) -> str:
    """The same for GitHub."""
    section = labels_section(steps, lag)
    (block,) = section.parts
    assert isinstance(block, Grid)
    return f"{section.title}\n\n{grid.markdown(block)}\n\n{section.note}\n"


def labels_columns(lag: int) -> list[Column]:
    """All the ways to count the showings of a group that moves."""
    return [
        Column(name, heading, meaning.format(lag=lag), "less")
        for name, heading, meaning in BY_LABELS
    ]


def limits_section(rows: Sequence[LimitSummary]) -> Section:
    """How the further limits were kept."""
    return Section("Further limits", [_limits_grid(rows)], LIMITS_NOTE)


def limits_markdown(rows: Sequence[LimitSummary]) -> str:
    """The same for GitHub."""
    return f"Further limits\n\n{grid.markdown(_limits_grid(rows))}\n\n{LIMITS_NOTE}\n"


def _limits_grid(rows: Sequence[LimitSummary]) -> Grid:
    lines = [
        [
            *(Cell(row.limit), Cell(row.method), Cell(bound(row)), Cell(reached(row))),
            *(grid.percent(share) for share in (row.violation_share, row.largest_overshoot)),
        ]
        for row in rows
    ]
    headings = ["Limit", "Method", "Must be", "Reached", "Steps over", "Overshoot"]
    return Grid(headings, lines, numbers=4)


def bound(row: LimitSummary) -> str:
    """The bound in percent, in words."""
    if row.bound is None:
        return MISSING
    return f"at {'least' if row.is_floor else 'most'} {100 * row.bound:g} %"


def reached(row: LimitSummary) -> str:
    """The share or index of all that was shown, in percent; with its deviation over seeds."""
    mean, std = row.reached.mean, row.reached.std
    if mean is None:
        return MISSING
    spread = f" ± {100 * std:.2f}" if std else ""
    return f"{100 * mean:.2f}{spread} %"


def meanings(group: str = POPULAR, labels: Labels = Labels.RETROSPECTIVE) -> dict[str, str]:
    """What each column means."""
    better = {"more": "; more is better", "less": "; less is fairer", None: ""}
    columns = columns_of(group, labels)
    return {column.heading: column.meaning + better[column.better] for column in columns}


def _milestones(steps: pl.DataFrame) -> list[int]:
    """Steps that the table has a block for, the last step of all among them."""
    present = set(steps["step"].to_list())
    return sorted({step for step in MILESTONES if step in present} | {max(present)})


def _block(steps: pl.DataFrame, step: int, columns: Sequence[Column]) -> Grid:
    """The methods after `step` steps; those with fewer steps are left out."""
    so_far = steps.filter(pl.col("step") <= step)
    changes = so_far.group_by("method", "seed").agg(pl.col("churn").sum())
    reached = (
        so_far.filter(pl.col("step") == step).drop("churn").join(changes, on=["method", "seed"])
    )
    lines = []
    for method in methods_of(steps):
        own = reached.filter(pl.col("method") == method)
        if own.height:
            lines.append([Cell(method), *(number_cell(own[c.name], c) for c in columns)])
    better = {
        position: column.better for position, column in enumerate(columns, 1) if column.better
    }
    headings = ["Method", *(column.heading for column in columns)]
    caption = f"After step {step}, {seeds_of(reached)}"
    return Grid(headings, grid.placed(lines, better), len(columns), caption)


def number_cell(values: pl.Series, column: Column) -> Cell:
    known = column.scale * values.cast(pl.Float64).fill_nan(None).drop_nulls()
    if known.is_empty():
        return grid.number(None)
    spread = f"±{known.std():.{column.decimals}f}" if len(known) > 1 else ""
    return grid.number(float(known.to_numpy().mean()), column.decimals, spread=spread)


def seeds_of(rows: pl.DataFrame) -> str:
    counts: Sequence[int] = sorted(rows.group_by("method").len()["len"].unique().to_list())
    several = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return f"{several} seed{'' if several == '1' else 's'}"


STAYING_PREFIX = (
    "here of "  # in the notes of a step: the share of a group of users that is still there
)
STAYING_COLUMNS = [
    Column("likes", "Likes", "per user who was there at the start", "more", 1),
    Column("showings", "Showings", "per user who was there at the start", None, 1, 1),
    Column(
        "here", "Still there", "share of the users at the last step, in percent", "more", 100, 1
    ),
]
STAYING_NOTE = (
    "Likes and showings are per user who was there at the start, since the run began. Still there: "
    "in percent, the users who have not left; light, medium and heavy are three equal parts of "
    "them, by how much they took in training. ± is the standard deviation over seeds."
)


def can_leave(steps: pl.DataFrame) -> bool:
    """Whether somebody has left in any of the runs."""
    known = steps["here"].fill_null(1.0) if "here" in steps.columns else pl.Series([1.0])
    return bool((known < 1).any())


def staying_section(steps: pl.DataFrame) -> Section:
    """For a page."""
    return Section("Who stays", [staying_grid(steps)], STAYING_NOTE)


def staying_markdown(steps: pl.DataFrame) -> str:
    """For GitHub."""
    return f"Who stays\n\n{grid.markdown(staying_grid(steps))}\n\n{STAYING_NOTE}\n"


def staying_grid(steps: pl.DataFrame) -> Grid:
    """The methods at the last step."""
    last = steps.filter(pl.col("step") == pl.col("step").max().over("method", "seed"))
    notes = [json.loads(text) if text else {} for text in last["notes"]]
    names = [
        name for name in dict.fromkeys(n for note in notes for n in note) if STAYING_PREFIX in name
    ]
    groups = [
        Column(name, name.removeprefix(STAYING_PREFIX).capitalize(), "", "more", 100, 1)
        for name in names
    ]
    known = last.with_columns(
        pl.Series(name, [note.get(name) for note in notes], dtype=pl.Float64) for name in names
    )
    columns, lines = [*STAYING_COLUMNS, *groups], []
    for method in methods_of(steps):
        own = known.filter(pl.col("method") == method)
        lines.append([Cell(method), *(number_cell(own[c.name], c) for c in columns)])
    better = {place: column.better for place, column in enumerate(columns, 1) if column.better}
    headings = ["Method", *(column.heading for column in columns)]
    caption = f"After step {max(steps['step'])}, {seeds_of(last)}"
    return Grid(headings, grid.placed(lines, better), len(columns), caption)


DIFFERENCES_NOTE = (
    "NDCG at the end, in percentage points: paired over users, each with the mean over the seeds, "
    "and the interval of 95 % confidence. More or less only where the interval excludes 0."
)


def differences_table(rows: Sequence[LongDifference]) -> Group:
    """For a terminal."""
    return Group(grid.terminal(differences_grid(rows)), DIFFERENCES_NOTE)


def differences_section(rows: Sequence[LongDifference]) -> Section:
    """For a page."""
    table = differences_grid(rows)
    return Section(table.caption, [replace(table, caption="")], DIFFERENCES_NOTE)


def differences_markdown(rows: Sequence[LongDifference]) -> str:
    """For GitHub."""
    return f"{grid.markdown(differences_grid(rows))}\n\n{DIFFERENCES_NOTE}\n"


def differences_grid(rows: Sequence[LongDifference]) -> Grid:
    """A line per rival."""
    headings = ("Method", "Rival", "Shown", "Diff.", "95 %", "Users")
    lines = [
        [
            Cell(row.method),
            Cell(row.rival),
            Cell(_more_or_less(row)),
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
        rivals = [
            f"{row.rival} ({_difference(row)})" for row in shown if _more_or_less(row) == word
        ]
        if rivals:
            sentences.append(
                f"The NDCG of {rows[0].method} is {word} than that of {listed(rivals)}."
            )
    if unclear:
        sentences.append(f"No difference of {rows[0].method} to {listed(unclear)} is shown.")
    return sentences


def _more_or_less(row: LongDifference) -> str:
    if not row.is_shown or row.difference is None:
        return NOT_SHOWN
    return "more" if row.difference > 0 else "less"


def _difference(row: LongDifference) -> str:
    """The difference with its interval."""
    ends = [100 * end for end in (row.difference, row.low, row.high) if end is not None]
    return "{:+.2f} points, 95 % interval {:+.2f} to {:+.2f}".format(*ends)
