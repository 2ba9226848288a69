"""fairhorizon data: show a data set, write its split, write an example of another kind."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli.config_option import takes_config
from fairhorizon.cli.kind_options import AreaKm
from fairhorizon.vocabulary import Cut, ExampleKind, LogFormat

if TYPE_CHECKING:
    from fairhorizon.data.readers import ReaderOptions

data_commands = typer.Typer(help="Show a data set, write its split or an example.")


@data_commands.command()
@takes_config
@shared.takes_reader
def info(
    source: shared.Source,
    reading: "ReaderOptions",
    cache_dir: shared.CacheDir = None,
    area_km: AreaKm = 10.0,
) -> None:
    """Print the number of users, items and interactions, and what kind of log it is."""
    from rich.console import Console

    from fairhorizon.data.kinds import kind_notes, with_coordinates
    from fairhorizon.data.sources import is_named, item_columns, load
    from fairhorizon.data.splits import statistics, tied_share, ties_note
    from fairhorizon.report.tables import statistics_table

    log = with_coordinates(load(source, cache_dir=cache_dir, **reading))
    Console().print(statistics_table(log.name, statistics(log)))
    if share := tied_share(log):
        typer.echo(f"{ties_note(share)}.")
    for note in kind_notes(log, session=reading.get("session"), area_km=area_km):
        typer.echo(note)
    if is_named(source) and (columns := item_columns(source)):
        typer.echo(f"Columns of its items: {', '.join(columns)}.")


@data_commands.command()
@takes_config
@shared.takes_reader
def split(
    source: shared.Source,
    reading: "ReaderOptions",
    out: Annotated[Path, typer.Option("--out", help="Folder for the three files.")],
    cache_dir: shared.CacheDir = None,
    cut: shared.CutOption = Cut.PER_USER,
    shuffle_ties: shared.ShuffleTies = None,
    keep_ties: shared.KeepTies = False,
) -> None:
    """Write train.csv, validation.csv and test.csv with the original ids."""
    from fairhorizon.data.writing import write_split

    ties = shared.order_of_ties(shuffle_ties, keep_ties)
    spec = shared.data_spec(source, **reading, cut=cut.value, ties=ties)
    parts = spec.open(cache_dir).split
    write_split(parts, out)
    typer.echo(
        f"{out}: {len(parts.train):,} training, {len(parts.validation):,} validation, "
        f"{len(parts.test):,} test interactions"
    )


@data_commands.command()
def example(
    kind: Annotated[ExampleKind, typer.Argument(help="Which kind of log.")],
    out: Annotated[Path, typer.Option("--out", help="CSV file to write.")],
    seed: shared.Seed = 0,
) -> None:
    """Write a small made-up log, to try the options for its kind.

    shop: orders with quantities, products bought again. checkins: venues with
    latitude and longitude. sessions: views without users, with seconds spent.
    """
    from fairhorizon.data.kinds import EXAMPLES
    from fairhorizon.files import write_atomically

    frame = EXAMPLES[kind.value](seed)
    write_atomically(out, lambda draft: frame.write_csv(draft))
    typer.echo(f"{out}: {len(frame):,} rows of {', '.join(frame.columns)}")


@data_commands.command()
def generate(
    source: Annotated[
        str, typer.Argument(help="A synthetic set, e.g. synthetic-large:users=1000,seed=1.")
    ],
    out: Annotated[
        Path, typer.Option("--out", help="A .csv or .parquet file; with --parts, a new folder.")
    ],
    parts: Annotated[
        int, typer.Option(min=0, help="Write so many parts in time order, as files of a folder.")
    ] = 0,
    kind: Annotated[LogFormat, typer.Option("--format", help="Of the parts.")] = LogFormat.PARQUET,
) -> None:
    """Write a synthetic log.

    synthetic-large is drawn in time linear in its rows, for logs of millions:
    synthetic-large:users=100000,items=100000,interactions=10000000,seed=1
    """
    from fairhorizon.data.sources import is_synthetic, load
    from fairhorizon.data.writing import write_log, write_parts

    if not is_synthetic(source):
        raise typer.BadParameter(f"{source!r} is no synthetic set", param_hint="SOURCE")
    if not parts and out.suffix.lower() not in (".csv", ".parquet"):
        raise typer.BadParameter(
            f"{out} ends in neither .csv nor .parquet (a folder needs --parts)", param_hint="--out"
        )
    log = load(source)
    if parts:
        write_parts(log, out, parts, kind.value)
    else:
        write_log(log, out)
    typer.echo(f"{out}: {len(log):,} rows of {log.n_users:,} users and {log.n_items:,} items")
