"""fairhorizon demo: watch FCPO learn to keep an exposure limit."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli.folders import claimed
from fairhorizon.cli.progress import Progress

if TYPE_CHECKING:
    from fairhorizon.agents.progress import RoundReport
    from fairhorizon.experiments.demo import Trained
    from fairhorizon.experiments.runs import Dataset

INTRO = (
    "FCPO learns which items to show to whom while the share of popular items (the top 20 % of "
    "the catalogue by training count) stays within a limit. Two policies, the same data, the same "
    "seed: one may show at most 40 % popular items, the other has no limit."
)


def demo(
    data: shared.Data = "ml-100k",
    out: Annotated[Path, typer.Option("--out", help="Folder for the page and the figures.")] = Path(
        "demo"
    ),
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds at each limit.")] = 60,
    seed: shared.Seed = 0,
    k: shared.Lengths = "5,10,20",
    cache_dir: shared.CacheDir = None,
) -> None:
    """Train FCPO with the limits 0.4 and 1, print the metrics, write a page with figures."""
    from rich.console import Console

    from fairhorizon.experiments.demo import demonstrate
    from fairhorizon.report.tables import PAPER_METRICS, metrics_table

    ks = shared.lengths(k)
    with claimed(out):
        dataset = open_or_make(data, cache_dir)
        shared.check_lengths(ks, dataset.log.n_items)
        with Progress() as progress:

            def show(alpha_prime: float, report: "RoundReport") -> None:
                progress.label = f"alpha' {alpha_prime:g}  "
                progress.round(report)

            trained = list(demonstrate(dataset, rounds=rounds, seed=seed, ks=ks, on_round=show))
        rows = [result.row() for level in trained for result in (level.one_shot, level.interactive)]
        Console().print(metrics_table(rows, PAPER_METRICS, ks))
        command = f"fairhorizon demo --data {data} --rounds {rounds} --seed {seed} --k {k}"
        write_report(out, dataset, trained, rows, ks, command)
    typer.echo(f"{out / 'index.html'}: the page, open it in a browser")


def open_or_make(data: str, cache_dir: Path | None) -> "Dataset":
    """The data asked for, or the synthetic market where a named set cannot be had."""
    from fairhorizon.data.sources import NAMED
    from fairhorizon.errors import DataError
    from fairhorizon.experiments.runs import DataSpec

    try:
        return DataSpec(source=data).open(cache_dir)
    except DataError as error:
        if data not in NAMED:
            raise
        print(f"note: {error}\nnote: going on with the synthetic data set", file=sys.stderr)
        return DataSpec(source="synthetic").open()


def write_report(
    out: Path,
    dataset: "Dataset",
    trained: "list[Trained]",
    rows: list[dict[str, object]],
    ks: list[int],
    command: str,
) -> None:
    """index.html, training.png and exposure.png."""
    from fairhorizon.metrics.fairness import exposure_counts
    from fairhorizon.report import page
    from fairhorizon.report.figures import History, exposure_plot, save_figure, training_curves
    from fairhorizon.report.tables import PAPER_METRICS

    histories: dict[str, History] = {
        level.label: {
            "round": [report.round for report in level.model.history_],
            "reward": [report.reward for report in level.model.history_],
            "cost": [report.cost for report in level.model.history_],
            "limit": level.model.history_[0].limit,
        }
        for level in trained
    }
    n_items = dataset.log.n_items
    counts = {"training log": dataset.split.train.item_counts()} | {
        level.label: exposure_counts(level.one_shot.lists, n_items, max(ks)) for level in trained
    }
    figures = {
        "training.png": training_curves(histories),
        "exposure.png": exposure_plot(counts, dataset.sensitive),
    }
    for name, figure in figures.items():
        save_figure(out / name, figure)
    page.write_page(
        out / "index.html",
        title=f"FairHorizon on {dataset.log.name}",
        intro=INTRO,
        sections=[
            page.results_section(rows, PAPER_METRICS, ks),
            page.training_section(histories),
            page.exposure_section(counts, dataset.sensitive),
            page.glossary_section(rows, PAPER_METRICS),
            page.commands_section([command]),
        ],
    )
