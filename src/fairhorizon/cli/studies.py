"""Studies: compare, frontier, efficiency and demo, and what they share with levels and longterm."""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import limits, options
from fairhorizon.cli.config import Config
from fairhorizon.cli.progress import Progress, time_and_tasks
from fairhorizon.files import check_file, claimed
from fairhorizon.vocabulary import Cut, EngineName, Mode, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fairhorizon.datasets import Dataset, DataSpec
    from fairhorizon.methods import Method
    from fairhorizon.parallel.engine import TaskEngine
    from fairhorizon.studies.efficiency import EfficiencyRow
    from fairhorizon.studies.rows import OverSeeds, StudyRow, TrainingRow
    from fairhorizon.studies.study import Study

# the paper's rows, then what people would use today, then our method at the paper's three levels:
# with the paper's settings, and with those that `fit` starts from
COMPARED = (
    *("mf", "bpr", "ncf", "lird", "mf+foe", "bpr+foe", "ncf+foe"),
    *("popularity", "als", "itemknn:recent", "ease:recent", "gru4rec", "sasrec", "stack"),
    *("fcpo:paper@0.85", "fcpo:paper@0.65", "fcpo:paper@0.36"),
    *("fcpo@0.85", "fcpo@0.65", "fcpo@0.37"),
    # rankers with the same allocation as ours
    *("stack+lists@0.85", "stack+lists@0.65", "stack+lists@0.37"),
    *("gru4rec+lists@0.85", "gru4rec+lists@0.65", "gru4rec+lists@0.37"),
    *("ease:recent+lists@0.85", "ease:recent+lists@0.65", "ease:recent+lists@0.37"),
)
# the paper's re-ranked rows, the strongest rankers behind every re-ranker, rankers with the same
# allocation as our method, the simplest ranker, and our method
SWEPT = (
    *("mf+foe", "bpr+foe", "ncf+foe"),
    *("ease:recent+foe", "ease:recent+quota", "ease:recent+penalty"),
    *("gru4rec+foe", "gru4rec+quota", "gru4rec+penalty"),
    *("stack+pmmf", "stack+fairco", "stack+tfrom"),
    *("stack+lists", "gru4rec+lists", "ease:recent+lists", "popularity", "fcpo"),
)
WIDTH_OF_FILES = 100  # columns of what demo prints; a terminal has its own width

GroupShares = tuple[str, Sequence[str]]  # the name of a group, and metrics


def compare(
    context: typer.Context,
    data: options.Data,
    methods: Annotated[str | None, options.methods_option(COMPARED)] = None,
    limit: options.StudiedLimits = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="METHOD",
            help="Also test this method against each other one, with Holm's correction for all "
            "of these tests together.",
        ),
    ] = None,
    user_groups: Annotated[
        str | None,
        typer.Option(
            "--user-groups",
            metavar="COLUMN",
            help="Compare the accuracy of users by a column of --user-table, or of NAME.user "
            "beside NAME.inter. Many numbers, such as ages, are three equal parts.",
        ),
    ] = None,
    user_table: Annotated[
        Path | None, typer.Option("--user-table", help="File with a row per user.")
    ] = None,
    scores: options.Scores = None,
    lists: options.Lists = None,
    k: options.Lengths = None,
    seeds: options.Seeds = 5,
    protocol: options.ProtocolOption = Protocol.STANDARD,
    mode: options.ModeOption = Mode.ONE_SHOT,
    settings_files: options.SettingsFiles = None,
    settings: options.StudySet = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for table, page, models and results.")
    ] = Path("comparison"),
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
    """Train and evaluate methods side by side; results in --out are not computed again."""
    from rich.console import Console

    from fairhorizon.report import comparison as report
    from fairhorizon.report.limits import methods_table
    from fairhorizon.studies.compare import against_all, by_user_group, significance, summary_rows
    from fairhorizon.studies.study import Study, study_limits

    reading = options.reader(
        user, item, rating, timestamp, weight, session, header, separator, encoding, drop_incomplete
    )
    group = options.limited_group(group_column, sensitive, item_table, area_km)
    ties = options.order_of_ties(shuffle_ties, keep_ties)
    spec = options.data_spec(data, reading, cut, ties, group)
    spec, asked = limits.apart(spec, limit)
    given = options.given_files(scores, lists)
    by_method = options.study_settings(context, settings_files, settings) | given
    study = Study(out, spec, protocol, mode, (), by_method, cache_dir)
    chosen, typed = parse_methods(methods, COMPARED), options.parse_lengths(k)
    one = None if against is None else parse_methods(against, (), option="--against")[0]
    if one is not None and one not in chosen:
        chosen.append(one)
    chosen = options.with_given(chosen, given)
    with (
        options.chosen_engine(jobs, engine_name, address, threads) as engine,
        opened(study, typed, json_file) as study,
    ):
        study, ks = asked.on_study(study), study.ks
        groups = groups_of_users(study, user_groups, user_table)
        run_study(study, chosen, range(seeds), engine)
        rows = summary_rows(study, chosen, range(seeds))
        by_user = [] if groups is None else by_user_group(study, chosen, range(seeds), groups)
        tests = significance(study, chosen, range(seeds))
        all_others = [] if one is None else against_all(study, one, chosen, range(seeds))
        reached = study_limits(study, chosen, range(seeds))
        report.write_comparison(
            out,
            rows,
            tests,
            ks=ks,
            group=spec.group_name,
            command=options.typed_command(context),
            json_file=json_file,
            limits=reached,
            against=all_others,
            by_user=by_user,
            made_by=options.made_by(context, study.data, cache_dir, range(seeds)),
        )
    console = Console()
    paper = report.measured_as_in_paper(rows, spec.group_name)
    console.print(report.comparison_table(rows, ks=ks, paper=paper, group=spec.group_name))
    if tests:
        console.print(report.significance_table(tests))
    if all_others:
        console.print(report.significance_table(all_others, against_all=True))
    if by_user:
        console.print(report.users_table(by_user))
    if reached:
        console.print(methods_table(reached))
    print_notes(rows)
    typer.echo(f"{out / 'index.html'}: the page, open it in a browser")


def groups_of_users(
    study: "Study", column: str | None, table: Path | None
) -> "NDArray[np.object_] | None":
    """(n_users,) the group of each user by a column; None: none was asked for."""
    from fairhorizon.data.user_tables import user_cells, users_beside
    from fairhorizon.metrics.user_groups import groups_of_values

    if column is None:
        if table is not None:
            raise typer.BadParameter("is for --user-groups (give both)", param_hint="--user-table")
        return None
    data = study.data
    path = table or users_beside(data.source)
    if path is None:
        raise typer.BadParameter(
            f"{column}: which table has it? (give --user-table)", param_hint="--user-groups"
        )
    log, user = study.dataset().log, data.served_column
    return groups_of_values(user_cells(path, column, log, user=user, encoding=data.encoding))


def frontier(
    context: typer.Context,
    data: options.Data,
    methods: Annotated[str | None, options.methods_option(SWEPT)] = None,
    limit: options.StudiedLimits = None,
    scores: options.Scores = None,
    lists: options.Lists = None,
    k: options.Length = None,
    seeds: options.Seeds = 1,
    protocol: options.ProtocolOption = Protocol.STANDARD,
    mode: options.ModeOption = Mode.ONE_SHOT,
    settings_files: options.SettingsFiles = None,
    settings: options.StudySet = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for figure, page, models and results.")
    ] = Path("frontier"),
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
    """Plot NDCG against negative Gini and long-tail rate; print the area each method dominates.

    A method with @level is run at that level alone. Results in --out are not
    computed again.
    """
    from rich.console import Console

    from fairhorizon.report import frontier as report
    from fairhorizon.report.limits import methods_table
    from fairhorizon.studies.compare import curves, summary_rows, swept
    from fairhorizon.studies.study import Study, study_limits

    reading = options.reader(
        user, item, rating, timestamp, weight, session, header, separator, encoding, drop_incomplete
    )
    group = options.limited_group(group_column, sensitive, item_table, area_km)
    ties = options.order_of_ties(shuffle_ties, keep_ties)
    spec = options.data_spec(data, reading, cut, ties, group)
    spec, asked = limits.apart(spec, limit)
    given = options.given_files(scores, lists)
    by_method = options.study_settings(context, settings_files, settings) | given
    study = Study(out, spec, protocol, mode, (), by_method, cache_dir)
    named = options.with_given(parse_methods(methods, SWEPT), given)
    swept_levels = [level for one in named for level in swept(one)]
    chosen = list(dict.fromkeys(swept_levels))  # ease+quota and ease+quota@0.4 have one in common
    with (
        options.chosen_engine(jobs, engine_name, address, threads) as engine,
        opened(study, None if k is None else [k], json_file, options.LONGEST) as study,
    ):
        study, (length,) = asked.on_study(study), study.ks
        run_study(study, chosen, range(seeds), engine)
        rows = summary_rows(study, chosen, range(seeds))
        lines = curves(rows)
        reached = study_limits(study, chosen, range(seeds))
        report.write_frontier(
            out,
            lines,
            length,
            group=spec.group_name,
            command=options.typed_command(context),
            json_file=json_file,
            limits=reached,
            made_by=options.made_by(context, study.data, cache_dir, range(seeds)),
        )
    if reached:
        Console().print(methods_table(reached))
    Console().print(report.hypervolume_table(lines, length, spec.group_name))
    print_notes(rows)
    page, figure = out / "index.html", out / "frontier.png"
    typer.echo(f"{page}: the page, {figure}: the figure, also as SVG and PDF")


def known_ranker(_context: typer.Context, name: str) -> str:
    from fairhorizon.rankers import RANKERS

    if name not in RANKERS:
        raise typer.BadParameter(f"{name!r} (there are {', '.join(RANKERS)})")
    return name


def efficiency(
    context: typer.Context,
    data: options.Data,
    ranker: Annotated[
        str, typer.Option(help="Ranker whose scores are re-ranked.", callback=known_ranker)
    ] = "mf",
    k: Annotated[
        int | None,
        typer.Option(
            "--k", min=1, help="Length of the lists.", show_default="100, or all items if fewer"
        ),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Number of measurements of each.")] = 3,
    seed: options.Seed = 0,
    out: Annotated[Path, typer.Option("--out", help="Folder for figure and page.")] = Path(
        "efficiency"
    ),
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
    _config: Config = None,
) -> None:
    """Measure the CPU seconds for lists of K for all users: FOE against FCPO."""
    from rich.console import Console

    from fairhorizon.report import efficiency as report
    from fairhorizon.studies.efficiency import efficiency as measure

    reading = options.reader(
        user, item, rating, timestamp, weight, session, header, separator, encoding, drop_incomplete
    )
    group = options.limited_group(group_column, sensitive, item_table, area_km)
    ties = options.order_of_ties(shuffle_ties, keep_ties)
    spec = options.data_spec(data, reading, cut, ties, group)
    check_file(json_file)
    with claimed(out):
        dataset = spec.open(cache_dir)
        length = options.fitting_length(k, dataset.log.n_items, default=[100])
        with Progress() as progress:
            rows = measure(
                dataset,
                ranker=ranker,
                length=length,
                repeats=repeats,
                seed=seed,
                on_row=lambda row: progress.line(time_line(row)),
            )
        report.write_efficiency(
            out,
            rows,
            command=options.typed_command(context),
            json_file=json_file,
            made_by=options.made_by(context, spec, cache_dir, [seed]),
        )
    Console().print(report.efficiency_table(rows))
    typer.echo(f"{out / 'index.html'}: the page, {out / 'efficiency.png'}: the figure")


def time_line(row: "EfficiencyRow") -> str:
    over = f" over {row.candidates}" if row.candidates else ""
    return f"{row.method}{over}  {row.seconds.mean:.2f} s"


def demo(
    data: options.Data = "ml-100k",
    out: Annotated[Path, typer.Option("--out", help="Folder for the page and the figures.")] = Path(
        "demo"
    ),
    rounds: Annotated[
        int, typer.Option(min=1, help="Training rounds of fcpo:paper and fcpo:tuned.")
    ] = 20,
    seed: options.Seed = 0,
    k: options.Lengths = None,
    encoding: options.Encoding = "utf-8",
    cache_dir: options.CacheDir = None,
    _config: Config = None,
) -> None:
    """Show fcpo and rivals at three exposure limits and in a long run.

    Fits fcpo once, evaluates it against popularity and ease:recent+quota, then
    serves 60 steps; prints the tables and writes a page with figures. fcpo:paper,
    the policy of the paper, and fcpo:tuned are trained briefly for one of them.
    """
    from rich.console import Console

    from fairhorizon.report.demo import demo_tables, intro, write_demo_report
    from fairhorizon.studies.audit import item_notes
    from fairhorizon.studies.demo import demonstrate

    typed = options.parse_lengths(k)
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_FILES, highlight=False)
    with claimed(out):
        spec, dataset = open_or_make(data, encoding, cache_dir)
        ks = options.fitting_lengths(typed, dataset.log.n_items)
        titles = item_notes(spec, None, cache_dir).titles
        console.print(intro(dataset.group_name))
        with Progress() as progress:
            result = demonstrate(
                dataset, rounds=rounds, seed=seed, ks=ks, listener=progress, titles=titles
            )
        console.print(demo_tables(result, max(ks)))
        shown = ",".join(map(str, ks))
        command = f"fairhorizon demo --data {data} --rounds {rounds} --seed {seed} --k {shown}"
        if encoding != "utf-8":
            command += f" --encoding {encoding}"
        write_demo_report(out, result, ks, command)
    typer.echo(f"{out / 'index.html'}: the page, open it in a browser")


def open_or_make(data: str, encoding: str, cache_dir: Path | None) -> "tuple[DataSpec, Dataset]":
    """The given data, or the synthetic market if a named set cannot be downloaded."""
    from fairhorizon.data.named_sets import NAMED
    from fairhorizon.datasets import DataSpec
    from fairhorizon.errors import DataError

    spec = DataSpec(source=data, encoding=encoding)
    try:
        return spec, spec.open(cache_dir)
    except DataError as error:
        if data not in NAMED:
            raise
        print(f"note: {error}\nnote: using the synthetic data set instead", file=sys.stderr)
        spec = DataSpec(source="synthetic")
    return spec, spec.open()


# ---- what studies share


def parse_methods(
    text: str | None, default: Sequence[str], option: str = "--methods"
) -> "list[Method]":
    from fairhorizon.methods import Method, MethodError

    names = default if text is None else [part for part in text.split(",") if part.strip()]
    try:
        methods = [Method.parse(name) for name in names]
    except MethodError as error:
        raise typer.BadParameter(str(error), param_hint=option) from None
    if not methods:
        raise typer.BadParameter("name at least one", param_hint=option)
    return list(dict.fromkeys(methods))


def print_notes(rows: "Sequence[OverSeeds]") -> None:
    """Warnings of the methods, such as that a target could not be reached; a line per row."""
    for row in rows:
        first, *others = row.notes or [""]
        if first:
            more = f" (and {len(others)} more like it, from other seeds)" if others else ""
            print(f"note: {row.method}: {first}{more}", file=sys.stderr)


@contextmanager
def opened(
    study: "Study",
    ks: Sequence[int] | None,
    json_file: Path | None,
    default: Sequence[int] = options.LENGTHS,
) -> "Iterator[Study]":
    """The study with lists of these lengths; paths that cannot be written to are refused.

    ks: None for the default lengths that the catalogue can fill.
    """
    check_file(json_file)
    with claimed(study.folder):
        fitting = options.fitting_lengths(ks, study.dataset().log.n_items, default)
        yield replace(study, ks=tuple(fitting))


def run_study(
    study: "Study", methods: "Sequence[Method]", seeds: range, engine: "TaskEngine"
) -> None:
    """Compute missing results, a line for each; wrong settings are refused first."""
    study.check(methods)
    options.warn_if_untested(study.dataset().split)
    with result_lines(max(study.ks), engine, total=len(methods) * len(seeds)) as lines:
        study.run(methods, seeds, engine=engine, on_row=lines.result)


class ResultLines:
    """A line for every result: its accuracy and how long it took.

    `shares`: the name of a group, and metrics that are its shares, shown from first to last.
    """

    def __init__(
        self,
        progress: Progress,
        k: int,
        engine: "TaskEngine",
        total: int | None,
        shares: GroupShares | None,
    ) -> None:
        self.progress, self.k, self.engine, self.shares = progress, k, engine, shares
        self.total, self.of_total = total, "" if total is None else f"/{total}"
        self.done, self.begin = 0, time.monotonic()

    def result(self, row: "StudyRow") -> None:
        self.done += 1
        self.progress.line(
            f"{self.done}{self.of_total}  {row.method} seed {row.seed}  {self._shares(row)}"
            f"NDCG@{self.k} {_percent(row.metrics[f'ndcg@{self.k}'])}  "
            f"fit {row.seconds['fit']:.0f} s  ({time_and_tasks(self.begin, self.engine)})",
            done=self.done,
            total=self.total,
        )

    def _shares(self, row: "StudyRow") -> str:
        if self.shares is None:
            return ""
        group, metrics = self.shares
        return f"{group} {' to '.join(_percent(row.metrics[name]) for name in metrics)}  "

    def ranker(self, row: "TrainingRow") -> None:
        self.progress.line(f"{row.name} fitted in {row.seconds:.0f} s")


@contextmanager
def result_lines(
    k: int,
    engine: "TaskEngine",
    *,
    total: int | None = None,
    shares: GroupShares | None = None,
) -> Iterator[ResultLines]:
    """Print a line per result; `total`: the number of results, if it is known."""
    with Progress() as progress:
        yield ResultLines(progress, k, engine, total, shares)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.2f}"
