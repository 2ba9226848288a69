"""The demonstration as tables, figures and a page."""

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group
from rich.text import Text

from fairhorizon.files import written_together
from fairhorizon.report import long_charts, long_term, page
from fairhorizon.report.charts import (
    LOG,
    PALETTE,
    SHAPES,
    Chart,
    Style,
    by_rank_chart,
    exposure_chart,
    save_figure,
    styles_of,
)
from fairhorizon.report.frontier import frontier_chart
from fairhorizon.report.limits import Kept, limits_sentence, mark_notes, marked, of_row, percent
from fairhorizon.report.long_charts import Span
from fairhorizon.report.page import Definitions, Folded, Section
from fairhorizon.report.tables import (
    MISSING,
    Better,
    Cell,
    Grid,
    group_items,
    group_title,
    metric_columns,
    percent_cell,
    placed,
    terminal,
)
from fairhorizon.studies.demo import DemoResult
from fairhorizon.studies.long_results import LongTermResult
from fairhorizon.studies.rows import SummaryRow
from fairhorizon.vocabulary import POPULAR

INTRO = (
    "Recommendation under an exposure limit: of all showings, at most so many percent may be of "
    "{limited}. fcpo is fitted once and serves at any limit; it is compared with popularity, and "
    "with popularity and EASE with recency behind a quota."
)
WHICH = " (the 20 % of the catalogue with the most training interactions)"
LONG_RUN = (
    "{steps} steps of one item for every user, at most {limit:g} % {items} after every step. A "
    "quota is kept over rounds of {round} items per user, by the groups at their start."
)
COLUMNS = ("popularity_rate", "ndcg", "recall", "gini")
BETTER: dict[int, Better] = {4: "more", 5: "more", 6: "less"}
METHODS = {
    "popularity": "shows everybody the most popular items that they have not taken yet",
    "NAME+quota": "a ranker, but of every list at most that share is of the limited group",
    "ease:recent": "EASE with recency, a linear item-item model",
    "NAME+control": "a ranker in the long run: each step serves all users within the limit",
    "fcpo": "the default: rankers whose settings and weights are chosen on the log, weighed by a "
    "policy; the lists of all users are made together within the limit",
    "fcpo:paper": "the policy of the paper, trained for one limit",
    "fcpo:tuned": "the same design, with what the paper leaves open chosen on validation items",
}


def intro(group: str) -> str:
    """What the demonstration is about."""
    items = group_items(group)
    return INTRO.format(limited=items + WHICH if group == POPULAR else items)


def demo_tables(result: DemoResult, k: int) -> Group:
    """For a terminal: all methods at the levels, and the long run."""
    return Group(
        terminal(levels_grid(result, k)),
        Text(f"In percent. * best, + second at a limit. {_notes(result)}\n"),
        Text(f"The long run: {_long_words(result.long_run)}"),
        long_term.summary_table(result.long_run.steps, result.group),
    )


@written_together()
def write_demo_report(out: Path, result: DemoResult, ks: Sequence[int], command: str) -> None:
    """index.html; the figures levels, exposure and long-run as PNG, SVG and PDF."""
    longest = max(ks)
    charts = {
        "levels": frontier_chart(curves(result), longest, result.group),
        "long-run": long_run_chart(result.long_run),
        "exposure": strictest_exposure(result),
    }
    for name, chart in charts.items():
        save_figure(out, name, chart)
    demo_page(result, ks, command).write(out / "index.html")


def demo_page(result: DemoResult, ks: Sequence[int], command: str = "") -> page.Page:
    """Whether limits were kept, a list before and after, charts; then everything else, folded."""
    longest = max(ks)
    run = long_term.summary_section(result.long_run.steps, result.group, title="The long run")
    drawn = (
        ranks_chart(result),
        frontier_chart(curves(result), longest, result.group),
        long_run_chart(result.long_run),
        strictest_exposure(result),
    )
    return page.Page(
        f"FairHorizon on {result.dataset}",
        finding(result, longest),
        intro(result.group),
        [
            page.verdicts_section(result.verdicts, "Did fcpo keep its limits?"),
            page.sample_section(result.sample),
            *(Section(chart.title, [chart]) for chart in drawn),
        ],
        [
            levels_section(result, ks),
            Section(run.title, run.parts, f"{_long_words(result.long_run)} {run.note}"),
            Section("What fcpo found about the log", [Definitions(_named(result.found))]),
            Section("The methods", [Definitions(METHODS)]),
            page.glossary_section(COLUMNS, ("standard", "one-shot"), result.group),
            page.commands_section([command]),
        ],
    )


def ranks_chart(result: DemoResult) -> Chart:
    """The share of the group at every rank of the lists of fcpo: no limit, and two kinds of one."""
    styles = {
        name: Style(PALETTE[number], SHAPES[number])
        for number, name in enumerate(result.shares_by_rank)
    }
    return by_rank_chart(result.shares_by_rank, styles)


def levels_section(result: DemoResult, ks: Sequence[int]) -> Section:
    """The table of the longest lists, those of shorter ones folded."""
    first, *others = sorted(ks, reverse=True)
    parts = [levels_grid(result, first)]
    folded = [Folded(f"The first {k} places", levels_grid(result, k)) for k in others]
    note = f"In percent. Best bold, second underlined at every limit. {_notes(result)}"
    return Section("At each limit", [*parts, *folded], note)


def levels_grid(result: DemoResult, k: int) -> Grid:
    """A line per method and limit; methods with the same limit are compared."""
    columns = metric_columns(result.group)
    lines: list[list[Cell]] = []
    for limit in (1.0, *result.levels):
        same = [row for row in result.rows if row.alpha_prime == limit]
        lines += placed([_line(row, k) for row in same], BETTER)
    bound, name, _, *values = _line(result.by_place, k)
    # Whether the limit was kept as it counts, by place, and not as the share of showings.
    kept = "yes" if result.verdicts[-1].kept else "no"  # as the limit counts
    lines.append([bound, Cell(f"{name.text} by place"), Cell(kept), *values])
    names = [group_title(result.group), *(f"{columns[name].heading}@{k}" for name in COLUMNS[1:])]
    return Grid(["Limit", "Method", "Kept", *names], lines, len(COLUMNS))


def _line(row: SummaryRow, k: int) -> list[Cell]:
    limit = of_row(row, k)
    words = (f"{100 * limit.limit:g} %", "yes" if limit.is_kept else "no")
    bound, kept = words if limit.has_limit else ("none", MISSING)
    name = marked(row).replace(row.method, row.name)
    values = (row.spread(f"{metric}@{k}").mean for metric in COLUMNS)
    return [Cell(bound), Cell(name), Cell(kept), *map(percent_cell, values)]


def _notes(result: DemoResult) -> str:
    rounds = f"{result.paper_rounds} round{'' if result.paper_rounds == 1 else 's'}"
    paper = (
        f"fcpo:paper, the policy of the paper, and fcpo:tuned had {rounds} of training, for this "
        "one limit."
    )
    return " ".join([paper, *mark_notes(result.rows)])


def _long_words(run: LongTermResult) -> str:
    return LONG_RUN.format(
        steps=span_of(run).last,
        limit=100 * run.alpha_prime,
        items=group_items(run.group),
        round=(run.settings or {})["round_length"],
    )


def _named(lines: Sequence[str]) -> dict[str, str]:
    """Lines such as `log: short histories`, by what stands before the colon."""
    return {name: text for name, _, text in (line.partition(": ") for line in lines)}


def curves(result: DemoResult) -> dict[str, list[SummaryRow]]:
    """The rows of each method."""
    names = dict.fromkeys(row.name for row in result.rows)
    return {name: [row for row in result.rows if row.name == name] for name in names}


def strictest_exposure(result: DemoResult) -> Chart:
    """How exposure is distributed in the log, without a limit, and at the strictest limit."""
    drawn = [row.method for row in result.rows if row.alpha_prime in (1.0, result.levels[-1])]
    counts = {LOG: result.training} | {name: result.exposure[name] for name in drawn}
    return exposure_chart(counts, result.sensitive, styles_of(drawn), result.group)


def long_run_chart(run: LongTermResult) -> Chart:
    """The share of the group after every step, against the limit; a panel per method."""
    styles = styles_of(long_charts.methods_of(run.steps))
    return long_charts.control_chart(run.steps, styles, span_of(run))


def span_of(run: LongTermResult) -> Span:
    numbers = run.steps["step"].unique().sort().to_list()
    return Span(numbers[0], numbers[-1], run.warm_up, run.alpha_prime, run.group)


def finding(result: DemoResult, k: int) -> str:
    """How accurate each method is at each limit, and whether limits were kept, also in the run."""
    limits = " / ".join(f"{100 * level:g}" for level in result.levels)
    accuracy = "; ".join(
        f"{name} {values}"
        for name, rows in reversed(curves(result).items())
        if len(rows) == len(result.levels)
        for values in [" / ".join(_percent(row, f"ndcg@{k}") for row in rows)]
    )
    kept: list[Kept] = [
        Kept(row.name, row.alpha_prime, of_row(row, k).share) for row in result.rows
    ]
    run = long_term.finding(result.long_run, span_of(result.long_run))
    return (
        f"NDCG@{k} in percent with at most {limits} % {group_items(result.group)}: {accuracy}. "
        f"{limits_sentence(kept, result.group)} {_first_places(result)} {run}"
    )


def _first_places(result: DemoResult) -> str:
    """What a limit that counts by place does for the places that people look at first."""
    shares = {name: percent(own[0]) for name, own in result.shares_by_rank.items()}
    by_place, free = result.verdicts[-1].limit, next(iter(shares))
    return (
        f"At rank 1 fcpo shows {shares[by_place]} {group_items(result.group)} under {by_place}, "
        f"{shares[free]} without a limit."
    )


def _percent(row: SummaryRow, metric: str) -> str:
    mean = row.spread(metric).mean
    return MISSING if mean is None else f"{100 * mean:.2f}"
