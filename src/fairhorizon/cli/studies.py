"""What compare, frontier and levels share: which methods, how many seeds, what is kept where."""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli.options import tell_if_untested
from fairhorizon.cli.progress import Progress
from fairhorizon.cli.settings import parse_settings
from fairhorizon.errors import ConfigError
from fairhorizon.vocabulary import Mode, Protocol

if TYPE_CHECKING:
    from fairhorizon.agents.methods import Method
    from fairhorizon.experiments.runs import DataSpec
    from fairhorizon.experiments.study import Row, Study

Methods = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help="Comma-separated list of methods, as in mf,ease+quota,fcpo:paper,fcpo@0.4. "
        "`fairhorizon methods` lists all of them.",
        show_default="the paper's methods and strong recent ones",
    ),
]
Seeds = Annotated[int, typer.Option("--seeds", min=1, help="Number of seeds: 0, 1, ...")]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", min=1, help="Number of trainings in parallel.", show_default="all cores"
    ),
]
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


def parse_methods(text: str | None, default: Sequence[str]) -> "list[Method]":
    from fairhorizon.agents.methods import Method, MethodError

    names = default if text is None else [part for part in text.split(",") if part.strip()]
    try:
        methods = [Method.parse(name) for name in names]
    except MethodError as error:
        raise typer.BadParameter(str(error), param_hint="--methods") from None
    if not methods:
        raise typer.BadParameter("name at least one", param_hint="--methods")
    return list(dict.fromkeys(methods))


def gather_settings(files: Sequence[Path], given: Sequence[str]) -> dict[str, Any]:
    """Settings by method, those of a later file and those given by hand in front."""
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
    """A study in the words of the command line."""
    from fairhorizon.experiments.study import Study
    from fairhorizon.vocabulary import Mode, Protocol

    return Study(folder, data, Protocol(protocol), Mode(mode), ks, settings, cache_dir)


def print_notes(rows: "Sequence[Row]") -> None:
    """What the methods had to say, such as that a target could not be reached; a line a row."""
    for row in rows:
        first, *others = row["notes"] or [""]
        if first:
            more = f" (and {len(others)} more of this kind, of other seeds)" if others else ""
            print(f"note: {row['method']}: {first}{more}", file=sys.stderr)


def run_study(
    study: "Study", methods: "Sequence[Method]", seeds: Sequence[int], jobs: int | None
) -> None:
    """Make what is missing, a line for every result; wrong settings are told before any work."""
    study.check(methods)
    tell_if_untested(study.dataset().split)
    total, done, begin = len(methods) * len(seeds), 0, time.monotonic()
    with Progress() as progress:

        def show(row: "Row") -> None:
            nonlocal done
            done += 1
            k = max(study.ks)
            value = row["metrics"][f"ndcg@{k}"]
            score = "-" if value is None else f"{100 * value:.2f}"
            progress.line(
                f"{done}/{total}  {row['method']} seed {row['seed']}  NDCG@{k} {score}  "
                f"fit {row['seconds']['fit']:.0f} s  ({time.monotonic() - begin:.0f} s so far)"
            )

        study.run(methods, seeds, jobs=jobs or os.cpu_count() or 1, on_row=show)
