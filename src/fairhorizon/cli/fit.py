"""fairhorizon fit: train a method on a log."""

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli import options as shared
from fairhorizon.errors import ConfigError

if TYPE_CHECKING:
    from fairhorizon.agents import Fcpo, FcpoConfig, Training
    from fairhorizon.experiments.runs import DataSpec, Run


class Method(StrEnum):
    FCPO = "fcpo"


class Preset(StrEnum):
    PAPER = "paper"


def fit(
    method: Annotated[Method, typer.Argument(help="What to train.")],  # noqa: ARG001  # one so far
    data: shared.Data,
    out: Annotated[Path, typer.Option("--out", help="Folder of the run.")],
    alpha_prime: Annotated[
        float | None,
        typer.Option(
            "--alpha-prime", help="Largest share of popular items shown.", show_default="1"
        ),
    ] = None,
    preset: Annotated[Preset, typer.Option(help="Settings to start from.")] = Preset.PAPER,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, as in rounds=50 or pmf.dim=32.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of everything random.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    cache_dir: shared.CacheDir = None,
    user: shared.UserColumn = None,
    item: shared.ItemColumn = None,
    rating: shared.RatingColumn = None,
    timestamp: shared.TimeColumn = None,
    header: shared.Header = None,
    separator: shared.Separator = None,
    cut: shared.Cut = "per-user",
    shuffle_ties: shared.ShuffleTies = None,
    group_column: Annotated[
        str | None, typer.Option(help="Item attribute that makes the groups, not popularity.")
    ] = None,
    sensitive: Annotated[
        str | None, typer.Option(help="Values of the group column to be limited, by commas.")
    ] = None,
    item_table: Annotated[
        Path | None, typer.Option(help="File with the group column, a row per item.")
    ] = None,
) -> None:
    """Train a method and write its run folder; Ctrl-C stops after the round, --resume goes on."""
    from fairhorizon.agents import PRESETS, Fcpo
    from fairhorizon.experiments.runs import Run

    given = parse_settings(settings or [])
    if alpha_prime is not None:
        given["alpha_prime"] = alpha_prime
    config = configure(PRESETS[preset], given)
    spec = shared.data_spec(
        data,
        user=user,
        item=item,
        rating=rating,
        timestamp=timestamp,
        header=header,
        separator=separator,
        cut=cut,
        shuffle_ties=shuffle_ties,
        item_table=item_table,
        group_column=group_column,
        sensitive=sensitive,
    )
    run = Run(out)
    if not resume and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} is there already (go on with --resume, or name another --out)")
    model = Fcpo(config, seed=seed)
    training = begin(model, run, spec, given, cache_dir, resume=resume)
    train(model, training, run, spec)


def begin(
    model: "Fcpo",
    run: "Run",
    spec: "DataSpec",
    given: dict[str, Any],
    cache_dir: Path | None,
    *,
    resume: bool,
) -> "Training":
    """A new training, or the one of the run's checkpoint with its own settings."""
    from fairhorizon.agents import Training
    from fairhorizon.agents.fcpo import default_device

    dataset = spec.open(cache_dir)
    if resume:
        training = Training.resume(run.checkpoint_file, dataset.split, default_device())
        training.extend(configure(training.config, given))
        return training
    print(f"{dataset.log.name}: pretraining the embeddings", file=sys.stderr)
    training = model.start(dataset.split, sensitive=dataset.sensitive)
    print(f"PMF validation RMSE {training.pretraining_rmse:.4f}", file=sys.stderr)
    return training


def train(model: "Fcpo", training: "Training", run: "Run", spec: "DataSpec") -> None:
    """Train to the end or to Ctrl-C, keeping a checkpoint, and write the model."""
    from fairhorizon.cli.progress import Progress, patient_interrupt

    config = training.config
    with patient_interrupt() as interrupt, Progress(config.rounds) as progress:
        for report in training.rounds():
            progress.show(report)
            if interrupt.pressed:
                break
            if report.round % config.checkpoint_every == 0:
                training.save(run.checkpoint_file)
    training.save(run.checkpoint_file)
    run.write(model.adopt(training), spec, "finished" if training.finished else "interrupted")
    last = training.reports[-1]
    typer.echo(
        f"{run.folder}: {last.round} rounds, cost {last.cost:.3f} (limit {last.limit:.3f}), "
        f"validation NDCG {training.best_validation:.4f}"
        if training.best
        else f"{run.folder}: {last.round} rounds, cost {last.cost:.3f} (limit {last.limit:.3f})"
    )
    if not training.finished:
        typer.echo("stopped early; the same command with --resume goes on")
        raise typer.Exit(130)


def parse_settings(settings: list[str]) -> dict[str, Any]:
    """["rounds=50", "pmf.dim=32"] -> {"rounds": 50, "pmf": {"dim": 32}}."""
    import json

    parsed: dict[str, Any] = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {setting!r}: give key=value, as in rounds=50")
        try:
            value = json.loads(text)
        except ValueError:
            value = text  # a bare word, as in starts=anywhere
        *path, last = key.split(".")
        target = parsed
        for name in path:
            target = target.setdefault(name, {})
        target[last] = value
    return parsed


def configure(base: "FcpoConfig", given: dict[str, Any]) -> "FcpoConfig":
    """The base settings with the given ones in their place."""
    from pydantic import ValidationError

    from fairhorizon.agents import FcpoConfig

    settings = base.model_dump()
    for key, value in given.items():
        inner = isinstance(value, dict) and isinstance(settings.get(key), dict)
        settings[key] = settings[key] | value if inner else value
    try:
        return FcpoConfig.model_validate(settings)
    except ValidationError as error:
        known = ", ".join(FcpoConfig.model_fields)
        raise ConfigError(f"{shared.explain(error)} (the settings are {known})") from None
