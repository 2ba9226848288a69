"""fairhorizon longterm: serve step by step, while exposure changes the groups."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from fairhorizon.cli import options
from fairhorizon.cli.config import Config
from fairhorizon.cli.progress import CONTINUE, Progress, time_and_tasks
from fairhorizon.cli.studies import opened, parse_methods
from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import Cut, EngineName, Labels, Mode, Protocol, Retrain, Users

if TYPE_CHECKING:
    from fairhorizon.limits.language import Limit
    from fairhorizon.parallel.engine import TaskEngine
    from fairhorizon.settings import Settings
    from fairhorizon.simulation.simulated import SimulationConfig
    from fairhorizon.studies.long_results import RunProgress
    from fairhorizon.studies.long_term import LongStudy, NamedMethod
    from fairhorizon.studies.rows import TrainingRow

METHODS = (
    *("fcpo", "fcpo:paper", "mf+foe", "mf", "bpr", "ncf", "lird", "popularity"),
    *("ease:recent", "ease:recent+quota", "ease:recent+control"),
    *("stack+control", "stack+pmmf", "stack+fairco", "stack+tfrom"),
)

# panels of the help
LIMITS = "More limits, which FCPO and NAME+control keep together with the first one"
SIMULATED = "Users with --users simulated or leaving"
LEAVING = "Users with --users leaving"

DEFAULT_SHARE, DEFAULT_LAG, DEFAULT_PATIENCE = 0.4, 50, 4.0
PAUSE = 20.0  # seconds between two progress lines, if nothing else is printed;
REDRAWN = 0.5  # on a terminal, where the line is redrawn

S = TypeVar("S", bound="Settings")


def longterm(
    context: typer.Context,
    data: options.Data,
    methods: Annotated[str | None, options.methods_option(METHODS)] = None,
    scores: options.Scores = None,
    steps: Annotated[int, typer.Option(min=1, help="Number of lists per user.")] = 400,
    k: Annotated[int, typer.Option("--k", min=1, help="Length of a list.")] = 1,
    repeat_after: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default="never",
            help="Number of steps after which an item may be shown to the same user again.",
        ),
    ] = None,
    alpha_prime: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Largest share of the limited group: popular items, or --sensitive.",
            show_default=f"{DEFAULT_SHARE:g}",
        ),
    ] = None,
    warm_up: Annotated[
        int, typer.Option(min=0, help="Steps before the limit has to be kept.")
    ] = 50,
    relabel_every: Annotated[
        int,
        typer.Option(
            min=1, help="Number of steps after which the popular group is computed again."
        ),
    ] = 1,
    update_every: Annotated[
        int, typer.Option(min=1, help="Number of steps after which FCPO learns from the feedback.")
    ] = 10,
    round_length: Annotated[
        int, typer.Option("--round", min=1, help="Items per user between two re-rankings.")
    ] = 100,
    retrain: Annotated[
        Retrain,
        typer.Option(
            help="What is fitted again after every round. rerankers: all that keep a limit, FCPO "
            "too."
        ),
    ] = Retrain.RERANKERS,
    limits: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            metavar="GROUP<=SHARE",
            help='A further limit or floor, as in "genre=Drama<=0.3", "seller=small>=0.2", '
            '"gini<=0.8". A plain one on popular replaces --alpha-prime and may say its labels: '
            '"popular<=0.4;labels=moment". Repeatable. docs/limits.md explains the language.',
            rich_help_panel=LIMITS,
        ),
    ] = None,
    look_ahead: Annotated[
        bool,
        typer.Option(
            help="Keep items from entering the popular group where that would break a "
            "retrospective limit. Without this the limit is broken and recovered.",
            rich_help_panel=LIMITS,
        ),
    ] = True,
    resume: Annotated[bool, typer.Option("--resume", help="Continue interrupted runs.")] = False,
    users: Annotated[
        Users,
        typer.Option(
            help="logged: users like their test items. simulated: users may click any item. "
            "leaving: the same, and they leave when their patience is at an end."
        ),
    ] = Users.LOGGED,
    drift: Annotated[
        float | None,
        typer.Option(
            help="How fast preferences change: 0 never, 1 new preferences at every step.",
            show_default="0",
            rich_help_panel=SIMULATED,
        ),
    ] = None,
    position_bias: Annotated[
        float | None,
        typer.Option(
            help="The k-th item of a list is examined with probability k to the power of minus "
            "this.",
            show_default="1",
            rich_help_panel=SIMULATED,
        ),
    ] = None,
    patience: Annotated[
        float | None,
        typer.Option(
            min=2,
            help="How many likes users can be patient for, in the mean; what a like adds is such "
            "that half of them stay for 60 steps.",
            show_default="4",
            rich_help_panel=LEAVING,
        ),
    ] = None,
    like_adds: Annotated[
        float | None,
        typer.Option(
            help="How many other showings a like makes up for.",
            show_default="calibrated",
            rich_help_panel=LEAVING,
        ),
    ] = None,
    returning: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Chance of coming back in a step, of those who left content; falls with what "
            "they did not like.",
            show_default="0",
            rich_help_panel=LEAVING,
        ),
    ] = None,
    satiation: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="What a showing takes off the log-odds of items of the same kind.",
            show_default="0",
            rich_help_panel=LEAVING,
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            help="Column with the kinds of items, for --satiation, --quit, and the settings mmr "
            "and kind_quota of NAME+control.",
            show_default="genre",
        ),
    ] = None,
    quit_rule: Annotated[
        str | None,
        typer.Option(
            "--quit",
            metavar="M/N",
            help="Users quit when more than M of the last N items are of one kind.",
            rich_help_panel=LEAVING,
        ),
    ] = None,
    seeds: options.Seeds = 3,
    protocol: options.ProtocolOption = Protocol.STANDARD,
    settings_files: options.SettingsFiles = None,
    settings: options.StudySet = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for steps, figures, page and models.")
    ] = Path("longterm"),
    json_file: options.JsonFile = None,
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
    jobs: options.Jobs = None,
    engine_name: options.EngineOption = EngineName.PROCESSES,
    address: options.Address = None,
    threads: options.Threads = 1,
    _config: Config = None,
) -> None:
    """Serve every user step by step, while exposure changes which items are popular.

    A row per method, seed and step is written to --out/steps during the run.
    Models already in --out, for example from compare, are not trained again.
    """
    from fairhorizon.evaluation.long_term import LongRunSettings
    from fairhorizon.simulation.churn import KINDS
    from fairhorizon.studies.long_term import LongStudy, NamedMethod, RunLimits
    from fairhorizon.studies.study import Study

    reading = options.reader(
        user, item, rating, timestamp, weight, session, header, separator, encoding, drop_incomplete
    )
    group = options.limited_group(group_column, sensitive, item_table, area_km)
    ties = options.order_of_ties(shuffle_ties, keep_ties)
    spec = options.data_spec(data, reading, cut, ties, group)
    given = options.given_files(scores)
    by_method = options.study_settings(context, settings_files, settings) | given
    churn = {"patience": patience, "like_adds": like_adds, "returning": returning}
    kinds = {"satiation": satiation, "quits": quit_rule, "by": by}
    simulated = {"drift": drift, "position_bias": position_bias}
    simulation = chosen_users(users, simulated, {**churn, **kinds})
    main, further = parse_limits(limits, alpha_prime)
    named = options.with_given(parse_methods(methods, METHODS), given, behind="+control")
    chosen = [NamedMethod.at_limit(one, main.share) for one in named]
    asked = RunLimits(tuple(further), spec.item_table, look_ahead)
    if spec.group_column is None and (further or by):  # the table is for limits or kinds alone
        spec = spec.model_copy(update={"item_table": None})
    by_method = with_list_length(by_method, k)
    run_settings = LongRunSettings(
        steps=steps,
        list_length=k,
        relabel_every=relabel_every,
        update_every=update_every,
        alpha_prime=main.share,
        labels=main.labels or Labels.RETROSPECTIVE,
        lag=max([main.lag, *(limit.lag for limit in further)]) or DEFAULT_LAG,
        warm_up=warm_up,
        repeat_after=repeat_after,
    )
    study = Study(out, spec, protocol, Mode.ONE_SHOT, (), by_method, cache_dir)
    with (
        options.chosen_engine(jobs, engine_name, address, threads) as engine,
        opened(study, [k], json_file) as study,
    ):
        long_study = LongStudy(
            study, run_settings, simulation, asked, round_length, retrain, by or KINDS
        )
        check_by(long_study, chosen, by)
        run(long_study, chosen, range(seeds), engine, resume=resume)
        made_by = options.made_by(context, study.data, cache_dir, range(seeds))
        finish(long_study, chosen, range(seeds), made_by, json_file)


def check_by(long_study: "LongStudy", chosen: "Sequence[NamedMethod]", by: str | None) -> None:
    """Refuse kinds that neither users nor methods look at."""
    leaving = long_study.simulation is not None and long_study.simulation.churn is not None
    models = (long_study.study.build(one.method, seed=0) for one in chosen)
    if by is not None and not leaving and not any(model.capabilities.kinds for model in models):
        raise ConfigError(
            "--by: nothing looks at kinds of items (give --users leaving, or --set control.mmr=0.3 "
            "for NAME+control)"
        )


def run(
    long_study: "LongStudy",
    chosen: "Sequence[NamedMethod]",
    seeds: range,
    engine: "TaskEngine",
    *,
    resume: bool,
) -> None:
    """Run what is missing: a line per training and per run, and in between the steps done."""
    long_study.check(chosen)
    warn(long_study)
    warn_of_rounds(long_study, chosen)
    try:
        with Progress() as progress:
            news = News(progress, long_study, chosen, seeds, engine)
            long_study.run(
                chosen,
                seeds,
                resume=resume,
                engine=engine,
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
        options.warn_if_untested(split)
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
    reranked = [one.label for one in chosen if one.method.capabilities.rounds]
    if reranked and shown < long_study.round_length:
        typer.echo(
            f"note: a user is shown {shown} items, less than a round of {long_study.round_length}: "
            f"the limit of {', '.join(reranked)} is for a whole round and may never take effect "
            f"(give --round {shown} or less)",
            err=True,
        )


def finish(
    long_study: "LongStudy",
    chosen: "Sequence[NamedMethod]",
    seeds: range,
    made_by: Mapping[str, Any],
    json_file: Path | None,
) -> None:
    """Write the results, and print the table."""
    from rich.console import Console

    from fairhorizon.files import write_copies, written_together
    from fairhorizon.report.limits import methods_table
    from fairhorizon.report.long_term import (
        can_leave,
        closing_lines,
        differences_table,
        staying_grid,
        summary_table,
        write_long_term_report,
    )
    from fairhorizon.report.tables import terminal

    out, result = long_study.study.folder, long_study.result(chosen, seeds)
    with written_together():
        write_copies(result.to_json() | {"made_by": made_by}, json_file)
        write_long_term_report(out, result, made_by["command"], made_by)
    Console().print(summary_table(result.steps, result.group))
    if can_leave(result.steps):
        Console().print(terminal(staying_grid(result.steps)))
    if result.differences:
        Console().print(differences_table(result.differences))
    Console().print(methods_table(result.limit_rows))
    for line in closing_lines(result):
        typer.echo(line)
    typer.echo(f"{out / 'index.html'}: the page, open it in a browser")


# ---- limits, users and progress


def with_list_length(settings: dict[str, Any], k: int) -> dict[str, Any]:
    """The settings, with agents trained for lists of the length they will serve."""
    own = {}
    for agent in ("fcpo", "lird"):
        own[agent] = {"list_length": k, **settings.get(agent, {})}
        if own[agent]["list_length"] != k:
            raise ConfigError(
                f"{agent}.list_length={own[agent]['list_length']} and lists of {k} (give --k alone)"
            )
    return settings | own


def parse_limits(
    texts: Sequence[str] | None, alpha_prime: float | None
) -> "tuple[Limit, list[Limit]]":
    """The limit on the popular group, and the others."""
    from fairhorizon.limits.language import POPULAR, GroupOf, Limit, LimitError

    try:
        limits = [Limit.parse(text) for text in texts or []]
    except LimitError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from None
    main = [
        limit
        for limit in limits
        if limit.group == GroupOf(POPULAR) and limit.is_plain and not limit.is_floor
    ]
    if len(main) > 1 or (main and alpha_prime is not None):
        other = main[1] if len(main) > 1 else f"--alpha-prime {alpha_prime:g}"
        raise typer.BadParameter(f"{main[0]} and {other} (give one)", param_hint="--limit")
    if len({limit.lag for limit in limits} - {0}) > 1:
        raise typer.BadParameter(
            "labels lag by several numbers of steps (give one)", param_hint="--limit"
        )
    default = Limit.popular(DEFAULT_SHARE if alpha_prime is None else alpha_prime)
    return (main or [default])[0], [limit for limit in limits if limit not in main]


def chosen_users(
    users: Users, simulated: Mapping[str, float | None], leaving: Mapping[str, Any]
) -> "SimulationConfig | None":
    """The settings of simulated users; None for users of a log.

    simulated, leaving: options as they were typed, None if they were not.
    """
    from fairhorizon.simulation.churn import ChurnConfig
    from fairhorizon.simulation.simulated import SimulationConfig

    if users is not Users.LEAVING:  # methods too have rules about kinds of items
        leaving = {name: value for name, value in leaving.items() if name != "by"}
    given, churn = (
        {name: value for name, value in options.items() if value is not None}
        for options in (simulated, leaving)
    )
    if given and users is Users.LOGGED:
        raise ConfigError(
            f"--{_dashed(given)}: only for simulated users (give --users simulated too)"
        )
    if churn and users is not Users.LEAVING:
        raise ConfigError(
            f"--{_dashed(churn)}: only for users who can leave (give --users leaving too)"
        )
    if users is Users.LOGGED:
        return None
    if users is Users.LEAVING:
        if "quits" in churn:
            churn["quits"] = parse_quit(str(churn["quits"]))
        bored_only = "quits" in churn and "patience" not in churn
        churn.setdefault("patience", None if bored_only else DEFAULT_PATIENCE)
        given["churn"] = _validated(ChurnConfig, churn)
    return _validated(SimulationConfig, given)


def _dashed(given: Mapping[str, object]) -> str:
    """The option that the first of the settings is given by."""
    return {"quits": "quit"}.get(first := next(iter(given)), first.replace("_", "-"))


def _validated(kind: type[S], given: Mapping[str, Any]) -> S:
    from pydantic import ValidationError

    from fairhorizon.settings import expected

    try:
        return kind.model_validate(given)
    except ValidationError as error:
        fault = error.errors()[0]
        option = str(fault["loc"][0]).replace("_", "-")
        raise typer.BadParameter(
            f"{fault['input']}: give {expected(fault)}", param_hint=f"--{option}"
        ) from None


def parse_quit(text: str) -> dict[str, int]:
    """The quit rule, as in 4/10."""
    most, _, of = text.partition("/")
    if not (most.isdecimal() and of.isdecimal() and 1 <= int(most) < int(of)):
        raise typer.BadParameter(
            f"{text!r} (give two whole numbers, the smaller first, as in 4/10)",
            param_hint="--quit",
        )
    return {"most": int(most), "of": int(of)}


class News:
    """A line for every training and every run, and in between the number of steps done."""

    def __init__(
        self,
        progress: Progress,
        long_study: "LongStudy",
        chosen: "Sequence[NamedMethod]",
        seeds: Sequence[int],
        engine: "TaskEngine",
    ) -> None:
        self.progress, self.long_study = progress, long_study
        self.chosen, self.seeds, self.engine = chosen, seeds, engine
        self.runs, self.done = len(chosen) * len(seeds), 0
        self.begin = self.last = time.monotonic()

    def of_model(self, row: "TrainingRow") -> None:
        self.say(f"{row.name}  trained in {row.seconds:.0f} s")

    def of_run(self, run: "RunProgress") -> None:
        self.done += 1
        shares = {
            "NDCG": run.ndcg,
            "Gini": run.gini,
            self.long_study.study.data.group_name: run.limited_rate,
            "steps over the limit": run.violation_share,
        }
        text = "  ".join(f"{name} {percent(value)}" for name, value in shares.items())
        self.say(
            f"{self.done}/{self.runs}  {run.method} seed {run.seed}  {text}  "
            f"({time_and_tasks(self.begin, self.engine)})"
        )
        for remark in run.remarks[:1]:
            more = len(run.remarks) - 1
            others = f" (and {more} more like it, from other rounds)" if more else ""
            self.say(f"note: {run.method} seed {run.seed}: {remark}{others}")

    def meanwhile(self) -> None:
        is_terminal = self.progress.console.is_terminal
        if time.monotonic() - self.last < (REDRAWN if is_terminal else PAUSE):
            return
        done = self.long_study.steps_done(self.chosen, self.seeds)
        total = self.runs * self.long_study.settings.steps
        words = f"{done}/{total} steps  ({time_and_tasks(self.begin, self.engine)})"
        self.progress.line(words, done=done, total=total)
        self.last = time.monotonic()

    def say(self, line: str) -> None:
        """Print a line that is not redrawn."""
        self.last = time.monotonic()
        self.progress.say(line)


def percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"
