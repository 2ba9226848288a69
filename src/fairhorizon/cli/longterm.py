"""fairhorizon longterm: step by step, while exposure changes the groups."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fairhorizon.cli import longterm_options as own
from fairhorizon.cli import options as shared
from fairhorizon.cli import studies
from fairhorizon.cli.folders import check_file, claimed
from fairhorizon.cli.progress import Progress
from fairhorizon.cli.step_news import News
from fairhorizon.cli.typed import typed_command
from fairhorizon.vocabulary import Mode, Protocol, Retrain, Users

if TYPE_CHECKING:
    from fairhorizon.experiments.datasets import DataSpec
    from fairhorizon.experiments.long_term import Contestant, LongStudy

METHODS = (
    "fcpo:strong",
    "fcpo:paper",
    "mf+foe",
    "mf",
    "bpr",
    "ncf",
    "lird",
    "popularity",
    "ease",
    "ease+quota",
)


@shared.takes_data
def longterm(
    context: typer.Context,
    data: "DataSpec",
    methods: studies.Methods = None,
    steps: own.Steps = 400,
    k: own.ListLength = 1,
    alpha_prime: own.AlphaPrime = 0.4,
    warm_up: own.WarmUp = 50,
    relabel_every: own.RelabelEvery = 1,
    update_every: own.UpdateEvery = 10,
    round_length: own.RoundLength = 100,
    retrain: own.RetrainOption = Retrain.RERANKERS,
    seeds: studies.Seeds = 3,
    protocol: shared.ProtocolOption = Protocol.STANDARD,
    users: own.UsersOption = Users.LOGGED,
    drift: own.Drift = None,
    position_bias: own.PositionBias = None,
    limits: own.GroupShares = None,
    floors: own.Floors = None,
    gini_limit: own.GiniLimit = None,
    settings_files: studies.SettingsFiles = None,
    settings: studies.Set = None,
    jobs: studies.Jobs = None,
    resume: own.Resume = False,
    out: own.Out = Path("longterm"),
    json_file: shared.JsonFile = None,
    cache_dir: Path | None = None,
) -> None:
    """Serve every user step by step, while exposure changes which items are popular.

    A row per method, seed and step is written to --out/steps during the run.
    Models that are in --out already, for example from compare, are not trained
    again.
    """
    from fairhorizon.evaluation.long_term import LongRunSettings
    from fairhorizon.experiments.long_term import Contestant, LongStudy

    chosen = [Contestant.of(one, alpha_prime) for one in studies.parse_methods(methods, METHODS)]
    given = studies.gather_settings(settings_files or [], settings or [])
    more_limits = own.parse_limits(limits, floors, gini_limit, data.item_table)
    if data.group_column is None and more_limits.groups:  # the table is for the limits alone
        data = data.model_copy(update={"item_table": None})
    given = own.with_list_length(given, k)
    study = studies.make_study(data, out, protocol, Mode.ONE_SHOT, (k,), given, cache_dir)
    run_settings = LongRunSettings(
        steps=steps,
        list_length=k,
        relabel_every=relabel_every,
        update_every=update_every,
        alpha_prime=alpha_prime,
        warm_up=warm_up,
    )
    simulation = own.parse_users(users, drift, position_bias)
    long_study = LongStudy(study, run_settings, simulation, more_limits, round_length, retrain)
    check_file(json_file)
    with claimed(out):
        run(long_study, chosen, range(seeds), resume, jobs)
        finish(long_study, chosen, range(seeds), typed_command(context), json_file)


def run(
    long_study: "LongStudy",
    chosen: "Sequence[Contestant]",
    seeds: Sequence[int],
    resume: bool,
    jobs: int | None,
) -> None:
    """Make what is missing: a line for every training and run, and in between how far it is."""
    long_study.check(chosen)
    warn(long_study)
    try:
        with Progress() as progress:
            news = News(progress, long_study, chosen, seeds)
            long_study.run(
                chosen,
                seeds,
                resume=resume,
                jobs=jobs or os.cpu_count() or 1,
                on_model=news.of_model,
                on_run=news.of_run,
                meanwhile=news.meanwhile,
            )
    except KeyboardInterrupt:
        typer.echo("the same command with --resume goes on", err=True)
        raise


def warn(long_study: "LongStudy") -> None:
    """Notes on what such runs cannot show."""
    split, settings = long_study.study.dataset().split, long_study.settings
    if long_study.simulation is None:
        shared.tell_if_untested(split)
    if settings.steps * settings.list_length > split.train.n_items:
        typer.echo(
            f"note: {settings.steps} lists of {settings.list_length} have room for more than the "
            f"{split.train.n_items} items there are: in the end there is nothing left to show",
            err=True,
        )
    if settings.warm_up >= settings.steps:
        typer.echo(
            f"note: a warm-up of {settings.warm_up} steps leaves none of the {settings.steps} to "
            "judge the limit by (give a smaller --warm-up)",
            err=True,
        )


def finish(
    long_study: "LongStudy",
    chosen: "Sequence[Contestant]",
    seeds: Sequence[int],
    command: str,
    json_file: Path | None,
) -> None:
    """Write what was found, and print the table."""
    from rich.console import Console

    from fairhorizon.files import write_copies
    from fairhorizon.report.long_term import closing_lines, write_long_term_report
    from fairhorizon.report.long_term_table import summary_table

    out, result = long_study.study.folder, long_study.result(chosen, seeds)
    write_copies(result.to_json(), json_file)
    write_long_term_report(out, result, command)
    Console().print(summary_table(result.steps, result.group))
    for line in closing_lines(result):
        typer.echo(line)
    typer.echo(f"{out / 'longterm.html'}: the page, open it in a browser")
