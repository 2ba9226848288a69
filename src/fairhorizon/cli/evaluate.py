"""fairhorizon evaluate: the metrics of a run on its test items."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import list_lengths
from fairhorizon.cli import options as shared
from fairhorizon.cli.recommend import AlphaPrime, RunFolder
from fairhorizon.vocabulary import Mode, Protocol

if TYPE_CHECKING:
    from fairhorizon.agents.base import Recommender
    from fairhorizon.experiments.datasets import Dataset


def evaluate(
    run: RunFolder,
    alpha_prime: AlphaPrime = None,
    protocol: shared.ProtocolOption = Protocol.STANDARD,
    mode: shared.ModeOption = Mode.ONE_SHOT,
    k: list_lengths.Lengths = None,
    json_file: shared.JsonFile = None,
    lists: Annotated[
        Path | None, typer.Option("--lists", help="Write the lists to this CSV file.")
    ] = None,
    seed: shared.ListSeed = None,
    cache_dir: shared.CacheDir = None,
) -> None:
    """Print the metrics of a run and write them to its metrics.json."""
    from rich.console import Console

    from fairhorizon.evaluation.short_term import evaluate as measure
    from fairhorizon.experiments.runs import Run
    from fairhorizon.files import write_copies
    from fairhorizon.report.lists import write_lists
    from fairhorizon.report.tables import PAPER_METRICS, metrics_table, the_group

    typed = list_lengths.parse_lengths(k)
    folder = Run(run)
    spec, model = folder.data(), folder.model(alpha_prime)
    dataset = spec.open(cache_dir, model.popular_share)
    ks = list_lengths.fitting(typed, dataset.log.n_items)
    shared.warn_if_untested(dataset.split)
    result = measure(
        model,
        dataset.split,
        ks=ks,
        protocol=protocol.value,
        mode=mode.value,
        sensitive=dataset.sensitive,
        seed=seed,
    )
    for remark in model.remarks_:
        typer.echo(f"note: {remark}", err=True)
    list_lengths.warn_if_shorter(result.lists, max(ks))
    if lists is not None:
        write_lists(lists, result.lists, dataset.log)
    share = expected_share(model, dataset, protocol)
    row = replace(result.row(dataset.group_name), expected_exposure_share=share)
    write_copies(row.to_json(), json_file)
    Console().print(metrics_table([row], PAPER_METRICS, ks))
    if share is not None:
        typer.echo(
            f"Expected over the drawn rankings, {the_group(row.group)} has {100 * share:.2f} % of "
            "the exposure of all candidates."
        )
    write_copies(row.to_json(), folder.metrics_file)  # last: the run may be read-only


def expected_share(model: "Recommender", dataset: "Dataset", protocol: Protocol) -> float | None:
    """The group's part of the exposure that a random ranking gives in expectation."""
    from fairhorizon.environment.feedback import evaluation_scenario
    from fairhorizon.vocabulary import Protocol

    scenario = evaluation_scenario(dataset.split, model.queue_length, Protocol(protocol))
    exposure = model.expected_exposure(scenario)
    if exposure is None or not exposure.sum():
        return None
    return float(exposure[dataset.sensitive].sum() / exposure.sum())
