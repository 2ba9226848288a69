"""fairhorizon demo: the default and its rivals under an exposure limit."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import list_lengths
from fairhorizon.cli import options as shared
from fairhorizon.cli.config_option import takes_config
from fairhorizon.cli.folders import claimed
from fairhorizon.cli.progress import Progress

if TYPE_CHECKING:
    from fairhorizon.datasets import Dataset

WIDTH_OF_FILES = 100  # columns; a terminal has its own width


@takes_config
def demo(
    data: shared.Data = "ml-100k",
    out: Annotated[Path, typer.Option("--out", help="Folder for the page and the figures.")] = Path(
        "demo"
    ),
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds of fcpo:paper.")] = 20,
    seed: shared.Seed = 0,
    k: list_lengths.Lengths = None,
    encoding: shared.Encoding = "utf-8",
    cache_dir: shared.CacheDir = None,
) -> None:
    """Show fcpo and rivals at three exposure limits and in a long run.

    Fits fcpo once, evaluates it against popularity and ease:recent+quota, then serves
    60 steps; prints the tables and writes a page with figures. fcpo:paper, the
    policy of the paper, is trained briefly for one of the limits.
    """
    from rich.console import Console

    from fairhorizon.report.demo import demo_tables, intro, write_demo_report
    from fairhorizon.studies.demo import demonstrate

    typed = list_lengths.parse_lengths(k)
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_FILES, highlight=False)
    with claimed(out):
        dataset = open_or_make(data, encoding, cache_dir)
        ks = list_lengths.fitting(typed, dataset.log.n_items)
        console.print(intro(dataset.group_name))
        with Progress() as progress:
            result = demonstrate(dataset, rounds=rounds, seed=seed, ks=ks, listener=progress)
        console.print(demo_tables(result, max(ks)))
        shown = ",".join(map(str, ks))
        command = f"fairhorizon demo --data {data} --rounds {rounds} --seed {seed} --k {shown}"
        if encoding != "utf-8":
            command += f" --encoding {encoding}"
        write_demo_report(out, result, ks, command)
    typer.echo(f"{out / 'index.html'}: the page, open it in a browser")


def open_or_make(data: str, encoding: str, cache_dir: Path | None) -> "Dataset":
    """The given data, or the synthetic market if a named set cannot be downloaded."""
    from fairhorizon.data.sources import NAMED
    from fairhorizon.datasets import DataSpec
    from fairhorizon.errors import DataError

    try:
        return DataSpec(source=data, encoding=encoding).open(cache_dir)
    except DataError as error:
        if data not in NAMED:
            raise
        print(f"note: {error}\nnote: using the synthetic data set instead", file=sys.stderr)
        return DataSpec(source="synthetic").open()
