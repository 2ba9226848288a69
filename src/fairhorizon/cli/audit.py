"""fairhorizon audit: how accurate and how fair are the lists that any system shows?"""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import limit_options, list_lengths
from fairhorizon.cli import options as shared
from fairhorizon.cli.folders import claimed
from fairhorizon.cli.typed import typed_command

if TYPE_CHECKING:
    from fairhorizon.experiments.datasets import DataSpec
    from fairhorizon.results.audit import AuditResult

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


@shared.takes_data
def audit(
    context: typer.Context,
    lists: Lists,
    data: "DataSpec",
    k: list_lengths.Lengths = None,
    alpha_prime: AlphaPrime = 1.0,
    limit: limit_options.Limits = None,
    popular_share: PopularShare = 0.2,
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
    from fairhorizon.data.recommendations import ListColumns, read_recommendations
    from fairhorizon.experiments.audit import audit as measure
    from fairhorizon.files import write_copies, written_together
    from fairhorizon.report.audit import write_audit_report

    typed = list_lengths.parse_lengths(k)
    data, asked = limit_options.apart(data, limit)
    with claimed(out) if out else nullcontext():
        dataset = data.open(cache_dir, popular_share)
        ks = list_lengths.fitting(typed, dataset.log.n_items)
        shown = read_recommendations(
            lists,
            dataset.log,
            ListColumns(*map(shared.column, (list_user, list_item, list_rank, list_time))),
            header=list_header,
            separator="\t" if list_separator == "\\t" else list_separator,
            encoding=list_encoding,
            ignore_unknown=ignore_unknown,
        )
        limits = asked.bound(data, dataset.split, cache_dir, popular_share)
        result = measure(dataset, shown, ks=ks, alpha_prime=alpha_prime, name=name, limits=limits)
        with written_together():
            write_copies(result.to_json(), json_file)
            if out is not None:
                write_audit_report(out, result, ks, typed_command(context))
    present(result, ks, out)


def present(result: "AuditResult", ks: list[int], out: Path | None) -> None:
    """Print the tables and the facts, and where the page is."""
    from rich.console import Console

    from fairhorizon.report.audit import exposure_table, facts
    from fairhorizon.report.limits import limits_table
    from fairhorizon.report.tables import PAPER_METRICS, metrics_table

    console = Console()
    if result.row.limits:
        console.print(limits_table(result.row.limits))
    console.print(metrics_table([result.row], PAPER_METRICS, ks))
    console.print(exposure_table(result, ks))
    for fact in facts(result):
        typer.echo(": ".join(fact))
    if not result.counts.users_measured:
        typer.echo("note: no user has a list and test items, so accuracy is undefined", err=True)
    if out is not None:
        typer.echo(f"{out / 'index.html'}: the page, open it in a browser")
