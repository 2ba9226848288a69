"""Parts of an audit: verdicts on limits, exposure by rank, providers."""

import math
from collections.abc import Iterator, Sequence

from fairhorizon.report import charts, marks, page
from fairhorizon.report.charts import Chart
from fairhorizon.report.grid import Cell, Grid, as_read, number, percent
from fairhorizon.report.limits import NOTE, limits_grid
from fairhorizon.report.looks import GREY, PALETTE, SHAPES, Look
from fairhorizon.report.marks import Axis
from fairhorizon.studies.audit import AuditResult, ByRank, RankExposure
from fairhorizon.studies.providers import ProviderExposure

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


def verdict_lines(result: AuditResult) -> list[str]:
    """As in "popular<=0.4  kept: 38.2 % of at most 40 %", one below the other."""
    widest = max((len(one.limit) for one in result.verdicts), default=0)
    return [f"{one.limit:<{widest}}  {one.verdict}" for one in result.verdicts]


def limits_section(result: AuditResult) -> page.Section:
    """The verdicts, and below them the limits in numbers."""
    lines = [[Cell(one.limit), Cell(one.verdict)] for one in result.verdicts]
    numbers = limits_grid(result.row.limits)
    folded = page.Folded("In numbers", numbers, len(numbers.lines) <= OPEN)
    verdicts = Grid(("Limit", "Verdict"), lines, 0)
    return page.Section("Limits", [verdicts, folded], f"In percent. {NOTE}")


def bands(by_rank: ByRank) -> Iterator[tuple[str, int, int]]:
    """Neighbouring ranks that lists have: what they are called, the first and the last."""
    length = len(by_rank.showings)
    for first, last in BANDS:
        if first <= length:
            end = min(last, length)
            yield (str(first) if first == end else f"{first}-{end}"), first, end


def shown_groups(by_rank: ByRank) -> list[RankExposure]:
    """The limited group and the others, then the groups of limits that are shown most."""
    first, rest = by_rank.groups[:2], by_rank.groups[2:]
    most = sorted(rest, key=lambda group: -group.of_exposure)[: MOST_GROUPS - len(first)]
    return [*first, *(group for group in rest if group in most)]


def ranks_grid(by_rank: ByRank) -> Grid:
    """The share of every group at neighbouring ranks."""
    named = list(bands(by_rank))
    lines = [
        [
            Cell(group.group),
            *(number(100 * by_rank.share(group, first, last), 1) for _, first, last in named),
            number(100 * group.of_exposure, 1),
        ]
        for group in shown_groups(by_rank)
    ]
    headings = ["Group", *(f"Rank {name}" for name, _, _ in named), "All"]
    return Grid(headings, lines, len(headings) - 1)


def ranks_chart(by_rank: ByRank) -> Chart:
    """The share of every group at every rank, as lines."""
    groups = shown_groups(by_rank)
    looks = {
        group.group: Look(GREY if at == 1 else PALETTE[at], SHAPES[at % len(SHAPES)])
        for at, group in enumerate(groups)
    }
    rows = [
        {"series": group.group, "x": rank, "y": round(share, 5), "marked": 1}
        for group in groups
        for rank, share in enumerate(group.shares, start=1)
    ]
    x = Axis("Rank", domain=(1, max(2, len(by_rank.showings))), whole=True)
    y = Axis("Share of showings at this rank", domain=(0.0, 1.0), format=".1%", labels=".0%")
    panel = charts.panel([marks.lines(rows, marks.by_series(looks), x, y)], height=320)
    return Chart("Exposure by rank", [panel], looks, columns=1)


def ranks_section(by_rank: ByRank) -> page.Section:
    left_out = len(by_rank.groups) - len(shown_groups(by_rank))
    more = f" {left_out:,} further groups, which are shown less, are in the JSON file."
    note = RANKS_NOTE + (more if left_out else "")
    return page.Section("Exposure by rank", [ranks_grid(by_rank), ranks_chart(by_rank)], note)


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
            percent(one.of_exposure),
            percent(one.of_training),
            percent(one.of_catalogue),
            number(one.ratio),
            number(None if one.best_rank is None else float(one.best_rank), 0),
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
