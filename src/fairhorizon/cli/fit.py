"""fairhorizon fit: train a method on a log."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli.folders import claimed, is_used
from fairhorizon.cli.progress import Progress, patient_interrupt
from fairhorizon.cli.words import STOPPED, Cut, Method, Preset
from fairhorizon.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import ValidationError

    from fairhorizon.agents import FcpoConfig, Training
    from fairhorizon.experiments.runs import Dataset, DataSpec, Run

Settings = dict[str, Any]


def fit(
    method: Annotated[Method, typer.Argument(help="What to train.")],  # noqa: ARG001  # one so far
    data: shared.Data,
    out: Annotated[Path, typer.Option("--out", help="Folder of the run.")],
    alpha_prime: Annotated[
        float | None,
        typer.Option(help="Largest share of popular items shown, up to 1.", show_default="1"),
    ] = None,
    preset: Annotated[Preset, typer.Option(help="Settings to start from.")] = Preset.PAPER,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value, as in rounds=50 or pmf.dim=32.")
    ] = None,
    seed: shared.FitSeed = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    cache_dir: shared.CacheDir = None,
    user: shared.UserColumn = None,
    item: shared.ItemColumn = None,
    rating: shared.RatingColumn = None,
    timestamp: shared.TimeColumn = None,
    header: shared.Header = None,
    separator: shared.Separator = None,
    cut: shared.CutOption = Cut.PER_USER,
    shuffle_ties: shared.ShuffleTies = None,
    group_column: shared.GroupColumn = None,
    sensitive: shared.Sensitive = None,
    item_table: shared.ItemTable = None,
) -> None:
    """Train a method and write its run folder; Ctrl-C stops after the round, --resume goes on."""
    from fairhorizon.agents import PRESETS
    from fairhorizon.experiments.runs import Run

    given = parse_settings(settings or [])
    if alpha_prime is not None:
        given["alpha_prime"] = alpha_prime
    config = configure(PRESETS[preset], given)
    options = shared.reader(user, item, rating, timestamp, header, separator)
    groups = shared.groups(group_column, sensitive, item_table)
    cuts = {"cut": cut.value, "shuffle_ties": shuffle_ties}
    spec = shared.data_spec(data, **options, **cuts, **groups)
    if is_used(out) and not resume:
        raise ConfigError(f"{out}: is there already (go on with --resume, or name another --out)")
    with claimed(out):
        dataset = spec.open(cache_dir, config.popular_share)
        run = Run(out)
        training = go_on(run, dataset, given, seed) if resume else begin(dataset, config, seed or 0)
        train(training, run, spec)


def begin(dataset: "Dataset", config: "FcpoConfig", seed: int) -> "Training":
    """A new training, from pretrained embeddings."""
    from fairhorizon.agents import Fcpo

    print(f"{dataset.log.name}: pretraining the embeddings", file=sys.stderr)
    with Progress() as progress:
        training = Fcpo(config, seed=seed).start(
            dataset.split, sensitive=dataset.sensitive, on_epoch=progress.show_epoch
        )
    print(f"PMF validation RMSE {training.pretraining_rmse:.4f}", file=sys.stderr)
    return training


def go_on(run: "Run", dataset: "Dataset", given: Settings, seed: int | None) -> "Training":
    """The training of the run's checkpoint, with its own settings and groups."""
    training = run.resume(dataset.split)
    training.extend(configure(training.config, given))
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
    from fairhorizon.agents import Fcpo
    from fairhorizon.agents.checkpoint import save_training

    config = training.config
    with patient_interrupt() as interrupt, Progress(config.rounds) as progress:
        for report in training.rounds():
            progress.show(report)
            if interrupt.pressed:
                break
            if report.round % config.checkpoint_every == 0:
                save_training(training, run.checkpoint_file)
    save_training(training, run.checkpoint_file)
    run.write(Fcpo().adopt(training), spec, "finished" if training.finished else "interrupted")
    last = training.reports[-1]
    summary = f"{run.folder}: {last.round} rounds, cost {last.cost:.3f} (limit {last.limit:.3f})"
    if training.best:
        summary += f", validation NDCG {training.best_validation:.4f}"
    typer.echo(summary)
    if not training.finished:
        typer.echo("the same command with --resume goes on", err=True)
        raise typer.Exit(STOPPED)


def parse_settings(settings: list[str]) -> Settings:
    """["rounds=50", "pmf.dim=32"] -> {"rounds": 50, "pmf": {"dim": 32}}."""
    parsed: Settings = {}
    for setting in settings:
        key, equals, text = setting.partition("=")
        *path, last = key.split(".")
        target = parsed
        for name in path:
            target = target.setdefault(name, {})
            if not isinstance(target, dict):
                raise typer.BadParameter(f"{name} is set to {target} too", param_hint="--set")
        if not equals or not last:
            raise typer.BadParameter(
                f"{setting!r} (give key=value, as in rounds=50)", param_hint="--set"
            )
        try:
            target[last] = json.loads(text)
        except ValueError:
            target[last] = text  # a bare word, as in starts=anywhere
    return parsed


def configure(base: "FcpoConfig", given: Settings) -> "FcpoConfig":
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
        raise typer.BadParameter(explain(error, base), param_hint="a setting") from None


def explain(error: "ValidationError", base: "FcpoConfig") -> str:
    """Which settings are wrong, in one line; of an unknown one, which there are."""
    faults = []
    for fault in error.errors():
        *path, last = map(str, fault["loc"])
        if fault["type"] == "extra_forbidden":
            known = base.pmf if path else base
            faults.append(
                f"there is no {'.'.join([*path, last])} (but {', '.join(known.model_dump())})"
            )
        else:
            faults.append(f"{'.'.join([*path, last])}={fault['input']}: {fault['msg']}")
    return "; ".join(faults)
