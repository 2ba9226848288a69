"""fairhorizon recommend: lists for every user."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import answer_options, block_options, limit_options, list_lengths
from fairhorizon.cli import options as shared
from fairhorizon.cli.config_option import takes_config
from fairhorizon.cli.run_options import AlphaPrime, RunFolder
from fairhorizon.vocabulary import AsOf, ListFormat, ListValue

if TYPE_CHECKING:
    from torch import Tensor

    from fairhorizon.data.interactions import Interactions
    from fairhorizon.parallel.engine import TaskEngine
    from fairhorizon.recommenders.base import Recommender
    from fairhorizon.recommenders.served import Served
    from fairhorizon.simulation.feedback import Scenario


Out = Annotated[Path, typer.Option("--out", help="File to write: user, rank, item.")]
FormatOption = Annotated[
    ListFormat | None,
    typer.Option(
        "--format",
        help="Format of the file. jsonl: a JSON object per line.",
        show_default="by the suffix of --out, else csv",
    ),
]
Scores = Annotated[
    bool,
    typer.Option(
        "--scores",
        help="Add columns where the method has them. score: of the ranker, or the chance that the "
        "user takes the item next. value: what the showing adds to the user's NDCG.",
    ),
]
UserIds = Annotated[
    list[str] | None,
    typer.Option(
        "--user",
        metavar="ID",
        help="Write the list of this user alone. Repeatable.",
        show_default="all users",
    ),
]
UsersFile = Annotated[
    Path | None,
    typer.Option(
        "--users",
        metavar="FILE",
        help="Write the lists of these users alone: a file with one id per line, or a table with "
        "a column of users.",
    ),
]
OneByOne = Annotated[
    bool,
    typer.Option(
        "--one-by-one",
        help="Serve one user after the other; after every list the limit holds for everything "
        "shown so far.",
    ),
]
AsOfOption = Annotated[
    AsOf | None,
    typer.Option(
        help="training: recommend after the training items, as `evaluate` does. "
        "now: recommend after everything in the log.",
        show_default="training; of a run of `fit --all` now",
    ),
]


@takes_config
@block_options.takes_blocks
def recommend(
    run: RunFolder,
    out: Out,
    k: list_lengths.Length = None,
    alpha_prime: AlphaPrime = None,
    limit: limit_options.ServedLimits = None,
    item_table: limit_options.ServedTable = None,
    user_ids: UserIds = None,
    users_file: UsersFile = None,
    written_as: FormatOption = None,
    scores: Scores = False,
    one_by_one: OneByOne = False,
    value: answer_options.Value = ListValue.NDCG,
    as_of: AsOfOption = None,
    seed: shared.ListSeed = None,
    cache_dir: shared.CacheDir = None,
    *,
    engine: "TaskEngine",
) -> None:
    """Write a list of K items for every user, with the original ids.

    FCPO makes the lists of all users together, so that together they keep the
    limits; --one-by-one does not. With --user or --users these are
    the lists of the users named. A limit that could not be kept is reported with
    what was reached.
    """
    from fairhorizon.evaluation.short_term import check_fit
    from fairhorizon.model.folder import ModelFolder
    from fairhorizon.vocabulary import Protocol

    folder = ModelFolder(run)
    if as_of is AsOf.TRAINING:
        folder.check_testable("leave out --as-of training, or fit without --all")
    spec = folder.data()
    model, asked = limit_options.served(folder, limit, item_table, alpha_prime)
    dataset = spec.open(cache_dir)
    check_fit(model, dataset.split)
    users = chosen_users(user_ids, users_file, dataset.log, spec.served_column)
    bound = asked.bound(spec, dataset.split, cache_dir, model.popular_share)
    model = limit_options.serving(folder, model, bound)
    k = list_lengths.fitting_length(k, dataset.log.n_items)
    now = as_of is AsOf.NOW or folder.is_of_whole_log
    protocol, codes = None if now else Protocol.STANDARD, None if users is None else users.numpy()
    asked_for = block_options.lists_of(run, k, protocol, cache_dir, alpha_prime, bound, users=codes)
    asked_for, scenario = answer_options.valued(asked_for, model, dataset, value)
    made = None if one_by_one else block_options.served(asked_for, model, scenario.n_users, engine)
    if made is None:
        made = served(model, scenario, k, seed, one_by_one=one_by_one)
    list_lengths.warn_if_shorter(made.lists, k)
    limit_options.measured(bound, made.lists, made.prices)
    write(out, made, dataset.log, users, written_as, with_scores=scores)
    typer.echo(f"{out}: {(made.lists >= 0).sum():,} items for {len(made.lists):,} users")


def chosen_users(
    ids: Sequence[str] | None, file: Path | None, log: "Interactions", column: str | int | None
) -> "Tensor | None":
    """The codes of the users named, in this order; None: all users. column: of the data."""
    if not ids and file is None:
        return None
    import torch

    from fairhorizon.data.user_files import read_user_ids, user_codes

    listed = [] if file is None else read_user_ids(file, log, column)
    return torch.from_numpy(user_codes([*(ids or ()), *listed], log))


def served(
    model: "Recommender",
    scenario: "Scenario",
    k: int,
    seed: int | None,
    *,
    one_by_one: bool,
) -> "Served":
    """The lists, with what is known of their items."""
    if one_by_one:
        return model.served_one_by_one(scenario, k, model.request_guard(k))
    return model.served(scenario, length=k, seed=seed)


def write(
    out: Path,
    made: "Served",
    log: "Interactions",
    users: "Tensor | None",
    written_as: ListFormat | None,
    *,
    with_scores: bool,
) -> None:
    """The lists as a file; a note says if no scores are known."""
    from fairhorizon.report.lists import write_lists

    known = {"score": made.scores, "value": made.values} if with_scores else {}
    numbers = {name: column for name, column in known.items() if column is not None}
    if with_scores and not numbers:
        typer.echo("note: lists that are made this way have no scores", err=True)
    codes = None if users is None else users.numpy()
    write_lists(out, made.lists, log, written_as=written_as, users=codes, numbers=numbers)
