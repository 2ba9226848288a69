"""fairhorizon levels: how accurate each method is under the same limits."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import options
from fairhorizon.cli.config import FROM_FILE, Config, source_of
from fairhorizon.cli.studies import opened, parse_methods, print_notes, result_lines
from fairhorizon.vocabulary import Cut, EngineName, Mode, Protocol

if TYPE_CHECKING:
    from fairhorizon.datasets import DataSpec
    from fairhorizon.limits.language import Limit
    from fairhorizon.methods import Method
    from fairhorizon.parallel.engine import TaskEngine
    from fairhorizon.studies.level_search import MethodAtLimit
    from fairhorizon.studies.levels import LevelRow
    from fairhorizon.studies.study import Study

DEFAULT_LEVELS = "0.85,0.65,0.37"


def levels(
    context: typer.Context,
    data: options.Data,
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="Comma-separated list of methods without levels, as in fcpo,ease+quota,mf+foe.",
            show_default="fcpo, fcpo:start; stack, gru4rec, ease:recent +lists; popularity+quota; "
            "gru4rec, sasrec, ease:recent, itemknn:recent +foe, +quota, +penalty; "
            "stack, ease:recent +pmmf, +fairco, +tfrom",
            callback=options.known_methods,
        ),
    ] = None,
    shares: Annotated[
        str | None,
        typer.Option(
            "--levels",
            help="Comma-separated limits: largest shares of the limited group in the lists.",
            show_default=f"{DEFAULT_LEVELS}, none with --limit",
        ),
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            "--limit",
            help="Compare under a limit, as in 'popular<=0.37;weights=log' (places weighed), "
            "'popular<=0.4@5' or 'popular<=0.4;scope=list'. Repeatable.",
        ),
    ] = None,
    scores: options.Scores = None,
    k: options.Length = None,
    tries: Annotated[
        int,
        typer.Option(min=0, help="Number of further settings of a rival to try for each level."),
    ] = 8,
    seeds: options.Seeds = 5,
    protocol: options.ProtocolOption = Protocol.STANDARD,
    mode: options.ModeOption = Mode.ONE_SHOT,
    settings_files: options.SettingsFiles = None,
    settings: options.StudySet = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for page, tables, figure, models and results.")
    ] = Path("levels"),
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
    """Compare the NDCG of methods under the same limit on the share of a group.

    FCPO serves at the limit. Each rival is shown with its best setting that keeps
    the limit, chosen with hindsight. Results in --out are not computed again.
    Tables by place, and of who pays: the accuracy of active users and of those
    with a taste for the tail, with the limit and without.
    """
    from rich.console import Console

    from fairhorizon.report import levels as report
    from fairhorizon.studies import levels as experiment
    from fairhorizon.studies.level_search import methods_at_limits
    from fairhorizon.studies.study import Study

    reading = options.reader(
        user, item, rating, timestamp, weight, session, header, separator, encoding, drop_incomplete
    )
    group = options.limited_group(group_column, sensitive, item_table, area_km)
    ties = options.order_of_ties(shuffle_ties, keep_ties)
    spec = options.data_spec(data, reading, cut, ties, group)
    texts = limit or []
    if source_of(context, "limit") == FROM_FILE:
        texts = levels_among(texts, spec)
    spec, limits = limited(spec, shares, texts)
    given = options.given_files(scores)
    by_method = options.study_settings(context, settings_files, settings) | given
    study = Study(out, spec, protocol, mode, (), by_method, cache_dir)
    chosen = parse_methods(methods, experiment.METHODS)
    chosen = options.with_given(chosen, given, behind="+lists")
    runs = range(seeds)
    refuse_levels(chosen)
    with (
        options.chosen_engine(jobs, engine_name, address, threads) as engine,
        opened(study, None if k is None else [k], json_file, options.LONGEST) as study,
    ):
        run(study, chosen, limits, runs, tries, engine)
        found = methods_at_limits(study, chosen, limits, runs, tries=tries)
        rows = experiment.level_rows(study, found, runs)
        run_without_limit(study, found, rows, runs, engine)
        results = experiment.level_results(study, found, rows, runs)
        command = options.typed_command(context)
        made_by = options.made_by(context, study.data, cache_dir, runs)
        report.write_levels(out, results, command=command, json_file=json_file, made_by=made_by)
    Console().print(report.levels_table(results))
    print_notes(rows)
    page, figure = out / "index.html", out / "levels.png"
    typer.echo(f"{page}: the page, {figure}: the figure")


def parse_levels(text: str) -> list[float]:
    """The limits in the order given, each once."""
    try:
        limits = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        limits = []
    if not limits or not all(0 < limit <= 1 for limit in limits):
        raise typer.BadParameter(
            f"{text!r} (give shares above 0 and up to 1, as in {DEFAULT_LEVELS})",
            param_hint="--levels",
        )
    return list(dict.fromkeys(limits))


def levels_among(texts: Sequence[str], data: "DataSpec") -> list[str]:
    """Limits of a file that levels can be: largest shares of one group; a note names the others."""
    from fairhorizon.limits.language import Limit, LimitError
    from fairhorizon.studies.level_search import data_limited_by

    found: list[Limit] = []
    for text in texts:
        try:
            limit = Limit.parse(text)
            data_limited_by([*found, limit], data)
            found.append(limit)
        except LimitError as error:
            typer.echo(f"note: of the file, {error}; left out", err=True)
    return list(map(str, found))


def limited(
    data: "DataSpec", shares: str | None, texts: Sequence[str]
) -> "tuple[DataSpec, list[Limit]]":
    """The data with the group that the limits are on; the limits of --levels and --limit."""
    from fairhorizon.limits.language import Limit, LimitError
    from fairhorizon.studies.level_search import data_limited_by, level_limit

    try:
        given = [Limit.parse(text) for text in texts]
        data = data_limited_by(given, data)
    except LimitError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from None
    typed = DEFAULT_LEVELS if shares is None and not given else shares
    levels = [] if typed is None else parse_levels(typed)
    limits = [*(level_limit(share, data) for share in levels), *given]
    return data, list(dict.fromkeys(limits))


def refuse_levels(methods: "Sequence[Method]") -> None:
    """Refuse methods with a level: the study sets their levels itself."""
    for method in methods:
        if method.level is not None:
            raise typer.BadParameter(
                f"{method}: the levels are those of --levels (give {method.name})",
                param_hint="--methods",
            )


def run(
    study: "Study",
    methods: "Sequence[Method]",
    limits: "Sequence[Limit]",
    seeds: range,
    tries: int,
    engine: "TaskEngine",
) -> None:
    """Compute missing results, a line for each; wrong settings are refused first."""
    from fairhorizon.studies.level_search import aims_at_level, run_levels

    at_levels = [
        method.limited_to(limit.share) if aims_at_level(method) else method
        for method in methods
        for limit in limits
    ]
    study.check(at_levels)
    options.warn_if_untested(study.dataset().split)
    k = max(study.ks)
    group = (study.data.group_name, [f"popularity_rate@{k}"])
    with result_lines(k, engine, shares=group) as lines:
        run_levels(study, methods, limits, seeds, tries=tries, engine=engine, on_row=lines.result)


def run_without_limit(
    study: "Study",
    found: "Sequence[MethodAtLimit]",
    rows: "Sequence[LevelRow]",
    seeds: range,
    engine: "TaskEngine",
) -> None:
    """Compute what the lists without a limit are, of ours and of the best rivals."""
    from fairhorizon.studies.levels import unlimited_methods

    k = max(study.ks)
    methods = unlimited_methods(found, rows, k)
    with result_lines(k, engine, total=len(methods) * len(seeds)) as lines:
        study.run(methods, seeds, engine=engine, on_row=lines.result)
