"""What study commands share: which methods, how many seeds, what is kept where."""

import inspect
import json
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli import list_lengths
from fairhorizon.cli import options as shared
from fairhorizon.cli.declaring import declared
from fairhorizon.cli.engine_options import takes_engine
from fairhorizon.cli.folders import check_file, claimed
from fairhorizon.cli.progress import Progress, time_and_tasks
from fairhorizon.cli.settings import parse_settings
from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import Mode, Protocol

if TYPE_CHECKING:
    from fairhorizon.datasets import DataSpec
    from fairhorizon.methods import Method
    from fairhorizon.parallel.engine import TaskEngine
    from fairhorizon.studies.rows import OverSeeds, StudyRow, TrainingRow
    from fairhorizon.studies.study import Study


def methods_option(default: Sequence[str]) -> Any:
    """The option --methods of a command with these defaults."""
    return Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="Comma-separated list of methods, as in mf,ease+quota,fcpo:paper,fcpo@0.4. "
            "`fairhorizon methods` lists all of them.",
            show_default=", ".join(default),
        ),
    ]


Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Number of seeds: 0, 1, ...")]
SettingsFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--settings",
        help='Read settings from a JSON file: {"ease": {"l2": 500}}, or best.json of tune. '
        "Repeatable.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="Change a setting: method.key=value, as in ease.l2=500. Repeatable.",
    ),
]

GroupShares = tuple[str, Sequence[str]]  # the name of a group, and metrics


@dataclass(frozen=True)
class StudyOptions:
    """The values of the options of a study command."""

    data: "DataSpec"
    methods: str | None
    seeds: range
    protocol: Protocol
    mode: Mode
    settings: dict[str, Any]
    engine: "TaskEngine"
    out: Path
    json_file: Path | None
    cache_dir: Path | None

    def chosen(self, default: Sequence[str]) -> "list[Method]":
        return parse_methods(self.methods, default)

    @contextmanager
    def study(
        self, ks: Sequence[int] | None, default: Sequence[int] = list_lengths.LENGTHS
    ) -> "Iterator[Study]":
        """The study of lists of these lengths; paths that cannot be written to are refused.

        ks: None for the default lengths that the catalogue can fill.
        """
        study = make_study(
            self.data, self.out, self.protocol, self.mode, (), self.settings, self.cache_dir
        )
        check_file(self.json_file)
        with claimed(self.out):
            fitting = list_lengths.fitting(ks, study.dataset().log.n_items, default)
            yield replace(study, ks=tuple(fitting))

    @contextmanager
    def study_of_one_length(self, k: int | None) -> "Iterator[tuple[Study, int]]":
        """The same for lists of one length, with that length."""
        with self.study(None if k is None else [k], list_lengths.LONGEST) as study:
            yield study, study.ks[0]


def described_study(
    methods: str | None = None,
    seeds: Seeds = 1,
    protocol: shared.ProtocolOption = Protocol.STANDARD,
    mode: shared.ModeOption = Mode.ONE_SHOT,
    settings_files: SettingsFiles = None,
    settings: Set = None,
    out: Path = Path(),
    json_file: shared.JsonFile = None,
    *,
    data: "DataSpec",
    cache_dir: Path | None,
    engine: "TaskEngine",
) -> StudyOptions:
    """The study that the options of a command describe."""
    return StudyOptions(
        data=data,
        methods=methods,
        seeds=range(seeds),
        protocol=protocol,
        mode=mode,
        settings=gather_settings(settings_files or [], settings or []),
        engine=engine,
        out=out,
        json_file=json_file,
        cache_dir=cache_dir,
    )


def takes_study(
    *,
    seeds: int,
    out: str,
    holds: str,
    methods: Any = None,
    without: Collection[str] = (),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of `described_study`, of its data and of its engine.

    It is called with `options`, the StudyOptions. `seeds` and `out` are defaults, `holds` names
    the contents of the folder, `methods` is the option of that name; `without` are left out.
    """
    folder = Annotated[Path, typer.Option("--out", help=f"Folder for {holds}.")]
    own: dict[str, dict[str, Any]] = {
        "methods": {"annotation": methods},
        "seeds": {"default": seeds},
        "out": {"default": Path(out), "annotation": folder},
    }
    added = [
        parameter.replace(**own.get(name, {}))
        for name, parameter in inspect.signature(described_study).parameters.items()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY and name not in without
    ]
    names = [*(parameter.name for parameter in added), "data", "cache_dir", "engine"]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def called(**given: Any) -> None:
            values = {name: given.pop(name) for name in names}
            command(**given, options=described_study(**values))

        described = takes_engine(declared(command, called, added, made=["options"]))
        return shared.takes_data(described, settings_by_method=True)

    return decorate


def parse_methods(text: str | None, default: Sequence[str]) -> "list[Method]":
    from fairhorizon.methods import Method, MethodError

    names = default if text is None else [part for part in text.split(",") if part.strip()]
    try:
        methods = [Method.parse(name) for name in names]
    except MethodError as error:
        raise typer.BadParameter(str(error), param_hint="--methods") from None
    if not methods:
        raise typer.BadParameter("name at least one", param_hint="--methods")
    return list(dict.fromkeys(methods))


def gather_settings(files: Sequence[Path], given: Sequence[str]) -> dict[str, Any]:
    """Settings by method; a later file takes precedence, and --set over all files."""
    settings: dict[str, Any] = {}
    for file in files:
        for method, values in _read_settings(file).items():
            settings[method] = settings.get(method, {}) | values
    for method, values in parse_settings(given).items():
        if not isinstance(values, dict):
            raise typer.BadParameter(
                f"{method}={values} (give method.key=value, as in ease.l2=500)", param_hint="--set"
            )
        settings[method] = settings.get(method, {}) | values
    return settings


def _read_settings(file: Path) -> dict[str, dict[str, Any]]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{file}: not JSON: {error} (see --help)") from None
    if isinstance(content, dict) and {"method", "settings"} <= set(content):
        content = {content["method"]: content["settings"]}
    if not isinstance(content, dict) or not all(isinstance(v, dict) for v in content.values()):
        raise ConfigError(f'{file}: holds no settings by method, as in {{"ease": {{"l2": 500}}}}')
    return content


def make_study(
    data: "DataSpec",
    folder: Path,
    protocol: Protocol,
    mode: Mode,
    ks: tuple[int, ...],
    settings: dict[str, Any],
    cache_dir: Path | None,
) -> "Study":
    """A study from values of the command line."""
    from fairhorizon.studies.study import Study
    from fairhorizon.vocabulary import Mode, Protocol

    return Study(folder, data, Protocol(protocol), Mode(mode), ks, settings, cache_dir)


def print_notes(rows: "Sequence[OverSeeds]") -> None:
    """Warnings of the methods, such as that a target could not be reached; a line per row."""
    for row in rows:
        first, *others = row.notes or [""]
        if first:
            more = f" (and {len(others)} more like it, from other seeds)" if others else ""
            print(f"note: {row.method}: {first}{more}", file=sys.stderr)


def run_study(options: StudyOptions, study: "Study", methods: "Sequence[Method]") -> None:
    """Compute missing results, a line for each; wrong settings are refused first."""
    study.check(methods)
    shared.warn_if_untested(study.dataset().split)
    total, engine = len(methods) * len(options.seeds), options.engine
    with result_lines(max(study.ks), engine, total=total) as lines:
        study.run(methods, options.seeds, engine=engine, on_row=lines.result)


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
