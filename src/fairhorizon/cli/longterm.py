"""fairhorizon longterm: step by step, while exposure changes the groups."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli import studies
from fairhorizon.cli.folders import check_file, claimed
from fairhorizon.cli.progress import Progress
from fairhorizon.cli.step_news import News
from fairhorizon.cli.typed import typed_command
from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import Mode, Protocol, Retrain, Users

if TYPE_CHECKING:
    from fairhorizon.environment.simulated import SimulationConfig
    from fairhorizon.experiments.at_work import Limits
    from fairhorizon.experiments.long_term import Contestant, LongStudy
    from fairhorizon.experiments.runs import DataSpec

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
LIMITS = "More limits, which FCPO keeps together with the first one"
SIMULATED = "Users with --users simulated"
RELABEL = "Number of steps after which the popular group is computed again."
UPDATE = "Number of steps after which FCPO learns from the feedback."

GroupShares = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="COLUMN=VALUE:SHARE",
        help="Largest share of a group in what is shown, as in genre=Drama:0.3. Repeatable.",
        rich_help_panel=LIMITS,
    ),
]
Floors = Annotated[
    list[str] | None,
    typer.Option(
        "--floor",
        metavar="COLUMN=VALUE:SHARE",
        help="Smallest share of a group. The column is in the data or in --item-table. Repeatable.",
        rich_help_panel=LIMITS,
    ),
]
GiniLimit = Annotated[
    float | None,
    typer.Option(
        min=0, max=1, help="Largest Gini index of everything shown.", rich_help_panel=LIMITS
    ),
]
Drift = Annotated[
    float | None,
    typer.Option(
        help="How fast preferences change: 0 never, 1 new preferences at every step.",
        show_default="0",
        rich_help_panel=SIMULATED,
    ),
]
PositionBias = Annotated[
    float | None,
    typer.Option(
        help="The k-th item of a list is examined with probability k to the power of minus this.",
        show_default="1",
        rich_help_panel=SIMULATED,
    ),
]


@shared.takes_data
def longterm(
    context: typer.Context,
    data: "DataSpec",
    methods: studies.Methods = None,
    steps: Annotated[int, typer.Option(min=1, help="Number of lists per user.")] = 400,
    k: Annotated[int, typer.Option("--k", min=1, help="Length of a list.")] = 1,
    alpha_prime: Annotated[
        float, typer.Option(min=0, max=1, help="Largest share of the limited group.")
    ] = 0.4,
    warm_up: Annotated[int, typer.Option(min=0, help="Steps without a limit at first.")] = 50,
    relabel_every: Annotated[int, typer.Option(min=1, help=RELABEL)] = 1,
    update_every: Annotated[int, typer.Option(min=1, help=UPDATE)] = 10,
    round_length: Annotated[
        int, typer.Option("--round", min=1, help="Items per user between two re-rankings.")
    ] = 100,
    retrain: Annotated[
        Retrain, typer.Option(help="Rankers that are fitted again after every round.")
    ] = Retrain.RERANKERS,
    seeds: studies.Seeds = 3,
    protocol: shared.ProtocolOption = Protocol.STANDARD,
    users: Annotated[
        Users,
        typer.Option(
            help="logged: users like their test items. simulated: users may click any item."
        ),
    ] = Users.LOGGED,
    drift: Drift = None,
    position_bias: PositionBias = None,
    limits: GroupShares = None,
    floors: Floors = None,
    gini_limit: GiniLimit = None,
    settings_files: studies.SettingsFiles = None,
    settings: studies.Set = None,
    jobs: studies.Jobs = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue interrupted runs.")] = False,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for steps, figures, page and models.")
    ] = Path("longterm"),
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
    from fairhorizon.vocabulary import Retrain

    chosen = [
        Contestant.of(method, alpha_prime) for method in studies.parse_methods(methods, METHODS)
    ]
    given = of_length(studies.gather_settings(settings_files or [], settings or []), k)
    limits_of = parse_limits(limits or [], floors or [], gini_limit, data.item_table)
    if data.group_column is None and limits_of.groups:  # the table is for the limits alone
        data = data.model_copy(update={"item_table": None})
    long_study = LongStudy(
        studies.make_study(data, out, protocol, Mode.ONE_SHOT, (k,), given, cache_dir),
        LongRunSettings(
            steps=steps,
            list_length=k,
            relabel_every=relabel_every,
            update_every=update_every,
            alpha_prime=alpha_prime,
            warm_up=warm_up,
        ),
        parse_users(users, drift, position_bias),
        limits_of,
        round_length,
        Retrain(retrain),
    )
    check_file(json_file)
    with claimed(out):
        long_study.check(chosen)
        try:
            run(long_study, chosen, range(seeds), resume, jobs)
        except KeyboardInterrupt:
            typer.echo("the same command with --resume goes on", err=True)
            raise
        finish(long_study, chosen, range(seeds), typed_command(context), json_file)


def of_length(settings: dict[str, Any], k: int) -> dict[str, Any]:
    """The settings, with agents that are trained for the lists they will serve."""
    own = {}
    for agent in ("fcpo", "lird"):
        own[agent] = {"list_length": k, **settings.get(agent, {})}
        if own[agent]["list_length"] != k:
            raise ConfigError(
                f"{agent}.list_length={own[agent]['list_length']} and lists of {k} (give --k alone)"
            )
    return settings | own


def parse_users(
    users: Users, drift: float | None, position_bias: float | None
) -> "SimulationConfig | None":
    """How simulated users behave; None of those of a log."""
    from pydantic import ValidationError

    from fairhorizon.environment.simulated import SimulationConfig

    given = {"drift": drift, "position_bias": position_bias}
    given = {name: value for name, value in given.items() if value is not None}
    if given and users is not Users.SIMULATED:
        option = next(iter(given)).replace("_", "-")
        raise ConfigError(f"--{option}: users of a log have none (give --users simulated too)")
    if users is not Users.SIMULATED:
        return None
    try:
        return SimulationConfig.model_validate(given)
    except ValidationError as error:
        fault = error.errors()[0]
        option = str(fault["loc"][0]).replace("_", "-")
        raise typer.BadParameter(
            f"{fault['input']}: {fault['msg']}", param_hint=f"--{option}"
        ) from None


def parse_limits(
    limits: Sequence[str], floors: Sequence[str], gini: float | None, table: str | None
) -> "Limits":
    from fairhorizon.experiments.at_work import GroupShare, Limits

    groups = []
    for option, texts in (("--limit", limits), ("--floor", floors)):
        for text in texts:
            try:
                groups.append(GroupShare.parse(text, is_floor=option == "--floor"))
            except ConfigError as error:
                raise typer.BadParameter(str(error), param_hint=option) from None
    return Limits(tuple(groups), gini, table)


def run(
    long_study: "LongStudy",
    chosen: "Sequence[Contestant]",
    seeds: Sequence[int],
    resume: bool,
    jobs: int | None,
) -> None:
    """Make what is missing: a line for every training and run, and in between how far it is."""
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


def finish(
    long_study: "LongStudy",
    chosen: "Sequence[Contestant]",
    seeds: Sequence[int],
    command: str,
    json_file: Path | None,
) -> None:
    """The table, the figures and the page; longterm.json for programs."""
    from rich.console import Console

    from fairhorizon.experiments.long_summary import broken_limits, summary_rows
    from fairhorizon.files import write_json
    from fairhorizon.report.long_term import write_report
    from fairhorizon.report.long_term_table import summary_table

    out, settings = long_study.study.folder, long_study.settings
    steps = long_study.steps(chosen, seeds)
    rows, broken = summary_rows(steps), broken_limits(steps, settings.warm_up)
    content = {"rows": rows, "limits": broken, "settings": long_study.description()}
    write_json(out / "longterm.json", content)
    if json_file is not None:
        write_json(json_file, content)
    write_report(
        out,
        steps,
        long_study.counts(chosen, seeds),
        alpha_prime=settings.alpha_prime,
        warm_up=settings.warm_up,
        command=command,
        group=group_of(long_study.study.data),
        limits=broken,
    )
    Console().print(summary_table(steps))
    for row in broken:
        share, most = 100 * row["violation_share"], 100 * row["largest_overshoot"]
        broke = f"broken at {share:.2f} % of steps, by up to {most:.2f} points,"
        how = broke if share else "kept"
        typer.echo(f"{row['limit']}: {how} after the warm-up ({row['method']})")
    seconds = (f"{row['method']} {row['metrics']['seconds_per_step']['mean']:.3f}" for row in rows)
    typer.echo(f"Seconds per step: {', '.join(seconds)}.")
    typer.echo(f"{out / 'longterm.html'}: the page, open it in a browser")


def group_of(data: "DataSpec") -> str | None:
    """The attribute that limited items share; None where they are the popular ones."""
    if data.group_column is None:
        return None
    return f"{data.group_column} {' or '.join(data.sensitive_values)}"
