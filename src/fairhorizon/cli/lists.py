"""fairhorizon evaluate and recommend: the lists of a run, measured or written to a file."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli import limits, options
from fairhorizon.cli.config import Config
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.files import is_stream
from fairhorizon.vocabulary import AsOf, EngineName, ListFormat, ListValue, Mode, Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from fairhorizon.data.interactions import Interactions
    from fairhorizon.data.loading import ChosenPairs
    from fairhorizon.datasets import Dataset, DataSpec
    from fairhorizon.evaluation.short_term import EvaluationRow, Result
    from fairhorizon.limits.measured import LimitReached
    from fairhorizon.limits.resolved import ResolvedLimit
    from fairhorizon.model.blocks import ItemChoice, ListsOfModel, ListsOfRun
    from fairhorizon.model.folder import ModelFolder
    from fairhorizon.parallel.engine import TaskEngine
    from fairhorizon.recommenders.base import RankedLists, Recommender
    from fairhorizon.simulation.feedback import Scenario

MISSED = 3  # exit code where lists miss a limit


def evaluate(
    run: options.RunFolder,
    alpha_prime: options.ServedLevel = None,
    limit: options.ServedLimits = None,
    item_table: options.ServedTable = None,
    protocol: options.ProtocolOption = Protocol.STANDARD,
    mode: options.ModeOption = Mode.ONE_SHOT,
    k: options.Lengths = None,
    json_file: options.JsonFile = None,
    lists: Annotated[
        Path | None,
        typer.Option(
            "--lists", help="Write the lists to this CSV file.", callback=options.one_file
        ),
    ] = None,
    seed: options.ListSeed = None,
    cache_dir: options.CacheDir = None,
    jobs: options.BlockJobs = 1,
    engine_name: options.EngineOption = EngineName.PROCESSES,
    address: options.Address = None,
    threads: options.Threads = 1,
    _config: Config = None,
) -> None:
    """Print the metrics of a run and write them to its metrics.json.

    Limits that were given to the fit or here are measured too: how each was kept,
    and the share of its group counted in other ways.
    """
    from fairhorizon.evaluation import short_term
    from fairhorizon.files import write_copies
    from fairhorizon.model.folder import ModelFolder
    from fairhorizon.report.lists import write_lists

    engine = options.chosen_engine(jobs, engine_name, address, threads)
    typed = options.parse_lengths(k)
    folder = ModelFolder(run)
    folder.check_testable()
    spec = folder.data()
    level, asked = limits.served(folder, limit, item_table, alpha_prime)
    model = folder.recommender(level)
    dataset = spec.open(cache_dir, model.popular_share)
    bound = asked.bound(spec, dataset.split, cache_dir, model.popular_share)
    model = limits.serving(folder, model, bound)
    ks = options.fitting_lengths(typed, dataset.log.n_items)
    options.warn_if_untested(dataset.split)
    short_term.check_fit(model, dataset.split)
    feedback = mode is Mode.INTERACTIVE
    asked_for = lists_of(run, max(ks), protocol, cache_dir, alpha_prime, bound, feedback=feedback)
    with engine:
        made = served_in_blocks(asked_for, model, dataset.log.n_users, engine)
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
    options.warn_if_shorter(result.lists, length)
    return limits.measured(bound, result.lists, result.prices)


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


def recommend(
    run: options.RunFolder,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            help="File to write: user, rank, item. - is standard output.",
            callback=options.one_file,
        ),
    ],
    k: options.Length = None,
    alpha_prime: options.ServedLevel = None,
    limit: options.ServedLimits = None,
    item_table: options.ServedTable = None,
    user_ids: Annotated[
        list[str] | None,
        typer.Option(
            "--user",
            metavar="ID",
            help="Write the list of this user alone. Repeatable.",
            show_default="all users",
        ),
    ] = None,
    users_file: Annotated[
        Path | None,
        typer.Option(
            "--users",
            metavar="FILE",
            callback=options.there,
            help="Write the lists of these users alone: a file with one id per line, or a table "
            "with a column of users.",
        ),
    ] = None,
    candidates: Annotated[
        Path | None,
        typer.Option(
            "--candidates",
            metavar="FILE",
            callback=options.there,
            help="Show users nothing but these items: a file with a row per user and item, or with "
            "one item per line for everybody. Users without a row may be shown anything.",
        ),
    ] = None,
    exclude: Annotated[
        Path | None,
        typer.Option(
            "--exclude",
            metavar="FILE",
            callback=options.there,
            help="Do not show these items: a file as for --candidates, such as what is out of "
            "stock.",
        ),
    ] = None,
    allow_missed: Annotated[
        bool,
        typer.Option("--allow-missed", help="Exit with 0 also where a limit was missed, not 3."),
    ] = False,
    spreadsheet_safe: Annotated[
        bool,
        typer.Option(
            "--spreadsheet-safe",
            help="Put an apostrophe before ids that begin with =, +, - or @, which a spreadsheet "
            "would run as formulas.",
        ),
    ] = False,
    written_as: Annotated[
        ListFormat | None,
        typer.Option(
            "--format",
            help="Format of the file. jsonl: a JSON object per line.",
            show_default="by the suffix of --out, else csv",
        ),
    ] = None,
    scores: Annotated[
        bool,
        typer.Option(
            "--scores",
            help="Add columns where the method has them. score: of the ranker, or the chance that "
            "the user takes the item next. value: what the showing adds to the user's NDCG.",
        ),
    ] = False,
    one_by_one: Annotated[
        bool,
        typer.Option(
            "--one-by-one",
            help="Serve one user after the other; after every list the limit holds for everything "
            "shown so far.",
        ),
    ] = False,
    value: Annotated[
        ListValue,
        typer.Option(
            "--value",
            help="What the lists make as much of as they can. ndcg: what users like now. long: "
            "every user's values count by what a like of theirs is worth for later; for a run that "
            "was fitted with --answers.",
        ),
    ] = ListValue.NDCG,
    as_of: Annotated[
        AsOf | None,
        typer.Option(
            help="training: recommend after the training items, as `evaluate` does. "
            "now: recommend after everything in the log.",
            show_default="training; of a run of `fit --all` now",
        ),
    ] = None,
    seed: options.ListSeed = None,
    cache_dir: options.CacheDir = None,
    jobs: options.BlockJobs = 1,
    engine_name: options.EngineOption = EngineName.PROCESSES,
    address: options.Address = None,
    threads: options.Threads = 1,
    _config: Config = None,
) -> None:
    """Write a list of K items for every user, with the original ids.

    FCPO makes the lists of all users together, so that together they keep the
    limits; --one-by-one does not. With --user or --users these are
    the lists of the users named. A line per limit says whether it was kept; the
    exit code is 3 where one was missed.
    """
    from fairhorizon.evaluation.short_term import check_fit
    from fairhorizon.model.blocks import ListsOfModel, ListsOfRun
    from fairhorizon.model.folder import ModelFolder
    from fairhorizon.report.lists import format_of

    engine = options.chosen_engine(jobs, engine_name, address, threads)
    folder = ModelFolder(run)
    refuse_inputs(out, folder, (item_table, users_file, candidates, exclude))
    written_as = written_as or format_of(out)
    if as_of is AsOf.TRAINING:
        folder.check_testable("leave out --as-of training, or fit without --all")
    level, asked = limits.served(folder, limit, item_table, alpha_prime)
    asked_for: ListsOfModel | ListsOfRun
    if folder.is_of_whole_log:
        given = bool(limit) or alpha_prime is not None or item_table is not None
        asked_for = ListsOfModel(
            run,
            0,
            cache_dir,
            level,
            asked.limits if given else None,
            None if item_table is None else str(item_table),
        )
        try:
            state = asked_for.state()
        except ConfigError as error:
            raise ConfigError(f"{run}: {error}") from None
        log, model, bound = state.log_with_new_ids(), state.serving, state.limits
        users = chosen_users(user_ids, users_file, log, folder.data().served_column)
        ids = log.user_ids if users is None else log.user_ids[users.numpy()]
        k = options.fitting_length(k, log.n_items)
        asked_for = replace(
            asked_for, length=k, users=None if users is None else tuple(ids.tolist())
        )
        scenario = asked_for.scenario(state)
    else:
        spec, model = folder.data(), folder.recommender(level)
        dataset = spec.open(cache_dir)
        check_fit(model, dataset.split)
        log = dataset.log
        users = chosen_users(user_ids, users_file, log, spec.served_column)
        ids = log.user_ids if users is None else log.user_ids[users.numpy()]
        bound = tuple(asked.bound(spec, dataset.split, cache_dir, model.popular_share))
        model = limits.serving(folder, model, bound)
        k = options.fitting_length(k, log.n_items)
        protocol = None if as_of is AsOf.NOW else Protocol.STANDARD
        codes = None if users is None else users.numpy()
        asked_for = lists_of(run, k, protocol, cache_dir, alpha_prime, bound, users=codes)
        scenario = asked_for.scenario(model, dataset)
    if candidates is not None or exclude is not None:
        choice = item_choice(candidates, exclude, log, folder.data(), users)
        asked_for = replace(asked_for, choice=choice)
        scenario = scenario.without(choice.rows, choice.items, choice.never_shown)
    if value is ListValue.LONG:
        scenario = valued(folder, model, scenario, ids)
        asked_for = replace(asked_for, worth=scenario.worth)
    made = None
    if not one_by_one:
        with engine:
            made = served_in_blocks(asked_for, model, scenario.n_users, engine)
    if made is None:
        made = served_here(model, scenario, k, seed, one_by_one=one_by_one)
    options.warn_if_shorter(made.lists, k)
    write(out, made, log, users, written_as, with_scores=scores, spreadsheet_safe=spreadsheet_safe)
    typer.echo(f"{out}: {(made.lists >= 0).sum():,} items for {len(made.lists):,} users")
    kept = limits.print_verdicts(bound, made.lists, made.prices)
    if not (kept or allow_missed):
        raise typer.Exit(MISSED)


def refuse_inputs(out: Path, run: "ModelFolder", others: Sequence[Path | None]) -> None:
    """Refuse to write over what the lists are made of: the log, the run and other files."""
    if is_stream(out):
        return
    data = run.data()
    read = [data.source, data.item_table, run.item_table(), *others]
    target = out.resolve()
    for file in (Path(one).resolve() for one in read if one is not None):
        if target == file or (file.is_dir() and file in target.parents):
            raise ConfigError(f"{out}: the lists are made from this file (name another --out)")
    if target.parent == run.folder.resolve() and (
        target == run.card_file.resolve() or run.has(target.name)
    ):
        raise ConfigError(f"{out}: is a file of the run itself (name another --out)")


def item_choice(
    candidates: Path | None,
    exclude: Path | None,
    log: "Interactions",
    data: "DataSpec",
    users: "Tensor | None",
) -> "ItemChoice":
    """What users may not be shown: all but the candidates, and what is excluded.

    users: codes of those who are served; None: everybody.
    """
    import numpy as np
    import torch

    from fairhorizon.data.loading import read_chosen_pairs
    from fairhorizon.model.blocks import ItemChoice

    served = np.arange(log.n_users) if users is None else users.numpy()
    row_of = np.full(log.n_users, -1)
    row_of[served] = np.arange(len(served))
    never_shown = np.zeros(log.n_items, dtype=np.bool_)
    rows, items = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]

    def read(file: Path) -> "ChosenPairs":
        pairs = read_chosen_pairs(file, log, data.served_column, data.item)
        if pairs.unknown:
            unknown = f"{pairs.unknown:,} rows of users or items that are not in the data"
            typer.echo(f"note: {file}: {unknown} are left out", err=True)
        return pairs

    if exclude is not None:
        pairs = read(exclude)
        if pairs.users is None:
            never_shown[pairs.items] = True
        else:
            there = row_of[pairs.users] >= 0
            rows.append(row_of[pairs.users[there]])
            items.append(pairs.items[there])
    if candidates is not None:
        pairs = read(candidates)
        if pairs.users is None:
            others = np.ones(log.n_items, dtype=np.bool_)
            others[pairs.items] = False
            never_shown |= others
        else:
            order = np.argsort(pairs.users, kind="stable")
            listed, first = np.unique(pairs.users[order], return_index=True)
            allowed = np.split(pairs.items[order], first[1:])
            for user, own in zip(listed.tolist(), allowed, strict=True):
                if row_of[user] >= 0:
                    closed = np.setdiff1d(np.arange(log.n_items), own)
                    rows.append(np.full(len(closed), row_of[user]))
                    items.append(closed)
    every = torch.from_numpy(np.concatenate(rows)), torch.from_numpy(np.concatenate(items))
    return ItemChoice(*every, torch.from_numpy(never_shown))


def chosen_users(
    ids: Sequence[str] | None, file: Path | None, log: "Interactions", column: str | int | None
) -> "Tensor | None":
    """The codes of the users named, in this order; None: all users. column: of the data."""
    if not ids and file is None:
        return None
    import torch

    from fairhorizon.data.loading import read_user_ids, user_codes

    listed = [] if file is None else read_user_ids(file, log, column)
    return torch.from_numpy(user_codes([*(ids or ()), *listed], log))


def served_here(
    model: "Recommender",
    scenario: "Scenario",
    k: int,
    seed: int | None,
    *,
    one_by_one: bool,
) -> "RankedLists":
    """The lists, with what is known of their items."""
    if one_by_one:
        return model.rank_one_by_one(scenario, k, model.request_guard(k))
    return model.rank(scenario, length=k, seed=seed)


def write(
    out: Path,
    made: "RankedLists",
    log: "Interactions",
    users: "Tensor | None",
    written_as: ListFormat | None,
    *,
    with_scores: bool,
    spreadsheet_safe: bool = False,
) -> None:
    """The lists as a file; a note says if no scores are known."""
    from fairhorizon.report.lists import write_lists

    known = {"score": made.scores, "value": made.values} if with_scores else {}
    numbers = {name: column for name, column in known.items() if column is not None}
    if with_scores and not numbers:
        typer.echo("note: lists that are made this way have no scores", err=True)
    codes = None if users is None else users.numpy()
    write_lists(
        out,
        made.lists,
        log,
        written_as=written_as,
        users=codes,
        numbers=numbers,
        spreadsheet_safe=spreadsheet_safe,
    )


# ---- which lists, and who makes them


def lists_of(
    run: Path,
    k: int,
    protocol: "Protocol | None",
    cache_dir: Path | None,
    level: float | None,
    bound: "Sequence[ResolvedLimit]",
    **more: Any,
) -> "ListsOfRun":
    """Which lists a command asks for; a level counts where there are no limits."""
    from fairhorizon.model.blocks import ListsOfRun

    served_at = None if bound else level
    return ListsOfRun(run, k, protocol, cache_dir, served_at, tuple(bound), **more)


def served_in_blocks(
    lists: "ListsOfModel | ListsOfRun", model: "Recommender", n_users: int, engine: "TaskEngine"
) -> "RankedLists | None":
    """The lists, if blocks of users make them; None: this process has to."""
    if engine.workers == 1:
        return None
    from fairhorizon.model.blocks import served_in_blocks as serve

    made = serve(lists, model, n_users, engine)
    if made is None:
        typer.echo(
            f"note: {model.method} makes these lists in one process (--jobs changes nothing)",
            err=True,
        )
        return None
    typer.echo(f"{made}", err=True)
    return made.served


def valued(
    folder: "ModelFolder", model: "Recommender", scenario: "Scenario", ids: "NDArray[Any]"
) -> "Scenario":
    """The scenario with what a like of its users, by these ids, is worth for later."""
    from fairhorizon.fcpo.retention.replay import with_user_weights

    retention = folder.retention()
    if retention is None:
        raise ModelError(
            f"{folder.folder}: has learned from no answers what a like is worth (fit it with "
            "--answers FILE, or leave out --value long)"
        )
    return with_user_weights(model, scenario, retention, ids.tolist())
