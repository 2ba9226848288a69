"""fairhorizon data: show a data set, write its split."""

from pathlib import Path
from typing import Annotated

import typer

from fairhorizon.cli import options as shared
from fairhorizon.vocabulary import Cut

data_commands = typer.Typer(help="Show a data set or write its split.")


@data_commands.command()
def info(
    source: shared.Source,
    cache_dir: shared.CacheDir = None,
    user: shared.UserColumn = None,
    item: shared.ItemColumn = None,
    rating: shared.RatingColumn = None,
    timestamp: shared.TimeColumn = None,
    header: shared.Header = None,
    separator: shared.Separator = None,
) -> None:
    """Print the number of users, items and interactions, as in the paper."""
    from rich.console import Console

    from fairhorizon.data.sources import load
    from fairhorizon.data.splits import statistics
    from fairhorizon.report.tables import statistics_table
    from fairhorizon.results.evaluation import DataStatistics

    options = shared.reader(user, item, rating, timestamp, header, separator)
    log = load(source, cache_dir=cache_dir, **options)
    Console().print(statistics_table(DataStatistics(log.name, **vars(statistics(log)))))


@data_commands.command()
def split(
    source: shared.Source,
    out: Annotated[Path, typer.Option("--out", help="Folder for the three files.")],
    cache_dir: shared.CacheDir = None,
    user: shared.UserColumn = None,
    item: shared.ItemColumn = None,
    rating: shared.RatingColumn = None,
    timestamp: shared.TimeColumn = None,
    header: shared.Header = None,
    separator: shared.Separator = None,
    cut: shared.CutOption = Cut.PER_USER,
    shuffle_ties: shared.ShuffleTies = None,
) -> None:
    """Write train.csv, validation.csv and test.csv with the original ids."""
    from fairhorizon.data.splits import write_split

    options = shared.reader(user, item, rating, timestamp, header, separator)
    spec = shared.data_spec(source, **options, cut=cut.value, shuffle_ties=shuffle_ties)
    parts = spec.open(cache_dir).split
    write_split(parts, out)
    typer.echo(
        f"{out}: {len(parts.train):,} training, {len(parts.validation):,} validation, "
        f"{len(parts.test):,} test interactions"
    )
