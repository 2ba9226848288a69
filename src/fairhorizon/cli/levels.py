"""fairhorizon levels: how accurate each method is under the same limits."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli import studies
from fairhorizon.cli.folders import check_file, claimed
from fairhorizon.cli.progress import Progress
from fairhorizon.cli.typed import typed_command
from fairhorizon.vocabulary import Mode, Protocol

if TYPE_CHECKING:
    from fairhorizon.agents.methods import Method
    from fairhorizon.experiments.runs import DataSpec
    from fairhorizon.experiments.study import Row, Study

DEFAULT_LEVELS = "0.85,0.65,0.37"


@shared.takes_data
def levels(
    context: typer.Context,
    data: "DataSpec",
    methods: Annotated[
        str | None,
        typer.Option(
            "--methods",
            help="Comma-separated list of methods without a level, as in fcpo:strong,ease+quota.",
            show_default="fcpo:strong, and gru4rec, sasrec, ease, itemknn with each re-ranker",
        ),
    ] = None,
    shares: Annotated[
        str,
        typer.Option("--levels", help="Comma-separated limits on the share of the group."),
    ] = DEFAULT_LEVELS,
    k: Annotated[int, typer.Option("--k", min=1, help="Length of the lists.")] = 20,
    seeds: studies.Seeds = 5,
    protocol: shared.ProtocolOption = Protocol.STANDARD,
    mode: shared.ModeOption = Mode.ONE_SHOT,
    tries: Annotated[
        int,
        typer.Option(
            min=0, help="Largest number of attempts to bring a rival closer to each limit."
        ),
    ] = 8,
    settings_files: studies.SettingsFiles = None,
    settings: studies.Set = None,
    jobs: studies.Jobs = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for tables, figure, models and results.")
    ] = Path("levels"),
    json_file: shared.JsonFile = None,
    cache_dir: Path | None = None,
) -> None:
    """Compare the NDCG of methods under the same limit on the share of a group.

    FCPO is served at the limit. Of a rival the best level that keeps the limit is
    taken, with hindsight. Results in --out are not computed again.
    """
    from rich.console import Console

    from fairhorizon.experiments import levels as experiment
    from fairhorizon.files import write_json
    from fairhorizon.report.levels import NOTE, levels_table

    limits = parse_levels(shares)
    chosen = studies.parse_methods(methods, experiment.METHODS)
    refuse_set_dials(chosen)
    settings_of = studies.gather_settings(settings_files or [], settings or [])
    study = studies.make_study(data, out, protocol, mode, (k,), settings_of, cache_dir)
    numbers = range(seeds)
    check_file(json_file)
    with claimed(out):
        shared.check_lengths([k], study.dataset().log.n_items)
        run(study, chosen, limits, numbers, tries, jobs)
        found = experiment.standings(study, chosen, limits, numbers, tries=tries)
        rows = experiment.level_rows(study, found, numbers)
        gains = experiment.gains(study, found, rows, numbers)
        content: dict[str, Any] = {
            "command": typed_command(context),
            "k": k,
            "levels": limits,
            "note": NOTE,
            "rows": rows,
            "gains": gains,
        }
        write_json(out / "levels.json", content)
        write_report(out, rows, gains, k)
        if json_file is not None:
            write_json(json_file, content)
    Console().print(levels_table(rows, gains, k))
    studies.print_notes(rows)
    typer.echo(f"{out / 'levels.md'}: the tables, {out / 'levels.png'}: the figure")


def parse_levels(text: str) -> list[float]:
    """In the order given, each once."""
    try:
        limits = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        limits = []
    if not limits or not all(0 < limit <= 1 for limit in limits):
        raise typer.BadParameter(
            f"{text!r} (give shares above 0 and up to 1 by commas, as in {DEFAULT_LEVELS})",
            param_hint="--levels",
        )
    return list(dict.fromkeys(limits))


def refuse_set_dials(methods: "Sequence[Method]") -> None:
    """A dial is turned here, nobody may have set it."""
    for method in methods:
        if method.level is not None:
            raise typer.BadParameter(
                f"{method}: the levels are those of --levels (give {method.name})",
                param_hint="--methods",
            )


def run(
    study: "Study",
    methods: "Sequence[Method]",
    limits: Sequence[float],
    seeds: Sequence[int],
    tries: int,
    jobs: int | None,
) -> None:
    """Make what is missing, a line for every result; wrong settings are told before any work."""
    from fairhorizon.experiments.levels import is_ours, run_levels

    at_levels = [
        method.limited_to(limit) if is_ours(method) else method
        for method in methods
        for limit in limits
    ]
    study.check(at_levels)
    shared.tell_if_untested(study.dataset().split)
    k, done, begin = max(study.ks), 0, time.monotonic()
    with Progress() as progress:

        def show(row: "Row") -> None:
            nonlocal done
            done += 1
            values = (row["metrics"][f"{name}@{k}"] for name in ("popularity_rate", "ndcg"))
            rate, ndcg = ("-" if value is None else f"{100 * value:.2f}" for value in values)
            progress.line(
                f"{done}  {row['method']} seed {row['seed']}  popular {rate}  NDCG@{k} {ndcg}  "
                f"fit {row['seconds']['fit']:.0f} s  ({time.monotonic() - begin:.0f} s so far)"
            )

        workers = jobs or os.cpu_count() or 1
        run_levels(study, methods, limits, seeds, tries=tries, jobs=workers, on_row=show)


def write_report(out: Path, rows: "list[Row]", gains: "list[Row]", k: int) -> None:
    """levels.md and levels.png."""
    from fairhorizon.files import write_atomically
    from fairhorizon.report.figures import save_figure
    from fairhorizon.report.levels import levels_figure, levels_markdown

    text = levels_markdown(rows, gains, k)
    write_atomically(out / "levels.md", lambda draft: draft.write_text(text, encoding="utf-8"))
    save_figure(out / "levels.png", levels_figure(rows, k))
