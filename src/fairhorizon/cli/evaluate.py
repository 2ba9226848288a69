"""fairhorizon evaluate: the metrics of a run on its test items."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import block_options, limit_options, list_lengths
from fairhorizon.cli import options as shared
from fairhorizon.cli.config_option import takes_config
from fairhorizon.cli.run_options import AlphaPrime, RunFolder
from fairhorizon.vocabulary import Mode, Protocol

if TYPE_CHECKING:
    from fairhorizon.datasets import Dataset
    from fairhorizon.evaluation.short_term import EvaluationRow, Result
    from fairhorizon.limits.measured import LimitReached
    from fairhorizon.limits.resolved import ResolvedLimit
    from fairhorizon.parallel.engine import TaskEngine
    from fairhorizon.recommenders.base import Recommender


Lists = Annotated[Path | None, typer.Option("--lists", help="Write the lists to this CSV file.")]


@takes_config
@block_options.takes_blocks
def evaluate(
    run: RunFolder,
    alpha_prime: AlphaPrime = None,
    limit: limit_options.ServedLimits = None,
    item_table: limit_options.ServedTable = None,
    protocol: shared.ProtocolOption = Protocol.STANDARD,
    mode: shared.ModeOption = Mode.ONE_SHOT,
    k: list_lengths.Lengths = None,
    json_file: shared.JsonFile = None,
    lists: Lists = None,
    seed: shared.ListSeed = None,
    cache_dir: shared.CacheDir = None,
    *,
    engine: "TaskEngine",
) -> None:
    """Print the metrics of a run and write them to its metrics.json.

    Limits that were given to the fit or here are measured too: how each was kept,
    and the share of its group counted in other ways.
    """
    from fairhorizon.evaluation import short_term
    from fairhorizon.files import write_copies
    from fairhorizon.model.folder import ModelFolder
    from fairhorizon.report.lists import write_lists

    typed = list_lengths.parse_lengths(k)
    folder = ModelFolder(run)
    folder.check_testable()
    spec = folder.data()
    model, asked = limit_options.served(folder, limit, item_table, alpha_prime)
    dataset = spec.open(cache_dir, model.popular_share)
    bound = asked.bound(spec, dataset.split, cache_dir, model.popular_share)
    model = limit_options.serving(folder, model, bound)
    ks = list_lengths.fitting(typed, dataset.log.n_items)
    shared.warn_if_untested(dataset.split)
    short_term.check_fit(model, dataset.split)
    lists_of = (run, max(ks), protocol, cache_dir, alpha_prime, bound)
    asked_for = block_options.lists_of(*lists_of, feedback=mode is Mode.INTERACTIVE)
    made = block_options.served(asked_for, model, dataset.log.n_users, engine)
    result = short_term.evaluate(
        model,
        dataset.split,
        ks=ks,
        protocol=protocol.value,
        mode=mode.value,
        sensitive=dataset.sensitive,
        seed=seed,
        served=made,
    )
    reached = noted(model, result, bound, max(ks))
    if lists is not None:
        write_lists(lists, result.lists, dataset.log)
    share = expected_share(model, dataset, protocol)
    row = replace(result.row(dataset.group_name), expected_exposure_share=share, limits=reached)
    write_copies(row.to_json(), json_file)
    print_tables(row, ks)
    write_copies(row.to_json(), folder.metrics_file)  # last: the run may be read-only


def noted(
    model: "Recommender", result: "Result", bound: "Sequence[ResolvedLimit]", length: int
) -> "tuple[LimitReached, ...]":
    """What the lists make of the limits; notes say what they should not be shown without."""
    for remark in model.remarks_:
        typer.echo(f"note: {remark}", err=True)
    list_lengths.warn_if_shorter(result.lists, length)
    return limit_options.measured(bound, result.lists, result.prices)


def print_tables(row: "EvaluationRow", ks: Sequence[int]) -> None:
    """The metrics; below them, where there is something to say, what is apart from these."""
    from rich.console import Console

    from fairhorizon.report.limits import limits_table
    from fairhorizon.report.tables import (
        PAPER_METRICS,
        history_table,
        metrics_table,
        new_items_line,
        the_group,
    )

    console = Console()
    console.print(metrics_table([row], PAPER_METRICS, ks))
    if row.limits:
        console.print(limits_table(row.limits))
    if row.by_history is not None:
        if (apart := history_table(row.by_history)) is not None:
            console.print(apart)
        if (line := new_items_line(row.by_history)) is not None:
            typer.echo(line)
    if (share := row.expected_exposure_share) is not None:
        typer.echo(
            f"Expected over the drawn rankings, {the_group(row.group)} has {100 * share:.2f} % of "
            "the exposure of all candidates."
        )


def expected_share(model: "Recommender", dataset: "Dataset", protocol: Protocol) -> float | None:
    """The group's part of the exposure that a random ranking gives in expectation."""
    from fairhorizon.simulation.feedback import evaluation_scenario
    from fairhorizon.vocabulary import Protocol

    scenario = evaluation_scenario(dataset.split, model.queue_length, Protocol(protocol))
    exposure = model.expected_exposure(scenario)
    if exposure is None or not exposure.sum():
        return None
    return float(exposure[dataset.sensitive].sum() / exposure.sum())
