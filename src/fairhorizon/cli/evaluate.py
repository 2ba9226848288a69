"""fairhorizon evaluate: the metrics of a run on its test items."""

from pathlib import Path
from typing import Annotated

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli.words import ModeName, ProtocolName


def evaluate(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    protocol: Annotated[
        ProtocolName, typer.Option(help="paper: training items stay recommendable.")
    ] = ProtocolName.STANDARD,
    mode: Annotated[
        ModeName, typer.Option(help="interactive: feedback from the test items between steps.")
    ] = ModeName.ONE_SHOT,
    k: shared.Lengths = "5,10,20",
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write the result here too.")
    ] = None,
    lists: Annotated[
        Path | None, typer.Option("--lists", help="Write the evaluated lists here, as CSV.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the sampled lists.", show_default="that of the fit")
    ] = None,
    cache_dir: shared.CacheDir = None,
) -> None:
    """Print the metrics of a run and write them to its metrics.json."""
    from rich.console import Console

    from fairhorizon.evaluation import evaluate as judge
    from fairhorizon.experiments.runs import Run
    from fairhorizon.report.lists import write_lists
    from fairhorizon.report.tables import PAPER_METRICS, metrics_table
    from fairhorizon.storage import write_json

    ks = shared.lengths(k)
    folder = Run(run)
    model = folder.model()
    dataset = folder.data().open(cache_dir)
    result = judge(
        model,
        dataset.split,
        ks=ks,
        protocol=protocol.value,
        mode=mode.value,
        sensitive=dataset.sensitive,
        seed=seed,
    )
    if lists is not None:
        write_lists(lists, result.lists, dataset.log)
    for path in (folder.metrics_file, json_file):
        if path is not None:
            write_json(path, result.to_json())
    Console().print(metrics_table([result.row()], PAPER_METRICS, ks))
