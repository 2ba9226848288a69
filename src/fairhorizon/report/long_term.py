"""The long run as figures and a page: the paper's Figure 4, the limit at every moment, churn.

steps: one row per method, seed and step, shares as fractions, as the experiment writes them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from matplotlib.figure import Figure
from plotly.subplots import make_subplots

from fairhorizon.errors import DataError
from fairhorizon.files import write_atomically
from fairhorizon.report import churn, control, over_time, page
from fairhorizon.report import long_term_table as table
from fairhorizon.report.figures import save_figure
from fairhorizon.report.over_time import Span
from fairhorizon.report.page import Section, chart_id, chart_section
from fairhorizon.report.series import legend, styles

if TYPE_CHECKING:
    from fairhorizon.experiments.step_record import Row
    from fairhorizon.results.long_term import CountsOverTime

INTRO = "Every user is served step after step. {groups} {steps}, {seeds}."
MOVING = (
    "What is shown counts as exposure, and exposure decides which items are popular: so the groups "
    "move while the methods are at work."
)
FIXED = "The limited group, which stands for the popular one below, is that of {group}: it stays."
# the columns of Figure 4, and what stands beside them
ACCUMULATED = {"ndcg": "NDCG", "gini": "Gini index", "popularity_rate": "Popularity rate"}
ACCUMULATED_TITLE = "Accuracy and fairness of all that was shown so far"
ACCUMULATED_NOTE = (
    "The paper's Figure 4. At each step, everything shown since the first counts as one list: "
    "higher NDCG is more accurate, lower Gini and popularity rate are fairer. "
)
NOT_MEASURED = "no user has anything to be found"


def write_report(
    out: Path,
    steps: pl.DataFrame,
    counts: "Mapping[tuple[str, int], CountsOverTime]",
    *,
    alpha_prime: float,
    warm_up: int,
    command: str,
    group: str | None = None,
    limits: "Sequence[Row]" = (),
) -> None:
    """figure4.png, control.png, churn.png, longterm.md and longterm.html in the folder `out`.

    `group` says what the limited items have in common where that is not their popularity, `limits`
    how further limits were kept.
    """
    if steps.is_empty():
        raise DataError("the long run has no steps to report", remedy="let it take a step first")
    numbers = steps["step"].unique().sort().to_list()
    span = Span(numbers[0], numbers[-1], warm_up, alpha_prime)
    runs = churn.first_runs(counts)
    save_figure(out / "figure4.png", accumulated_figure(steps, span))
    save_figure(out / "control.png", control.control_figure(steps, span))
    save_figure(out / "churn.png", churn.churn_figure(steps, runs, span))
    text = table.summary_markdown(steps)
    write_atomically(out / "longterm.md", lambda file: file.write_text(text, encoding="utf-8"))
    page.write_page(
        out / "longterm.html",
        title="The long run",
        intro=INTRO.format(
            groups=FIXED.format(group=group) if group else MOVING,
            steps=_many(len(numbers), "step"),
            seeds=_many(steps["seed"].n_unique(), "seed"),
        ),
        sections=[
            table.summary_section(steps),
            *([table.limits_section(limits)] if limits else []),
            accumulated_section(steps, span),
            control.control_section(steps, span),
            *churn.churn_sections(steps, runs, span),
            page.meanings_section(_meanings(span, group)),
            page.commands_section([command]),
        ],
    )


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def accumulated_figure(steps: pl.DataFrame, span: Span) -> Figure:
    """The paper's Figure 4: NDCG, Gini and popularity rate of accumulated exposure over steps."""
    looks = styles(over_time.methods_of(steps))
    keys = over_time.keys(span)
    labels = [*looks, *(str(key.get_label()) for key in keys)]
    columns = over_time.legend_columns(labels, 12)
    height = 3.7 + 0.22 * math.ceil(len(labels) / columns)
    figure = Figure(figsize=(12, height), layout="constrained")
    panels = figure.subplots(1, len(ACCUMULATED))
    for axes, (column, title) in zip(panels, ACCUMULATED.items(), strict=True):
        for position, (method, line) in enumerate(over_time.lines(steps, column).items()):
            label, start = over_time.shortened(method), position / len(looks)
            over_time.draw(axes, line, looks[method], label=label, start=start)
        over_time.step_axes(axes, f"{title}, %", span)
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
    looks = styles(over_time.methods_of(steps))
    by_column = {column: over_time.lines(steps, column) for column in ACCUMULATED}
    chart = make_subplots(
        rows=len(ACCUMULATED), cols=1, shared_xaxes=True, vertical_spacing=0.05, x_title="Step"
    )
    for method, look in looks.items():
        for row, column in enumerate(ACCUMULATED, 1):
            over_time.add(chart, by_column[column][method], look, method, row)
    for row, (column, title) in enumerate(ACCUMULATED.items(), 1):
        chart.update_yaxes(title_text=f"{title}, %", row=row)
        if _is_blank(steps, column):
            place = {"x": 0.5, "xref": "x domain", "y": 0.5, "yref": "y domain"}
            chart.add_annotation(text=NOT_MEASURED, showarrow=False, row=row, col=1, **place)
            chart.update_yaxes(showticklabels=False, row=row)
    over_time.add_span(chart, span, limit_in=len(ACCUMULATED))
    section = chart_section(
        ACCUMULATED_TITLE,
        chart,
        ACCUMULATED_NOTE + over_time.reading(steps, span),
        height=820,
        showlegend=False,
        margin=over_time.MARGIN,
    )
    buttons = legend(chart_id(ACCUMULATED_TITLE), looks, traces=2 * len(ACCUMULATED))
    return replace(section, html=buttons + section.html)


def _is_blank(steps: pl.DataFrame, column: str) -> bool:
    return steps[column].fill_nan(None).null_count() == len(steps)


def _meanings(span: Span, group: str | None) -> dict[str, str]:
    """What the words of the page mean."""
    popular = (
        "the items with the highest exposure counts, those of the training log included; found "
        "anew while the run goes on"
    )
    return table.meanings() | {
        "Popular group, G0": f"the items of {group}, however popular" if group else popular,
        "Limit": f"alpha' = {span.alpha_prime:g}: the share of what is shown that may be popular",
        "Warm-up": f"the first {span.warm_up} steps, in which going above the limit is not counted",
        "Step": "every user is shown one list and answers it",
        "Seed": "the number that all randomness of a run is drawn from",
    }
