"""fairhorizon data: show a data set, write its split."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli.config_option import takes_config
from fairhorizon.vocabulary import Cut

if TYPE_CHECKING:
    from fairhorizon.data.readers import ReaderOptions

data_commands = typer.Typer(help="Show a data set or write its split.")


@data_commands.command()
@takes_config
@shared.takes_reader
def info(
    source: shared.Source, reading: "ReaderOptions", cache_dir: shared.CacheDir = None
) -> None:
    """Print the number of users, items and interactions, and how many share user and time."""
    from rich.console import Console

    from fairhorizon.data.sources import load
    from fairhorizon.data.splits import statistics, tied_share, ties_note
    from fairhorizon.report.tables import statistics_table
    from fairhorizon.results.evaluation import DataStatistics

    log = load(source, cache_dir=cache_dir, **reading)
    Console().print(statistics_table(DataStatistics(log.name, **vars(statistics(log)))))
    if share := tied_share(log):
        typer.echo(f"{ties_note(share)}.")


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
    from fairhorizon.data.splits import write_split

    ties = shared.order_of_ties(shuffle_ties, keep_ties)
    spec = shared.data_spec(source, **reading, cut=cut.value, ties=ties)
    parts = spec.open(cache_dir).split
    write_split(parts, out)
    typer.echo(
        f"{out}: {len(parts.train):,} training, {len(parts.validation):,} validation, "
        f"{len(parts.test):,} test interactions"
    )
