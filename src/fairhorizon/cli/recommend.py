"""fairhorizon recommend: lists for every user."""

from pathlib import Path
from typing import Annotated

import typer

from fairhorizon.cli import limit_options, list_lengths
from fairhorizon.cli import options as shared
from fairhorizon.cli.config_option import takes_config
from fairhorizon.vocabulary import AsOf


def a_share(level: float | None) -> float | None:
    if level is None or 0 < level <= 1:
        return level
    raise typer.BadParameter(f"{level:g} is no share of what is shown (give one above 0, up to 1)")


AlphaPrime = Annotated[
    float | None,
    typer.Option(
        "--alpha-prime",
        help="Serve at this limit: largest share of the limited group in the lists, at most 1.",
        show_default="that of the fit",
        callback=a_share,
    ),
]
RunFolder = Annotated[Path, typer.Argument(help="Folder that fit has written.")]
Out = Annotated[Path, typer.Option("--out", help="CSV file to write: user,rank,item.")]
OneByOne = Annotated[
    bool,
    typer.Option(
        "--one-by-one",
        help="Serve one user after the other; after every list the limit holds for everything "
        "shown so far.",
    ),
]
AtPrice = Annotated[
    bool,
    typer.Option(
        "--at-price",
        help="Serve every user independently, at the price that kept the limit on the "
        "validation items.",
    ),
]
AsOfOption = Annotated[
    AsOf,
    typer.Option(
        help="training: recommend after the training items, as `evaluate` does. "
        "now: recommend after everything in the log."
    ),
]


@takes_config
def recommend(
    run: RunFolder,
    out: Out,
    k: list_lengths.Length = None,
    alpha_prime: AlphaPrime = None,
    limit: limit_options.ServedLimits = None,
    item_table: limit_options.ServedTable = None,
    one_by_one: OneByOne = False,
    at_price: AtPrice = False,
    as_of: AsOfOption = AsOf.TRAINING,
    seed: shared.ListSeed = None,
    cache_dir: shared.CacheDir = None,
) -> None:
    """Write a list of K items for every user, with the original ids.

    FCPO makes the lists of all users together, so that together they keep the
    limits; --one-by-one and --at-price do not. A limit that could not be kept is
    reported with what was reached.
    """
    from fairhorizon.environment.feedback import evaluation_scenario, serving_scenario
    from fairhorizon.evaluation.short_term import check_fit
    from fairhorizon.experiments.runs import Run
    from fairhorizon.report.lists import write_lists
    from fairhorizon.vocabulary import Protocol

    if one_by_one and at_price:
        raise typer.BadParameter("not with --one-by-one (give one)", param_hint="--at-price")
    folder = Run(run)
    spec = folder.data()
    model, asked = limit_options.served(folder, limit, item_table, alpha_prime)
    dataset = spec.open(cache_dir)
    check_fit(model, dataset.split)
    bound = asked.bound(spec, dataset.split, cache_dir, model.popular_share)
    model = limit_options.serving(folder, model, bound)
    k = list_lengths.fitting_length(k, dataset.log.n_items)
    if as_of is AsOf.NOW:
        scenario = serving_scenario(dataset.log, model.queue_length)
    else:
        scenario = evaluation_scenario(dataset.split, model.queue_length, Protocol.STANDARD)
    if one_by_one:
        lists = model.recommend_one_by_one(scenario, length=k)
    elif at_price:
        lists = model.recommend_at_price(scenario, length=k)
    else:
        lists = model.recommend(scenario, length=k, seed=seed)
    list_lengths.warn_if_shorter(lists, k)
    limit_options.measured(bound, lists)
    write_lists(out, lists, dataset.log)
    typer.echo(f"{out}: {(lists >= 0).sum():,} items for {len(lists):,} users")
