"""An audit as lines for a terminal and as a page."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.table import Table

from fairhorizon.experiments.audit import (
    ACCURACY,
    ALL,
    UNNAMED,
    Audit,
    exposure_by_group,
    most_changed,
    shares,
)
from fairhorizon.experiments.runs import Dataset
from fairhorizon.files import write_json
from fairhorizon.report import page
from fairhorizon.report.figures import exposure_plot, save_figure
from fairhorizon.report.tables import METRICS, PAPER_METRICS, format_value, units

EXPOSURE = tuple(name for name in METRICS if name not in ACCURACY)
INTRO = (
    "What a system shows to its users, held against what they took next and against how evenly "
    "exposure could be spread over the items."
)


def facts(result: Audit) -> list[tuple[str, str]]:
    """What was found beside the metrics, as pairs of a name and its text."""
    counts = result.counts
    lines = [
        ("shown", f"{counts.shown:,} items to {counts.lists:,} of {counts.users:,} users"),
        ("read as", f"{counts.kind}, ordered by {counts.order}"),
        ("judged for accuracy", f"{counts.users_judged:,} users, who have a list and test items"),
        (
            "from the user's own history",
            f"{counts.from_history:,} ({counts.from_history_share:.1%} of what is shown), "
            f"so the protocol is {result.protocol}",
        ),
    ]
    lines += [
        (f"lists shorter than {k}", f"{n:,} of {counts.lists:,}")
        for k, n in counts.shorter_lists.items()
        if n
    ]
    if counts.unknown_rows:
        lines.append(("left out", f"{counts.unknown_rows:,} rows of unknown users or items"))
    return lines


def exposure_headings() -> list[str]:
    return ["K", *(METRICS[name].heading for name in EXPOSURE)]


def exposure_lines(result: Audit, ks: Sequence[int]) -> list[list[str]]:
    """The metrics of exposure for each K, and for all impressions of a log."""
    cuts = [*map(str, ks), *([ALL] if result.counts.kind == "impressions" else [])]
    return [
        [cut, *(format_value(name, result.metrics.get(f"{name}@{cut}")) for name in EXPOSURE)]
        for cut in cuts
    ]


def exposure_table(result: Audit, ks: Sequence[int]) -> Table:
    """The metrics of exposure for a terminal."""
    terminal = Table(
        box=box.SIMPLE_HEAD, show_edge=False, caption=units(EXPOSURE), caption_justify="left"
    )
    for heading in exposure_headings():
        terminal.add_column(heading, justify="right")
    for line in exposure_lines(result, ks):
        terminal.add_row(*line)
    return terminal


def write_report(
    out: Path, result: Audit, dataset: Dataset, ks: Sequence[int], command: str
) -> None:
    """audit.json, exposure.png and index.html."""
    counts = {"training log": dataset.split.train.item_counts(), result.name: result.exposure}
    rows, metrics = [result.row()], tuple(METRICS)
    sections = [
        page.results_section(rows, PAPER_METRICS, ks),
        page.Section("What was found", definitions(facts(result))),
        page.Section(
            "Metrics of exposure",
            table(exposure_headings(), exposure_lines(result, ks)),
            units(EXPOSURE),
        ),
        page.exposure_section(counts, dataset.sensitive),
        group_section(result, dataset),
        items_section(result, dataset),
        page.glossary_section(rows, metrics),
        page.commands_section([command]),
    ]
    write_json(out / "audit.json", result.to_json())
    save_figure(out / "exposure.png", exposure_plot(counts, dataset.sensitive))
    title = f"Audit of {result.name} on {result.dataset}"
    if result.name == UNNAMED:
        title = f"Audit of lists on {result.dataset}"
    page.write_page(out / "index.html", title=title, intro=INTRO, sections=sections)


def group_section(result: Audit, dataset: Dataset) -> page.Section:
    """What each group of items gets, beside what it is."""
    headings = ("Group", "Items", "Of catalogue", "Of training log", "Of exposure", "Per item")
    lines = [
        (
            one.group,
            f"{one.items:,}",
            *(f"{share:.1%}" for share in (one.of_catalogue, one.of_training, one.of_exposure)),
            f"{one.per_item:.2f}",
        )
        for one in exposure_by_group(result, dataset)
    ]
    note = "G0 is the group whose exposure is to be limited, G1 all other items."
    return page.Section("Exposure by group", table(headings, lines), note)


def items_section(result: Audit, dataset: Dataset) -> page.Section:
    """The items that gain and that lose most."""
    training = dataset.split.train.item_counts()
    of_training, of_exposure = shares(training), shares(result.exposure)
    headings = ("Item", "Group", "Times shown", "Of exposure", "Of training log", "Difference")

    def lines(items: NDArray[np.int64]) -> list[tuple[str, ...]]:
        return [
            (
                str(dataset.log.item_ids[item]),
                "G0" if dataset.sensitive[item] else "G1",
                f"{result.exposure[item]:,}",
                f"{of_exposure[item]:.2%}",
                f"{of_training[item]:.2%}",
                f"{100 * (of_exposure[item] - of_training[item]):+.2f} points",
            )
            for item in items
        ]

    over, under = most_changed(result, dataset)
    html = (
        f"<h3>Shown most beyond their share</h3>{table(headings, lines(over))}"
        f"<h3>Shown most below their share</h3>{table(headings, lines(under))}"
    )
    note = "Against each item's share of the training log."
    return page.Section("Over-exposed and under-exposed items", html, note)


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
