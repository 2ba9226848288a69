"""fairhorizon audit: how accurate and how fair are the lists that any system shows?"""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli import limits, options
from fairhorizon.cli.config import POPULAR_SHARE, Config
from fairhorizon.files import claimed
from fairhorizon.vocabulary import Cut, EngineName

if TYPE_CHECKING:
    from fairhorizon.studies.audit import AuditResult, ListFile

LISTS = "Reading the lists"


def audit(
    context: typer.Context,
    lists: Annotated[
        Path,
        typer.Argument(
            help="CSV, TSV or Parquet: user, item, optionally rank or time.",
            callback=options.there,
        ),
    ],
    data: options.Data,
    k: options.Lengths = None,
    alpha_prime: Annotated[
        float, typer.Option(min=0, max=1, help="Largest share of the limited group in a list.")
    ] = 1.0,
    limit: options.Limits = None,
    popular_share: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the catalogue that counts as popular.")
    ] = POPULAR_SHARE,
    providers: Annotated[
        str | None,
        typer.Option(
            "--providers",
            metavar="COLUMN",
            help="Column with the provider of an item, such as its seller: reports what the items "
            "of each are shown, the worst-off first. Of the item table, else of the data.",
        ),
    ] = None,
    title: Annotated[
        str | None,
        typer.Option(
            "--title",
            metavar="COLUMN",
            help="Column with the titles of items, of the item table, else of the data.",
            show_default="found by its name, such as title or name",
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the system in the results.")] = "audit",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for index.html, audit.json and exposure.png."),
    ] = None,
    json_file: options.JsonFile = None,
    list_user: Annotated[
        str | None,
        typer.Option(
            help="Column with the user: its name, or its position from 0.", rich_help_panel=LISTS
        ),
    ] = None,
    list_item: Annotated[
        str | None, typer.Option(help="Column with the item.", rich_help_panel=LISTS)
    ] = None,
    list_rank: Annotated[
        str | None,
        typer.Option(help="Column with the rank; the smallest is on top.", rich_help_panel=LISTS),
    ] = None,
    list_time: Annotated[
        str | None,
        typer.Option(
            help="Column with the time; without ranks: an impression log.", rich_help_panel=LISTS
        ),
    ] = None,
    list_header: Annotated[
        bool | None,
        typer.Option(help="Read the first line as a header or as data.", rich_help_panel=LISTS),
    ] = None,
    list_separator: Annotated[
        str | None, typer.Option(help="Text between two cells.", rich_help_panel=LISTS)
    ] = None,
    list_encoding: Annotated[
        str, typer.Option(help="Encoding of the text, such as latin-1.", rich_help_panel=LISTS)
    ] = "utf-8",
    ignore_unknown: Annotated[
        bool,
        typer.Option(
            "--ignore-unknown",
            help="Skip rows whose user or item is not in the data.",
            rich_help_panel=LISTS,
        ),
    ] = False,
    cache_dir: options.CacheDir = None,
    cut: options.CutOption = Cut.PER_USER,
    shuffle_ties: options.ShuffleTies = None,
    keep_ties: options.KeepTies = False,
    group_column: options.GroupColumn = None,
    sensitive: options.Sensitive = None,
    item_table: options.ItemTable = None,
    area_km: options.AreaKm = 10.0,
    user: options.UserColumn = None,
    item: options.ItemColumn = None,
    rating: options.RatingColumn = None,
    timestamp: options.TimeColumn = None,
    weight: options.WeightColumn = None,
    session: options.SessionColumn = None,
    header: options.Header = None,
    separator: options.Separator = None,
    encoding: options.Encoding = "utf-8",
    drop_incomplete: options.DropIncomplete = False,
    engine_name: options.EngineOption = EngineName.PROCESSES,
    address: options.Address = None,
    threads: options.Threads = 1,
    _config: Config = None,
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
    from fairhorizon.studies.audit import AuditTask, item_notes

    reading = options.reader(
        user, item, rating, timestamp, weight, session, header, separator, encoding, drop_incomplete
    )
    group = options.limited_group(group_column, sensitive, item_table, area_km)
    ties = options.order_of_ties(shuffle_ties, keep_ties)
    spec = options.data_spec(data, reading, cut, ties, group)
    spec, asked = limits.apart(spec, limit)
    if spec.group_column is None:  # the table is for providers and titles
        spec = spec.model_copy(update={"item_table": None})
    typed = options.parse_lengths(k)
    with (
        options.chosen_engine(None, engine_name, address, threads) as engine,
        claimed(out) if out else nullcontext(),
    ):
        place = DataPlace(spec, cache_dir, popular_share)
        dataset = place.dataset()
        ks = options.fitting_lengths(typed, dataset.log.n_items)
        columns = (list_user, list_item, list_rank, list_time)
        file = list_file(lists, columns, list_header, list_separator, list_encoding, ignore_unknown)
        bound = tuple(asked.bound(spec, dataset.split, cache_dir, popular_share))
        notes = item_notes(spec, group["item_table"], cache_dir, providers=providers, title=title)
        task = AuditTask(place, file, bound, tuple(ks), alpha_prime, name, notes)
        (result,) = engine.each([task])
        write(result, ks, json_file, out, options.made_by(context, spec, cache_dir))
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

    found = ListColumns(*map(options.column, columns))
    separator = options.separator_of(separator)
    return ListFile(path, found, header, separator, encoding, ignore_unknown)


def write(
    result: "AuditResult",
    ks: list[int],
    json_file: Path | None,
    out: Path | None,
    made_by: Mapping[str, Any],
) -> None:
    """The JSON file and the page, together or not at all."""
    from fairhorizon.files import write_copies, written_together
    from fairhorizon.report.audit import write_audit_report

    with written_together():
        write_copies(result.to_json() | {"made_by": made_by}, json_file)
        if out is not None:
            write_audit_report(out, result, ks, made_by["command"], made_by)


def present(result: "AuditResult", ks: list[int], out: Path | None) -> None:
    """Print verdicts, tables and facts, and where the page is."""
    from rich.console import Console

    from fairhorizon.limits.measured import verdict_lines
    from fairhorizon.report import audit as audit_report
    from fairhorizon.report.audit import exposure_table, facts
    from fairhorizon.report.limits import NARROW, limits_grid
    from fairhorizon.report.tables import metrics_table, terminal

    console = Console()
    for line in verdict_lines(result.verdicts):
        typer.echo(line)
    typer.echo(audit_report.finding(result, max(ks)))
    console.print(metrics_table([result.row], audit_report.metrics_shown(result), ks))
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
