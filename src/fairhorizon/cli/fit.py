"""fairhorizon fit: train a method on a log."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli.folders import claimed, is_used
from fairhorizon.cli.progress import STOPPED, Progress, patient_interrupt
from fairhorizon.cli.settings import parse_settings
from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import Preset

if TYPE_CHECKING:
    from fairhorizon.agents.fcpo.learning.training import Training
    from fairhorizon.agents.fcpo.model import Fcpo
    from fairhorizon.agents.lird.model import Lird
    from fairhorizon.agents.methods import Model
    from fairhorizon.agents.ranked.model import Ranked
    from fairhorizon.data.splits import Split
    from fairhorizon.experiments.runs import Dataset, DataSpec, Run

Settings = dict[str, Any]

METHOD = (
    "fcpo, lird, a ranker (popularity, mf, bpr, ncf, itemknn, ease, als, gru4rec, sasrec), or a "
    "ranker with a re-ranker (ease+quota, mf+foe, bpr+penalty). @ sets how fair it is (fcpo@0.4), "
    "fcpo:paper names a preset. `fairhorizon methods` explains them."
)
PRESET = (
    "Settings of FCPO to start from. strong: a policy over the scores of rankers; one model serves "
    "any limit. paper: the settings of the paper; a model is trained for one limit."
)


@shared.takes_data
def fit(
    method: Annotated[str, typer.Argument(help=METHOD)],
    data: "DataSpec",
    out: Annotated[Path, typer.Option("--out", help="Folder to write the run to.")],
    alpha_prime: Annotated[
        float | None,
        typer.Option(
            help="Largest share of the limited group in what is shown, at most 1, as in fcpo@0.4. "
            "A model of preset strong can serve other limits too; it trains at training_limit.",
            show_default="1",
        ),
    ] = None,
    preset: Annotated[Preset, typer.Option(help=PRESET)] = Preset.STRONG,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="Change a setting: key=value, as in rounds=50, pmf.dim=32 or quota.share=0.4. "
            "Repeatable. `fairhorizon methods NAME` lists the settings.",
        ),
    ] = None,
    seed: shared.FitSeed = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the checkpoint.")] = False,
    cache_dir: Path | None = None,
) -> None:
    """Train a method and write its run folder.

    Ctrl-C stops FCPO after the current round, and --resume continues; other
    methods write nothing when they are interrupted. Preset strong fits its
    rankers on the earlier part of the log, trains the policy on the rest, and
    finally fits the rankers again on the whole log; a training that is stopped
    skips this last fit.

    FCPO prints a line per round: reward and cost per trajectory, the cost with
    its limit; KL, the change of the policy; the case of the step (inside,
    inactive or active: the limit can be kept; recover: it cannot yet, so only the
    cost is lowered); the fraction of the step that the line search accepted;
    sometimes the validation NDCG. See docs/training.md.
    """
    from fairhorizon.agents.fcpo.model import Fcpo
    from fairhorizon.experiments.runs import Run

    given = parse_settings(settings or [])
    model = make(method, given, alpha_prime, preset, seed or 0)
    if resume and not isinstance(model, Fcpo):
        raise ConfigError(f"{method} keeps no checkpoints (leave out --resume to start anew)")
    if is_used(out) and not resume:
        goes_on = "go on with --resume, or " if isinstance(model, Fcpo) else ""
        raise ConfigError(f"{out}: is there already ({goes_on}name another --out)")
    with claimed(out):
        dataset = data.open(cache_dir, model.popular_share)
        run = Run(out)
        if not isinstance(model, Fcpo):
            fit_at_once(model, run, dataset, data)
        elif resume:
            if alpha_prime is not None:
                given["alpha_prime"] = alpha_prime
            train(go_on(run, dataset, given, seed), run, data)
        else:
            train(begin(dataset, model), run, data)


def make(
    name: str, given: Settings, alpha_prime: float | None, preset: Preset, seed: int
) -> "Model":
    """The method before its fit."""
    from fairhorizon.agents.methods import Method, MethodError, SettingsError, build

    try:
        method = Method.parse(name)
        if alpha_prime is not None:
            method = method.limited_to(alpha_prime)
    except MethodError as error:
        raise typer.BadParameter(str(error), param_hint="METHOD") from None
    try:
        return build(method, given, seed, preset=preset)
    except SettingsError as error:
        raise typer.BadParameter(str(error), param_hint="a setting") from None


def fit_at_once(model: "Lird | Ranked", run: "Run", dataset: "Dataset", spec: "DataSpec") -> None:
    """Fit and write a method that needs no checkpoints."""
    with Progress(label=f"{model.method}  ") as progress:
        model.fit(dataset.split, sensitive=dataset.sensitive, on_epoch=progress.show_epoch)
    run.write(model, spec, "finished")
    typer.echo(f"{run.folder}: {model.method} fitted on {dataset.log.name}")


def begin(dataset: "Dataset", model: "Fcpo") -> "Training":
    """A new training, from rankers or else from pretrained embeddings."""
    from fairhorizon.agents.fcpo.model import ends_with_refit

    config, split = model.config, dataset.split
    if not config.warm_start:
        tell(f"{split.name}: pretraining the embeddings")
        with Progress() as progress:
            training = model.start(split, sensitive=dataset.sensitive, on_epoch=progress.show_error)
        tell(f"PMF validation RMSE {training.pretraining_rmse:.4f}")
        return training
    part = "the earlier part of the" if ends_with_refit(config) else "the"
    tell(f"{split.name}: fitting {rankers(config.warm_start, split)} on {part} training log")
    with Progress(label="rankers, earlier part  ") as progress:
        return model.start(split, sensitive=dataset.sensitive, on_epoch=progress.show_epoch)


def rankers(names: "Sequence[str]", split: "Split") -> str:
    """Those of a warm start that this log can have."""
    from fairhorizon.agents.fcpo.experts.panel import suitable

    return ", ".join(suitable(names, split))


def tell(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def go_on(run: "Run", dataset: "Dataset", given: Settings, seed: int | None) -> "Training":
    """The training of the run's checkpoint, with its own settings and groups."""
    from fairhorizon.agents.methods import configured

    training = run.resume(dataset.split)
    training.extend(configured(training.config, given))
    if seed not in (None, training.seed):
        raise ConfigError(f"--seed {seed}: the checkpoint has seed {training.seed} (leave it out)")
    if training.sensitive.tolist() != dataset.sensitive.tolist():
        raise ConfigError(
            f"{run.checkpoint_file}: was trained with other groups (give the same --group-column, "
            "--sensitive, --item-table and --set popular_share)"
        )
    return training


def train(training: "Training", run: "Run", spec: "DataSpec") -> None:
    """Train to the end or to Ctrl-C, keeping a checkpoint, and write the model."""
    from fairhorizon.agents.fcpo.learning.checkpoint import save_training

    config = training.config
    with patient_interrupt() as interrupt, Progress(config.rounds) as progress:
        for report in training.rounds():
            progress.show(report)
            if interrupt.pressed:
                break
            if report.round % config.checkpoint_every == 0:
                save_training(training, run.checkpoint_file)
    save_training(training, run.checkpoint_file)
    finished = conclude(training, run, spec, stop=interrupt.pressed)
    typer.echo(summary(training, run))
    if not finished:
        tell("the same command with --resume goes on")
        raise typer.Exit(STOPPED)


def conclude(training: "Training", run: "Run", spec: "DataSpec", *, stop: bool) -> bool:
    """Write the model, and before that fit its rankers anew where the training ends so.

    Who stops gets a model with the rankers of the training. False: something is left to do.
    """
    from fairhorizon.agents.fcpo.model import Fcpo, ends_with_refit

    config, model = training.config, Fcpo()
    refit = training.finished and ends_with_refit(config)
    if refit and not stop:
        names = rankers(config.warm_start, training.split)
        tell(f"{training.split.name}: fitting {names} on the whole training log")
        try:
            with Progress(label="rankers, whole log  ") as progress:
                model.adopt(training, on_epoch=progress.show_epoch)
        except KeyboardInterrupt:
            stop = True
    if stop or not refit:
        model.adopt(training, refit=False)
    finished = training.finished and not (refit and stop)
    run.write(model, spec, "finished" if finished else "interrupted")
    return finished


def summary(training: "Training", run: "Run") -> str:
    text = f"{run.folder}: {len(training.reports)} rounds"
    if training.reports:
        last = training.reports[-1]
        text += f", cost {last.cost:.3f} (limit {last.limit:.3f})"
    if training.best:
        text += f", validation NDCG {training.best_validation:.4f}"
    return text
