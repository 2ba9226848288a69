"""The long run as figures and a page: the paper's Figure 4, the limit at every moment, churn."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import polars as pl
from rich.console import Group

from fairhorizon.errors import DataError
from fairhorizon.files import write_copies, write_text, written_together
from fairhorizon.report import charts, limits, long_charts, page
from fairhorizon.report.charts import Axis, Chart, Spec, Style, save_figure, styles_of
from fairhorizon.report.limits import listed, percent
from fairhorizon.report.long_charts import Span, methods_of
from fairhorizon.report.page import Folded, Section
from fairhorizon.report.tables import (
    LEGEND,
    MISSING,
    NOT_SHOWN,
    Cell,
    Grid,
    group_items,
    group_title,
    interval_cell,
    markdown,
    number_cell,
    percent_cell,
    placed,
    terminal,
    the_group,
    write_grids,
)
from fairhorizon.studies.long_results import LimitSummary, LongDifference, LongTermResult
from fairhorizon.vocabulary import POPULAR, Labels

INTRO = "Every user is served step after step. {groups} {steps}, {seeds}."
MOVING = (
    "What is shown counts as exposure, and exposure decides which items are popular: so the groups "
    "change during the run."
)
FIXED = "The limited group is {group}, and its items stay the same."
# The columns of Figure 4, without the share of the group.
ACCUMULATED = {"ndcg": "NDCG", "gini": "Gini index"}
ACCUMULATED_TITLE = "Accuracy and fairness of all that was shown so far"
ACCUMULATED_NOTE = (
    "The paper's Figure 4. At each step, everything shown since the first counts as one list: "
    "higher NDCG is more accurate, lower Gini and {share} are fairer. "
)
NOT_MEASURED = "no user has relevant items"


@written_together()
def write_long_term_report(
    out: Path, result: LongTermResult, command: str, made_by: Mapping[str, Any] | None = None
) -> None:
    """The figures, longterm.md, .csv and .tex, index.html in `out`; longterm.json for programs.

    The figures are figure4, control and churn, as PNG, SVG and PDF.
    made_by: what made the result, for longterm.json.
    """
    steps = result.steps
    if steps.is_empty():
        raise DataError("the long run has no steps to report", remedy="let it take a step first")
    numbers = steps["step"].unique().sort().to_list()
    span = Span(numbers[0], numbers[-1], result.warm_up, result.alpha_prime, result.group)
    drawn = drawings(result, span)
    content = result.to_json() | ({"made_by": made_by} if made_by else {})
    write_copies(content, out / "longterm.json")
    write_grids(out, {"longterm": _block(steps, numbers[-1], columns_of(span.group))})
    for name, chart in zip(("figure4", "control", "churn"), drawn, strict=False):
        save_figure(out, name, chart)
    compared = f"\n{differences_markdown(result.differences)}" if result.differences else ""
    further = f"\n{limits_markdown(result.limits)}" if result.limits else ""
    if result.limit_rows:
        further = f"\n{limits.methods_markdown(result.limit_rows, limits.LONG_NOTE)}{further}"
    moving = span.has_moving_groups
    by_labels = f"\n{labels_markdown(steps, result.lag)}" if moving else ""
    stays = f"\n{staying_markdown(steps)}" if can_leave(steps) else ""
    parts = (summary_markdown(steps, span.group), stays, compared, by_labels, further)
    write_text(out / "longterm.md", "".join(parts))
    document = page.Page(
        title="The long run",
        finding=finding(result, span),
        intro=INTRO.format(
            groups=MOVING if span.has_moving_groups else FIXED.format(group=span.group),
            steps=_many(len(numbers), "step"),
            seeds=_many(steps["seed"].n_unique(), "seed"),
        ),
        sections=[
            summary_section(steps, span.group),
            *([staying_section(steps)] if can_leave(steps) else []),
            *([differences_section(result.differences)] if result.differences else []),
            *([labels_section(steps, result.lag)] if moving else []),
            *_limit_sections(result),
            *(Section(chart.title, [chart]) for chart in drawn),
            page.meanings_section(_meanings(span, result.labels)),
            page.commands_section([command]),
        ],
    )
    document.write(out / "index.html")


def _limit_sections(result: LongTermResult) -> list[Section]:
    """All limits in one format, then how the further ones were broken."""
    rows = result.limit_rows
    return [
        *([limits.methods_section(rows, limits.LONG_NOTE)] if rows else []),
        *([limits_section(result.limits)] if result.limits else []),
    ]


def drawings(result: LongTermResult, span: Span) -> list[Chart]:
    """Figure 4, the limit, items that change group if groups follow exposure, and the changes."""
    styles = styles_of(long_charts.methods_of(result.steps))
    runs = long_charts.first_runs(result.counts) if span.has_moving_groups else {}
    ranks = long_charts.ranks_chart(runs, styles, span)
    return [
        accumulated_chart(result.steps, styles, span),
        long_charts.control_chart(result.steps, styles, span),
        *([ranks] if ranks else []),
        long_charts.changes_chart(result.steps, styles, span),
    ]


def finding(result: LongTermResult, span: Span) -> str:
    """Which method is the most accurate in the end, and who kept each limit."""
    accuracy = long_charts.lines(result.steps, "ndcg")
    last = {method: line.mean[-1] for method, line in accuracy.items() if len(line.mean)}
    best = max(last, key=lambda method: last[method], default=None)
    found = f"After {_many(span.last, 'step')} "
    found += (
        f"{best} is the most accurate, with an NDCG of {percent(last[best] / 100)}."
        if best is not None
        else "no accuracy could be measured."
    )
    compared = differences_finding(result.differences)
    return " ".join([found, *compared, _limit_kept(result.steps, span), *_further_limits(result)])


def _limit_kept(steps: pl.DataFrame, span: Span) -> str:
    items = group_items(span.group)
    if not span.has_limit:
        return f"There was no limit on {items}."
    shares = {
        method: line.mean[-1]
        for method, line in long_charts.lines(steps, "violation_share").items()
        if len(line.mean)
    }
    what = f"The limit of {span.limit:g} % {items}"
    if not shares:
        return f"{what} was not tested yet: no step is after the warm-up."
    kept = [method for method, share in shares.items() if not share]
    broken = [f"{method} (at {share:.1f} % of steps)" for method, share in shares.items() if share]
    parts = [f"was kept by {listed(kept)}"] if kept else []
    parts += [f"was broken by {listed(broken)}"] if broken else []
    return f"{what} {' and '.join(parts)}."


def _further_limits(result: LongTermResult) -> list[str]:
    """A sentence for each further limit."""
    sentences = []
    for limit in dict.fromkeys(row.limit for row in result.limits):
        own = [row for row in result.limits if row.limit == limit]
        kept = [row.method for row in own if not row.violation_share]
        broken = [row.method for row in own if row.violation_share]
        parts = [f"kept by {listed(kept)}"] if kept else []
        parts += [f"broken by {listed(broken)}"] if broken else []
        sentences.append(f"{limit}: {', '.join(parts)}.")
    return sentences


def closing_lines(result: LongTermResult) -> list[str]:
    """The lines below the table on a terminal: how further limits were kept, and the time."""
    lines = []
    for limit in result.limits:
        share, most = limit.violation_share, 100 * limit.largest_overshoot
        kept = "not checked, no step comes" if share is None else "kept"
        if share:
            kept = f"broken at {100 * share:.2f} % of steps, by up to {most:.2f} points,"
        lines.append(
            f"{limit.limit}: {reached(limit)} reached, must be "
            f"{bound(limit)}; {kept} after the warm-up ({limit.method})"
        )
    seconds = (f"{row.method} {row.metrics['seconds_per_step'].mean:.3f}" for row in result.rows)
    return [*lines, f"Seconds per step: {', '.join(seconds)}."]


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def panel_titles(span: Span) -> dict[str, str]:
    """The columns of Figure 4, and what their panels are called."""
    share = "Popularity rate" if span.has_moving_groups else f"Share of {span.group}"
    return ACCUMULATED | {"limited_rate": share}


def accumulated_chart(steps: pl.DataFrame, styles: Mapping[str, Style], span: Span) -> Chart:
    """The paper's Figure 4: NDCG, Gini and popularity rate of accumulated exposure over steps."""
    encodings, x = charts.by_series(styles), long_charts.step_axis(span)
    panels = []
    for column, title in panel_titles(span).items():
        y = Axis(f"{title}, %", is_titled=False)
        rows = long_charts.line_rows(long_charts.lines(steps, column))
        layers = long_charts.warm_up_layers(span)
        layers += [charts.lines(rows, encodings, x, y)] if rows else [_blank(x)]
        if column == "limited_rate":
            layers += long_charts.limit_layers(span, y)
        panels.append(charts.panel(layers, height=250, title=y.title))
    share = "popularity rate" if span.has_moving_groups else f"share of {span.group}"
    reading = ACCUMULATED_NOTE.format(share=share) + long_charts.reading(steps, span)
    return Chart(ACCUMULATED_TITLE, panels, styles, reading=reading, columns=3)


def _blank(x: Axis) -> Spec:
    """Says why nothing is drawn."""
    first, last = x.domain or (0, 1)
    rows = [{"x": (first + last) / 2, "text": NOT_MEASURED}]
    return charts.mark("text", {"x": x.of("x"), "text": charts.word("text")}, rows)


def _meanings(span: Span, labels: Labels) -> dict[str, str]:
    """What the words of the page mean."""
    popular = (
        "the items with the highest exposure counts, including those of the training log; "
        "recomputed during the run"
    )
    group = (
        {"Popular group, G0": popular}
        if span.has_moving_groups
        else {"Limited group, G0": f"the items with {span.group}"}
    )
    may_be = "popular" if span.has_moving_groups else group_items(span.group)
    return meanings(span.group, labels) | {
        **group,
        "Limit": f"alpha' = {span.alpha_prime:g}: the share of what is shown that may be {may_be}",
        "Warm-up": f"the first {span.warm_up} steps, in which going above the limit is not counted",
        "Step": "every user is shown one list and answers it",
        "Seed": "the number that all randomness of a run is drawn from",
    }


# ---- Tables: how runs ended, how limits were kept, who stayed, method against method -------------

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
    tables = [terminal(block) for block in (first, *(replace(b, caption="") for b in others))]
    return Group(*tables, f"{UNITS}. {LEGEND}.")


def summary_markdown(steps: pl.DataFrame, group: str = POPULAR) -> str:
    """For GitHub: the last step first, then the way there."""
    columns, milestones = columns_of(group), reversed(_milestones(steps))
    blocks = [markdown(_block(steps, step, columns)) for step in milestones]
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
    return f"{section.title}\n\n{markdown(block)}\n\n{section.note}\n"


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
    return f"Further limits\n\n{markdown(_limits_grid(rows))}\n\n{LIMITS_NOTE}\n"


def _limits_grid(rows: Sequence[LimitSummary]) -> Grid:
    lines = [
        [
            *(Cell(row.limit), Cell(row.method), Cell(bound(row)), Cell(reached(row))),
            *(percent_cell(share) for share in (row.violation_share, row.largest_overshoot)),
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
    # Changes of group are counted per step; the other columns are of all that was shown so far.
    changes = so_far.group_by("method", "seed").agg(pl.col("churn").sum())
    reached = (
        so_far.filter(pl.col("step") == step).drop("churn").join(changes, on=["method", "seed"])
    )
    lines = []
    for method in methods_of(steps):
        own = reached.filter(pl.col("method") == method)
        if own.height:
            lines.append([Cell(method), *(spread_cell(own[c.name], c) for c in columns)])
    better = {
        position: column.better for position, column in enumerate(columns, 1) if column.better
    }
    headings = ["Method", *(column.heading for column in columns)]
    caption = f"After step {step}, {seeds_of(reached)}"
    return Grid(headings, placed(lines, better), len(columns), caption)


def spread_cell(values: pl.Series, column: Column) -> Cell:
    known = column.scale * values.cast(pl.Float64).fill_nan(None).drop_nulls()
    if known.is_empty():
        return number_cell(None)
    spread = f"±{known.std():.{column.decimals}f}" if len(known) > 1 else ""
    return number_cell(float(known.to_numpy().mean()), column.decimals, spread=spread)


def seeds_of(rows: pl.DataFrame) -> str:
    counts: Sequence[int] = sorted(rows.group_by("method").len()["len"].unique().to_list())
    several = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    return f"{several} seed{'' if several == '1' else 's'}"


# In the notes of a step: the share of a group of users that is still there.
STAYING_PREFIX = "here of "
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
    return f"Who stays\n\n{markdown(staying_grid(steps))}\n\n{STAYING_NOTE}\n"


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
        lines.append([Cell(method), *(spread_cell(own[c.name], c) for c in columns)])
    better = {place: column.better for place, column in enumerate(columns, 1) if column.better}
    headings = ["Method", *(column.heading for column in columns)]
    caption = f"After step {max(steps['step'])}, {seeds_of(last)}"
    return Grid(headings, placed(lines, better), len(columns), caption)


DIFFERENCES_NOTE = (
    "NDCG at the end, in percentage points: paired over users, each with the mean over the seeds, "
    "and the interval of 95 % confidence. More or less only where the interval excludes 0."
)


def differences_table(rows: Sequence[LongDifference]) -> Group:
    """For a terminal."""
    return Group(terminal(differences_grid(rows)), DIFFERENCES_NOTE)


def differences_section(rows: Sequence[LongDifference]) -> Section:
    """For a page."""
    table = differences_grid(rows)
    return Section(table.caption, [replace(table, caption="")], DIFFERENCES_NOTE)


def differences_markdown(rows: Sequence[LongDifference]) -> str:
    """For GitHub."""
    return f"{markdown(differences_grid(rows))}\n\n{DIFFERENCES_NOTE}\n"


def differences_grid(rows: Sequence[LongDifference]) -> Grid:
    """A line per rival."""
    headings = ("Method", "Rival", "Shown", "Diff.", "95 %", "Users")
    lines = [
        [
            Cell(row.method),
            Cell(row.rival),
            Cell(_more_or_less(row)),
            percent_cell(row.difference),
            interval_cell(row.low, row.high),
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
