"""fairhorizon fit: train a method on a log."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli import answer_options, limit_options
from fairhorizon.cli import options as shared
from fairhorizon.cli.folders import claimed, is_used
from fairhorizon.cli.progress import CONTINUE, STOPPED, Progress
from fairhorizon.cli.settings import parse_settings
from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import Preset

if TYPE_CHECKING:
    from fairhorizon.datasets import Dataset, DataSpec
    from fairhorizon.methods import Method
    from fairhorizon.model.fitting import GivenAnswers
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

MethodName = Annotated[str, typer.Argument(help=METHOD)]
Out = Annotated[Path, typer.Option("--out", help="Folder to write the run to.")]
AlphaPrime = Annotated[
    float | None,
    typer.Option(
        help="Largest share of the limited group in what is shown, at most 1, as in fcpo@0.4. "
        "A model of preset fast or strong can serve other limits too; it trains at training_limit.",
        show_default="1",
    ),
]
PresetOption = Annotated[Preset, typer.Option(help=PRESET)]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a setting: key=value, as in rounds=50, ease.half_life=5 or quota.share=0.4. "
        "Repeatable. `fairhorizon methods NAME` lists the settings.",
    ),
]
All = Annotated[
    bool,
    typer.Option(
        "--all",
        help="Fit on the whole log, with settings chosen on its newest part, to serve with: "
        "`recommend` then serves after everything in the log, and `evaluate` has nothing to test "
        "on.",
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint.")]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose", "-v", help="Show q, r, s, multipliers and line search of every CPO step."
    ),
]


@shared.takes_data
def fit(
    method: MethodName,
    data: "DataSpec",
    out: Out,
    alpha_prime: AlphaPrime = None,
    limit: limit_options.Limits = None,
    preset: PresetOption = Preset.FAST,
    settings: Set = None,
    seed: shared.FitSeed = None,
    whole: All = False,
    resume: Resume = False,
    answers: answer_options.Answers = None,
    away: answer_options.Away = None,
    verbose: Verbose = False,
    cache_dir: Path | None = None,
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

    given = parse_settings(settings or [])
    data = uncut(data, resume) if whole else data
    data, asked = limit_options.apart(data, limit, ModelFolder(out) if resume else None)
    level = limit_options.level_of(asked.limits, alpha_prime, data)
    chosen, model = make(method, given, level, preset, seed or 0)
    asked = limit_options.with_level(asked, chosen, data, alone=whole)
    keeps_checkpoints = model.abilities.resume and not whole
    if not resume:
        refuse_used(out, "continue with --resume, or " if keeps_checkpoints else "")
    with claimed(out), Progress(verbose=verbose) as progress:
        if resume:
            model = model.resumable(out, {**given, **own_level(model, chosen)}, seed)
            data = ModelFolder(out).with_its_ties(data)
        dataset = data.open(cache_dir, model.popular_share)
        asked.check(model, data, dataset, cache_dir)
        record = answer_options.read(answers, away, model, dataset.log)
        kept = {"checkpoint": out if keeps_checkpoints else None, "resume": resume}
        model = fitted(model, data, dataset, progress, kept)
        store(out, model, chosen, data, asked, record)
    present(model, out, dataset.log.name)


def own_level(model: "Recommender", method: "Method") -> dict[str, Any]:
    """The level in the name of a method, as a setting."""
    return {} if method.level is None else {model.level_setting: method.level}


def store(
    out: Path,
    model: "Recommender",
    method: "Method",
    data: "DataSpec",
    asked: limit_options.GivenLimits,
    answers: "GivenAnswers | None",
) -> None:
    """Write the run, with what a finished model learns from answers."""
    from fairhorizon.model.folder import ModelFolder

    outlook = None
    if answers is not None and model.finished_:
        outlook = answers.learned(model)
        typer.echo(f"{answers}: a like is worth {outlook.usual.mean:.2f} on average", err=True)
    folder, limits = ModelFolder(out), asked.texts()
    folder.write(
        model, data, limits=limits, item_table=asked.item_table, outlook=outlook, asked=str(method)
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
    from fairhorizon.model.fitting import fit_whole

    if data.cut == "none":
        group = None if data.group_column is None else dataset.sensitive
        return fit_whole(draft, dataset.log, group=group, listener=listener)
    return draft.fit(dataset.split, sensitive=dataset.sensitive, listener=listener, **kept)


def refuse_used(out: Path, remedy: str) -> None:
    if is_used(out):
        raise ConfigError(f"{out}: already exists ({remedy}name another --out)")


def present(model: "Recommender", out: Path, data: str) -> None:
    """Print what was fitted, and how to continue what was stopped."""
    summary = f": {model.summary()}" if model.summary() else ""
    typer.echo(f"{out}: {model.method} fitted on {data}{summary}")
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
