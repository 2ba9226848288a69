"""fairhorizon demo: watch FCPO learn to keep an exposure limit."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import list_lengths
from fairhorizon.cli import options as shared
from fairhorizon.cli.folders import claimed
from fairhorizon.cli.progress import Progress

if TYPE_CHECKING:
    from fairhorizon.agents.progress import RoundReport
    from fairhorizon.experiments.datasets import Dataset

WIDTH_OF_FILES = 100  # columns; a terminal has its own width


def demo(
    data: shared.Data = "ml-100k",
    out: Annotated[Path, typer.Option("--out", help="Folder for the page and the figures.")] = Path(
        "demo"
    ),
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds at each limit.")] = 60,
    seed: shared.Seed = 0,
    k: list_lengths.Lengths = None,
    encoding: shared.Encoding = "utf-8",
    cache_dir: shared.CacheDir = None,
) -> None:
    """Train FCPO with the limits 0.4 and 1, print the metrics, write a page with figures."""
    from rich.console import Console

    from fairhorizon.experiments.demo import demonstrate
    from fairhorizon.report.demo import write_demo_report
    from fairhorizon.report.tables import PAPER_METRICS, metrics_table

    typed = list_lengths.parse_lengths(k)
    with claimed(out):
        dataset = open_or_make(data, encoding, cache_dir)
        ks = list_lengths.fitting(typed, dataset.log.n_items)
        with Progress() as progress:

            def show(alpha_prime: float, report: "RoundReport") -> None:
                progress.label = f"alpha' {alpha_prime:g}  "
                progress.round(report)

            result = demonstrate(dataset, rounds=rounds, seed=seed, ks=ks, on_round=show)
        wide = None if sys.stdout.isatty() else WIDTH_OF_FILES
        Console(width=wide).print(metrics_table(result.rows, PAPER_METRICS, ks))
        shown = ",".join(map(str, ks))
        command = f"fairhorizon demo --data {data} --rounds {rounds} --seed {seed} --k {shown}"
        if encoding != "utf-8":
            command += f" --encoding {encoding}"
        write_demo_report(out, result, ks, command)
    typer.echo(f"{out / 'index.html'}: the page, open it in a browser")


def open_or_make(data: str, encoding: str, cache_dir: Path | None) -> "Dataset":
    """The given data, or the synthetic market if a named set cannot be downloaded."""
    from fairhorizon.data.sources import NAMED
    from fairhorizon.errors import DataError
    from fairhorizon.experiments.datasets import DataSpec

    try:
        return DataSpec(source=data, encoding=encoding).open(cache_dir)
    except DataError as error:
        if data not in NAMED:
            raise
        print(f"note: {error}\nnote: using the synthetic data set instead", file=sys.stderr)
        return DataSpec(source="synthetic").open()
