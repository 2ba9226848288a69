"""fairhorizon tune: search for good settings on the validation items."""

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import options
from fairhorizon.cli.config import Config, settings_for
from fairhorizon.cli.fit import METHOD, make
from fairhorizon.cli.progress import STOPPED, Progress
from fairhorizon.files import check_file, claimed
from fairhorizon.vocabulary import Cut, EngineName, Preset, Protocol

if TYPE_CHECKING:
    from fairhorizon.parallel.engine import TaskEngine
    from fairhorizon.studies.tuning import Trial, Tuning

# options that `fit` does not have, or that its command gives in another form
OF_TUNE = (
    *("method", "trials", "protocol", "out", "json_file", "settings", "preset"),
    *("jobs", "engine_name", "address", "threads"),
)
PRESET = (
    "Settings of FCPO to start from. Other default than fit: with fast or strong every trial "
    "fits rankers."
)


def tune(
    context: typer.Context,
    method: Annotated[
        str,
        typer.Argument(
            help=METHOD.partition(", or a ranker")[0] + ".", callback=options.known_method
        ),
    ],
    data: options.Data,
    trials: Annotated[
        int, typer.Option(min=1, help="Total number of trials, earlier ones included.")
    ] = 30,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder of the search.", show_default="tune/METHOD-DATA"),
    ] = None,
    json_file: options.JsonFile = None,
    protocol: options.ProtocolOption = Protocol.STANDARD,
    preset: Annotated[Preset, typer.Option(help=PRESET)] = Preset.PAPER,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Fix a setting: key=value.")
    ] = None,
    seed: options.Seed = 0,
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
    jobs: options.TrialJobs = 1,
    engine_name: options.EngineOption = EngineName.PROCESSES,
    address: options.Address = None,
    threads: options.Threads = 1,
    _config: Config = None,
) -> None:
    """Search for the settings with the best NDCG@20 on the validation items.

    The test items are not used. Writes study.db (of Optuna) and best.json. Ctrl-C
    keeps the finished trials, and the same command continues from them. With
    --jobs so many trials are proposed together.
    """
    from fairhorizon.datasets import DataPlace
    from fairhorizon.files import write_copies
    from fairhorizon.methods import MethodError, validates
    from fairhorizon.studies.tuning import Objective, Tuning
    from fairhorizon.vocabulary import Protocol

    reading = options.reader(
        user, item, rating, timestamp, weight, session, header, separator, encoding, drop_incomplete
    )
    group = options.limited_group(group_column, sensitive, item_table, area_km)
    ties = options.order_of_ties(shuffle_ties, keep_ties)
    spec = options.data_spec(data, reading, cut, ties, group)
    given = options.parse_settings([*settings_for(context, method), *(settings or [])])
    chosen, model = make(method, given, None, preset, seed)
    if protocol is Protocol.PAPER and validates(chosen):
        given.setdefault("protocol", protocol.value)  # train and evaluate under one protocol
    folder = out or default_folder(method, spec.source)
    check_file(json_file)
    with options.chosen_engine(jobs, engine_name, address, threads) as engine, claimed(folder):
        place = DataPlace(spec, cache_dir, model.popular_share)
        place.dataset()
        try:
            objective = Objective(chosen, place, Protocol(protocol.value), seed, given, preset)
        except MethodError as error:
            raise typer.BadParameter(str(error), param_hint="METHOD") from None
        tuning = Tuning(objective, folder)
        search(tuning, trials, engine)
        best = tuning.best
        tuning.write_best()
    write_copies(tuning.to_json(), json_file)
    typer.echo(f"{folder / 'best.json'}: validation NDCG@20 {best.value:.4f}, trial {best.number}")
    typer.echo(fit_command(context, tuning))


def search(tuning: "Tuning", trials: int, engine: "TaskEngine") -> None:
    """Run the trials, as many at a time as there are jobs; the best so far is always on disk."""
    with Progress() as progress:
        try:
            for trial in tuning.run(trials, engine, engine.workers):
                tasks = f"  ({engine.progress})" if engine.progress else ""
                line = trial_line(trial, trials) + tasks
                progress.line(line, done=trial.number, total=trials)
                if trial.value is not None:
                    tuning.write_best()
        except KeyboardInterrupt:
            done = len([trial for trial in tuning.trials if trial.value is not None])
            typer.echo(f"{done} trials are kept; run the same command to continue", err=True)
            raise typer.Exit(STOPPED) from None


def trial_line(trial: "Trial", trials: int) -> str:
    """Number, value and settings of one trial."""
    value = f"failed: {trial.error}" if trial.value is None else f"NDCG@20 {trial.value:.4f}"
    settings = " ".join(
        f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in trial.settings.items()
    )
    return f"trial {trial.number:>{len(str(trials))}}/{trials}  {value}  {settings}"


def default_folder(method: str, source: str) -> Path:
    name = re.sub(r"[^\w.+@-]+", "-", f"{method}-{Path(source).name}")
    return Path("tune") / name


def fit_command(context: typer.Context, tuning: "Tuning") -> str:
    """The command that fits the best settings on the same data."""
    from fairhorizon.studies.tuning import dotted

    settings = dotted(tuning.settings(tuning.best))
    chosen = [
        word
        for name, value in settings.items()
        for word in ("--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}")
    ]
    method = tuning.objective.method_with_preset
    same = [*options.typed(context, OF_TUNE), "--out", f"runs/{method.base}"]
    return shlex.join(["fairhorizon", "fit", method.name, *same, *chosen])
