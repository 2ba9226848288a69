"""fairhorizon fit: train a method on a log."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli import limits, options
from fairhorizon.cli.config import Config, settings_for
from fairhorizon.cli.progress import CONTINUE, STOPPED, Progress
from fairhorizon.errors import ConfigError
from fairhorizon.files import claimed, is_used, locked
from fairhorizon.vocabulary import Cut, Preset

if TYPE_CHECKING:
    from fairhorizon.data.interactions import Interactions
    from fairhorizon.datasets import Dataset, DataSpec
    from fairhorizon.methods import Method
    from fairhorizon.model.model import RetentionData
    from fairhorizon.recommenders.base import Recommender
    from fairhorizon.recommenders.progress import Listener

METHOD = (
    "fcpo, lird, a ranker (popularity, mf, bpr, ncf, itemknn, ease, als, gru4rec, sasrec), a "
    "variant of one (ease:recent), or a ranker with a re-ranker (ease+quota, mf+foe, bpr+penalty). "
    "@ sets how fair it is (fcpo@0.4), fcpo:paper names a preset. `fairhorizon methods` explains "
    "them."
)
PRESET = (
    "Settings of FCPO to start from. fast: a policy over the scores of rankers that are fitted in "
    "closed form; one model serves any limit. strong: the same with gru4rec, a neural network, "
    "among the rankers. paper: the settings of the paper; a model is trained for one limit."
)


def fit(
    context: typer.Context,
    method: Annotated[str, typer.Argument(help=METHOD, callback=options.known_method)],
    data: options.Data,
    out: Annotated[Path, typer.Option("--out", help="Folder to write the run to.")],
    alpha_prime: Annotated[
        float | None,
        typer.Option(
            help="Largest share of the limited group in what is shown, at most 1, as in fcpo@0.4. "
            "A model of preset fast or strong can serve other limits too; it trains at "
            "training_limit.",
            show_default="1",
        ),
    ] = None,
    limit: options.Limits = None,
    preset: Annotated[Preset, typer.Option(help=PRESET)] = Preset.FAST,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a setting: key=value, as in rounds=50, ease.half_life=5 or "
            "quota.share=0.4. Repeatable. `fairhorizon methods NAME` lists the settings.",
        ),
    ] = None,
    seed: options.FitSeed = None,
    whole: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Fit on the whole log, with settings chosen on its newest part, to serve with: "
            "`recommend` then serves after everything in the log, and `evaluate` has nothing to "
            "test on.",
        ),
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint.")] = False,
    answers: Annotated[
        Path | None,
        typer.Option(
            "--answers",
            metavar="FILE",
            help="File with a row per showing: user, item, time, and liked, 1 or 0, such as "
            "answers.parquet of `fairhorizon export`. From it the model learns what a like is "
            "worth, for `recommend --value long`.",
        ),
    ] = None,
    away: Annotated[
        float | None,
        typer.Option(
            "--away",
            metavar="DAYS",
            help="Somebody who was shown nothing in the last so many days of --answers has left.",
            show_default="14",
        ),
    ] = None,
    promote: Annotated[
        str | None,
        typer.Option(
            "--promote",
            metavar="URL",
            help="Let the service at this address serve the model from now on; with --all. "
            "FAIRHORIZON_KEY holds its key, of role admin.",
        ),
    ] = None,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", "-v", help="Show q, r, s, multipliers and line search of every CPO step."
        ),
    ] = False,
    cache_dir: options.CacheDir = None,
    cut: options.CutOption = Cut.PER_USER,
    shuffle_ties: options.ShuffleTies = None,
    keep_ties: options.KeepTies = False,
    group_column: options.GroupColumn = None,
    sensitive: options.Sensitive = None,
    item_table: options.ItemTable = None,
    area_km: options.AreaKm = 10.0,
    user: options.UserColumn = None,
    item: options.ItemColumn = None,
    rating: options.RatingColumn = None,
    timestamp: options.TimeColumn = None,
    weight: options.WeightColumn = None,
    session: options.SessionColumn = None,
    header: options.Header = None,
    separator: options.Separator = None,
    encoding: options.Encoding = "utf-8",
    drop_incomplete: options.DropIncomplete = False,
    _config: Config = None,
) -> None:
    """Train a method and write its run folder.

    recommend and evaluate keep these limits unless others are given. Ctrl-C
    stops FCPO after the current round, and --resume continues; other methods
    write nothing when they are interrupted. The presets fast and strong
    choose settings and weights of their rankers on later parts of the log, train
    the policy with rankers of the earlier part, and serve with rankers of the
    whole log; a training that is stopped serves with those of the earlier part.

    With these presets three lines say what was found: the kind of log, the
    rankers with their weights and changed settings, and the accuracy of each and
    of all together.

    FCPO prints a line per round: reward and cost per trajectory, the cost with
    its limit; KL, the change of the policy; the case of the step (inside,
    inactive or active: the limit can be kept; recover: it cannot yet, so only the
    cost is lowered); the fraction of the step that the line search accepted;
    sometimes the validation NDCG. See docs/training.md.
    """
    from fairhorizon.model.folder import ModelFolder

    reading = options.reader(
        user, item, rating, timestamp, weight, session, header, separator, encoding, drop_incomplete
    )
    group = options.limited_group(group_column, sensitive, item_table, area_km)
    ties = options.order_of_ties(shuffle_ties, keep_ties)
    spec = options.data_spec(data, reading, cut, ties, group)
    given = options.parse_settings([*settings_for(context, method), *(settings or [])])
    spec = uncut(spec, resume) if whole else spec
    spec, asked = limits.apart(spec, limit, ModelFolder(out) if resume else None)
    level = limits.level_of(asked.limits, alpha_prime, spec)
    chosen, model = make(method, given, level, preset, seed or 0)
    asked = limits.with_level(asked, chosen, spec, alone=whole)
    keeps_checkpoints = model.capabilities.resume and not whole
    if promote is not None and not whole:
        raise typer.BadParameter("a model to serve knows all of its log: give --all")
    remedy = "continue with --resume, or " if keeps_checkpoints else ""
    if not resume:
        refuse_used(out, remedy)
    with claimed(out), locked(out), Progress(verbose=verbose) as progress:
        if not resume:
            refuse_used(out, remedy)  # another fit may have ended just now
        else:
            model = model.resumable(out, {**given, **own_level(model, chosen)}, seed)
            spec = ModelFolder(out).with_its_ties(spec)
        dataset = spec.open(cache_dir, model.popular_share)
        asked.check(model, spec, dataset, cache_dir)
        record = given_answers(answers, away, model, dataset.log)
        kept = {"checkpoint": out if keeps_checkpoints else None, "resume": resume}
        model = fitted(model, spec, dataset, progress, kept)
        store(out, model, chosen, spec, asked, record)
    present(model, out, dataset.log.name, asked)
    if promote is not None:
        from fairhorizon.service.client import promote as promote_on

        promote_on(promote, out, typer.echo)


def given_answers(
    file: Path | None, away: float | None, model: "Recommender", log: "Interactions"
) -> "RetentionData | None":
    """The answers for a method before its fit, if there are any."""
    from fairhorizon.model.model import AWAY, RetentionData

    if file is None:
        if away is not None:
            raise typer.BadParameter("it is about --answers (give both)", param_hint="--away")
        return None
    return RetentionData.read(file, AWAY if away is None else away, model, log)


def own_level(model: "Recommender", method: "Method") -> dict[str, Any]:
    """The level in the name of a method, as a setting."""
    return {} if method.level is None else {model.level_setting: method.level}


def store(
    out: Path,
    model: "Recommender",
    method: "Method",
    data: "DataSpec",
    asked: limits.GivenLimits,
    answers: "RetentionData | None",
) -> None:
    """Write the run, with what a finished model learns from answers."""
    from fairhorizon.model.folder import ModelFolder

    retention = None
    if answers is not None and model.finished_:
        retention = answers.learned(model)
        typer.echo(f"{answers}: a like is worth {retention.usual.mean:.2f} on average", err=True)
    folder, limits = ModelFolder(out), asked.texts()
    folder.write(
        model,
        data,
        limits=limits,
        item_table=asked.item_table,
        retention=retention,
        asked=str(method),
    )


def uncut(data: "DataSpec", resume: bool) -> "DataSpec":
    """The data with nothing held out."""
    if resume:
        raise typer.BadParameter("not with --resume (start anew)", param_hint="--all")
    if data.cut != "per-user":
        raise typer.BadParameter("not with --split: nothing is held out", param_hint="--all")
    return data.model_copy(update={"cut": "none"})


def fitted(
    draft: "Recommender",
    data: "DataSpec",
    dataset: "Dataset",
    listener: "Listener",
    kept: dict[str, Any],
) -> "Recommender":
    """The method fitted on its part of the log, or on all of it where nothing is held out."""
    from fairhorizon.model.model import fit_whole

    if data.cut == "none":
        group = None if data.group_column is None else dataset.sensitive
        return fit_whole(draft, dataset.log, group=group, listener=listener)
    return draft.fit(dataset.split, sensitive=dataset.sensitive, listener=listener, **kept)


def refuse_used(out: Path, remedy: str) -> None:
    if is_used(out):
        raise ConfigError(f"{out}: already exists ({remedy}name another --out)")


def present(model: "Recommender", out: Path, data: str, asked: limits.GivenLimits) -> None:
    """Print what was fitted, under which limits, and how to continue what was stopped."""
    summary = f": {model.summary()}" if model.summary() else ""
    typer.echo(f"{out}: {model.method} fitted on {data}{summary}")
    if asked.limits:
        many = len(asked.limits) > 1
        stated = "do not contradict each other" if many else "can be kept"
        typer.echo(f"limit{'s' * many}: {', '.join(asked.texts())} ({stated})")
    if not model.finished_:
        typer.echo(CONTINUE, err=True)
        raise typer.Exit(STOPPED)


def make(
    name: str, given: dict[str, Any], alpha_prime: float | None, preset: Preset, seed: int
) -> "tuple[Method, Recommender]":
    """The method and its recommender, not fitted yet."""
    from fairhorizon.methods import Method, MethodError, build
    from fairhorizon.settings import SettingsError

    try:
        method = Method.parse(name)
        if alpha_prime is not None:
            method = method.limited_to(alpha_prime)
    except MethodError as error:
        raise typer.BadParameter(str(error), param_hint="METHOD") from None
    try:
        return method, build(method, given, seed, preset=preset)
    except SettingsError as error:
        raise typer.BadParameter(str(error), param_hint="a setting") from None
