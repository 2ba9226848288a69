"""The long run as figures and a page: the paper's Figure 4, the limit at every moment, churn."""

import math
from dataclasses import replace
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure
from plotly.subplots import make_subplots

from fairhorizon.errors import DataError
from fairhorizon.files import write_copies, write_text, written_together
from fairhorizon.report import churn, control, over_time, page
from fairhorizon.report import long_term_table as table
from fairhorizon.report.figures import as_written, save_figure
from fairhorizon.report.over_time import Span
from fairhorizon.report.page import Section, chart_id, chart_section
from fairhorizon.report.series import legend, styles
from fairhorizon.report.tables import group_items
from fairhorizon.results.long_term import LongTermResult

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
    """The figures, longterm.md and longterm.html in the folder `out`; longterm.json for programs.

    The figures are figure4.png, control.png and churn.png.
    """
    steps = result.steps
    if steps.is_empty():
        raise DataError("the long run has no steps to report", remedy="let it take a step first")
    numbers = steps["step"].unique().sort().to_list()
    span = Span(numbers[0], numbers[-1], result.warm_up, result.alpha_prime, result.group)
    runs = churn.first_runs(result.counts) if span.has_moving_groups else {}
    write_copies(result.to_json(), out / "longterm.json")
    save_figure(out / "figure4.png", accumulated_figure(steps, span))
    save_figure(out / "control.png", control.control_figure(steps, span))
    save_figure(out / "churn.png", churn.churn_figure(steps, runs, span))
    further = f"\n{table.limits_markdown(result.limits)}" if result.limits else ""
    write_text(out / "longterm.md", table.summary_markdown(steps, span.group) + further)
    page.write_page(
        out / "longterm.html",
        title="The long run",
        intro=INTRO.format(
            groups=MOVING if span.has_moving_groups else FIXED.format(group=span.group),
            steps=_many(len(numbers), "step"),
            seeds=_many(steps["seed"].n_unique(), "seed"),
        ),
        sections=[
            table.summary_section(steps, span.group),
            *([table.limits_section(result.limits)] if result.limits else []),
            accumulated_section(steps, span),
            control.control_section(steps, span),
            *churn.churn_sections(steps, runs, span),
            page.meanings_section(_meanings(span)),
            page.commands_section([command]),
        ],
    )


def closing_lines(result: LongTermResult) -> list[str]:
    """The lines below the table on a terminal: how further limits were kept, and the time."""
    lines = []
    for limit in result.limits:
        share, most = limit.violation_share, 100 * limit.largest_overshoot
        kept = "not checked, no step comes" if share is None else "kept"
        if share:
            kept = f"broken at {100 * share:.2f} % of steps, by up to {most:.2f} points,"
        lines.append(
            f"{limit.limit}: {table.reached(limit)} reached, must be {table.bound(limit)}; "
            f"{kept} after the warm-up ({limit.method})"
        )
    seconds = (f"{row.method} {row.metrics['seconds_per_step'].mean:.3f}" for row in result.rows)
    return [*lines, f"Seconds per step: {', '.join(seconds)}."]


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def panel_titles(span: Span) -> dict[str, str]:
    """The columns of Figure 4, and what their panels are called."""
    share = "Popularity rate" if span.has_moving_groups else f"Share of {span.group}"
    return ACCUMULATED | {"popularity_rate": share}


def accumulated_figure(steps: pl.DataFrame, span: Span) -> Figure:
    """The paper's Figure 4: NDCG, Gini and popularity rate of accumulated exposure over steps."""
    looks, titles = styles(over_time.methods_of(steps)), panel_titles(span)
    keys = over_time.keys(span)
    labels = [*looks, *(str(key.get_label()) for key in keys)]
    columns = over_time.legend_columns(labels, 12)
    height = 3.7 + 0.22 * math.ceil(len(labels) / columns)
    figure = Figure(figsize=(12, height), layout="constrained")
    panels = figure.subplots(1, len(titles))
    for axes, (column, title) in zip(panels, titles.items(), strict=True):
        for position, (method, line) in enumerate(over_time.lines(steps, column).items()):
            label, start = over_time.shortened(method), position / len(looks)
            over_time.draw(axes, line, looks[method], label=label, start=start)
        over_time.step_axes(axes, as_written(f"{over_time.shortened(title)}, %"), span)
        if _is_blank(steps, column):
            axes.text(0.5, 0.5, NOT_MEASURED, transform=axes.transAxes, ha="center")
            axes.set_yticks([])
    lines = list(panels[0].lines)
    over_time.draw_limit(panels[-1], span)
    figure.legend(
        handles=[*lines, *keys],
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
        handlelength=4,
    )
    return figure


def accumulated_section(steps: pl.DataFrame, span: Span) -> Section:
    """Figure 4 for the page: three panels below each other over the same steps."""
    looks, titles = styles(over_time.methods_of(steps)), panel_titles(span)
    by_column = {column: over_time.lines(steps, column) for column in titles}
    chart = make_subplots(
        rows=len(titles), cols=1, shared_xaxes=True, vertical_spacing=0.05, x_title="Step"
    )
    for method, look in looks.items():
        for row, column in enumerate(titles, 1):
            over_time.add(chart, by_column[column][method], look, method, row)
    for row, (column, title) in enumerate(titles.items(), 1):
        chart.update_yaxes(title_text=page.verbatim(f"{title}, %"), row=row)
        if _is_blank(steps, column):
            place = {"x": 0.5, "xref": "x domain", "y": 0.5, "yref": "y domain"}
            chart.add_annotation(text=NOT_MEASURED, showarrow=False, row=row, col=1, **place)
            chart.update_yaxes(showticklabels=False, row=row)
    over_time.add_span(chart, span, limit_in=len(titles))
    share = "popularity rate" if span.has_moving_groups else f"share of {span.group}"
    section = chart_section(
        ACCUMULATED_TITLE,
        chart,
        ACCUMULATED_NOTE.format(share=share) + over_time.reading(steps, span),
        height=820,
        showlegend=False,
        margin=over_time.MARGIN,
    )
    buttons = legend(chart_id(ACCUMULATED_TITLE), looks, traces=2 * len(titles))
    return replace(section, html=buttons + section.html)


def _is_blank(steps: pl.DataFrame, column: str) -> bool:
    return steps[column].fill_nan(None).null_count() == len(steps)


def _meanings(span: Span) -> dict[str, str]:
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
    return table.meanings(span.group) | {
        **group,
        "Limit": f"alpha' = {span.alpha_prime:g}: the share of what is shown that may be {may_be}",
        "Warm-up": f"the first {span.warm_up} steps, in which going above the limit is not counted",
        "Step": "every user is shown one list and answers it",
        "Seed": "the number that all randomness of a run is drawn from",
    }
