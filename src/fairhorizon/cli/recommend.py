"""fairhorizon recommend: lists for every user."""

from pathlib import Path
from typing import Annotated

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli.words import AsOf


def recommend(
    run: Annotated[Path, typer.Argument(help="Folder of a run.")],
    out: Annotated[Path, typer.Option("--out", help="CSV to write: user,rank,item.")],
    k: Annotated[int, typer.Option("--k", min=1, help="Length of the lists.")] = 20,
    as_of: Annotated[
        AsOf,
        typer.Option(
            help="training: after the training items, the lists that `evaluate` judges; "
            "now: after everything in the log."
        ),
    ] = AsOf.TRAINING,
    seed: shared.ListSeed = None,
    cache_dir: shared.CacheDir = None,
) -> None:
    """Write a list of K items for every user, with the original ids."""
    from fairhorizon.environment import Protocol, evaluation_scenario, serving_scenario
    from fairhorizon.evaluation.short_term import check_fit
    from fairhorizon.experiments.runs import Run
    from fairhorizon.report.lists import write_lists

    folder = Run(run)
    spec, model = folder.data(), folder.model()
    dataset = spec.open(cache_dir)
    check_fit(model, dataset.split)
    shared.check_lengths([k], dataset.log.n_items)
    if as_of is AsOf.NOW:
        scenario = serving_scenario(dataset.log, model.queue_length)
    else:
        scenario = evaluation_scenario(dataset.split, model.queue_length, Protocol.STANDARD)
    lists = model.recommend(scenario, length=k, seed=seed)
    write_lists(out, lists, dataset.log)
    typer.echo(f"{out}: {(lists >= 0).sum():,} items for {len(lists):,} users")
