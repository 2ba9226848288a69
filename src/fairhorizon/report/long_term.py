"""The long run as figures and a page: the paper's Figure 4, the limit at every moment, churn."""

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from fairhorizon.errors import DataError
from fairhorizon.files import write_copies, write_text, written_together
from fairhorizon.report import charts, limits, long_charts, long_tables, marks, page
from fairhorizon.report.charts import Chart, save_png
from fairhorizon.report.headline import listed, percent
from fairhorizon.report.long_charts import Span
from fairhorizon.report.long_tables import (
    differences_finding,
    differences_markdown,
    differences_section,
)
from fairhorizon.report.marks import Axis, Spec
from fairhorizon.report.page import Section
from fairhorizon.report.styles import Style, styles_of
from fairhorizon.report.tables import group_items
from fairhorizon.studies.long_results import LongTermResult
from fairhorizon.vocabulary import Labels

INTRO = "Every user is served step after step. {groups} {steps}, {seeds}."
MOVING = (
    "What is shown counts as exposure, and exposure decides which items are popular: so the groups "
    "change during the run."
)
FIXED = "The limited group is {group}, and its items stay the same."
# the columns of Figure 4, without the share of the group
ACCUMULATED = {"ndcg": "NDCG", "gini": "Gini index"}
ACCUMULATED_TITLE = "Accuracy and fairness of all that was shown so far"
ACCUMULATED_NOTE = (
    "The paper's Figure 4. At each step, everything shown since the first counts as one list: "
    "higher NDCG is more accurate, lower Gini and {share} are fairer. "
)
NOT_MEASURED = "no user has relevant items"


@written_together()
def write_long_term_report(out: Path, result: LongTermResult, command: str) -> None:
    """The figures, longterm.md and index.html in the folder `out`; longterm.json for programs.

    The figures are figure4.png, control.png and churn.png.
    """
    steps = result.steps
    if steps.is_empty():
        raise DataError("the long run has no steps to report", remedy="let it take a step first")
    numbers = steps["step"].unique().sort().to_list()
    span = Span(numbers[0], numbers[-1], result.warm_up, result.alpha_prime, result.group)
    drawn = drawings(result, span)
    write_copies(result.to_json(), out / "longterm.json")
    for name, chart in zip(("figure4", "control", "churn"), drawn, strict=False):
        save_png(out / f"{name}.png", chart)
    compared = f"\n{differences_markdown(result.differences)}" if result.differences else ""
    further = f"\n{long_tables.limits_markdown(result.limits)}" if result.limits else ""
    if result.limit_rows:
        further = f"\n{limits.methods_markdown(result.limit_rows, limits.LONG_NOTE)}{further}"
    moving = span.has_moving_groups
    by_labels = f"\n{long_tables.labels_markdown(steps, result.lag)}" if moving else ""
    stays = f"\n{long_tables.staying_markdown(steps)}" if long_tables.can_leave(steps) else ""
    parts = (long_tables.summary_markdown(steps, span.group), stays, compared, by_labels, further)
    write_text(out / "longterm.md", "".join(parts))
    page.write_page(
        out / "index.html",
        title="The long run",
        finding=finding(result, span),
        intro=INTRO.format(
            groups=MOVING if span.has_moving_groups else FIXED.format(group=span.group),
            steps=_many(len(numbers), "step"),
            seeds=_many(steps["seed"].n_unique(), "seed"),
        ),
        sections=[
            long_tables.summary_section(steps, span.group),
            *([long_tables.staying_section(steps)] if long_tables.can_leave(steps) else []),
            *([differences_section(result.differences)] if result.differences else []),
            *([long_tables.labels_section(steps, result.lag)] if moving else []),
            *_limit_sections(result),
            *(Section(chart.title, [chart]) for chart in drawn),
            page.meanings_section(_meanings(span, result.labels)),
            page.commands_section([command]),
        ],
    )


def _limit_sections(result: LongTermResult) -> list[Section]:
    """All limits in one format, then how the further ones were broken."""
    rows = result.limit_rows
    return [
        *([limits.methods_section(rows, limits.LONG_NOTE)] if rows else []),
        *([long_tables.limits_section(result.limits)] if result.limits else []),
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
            f"{limit.limit}: {long_tables.reached(limit)} reached, must be "
            f"{long_tables.bound(limit)}; {kept} after the warm-up ({limit.method})"
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
    encodings, x = marks.by_series(styles), long_charts.step_axis(span)
    panels = []
    for column, title in panel_titles(span).items():
        y = Axis(f"{title}, %", is_titled=False)
        rows = long_charts.line_rows(long_charts.lines(steps, column))
        layers = long_charts.warm_up_layers(span)
        layers += [marks.lines(rows, encodings, x, y)] if rows else [_blank(x)]
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
    return marks.mark("text", {"x": x.of("x"), "text": marks.word("text")}, rows)


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
    return long_tables.meanings(span.group, labels) | {
        **group,
        "Limit": f"alpha' = {span.alpha_prime:g}: the share of what is shown that may be {may_be}",
        "Warm-up": f"the first {span.warm_up} steps, in which going above the limit is not counted",
        "Step": "every user is shown one list and answers it",
        "Seed": "the number that all randomness of a run is drawn from",
    }
