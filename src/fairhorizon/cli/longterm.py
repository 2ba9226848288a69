"""fairhorizon longterm: serve step by step, while exposure changes the groups."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from fairhorizon.cli import longterm_options as own
from fairhorizon.cli import options as shared
from fairhorizon.cli import studies
from fairhorizon.cli.progress import CONTINUE, Progress
from fairhorizon.cli.step_news import News
from fairhorizon.cli.typed import typed_command
from fairhorizon.cli.user_options import takes_users
from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import Labels, Retrain

if TYPE_CHECKING:
    from fairhorizon.simulation.simulated import SimulationConfig
    from fairhorizon.studies.long_term import LongStudy, NamedMethod

METHODS = (
    "fcpo",
    "fcpo:paper",
    "mf+foe",
    "mf",
    "bpr",
    "ncf",
    "lird",
    "popularity",
    "ease",
    "ease+quota",
    "ease+control",
    "stack+control",
    "stack+pmmf",
    "stack+fairco",
    "stack+tfrom",
)


@studies.takes_study(
    seeds=3,
    out="longterm",
    holds="steps, figures, page and models",
    methods=studies.methods_option(METHODS),
    without=("mode",),
)
@takes_users
def longterm(
    context: typer.Context,
    options: studies.StudyOptions,
    simulation: "SimulationConfig | None",
    by: str | None,
    steps: own.Steps = 400,
    k: own.ListLength = 1,
    repeat_after: own.RepeatAfter = None,
    alpha_prime: own.AlphaPrime = None,
    warm_up: own.WarmUp = 50,
    relabel_every: own.RelabelEvery = 1,
    update_every: own.UpdateEvery = 10,
    round_length: own.RoundLength = 100,
    retrain: own.RetrainOption = Retrain.RERANKERS,
    limits: own.Limits = None,
    look_ahead: own.LookAhead = True,
    resume: own.Resume = False,
) -> None:
    """Serve every user step by step, while exposure changes which items are popular.

    A row per method, seed and step is written to --out/steps during the run.
    Models already in --out, for example from compare, are not trained again.
    """
    from fairhorizon.evaluation.long_term import LongRunSettings
    from fairhorizon.simulation.moods import KINDS
    from fairhorizon.studies.long_term import LongStudy, NamedMethod, RunLimits

    main, further = own.parse_limits(limits, alpha_prime)
    chosen = [NamedMethod.at_limit(method, main.share) for method in options.chosen(METHODS)]
    data = options.data
    asked = RunLimits(tuple(further), data.item_table, look_ahead)
    if data.group_column is None and (further or by):  # the table is for limits or kinds alone
        data = data.model_copy(update={"item_table": None})
    options = replace(options, data=data, settings=own.with_list_length(options.settings, k))
    run_settings = LongRunSettings(
        steps=steps,
        list_length=k,
        relabel_every=relabel_every,
        update_every=update_every,
        alpha_prime=main.share,
        labels=main.labels or Labels.RETROSPECTIVE,
        lag=max([main.lag, *(limit.lag for limit in further)]) or own.DEFAULT_LAG,
        warm_up=warm_up,
        repeat_after=repeat_after,
    )
    with options.study([k]) as study:
        long_study = LongStudy(
            study, run_settings, simulation, asked, round_length, retrain, by or KINDS
        )
        check_by(long_study, chosen, by)
        run(options, long_study, chosen, resume)
        finish(options, long_study, chosen, typed_command(context))


def check_by(long_study: "LongStudy", chosen: "Sequence[NamedMethod]", by: str | None) -> None:
    """Refuse kinds that neither users nor methods look at."""
    leaving = long_study.simulation is not None and long_study.simulation.moods is not None
    models = (long_study.study.build(one.method, seed=0) for one in chosen)
    if by is not None and not leaving and not any(model.abilities.kinds for model in models):
        raise ConfigError(
            "--by: nothing looks at kinds of items (give --users leaving, or --set control.mmr=0.3 "
            "for NAME+control)"
        )


def run(
    options: studies.StudyOptions,
    long_study: "LongStudy",
    chosen: "Sequence[NamedMethod]",
    resume: bool,
) -> None:
    """Run what is missing: a line per training and per run, and in between the steps done."""
    long_study.check(chosen)
    warn(long_study)
    warn_of_rounds(long_study, chosen)
    try:
        with Progress() as progress:
            news = News(progress, long_study, chosen, options.seeds, options.engine)
            long_study.run(
                chosen,
                options.seeds,
                resume=resume,
                engine=options.engine,
                on_model=news.of_model,
                on_run=news.of_run,
                meanwhile=news.meanwhile,
            )
    except KeyboardInterrupt:
        typer.echo(CONTINUE, err=True)
        raise


def warn(long_study: "LongStudy") -> None:
    """Print notes where the settings leave something unmeasured."""
    split, settings = long_study.study.dataset().split, long_study.settings
    if long_study.simulation is None:
        shared.warn_if_untested(split)
    # no item stands twice in so many lists of a user
    lists = min(settings.steps, settings.repeat_after or settings.steps)
    if lists * settings.list_length > split.train.n_items:
        which = "the last lists" if settings.repeat_after is None else "some lists"
        typer.echo(
            f"note: {lists} lists of {settings.list_length} need more than the "
            f"{split.train.n_items} items there are: {which} will be empty",
            err=True,
        )
    if settings.warm_up >= settings.steps:
        typer.echo(
            f"note: a warm-up of {settings.warm_up} steps leaves none of the {settings.steps} at "
            "which the limit is checked (give a smaller --warm-up)",
            err=True,
        )


def warn_of_rounds(long_study: "LongStudy", chosen: "Sequence[NamedMethod]") -> None:
    """Print a note if a re-ranker, whose limit is for a whole round, never finishes one."""
    settings = long_study.settings
    shown = settings.steps * settings.list_length
    reranked = [one.label for one in chosen if one.method.abilities.rounds]
    if reranked and shown < long_study.round_length:
        typer.echo(
            f"note: a user is shown {shown} items, less than a round of {long_study.round_length}: "
            f"the limit of {', '.join(reranked)} is for a whole round and may never take effect "
            f"(give --round {shown} or less)",
            err=True,
        )


def finish(
    options: studies.StudyOptions,
    long_study: "LongStudy",
    chosen: "Sequence[NamedMethod]",
    command: str,
) -> None:
    """Write the results, and print the table."""
    from rich.console import Console

    from fairhorizon.files import write_copies, written_together
    from fairhorizon.report.grid import terminal
    from fairhorizon.report.limits import methods_table
    from fairhorizon.report.long_tables import (
        can_leave,
        differences_table,
        staying_grid,
        summary_table,
    )
    from fairhorizon.report.long_term import closing_lines, write_long_term_report

    out, result = options.out, long_study.result(chosen, options.seeds)
    with written_together():
        write_copies(result.to_json(), options.json_file)
        write_long_term_report(out, result, command)
    Console().print(summary_table(result.steps, result.group))
    if can_leave(result.steps):
        Console().print(terminal(staying_grid(result.steps)))
    if result.differences:
        Console().print(differences_table(result.differences))
    Console().print(methods_table(result.limit_rows))
    for line in closing_lines(result):
        typer.echo(line)
    typer.echo(f"{out / 'index.html'}: the page, open it in a browser")
