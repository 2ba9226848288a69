"""fairhorizon data: look at a data set, write its split."""

from pathlib import Path
from typing import Annotated

import typer

from fairhorizon.cli import options as shared

data_commands = typer.Typer(help="Look at a data set, write its split.", no_args_is_help=True)

Source = Annotated[str, typer.Argument(help="A named set (ml-100k, ml-1m, synthetic) or a file.")]


@data_commands.command()
def info(
    source: Source,
    cache_dir: shared.CacheDir = None,
    user: shared.UserColumn = None,
    item: shared.ItemColumn = None,
    rating: shared.RatingColumn = None,
    timestamp: shared.TimeColumn = None,
    header: shared.Header = None,
    separator: shared.Separator = None,
) -> None:
    """Print the paper's table of statistics."""
    from rich.console import Console

    from fairhorizon.data import load, statistics
    from fairhorizon.report.tables import statistics_table

    log = load(
        source,
        cache_dir=cache_dir,
        user=shared.column(user),
        item=shared.column(item),
        rating=shared.column(rating),
        timestamp=shared.column(timestamp),
        header=header,
        separator=separator,
    )
    Console().print(statistics_table(log.name, statistics(log)))


@data_commands.command()
def split(
    source: Source,
    out: Annotated[Path, typer.Option("--out", help="Folder for train, validation and test.csv.")],
    cache_dir: shared.CacheDir = None,
    user: shared.UserColumn = None,
    item: shared.ItemColumn = None,
    rating: shared.RatingColumn = None,
    timestamp: shared.TimeColumn = None,
    header: shared.Header = None,
    separator: shared.Separator = None,
    cut: shared.Cut = "per-user",
    shuffle_ties: shared.ShuffleTies = None,
) -> None:
    """Write train.csv, validation.csv and test.csv with the original ids."""
    from fairhorizon.data import write_split

    spec = shared.data_spec(
        source,
        user=user,
        item=item,
        rating=rating,
        timestamp=timestamp,
        header=header,
        separator=separator,
        cut=cut,
        shuffle_ties=shuffle_ties,
    )
    parts = spec.open(cache_dir).split
    write_split(parts, out)
    typer.echo(
        f"{out}: {len(parts.train):,} training, {len(parts.validation):,} validation, "
        f"{len(parts.test):,} test interactions"
    )
