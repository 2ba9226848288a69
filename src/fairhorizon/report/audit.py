"""An audit as lines for a terminal and as a page."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from fairhorizon.files import write_copies, written_together
from fairhorizon.limits.measured import rules_sentence
from fairhorizon.metrics.summary import ACCURACY
from fairhorizon.report import charts, page
from fairhorizon.report.charts import (
    GREY,
    LOG,
    PALETTE,
    SHAPES,
    Chart,
    Style,
    exposure_chart,
    save_figure,
    styles_of,
)
from fairhorizon.report.limits import NOTE, TOLERANCE, limits_grid, percent
from fairhorizon.report.tables import (
    METRICS,
    PAPER_METRICS,
    Cell,
    Grid,
    as_read,
    format_value,
    group_items,
    metric_columns,
    number_cell,
    percent_cell,
    units,
)
from fairhorizon.studies.audit import (
    ALL,
    AuditCounts,
    AuditResult,
    ByRank,
    ItemExposure,
    ProviderExposure,
    RankExposure,
)
from fairhorizon.vocabulary import POPULAR

EXPOSURE = tuple(name for name in METRICS if name not in ACCURACY)
INTRO = (
    "What a system shows to its users, compared with what they took next and with an even spread "
    "of exposure over the items."
)

BANDS = ((1, 1), (2, 3), (4, 5), (6, 10), (11, 20), (21, 50))  # ranks, first and last
MOST_GROUPS = len(PALETTE)  # in a table or a chart; what they leave out is in the JSON file
OPEN = 20  # lines of a table that is not folded
WORST = 10  # providers on a terminal
RANKS_NOTE = "Percent of the showings at these ranks. All: of all showings."
PROVIDERS_NOTE = (
    "Of shown, of log, of items: the share of all showings, of the training log and of the "
    "catalogue, in percent. Ratio: share of showings by share of the training log; below 1, a "
    "provider is shown less than its items were taken. The lowest ratio comes first. Best rank: "
    "the highest place that one of its items has in any list. An item of two providers counts for "
    "both."
)


NO_ACCURACY = (
    "Accuracy is left out: no list shows anything that its user took in the test part, as lists "
    "made after the whole log never do."
)


def metrics_shown(result: AuditResult) -> tuple[str, ...]:
    """The metrics of the first table; without those of accuracy where there is none to measure."""
    if result.has_accuracy:
        return PAPER_METRICS
    return tuple(name for name in PAPER_METRICS if name not in ACCURACY)


def facts(result: AuditResult) -> list[tuple[str, str]]:
    """Facts in addition to the metrics, as pairs of a name and its text."""
    counts = result.counts
    lines = [
        ("shown", f"{counts.shown:,} items to {counts.lists:,} of {counts.users:,} users"),
        ("read as", f"{counts.kind}, ordered by {counts.order}"),
        (
            "counted for accuracy",
            f"{counts.users_measured:,} users with a list and test items"
            if result.has_accuracy
            else "nobody",
        ),
        (
            "from the user's own history",
            f"{counts.from_history:,} ({counts.from_history_share:.1%} of what is shown), "
            f"so the protocol is {result.row.protocol}",
        ),
    ]
    lines += [
        (f"lists shorter than {k}", f"{n:,} of {counts.lists:,}")
        for k, n in counts.shorter_lists.items()
        if n
    ]
    if counts.unknown_rows:
        lines.append(("left out", f"{counts.unknown_rows:,} rows of unknown users or items"))
    if result.providers:
        lines.append((f"values of {result.provider_column}", providers_line(result)))
    return [*lines, *oddities(counts)]


def oddities(counts: AuditCounts) -> list[tuple[str, str]]:
    """Rows that are not as they should be, and how they were read."""
    # A list with an item twice is a mistake; a log of impressions may show one twice in a second.
    repeats = "left out"
    if counts.kind == "impressions" and counts.order == "time":
        repeats = "each is a showing, as times may be too coarse to tell two apart"
    odd = {
        "duplicate rows": (counts.duplicate_rows, f"the same as an earlier one; {repeats}"),
        "negative ranks": (counts.negative_ranks, "read as they are, the smallest on top"),
        "skipped ranks": (
            counts.skipped_ranks,
            f"in {counts.gapped_lists:,} lists; the next item takes the place",
        ),
    }
    return [(name, f"{number:,}, {text}") for name, (number, text) in odd.items() if number]


def exposure_headings(group: str) -> list[str]:
    columns = metric_columns(group)
    return ["K", *(columns[name].heading for name in EXPOSURE)]


def exposure_lines(result: AuditResult, ks: Sequence[int]) -> list[list[str]]:
    """The metrics of exposure for each K, and for all impressions of a log."""
    cuts = [*map(str, ks), *([ALL] if result.counts.kind == "impressions" else [])]
    return [
        [cut, *(format_value(name, result.row.metrics.get(f"{name}@{cut}")) for name in EXPOSURE)]
        for cut in cuts
    ]


def exposure_table(result: AuditResult, ks: Sequence[int]) -> Table:
    """The metrics of exposure for a terminal."""
    terminal = Table(
        box=box.SIMPLE_HEAD, show_edge=False, caption=units(EXPOSURE), caption_justify="left"
    )
    for heading in exposure_headings(result.row.group):
        terminal.add_column(heading, justify="right")
    for line in exposure_lines(result, ks):
        terminal.add_row(*line)
    return terminal


@written_together()
def write_audit_report(
    out: Path,
    result: AuditResult,
    ks: Sequence[int],
    command: str,
    made_by: Mapping[str, Any] | None = None,
) -> None:
    """audit.json, index.html, and the distribution of exposure as PNG, SVG and PDF."""
    content = result.to_json() | ({"made_by": made_by} if made_by else {})
    write_copies(content, out / "audit.json")
    save_figure(out, "exposure", lorenz_chart(result))
    audit_page(result, ks, command).write(out / "index.html")


def lorenz_chart(result: AuditResult) -> Chart:
    """How exposure is distributed, in the log and in what was shown."""
    method = result.row.method
    counts = {LOG: result.training, method: result.exposure}
    return exposure_chart(counts, result.sensitive, styles_of([method]), result.row.group)


def audit_page(result: AuditResult, ks: Sequence[int], command: str = "") -> page.Page:
    """Whether the rules were kept, a list, charts; then everything else, folded."""
    row, group, chart = result.row, result.row.group, lorenz_chart(result)
    by_rank = result.by_rank.groups
    sections = [
        *([page.verdicts_section(result.verdicts)] if result.verdicts else []),
        *([page.sample_section(result.sample)] if result.sample else []),
        *([ranks_section(result.by_rank)] if by_rank else []),
        page.Section(chart.title, [chart]),
        *([providers_section(result)] if result.providers else []),
    ]
    # Folded: what answers no question that a reader comes with.
    details = [
        *([limits_section(result)] if row.limits else []),
        page.results_section([row], metrics_shown(result), ks),
        page.Section("What was found", [page.Definitions(dict(facts(result)))]),
        page.Section(
            "Metrics of exposure",
            [table(exposure_headings(group), exposure_lines(result, ks))],
            units(EXPOSURE),
        ),
        group_section(result),
        *([ranks_table_section(result.by_rank)] if by_rank else []),
        items_section(result),
        page.glossary_section(tuple(METRICS), (row.protocol, row.mode), group),
        page.commands_section([command]),
    ]
    return page.Page(
        f"Audit of {row.method if result.is_named else 'lists'} on {row.dataset}",
        finding(result, max(ks)),
        INTRO,
        sections,
        details,
    )


def finding(result: AuditResult, k: int) -> str:
    """Whether the rules were kept, the share of the group, the inequality of exposure."""
    row, items = result.row, group_items(result.row.group)
    rate = row.metrics.get(f"popularity_rate@{k}", math.nan)
    inequality = row.metrics.get(f"gini@{k}", math.nan)
    sentences = [rules_sentence(result.verdicts)] if result.verdicts else []
    sentences.append(
        f"{percent(rate)} of the first {k} places show {items}; the Gini index of exposure is "
        f"{percent(inequality)}."
    )
    limit = row.alpha_prime
    if limit is not None and limit < 1:
        kept = "was kept" if rate <= limit + TOLERANCE else "was not kept"
        over = row.metrics.get(f"exact_k_violation@{k}", math.nan)
        lists = f"{percent(over)} of single lists are over it"
        sentences.append(f"The limit of {100 * limit:g} % {kept} over all lists; {lists}.")
    elif not result.verdicts:
        sentences.append("No limit was given.")
    return " ".join([*sentences, *([] if result.has_accuracy else [NO_ACCURACY])])


def group_section(result: AuditResult) -> page.Section:
    """Size and exposure of each group of items."""
    headings = ("Group", "Items", "Of catalogue", "Of training log", "Of exposure", "Per item")
    lines = [
        (
            called(one.group, result.row.group),
            f"{one.items:,}",
            *(f"{share:.1%}" for share in (one.of_catalogue, one.from_training, one.of_exposure)),
            f"{one.per_item:.2f}",
        )
        for one in result.groups
    ]
    by_popularity = result.row.group == POPULAR
    note = f"{called('G0', result.row.group)} is the group whose exposure is to be limited"
    note += ", G1 all other items." if by_popularity else "."
    return page.Section("Exposure by group", [table(headings, lines)], note)


def items_section(result: AuditResult) -> page.Section:
    """The items that gain and that lose most."""
    titled = any(one.title for one in (*result.most_over, *result.most_under))
    title = ("Title",) if titled else ()
    measures = ("Times shown", "Of exposure", "Of training log", "Difference")

    def lines(items: Sequence[ItemExposure]) -> list[tuple[str, ...]]:
        return [
            (
                one.item,
                *((one.title,) if titled else ()),
                called(one.group, result.row.group),
                f"{one.shown:,}",
                f"{one.of_exposure:.2%}",
                f"{one.from_training:.2%}",
                f"{100 * one.change:+.2f} points",
            )
            for one in items
        ]

    def listed(items: Sequence[ItemExposure]) -> Grid:
        return table(("Item", *title, "Group", *measures), lines(items), len(measures) + 1)

    parts: list[page.Part] = [
        page.Heading("Shown most beyond their share"),
        listed(result.most_over),
        page.Heading("Shown most below their share"),
        listed(result.most_under),
    ]
    note = "Against each item's share of the training log."
    return page.Section("Over-exposed and under-exposed items", parts, note)


def called(group: str, name: str) -> str:
    """G0 and G1 of a row; where G0 is a group by an attribute, its name and "other"."""
    if name == POPULAR:
        return group
    return name if group == "G0" else "other"


def table(
    headings: Sequence[str], lines: Sequence[Sequence[str]], numbers: int | None = None
) -> Grid:
    """Texts as a table, numbers to the right: in all columns but the first, or in so many."""
    # Texts that read as numbers sort as numbers when a heading is clicked.
    cells = [[as_read(text) for text in line] for line in lines]
    return Grid(headings, cells, len(headings) - 1 if numbers is None else numbers)


def limits_section(result: AuditResult) -> page.Section:
    """The limits in numbers; those of one rule on many values are folded."""
    numbers = limits_grid(result.row.limits)
    folded = page.Folded("Limits", numbers, len(numbers.lines) <= OPEN)
    return page.Section("Limits in numbers", [folded], f"In percent. {NOTE}")


def bands(by_rank: ByRank) -> Iterator[tuple[str, int, int]]:
    """Neighbouring ranks that lists have: what they are called, the first and the last."""
    length = len(by_rank.showings)
    for first, last in BANDS:
        if first <= length:
            end = min(last, length)
            yield (str(first) if first == end else f"{first}-{end}"), first, end


def shown_groups(by_rank: ByRank) -> list[RankExposure]:
    """The limited group and the others, then the groups of limits that are shown most."""
    # As many groups as there are colours; they stay in the order of the limits.
    first, rest = by_rank.groups[:2], by_rank.groups[2:]
    most = sorted(rest, key=lambda group: -group.of_exposure)[: MOST_GROUPS - len(first)]
    return [*first, *(group for group in rest if group in most)]


def ranks_grid(by_rank: ByRank) -> Grid:
    """The share of every group at neighbouring ranks."""
    named = list(bands(by_rank))
    lines = [
        [
            Cell(group.group),
            *(number_cell(100 * by_rank.share(group, first, last), 1) for _, first, last in named),
            number_cell(100 * group.of_exposure, 1),
        ]
        for group in shown_groups(by_rank)
    ]
    headings = ["Group", *(f"Rank {name}" for name, _, _ in named), "All"]
    return Grid(headings, lines, len(headings) - 1)


def ranks_chart(by_rank: ByRank) -> Chart:
    """The share of every group at every rank, as lines."""
    groups = shown_groups(by_rank)
    styles = {
        group.group: Style(GREY if at == 1 else PALETTE[at], SHAPES[at % len(SHAPES)])
        for at, group in enumerate(groups)
    }
    return charts.by_rank_chart({group.group: group.shares for group in groups}, styles)


def ranks_section(by_rank: ByRank) -> page.Section:
    chart = ranks_chart(by_rank)
    return page.Section(chart.title, [chart])


def ranks_table_section(by_rank: ByRank) -> page.Section:
    left_out = len(by_rank.groups) - len(shown_groups(by_rank))
    more = f" {left_out:,} further groups, which are shown less, are in the JSON file."
    note = RANKS_NOTE + (more if left_out else "")
    return page.Section("Exposure by rank in numbers", [ranks_grid(by_rank)], note)


def providers_grid(providers: Sequence[ProviderExposure], column: str) -> Grid:
    """Providers in the given order."""
    headings = [
        *(column, "Items", "Showings", "Of shown", "Of log", "Of items", "Ratio", "Best rank"),
    ]
    lines = [
        [
            Cell(one.provider),
            as_read(f"{one.items:,}"),
            as_read(f"{one.shown:,}"),
            percent_cell(one.of_exposure),
            percent_cell(one.from_training),
            percent_cell(one.of_catalogue),
            number_cell(one.ratio),
            number_cell(None if one.best_rank is None else float(one.best_rank), 0),
        ]
        for one in providers
    ]
    return Grid(headings, lines, len(headings) - 1)


def providers_section(result: AuditResult) -> page.Section:
    """The worst-off providers, and all of them where they are many."""
    parts: list[page.Part] = [providers_grid(result.providers[:OPEN], result.provider_column)]
    if len(result.providers) > OPEN:
        every = providers_grid(result.providers, result.provider_column)
        parts.append(page.Folded(f"All {len(result.providers):,}", every))
    return page.Section(f"Providers: {result.provider_column}", parts, PROVIDERS_NOTE)


def providers_line(result: AuditResult) -> str:
    """How many there are, how many are never shown and how many below their share."""
    known = [one for one in result.providers if not math.isnan(one.ratio)]
    below = sum(one.ratio < 1 for one in known)
    never = sum(not one.shown for one in result.providers)
    return (
        f"{len(result.providers):,}; {below:,} are shown less than their share of the training "
        f"log, {never:,} never"
    )
