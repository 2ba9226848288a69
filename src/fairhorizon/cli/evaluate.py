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
    seed: shared.ListSeed = None,
    cache_dir: shared.CacheDir = None,
) -> None:
    """Print the metrics of a run and write them to its metrics.json."""
    from rich.console import Console

    from fairhorizon.evaluation import evaluate as judge
    from fairhorizon.experiments.runs import Run
    from fairhorizon.files import write_json
    from fairhorizon.report.lists import write_lists
    from fairhorizon.report.tables import PAPER_METRICS, metrics_table

    ks = shared.lengths(k)
    folder = Run(run)
    spec, model = folder.data(), folder.model()
    dataset = spec.open(cache_dir, model.popular_share)
    shared.check_lengths(ks, dataset.log.n_items)
    if not len(dataset.split.test):
        typer.echo("note: nobody has test items, so recall, F1 and NDCG are undefined", err=True)
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
    if json_file is not None:
        write_json(json_file, result.to_json())
    Console().print(metrics_table([result.row()], PAPER_METRICS, ks))
    write_json(folder.metrics_file, result.to_json())  # last: the run may be read-only
