"""An audit as lines for a terminal and as a page."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rich import box
from rich.table import Table

from fairhorizon.files import write_copies, written_together
from fairhorizon.metrics.summary import ACCURACY
from fairhorizon.report import page
from fairhorizon.report.figures import exposure_plot, save_figure
from fairhorizon.report.tables import METRICS, PAPER_METRICS, format_value, metric_columns, units
from fairhorizon.results.audit import ALL, AuditCounts, AuditResult, ItemExposure
from fairhorizon.vocabulary import POPULAR

EXPOSURE = tuple(name for name in METRICS if name not in ACCURACY)
INTRO = (
    "What a system shows to its users, compared with what they took next and with an even spread "
    "of exposure over the items."
)


def facts(result: AuditResult) -> list[tuple[str, str]]:
    """Facts in addition to the metrics, as pairs of a name and its text."""
    counts = result.counts
    lines = [
        ("shown", f"{counts.shown:,} items to {counts.lists:,} of {counts.users:,} users"),
        ("read as", f"{counts.kind}, ordered by {counts.order}"),
        ("counted for accuracy", f"{counts.users_measured:,} users with a list and test items"),
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
    return [*lines, *oddities(counts)]


def oddities(counts: AuditCounts) -> list[tuple[str, str]]:
    """Rows that are not as they should be, and how they were read."""
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
def write_audit_report(out: Path, result: AuditResult, ks: Sequence[int], command: str) -> None:
    """audit.json, exposure.png and index.html."""
    row, group = result.row, result.row.group
    counts = {"training log": result.training, row.method: result.exposure}
    sections = [
        page.results_section([row], PAPER_METRICS, ks),
        page.Section("What was found", definitions(facts(result))),
        page.Section(
            "Metrics of exposure",
            table(exposure_headings(group), exposure_lines(result, ks)),
            units(EXPOSURE),
        ),
        page.exposure_section(counts, result.sensitive, group),
        group_section(result),
        items_section(result),
        page.glossary_section(tuple(METRICS), (row.protocol, row.mode), group),
        page.commands_section([command]),
    ]
    write_copies(result.to_json(), out / "audit.json")
    save_figure(out / "exposure.png", exposure_plot(counts, result.sensitive, group))
    title = f"Audit of {row.method if result.is_named else 'lists'} on {row.dataset}"
    page.write_page(out / "index.html", title=title, intro=INTRO, sections=sections)


def group_section(result: AuditResult) -> page.Section:
    """Size and exposure of each group of items."""
    headings = ("Group", "Items", "Of catalogue", "Of training log", "Of exposure", "Per item")
    lines = [
        (
            called(one.group, result.row.group),
            f"{one.items:,}",
            *(f"{share:.1%}" for share in (one.of_catalogue, one.of_training, one.of_exposure)),
            f"{one.per_item:.2f}",
        )
        for one in result.groups
    ]
    by_popularity = result.row.group == POPULAR
    note = f"{called('G0', result.row.group)} is the group whose exposure is to be limited"
    note += ", G1 all other items." if by_popularity else "."
    return page.Section("Exposure by group", table(headings, lines), note)


def items_section(result: AuditResult) -> page.Section:
    """The items that gain and that lose most."""
    headings = ("Item", "Group", "Times shown", "Of exposure", "Of training log", "Difference")

    def lines(items: Sequence[ItemExposure]) -> list[tuple[str, ...]]:
        return [
            (
                one.item,
                called(one.group, result.row.group),
                f"{one.shown:,}",
                f"{one.of_exposure:.2%}",
                f"{one.of_training:.2%}",
                f"{100 * one.change:+.2f} points",
            )
            for one in items
        ]

    html = (
        f"<h3>Shown most beyond their share</h3>{table(headings, lines(result.most_over))}"
        f"<h3>Shown most below their share</h3>{table(headings, lines(result.most_under))}"
    )
    note = "Against each item's share of the training log."
    return page.Section("Over-exposed and under-exposed items", html, note)


def called(group: str, name: str) -> str:
    """G0 and G1 of a row; where G0 is a group by an attribute, its name and "other"."""
    if name == POPULAR:
        return group
    return name if group == "G0" else "other"


def definitions(pairs: Sequence[tuple[str, str]]) -> str:
    """Names and their texts as an HTML list."""
    entries = (f"<div><dt>{escape(a)}</dt><dd>{escape(b)}</dd></div>" for a, b in pairs)
    return f"<dl>{''.join(entries)}</dl>"


def table(headings: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Plain text as an HTML table, numbers to the right."""
    head = "".join(f"<th{_kind(n)}>{escape(text)}</th>" for n, text in enumerate(headings))
    body = "".join(
        "<tr class=first>"
        + "".join(f"<td{_kind(n)}>{escape(text)}</td>" for n, text in enumerate(line))
        + "</tr>"
        for line in lines
    )
    return f'<div class="scroll"><table><tr>{head}</tr>{body}</table></div>'


def _kind(column: int) -> str:
    return " class=number" if column else ""
