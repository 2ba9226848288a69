"""fairhorizon audit: how accurate and how fair are the lists that any system shows?"""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import limit_options, list_lengths
from fairhorizon.cli import options as shared
from fairhorizon.cli.engine_options import takes_engine
from fairhorizon.cli.folders import claimed
from fairhorizon.cli.typed import typed_command

if TYPE_CHECKING:
    from fairhorizon.datasets import DataSpec
    from fairhorizon.parallel.engine import TaskEngine
    from fairhorizon.studies.audit import AuditResult, ListFile

LISTS = "Reading the lists"


Lists = Annotated[
    Path, typer.Argument(help="CSV, TSV or Parquet: user, item, optionally rank or time.")
]
AlphaPrime = Annotated[
    float, typer.Option(min=0, max=1, help="Largest share of the limited group in a list.")
]
PopularShare = Annotated[
    float, typer.Option(min=0, max=1, help="Share of the catalogue that counts as popular.")
]
Name = Annotated[str, typer.Option(help="Name of the system in the results.")]
Providers = Annotated[
    str | None,
    typer.Option(
        "--providers",
        metavar="COLUMN",
        help="Column with the provider of an item, such as its seller: reports what the items of "
        "each are shown, the worst-off first. Of the item table, else of the data.",
    ),
]
Title = Annotated[
    str | None,
    typer.Option(
        "--title",
        metavar="COLUMN",
        help="Column with the titles of items, of the item table, else of the data.",
        show_default="found by its name, such as title or name",
    ),
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder for index.html, audit.json and exposure.png.")
]
ListUser = Annotated[
    str | None,
    typer.Option(
        help="Column with the user: its name, or its position from 0.", rich_help_panel=LISTS
    ),
]
ListItem = Annotated[str | None, typer.Option(help="Column with the item.", rich_help_panel=LISTS)]
ListRank = Annotated[
    str | None,
    typer.Option(help="Column with the rank; the smallest is on top.", rich_help_panel=LISTS),
]
ListTime = Annotated[
    str | None,
    typer.Option(
        help="Column with the time; without ranks: an impression log.", rich_help_panel=LISTS
    ),
]
ListHeader = Annotated[
    bool | None,
    typer.Option(help="Read the first line as a header or as data.", rich_help_panel=LISTS),
]
ListSeparator = Annotated[
    str | None, typer.Option(help="Text between two cells.", rich_help_panel=LISTS)
]
ListEncoding = Annotated[
    str, typer.Option(help="Encoding of the text, such as latin-1.", rich_help_panel=LISTS)
]
IgnoreUnknown = Annotated[
    bool,
    typer.Option(
        "--ignore-unknown",
        help="Skip rows whose user or item is not in the data.",
        rich_help_panel=LISTS,
    ),
]


@partial(takes_engine, without="jobs")
@shared.takes_data
def audit(
    context: typer.Context,
    lists: Lists,
    data: "DataSpec",
    engine: "TaskEngine",
    k: list_lengths.Lengths = None,
    alpha_prime: AlphaPrime = 1.0,
    limit: limit_options.Limits = None,
    popular_share: PopularShare = 0.2,
    providers: Providers = None,
    title: Title = None,
    name: Name = "audit",
    out: Out = None,
    json_file: shared.JsonFile = None,
    list_user: ListUser = None,
    list_item: ListItem = None,
    list_rank: ListRank = None,
    list_time: ListTime = None,
    list_header: ListHeader = None,
    list_separator: ListSeparator = None,
    list_encoding: ListEncoding = "utf-8",
    ignore_unknown: IgnoreUnknown = False,
    cache_dir: Path | None = None,
) -> None:
    """Evaluate the lists or the impression log of any system against a data set.

    A list is ordered by rank, else by time, else as in the file. The test items
    are what users took next, so the data must continue after the time at which
    the lists were made. Limits are measured on everything shown, whatever --k
    says.

    Duplicate rows, negative ranks and skipped ranks are counted and reported.
    A row that is the same as an earlier one is left out; in an impression log
    without ranks it counts as a showing. Ranks are an order: a negative one is on
    top, and after a skipped one the next item takes its place.
    """
    from fairhorizon.datasets import DataPlace
    from fairhorizon.studies.audit import AuditTask
    from fairhorizon.studies.providers import item_notes

    typed = list_lengths.parse_lengths(k)
    item_table = data.item_table
    data, asked = limit_options.apart(data, limit)
    if data.group_column is None:  # the table is for providers and titles
        data = data.model_copy(update={"item_table": None})
    with claimed(out) if out else nullcontext():
        place = DataPlace(data, cache_dir, popular_share)
        dataset = place.dataset()
        ks = list_lengths.fitting(typed, dataset.log.n_items)
        columns = (list_user, list_item, list_rank, list_time)
        file = list_file(lists, columns, list_header, list_separator, list_encoding, ignore_unknown)
        limits = tuple(asked.bound(data, dataset.split, cache_dir, popular_share))
        notes = item_notes(data, item_table, cache_dir, providers=providers, title=title)
        task = AuditTask(place, file, limits, tuple(ks), alpha_prime, name, notes)
        (result,) = engine.each([task])
        write(result, ks, json_file, out, typed_command(context))
    present(result, ks, out)


def list_file(
    path: Path,
    columns: Sequence[str | None],
    header: bool | None,
    separator: str | None,
    encoding: str,
    ignore_unknown: bool,
) -> "ListFile":
    """The file of the showings; columns of user, item, rank and time, as they were typed."""
    from fairhorizon.data.recommendations import ListColumns
    from fairhorizon.studies.audit import ListFile

    found = ListColumns(*map(shared.column, columns))
    separator = "\t" if separator == "\\t" else separator
    return ListFile(path, found, header, separator, encoding, ignore_unknown)


def write(
    result: "AuditResult", ks: list[int], json_file: Path | None, out: Path | None, command: str
) -> None:
    """The JSON file and the page, together or not at all."""
    from fairhorizon.files import write_copies, written_together
    from fairhorizon.report.audit import write_audit_report

    with written_together():
        write_copies(result.to_json(), json_file)
        if out is not None:
            write_audit_report(out, result, ks, command)


def present(result: "AuditResult", ks: list[int], out: Path | None) -> None:
    """Print verdicts, tables and facts, and where the page is."""
    from rich.console import Console

    from fairhorizon.report import audit as audit_report
    from fairhorizon.report.audit import exposure_table, facts
    from fairhorizon.report.grid import terminal
    from fairhorizon.report.limits import NARROW, limits_grid
    from fairhorizon.report.tables import PAPER_METRICS, metrics_table

    console = Console()
    for line in audit_report.verdict_lines(result):
        typer.echo(line)
    console.print(metrics_table([result.row], PAPER_METRICS, ks))
    console.print(exposure_table(result, ks))
    if result.row.limits and len(result.row.limits) <= audit_report.OPEN:
        console.print(terminal(limits_grid(result.row.limits), NARROW))
    if result.by_rank.groups:
        console.print(terminal(audit_report.ranks_grid(result.by_rank)))
    if result.providers:
        worst = result.providers[: audit_report.WORST]
        console.print(terminal(audit_report.providers_grid(worst, result.provider_column)))
    for fact in facts(result):
        typer.echo(": ".join(fact))
    if not result.counts.users_measured:
        typer.echo("note: no user has a list and test items, so accuracy is undefined", err=True)
    if out is not None:
        typer.echo(f"{out / 'index.html'}: the page, open it in a browser")
