"""fairhorizon reproduce: everything that the paper shows, computed here."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from fairhorizon.cli import options
from fairhorizon.cli.config import Config
from fairhorizon.cli.progress import Progress
from fairhorizon.cli.studies import WIDTH_OF_FILES
from fairhorizon.files import claimed
from fairhorizon.vocabulary import EngineName, PaperPart


def reproduce(
    context: typer.Context,
    data: options.Data = "ml-100k",
    only: Annotated[
        list[PaperPart] | None,
        typer.Option("--only", help="Only this part. Repeatable.", show_default="all parts"),
    ] = None,
    seeds: options.Seeds = 1,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Cut trainings and runs short, to see that everything works here."
        ),
    ] = False,
    settings_files: options.SettingsFiles = None,
    settings: options.StudySet = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for page, tables, figures, models and results.")
    ] = Path("paper"),
    cache_dir: options.CacheDir = None,
    jobs: options.Jobs = None,
    engine_name: options.EngineOption = EngineName.PROCESSES,
    address: options.Address = None,
    threads: options.Threads = 1,
    _config: Config = None,
) -> None:
    """Compute the tables and figures of the paper, its own figures beside ours.

    Results in --out are not computed again, so an interrupted run continues.
    All of it takes about an hour on MovieLens-100K with one seed on two cores.
    """
    from rich.console import Console

    from fairhorizon.report.reproduction import finding, sections, write_reproduction
    from fairhorizon.report.tables import Grid, terminal
    from fairhorizon.studies.reproduce import PaperStudy

    parts = tuple(only or PaperPart)
    given = options.study_settings(context, settings_files, settings)
    study = PaperStudy(out, options.data_spec(data, {}), seeds, quick, cache_dir, given)
    with (
        claimed(out),
        options.chosen_engine(jobs, engine_name, address, threads) as engine,
        Progress() as progress,
    ):
        found = study.run(parts, engine=engine, on_line=progress.line)
        write_reproduction(out, found, options.typed_command(context))
    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_FILES, highlight=False)
    for _, section, _ in sections(found):
        for part in section.parts:
            if isinstance(part, Grid):
                console.print(terminal(part))
    typer.echo(finding(found))
    typer.echo(f"{out / 'index.html'}: the page, open it in a browser")
