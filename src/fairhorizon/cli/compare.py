"""fairhorizon compare: the paper's table with every row computed here."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli import studies
from fairhorizon.cli.folders import check_file, claimed
from fairhorizon.cli.typed import typed_command
from fairhorizon.vocabulary import Mode, Protocol

if TYPE_CHECKING:
    from fairhorizon.experiments.runs import DataSpec
    from fairhorizon.experiments.study import Row

INTRO = (
    "Every method is trained and evaluated on the same data: mean and standard "
    "deviation over the seeds. Validation items decide when to stop training, "
    "never test items."
)


@shared.takes_data
def compare(
    context: typer.Context,
    data: "DataSpec",
    methods: studies.Methods = None,
    seeds: studies.Seeds = 5,
    protocol: shared.ProtocolOption = Protocol.STANDARD,
    mode: shared.ModeOption = Mode.ONE_SHOT,
    k: shared.Lengths = "5,10,20",
    settings_files: studies.SettingsFiles = None,
    settings: studies.Set = None,
    jobs: studies.Jobs = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for table, page, models and results.")
    ] = Path("comparison"),
    json_file: shared.JsonFile = None,
    cache_dir: Path | None = None,
) -> None:
    """Train and evaluate methods side by side; results in --out are not computed again."""
    from rich.console import Console

    from fairhorizon.experiments.compare import TABLE, significance, summary_rows
    from fairhorizon.files import write_json
    from fairhorizon.report import comparison
    from fairhorizon.vocabulary import Protocol

    ks = tuple(shared.lengths(k))
    chosen = studies.parse_methods(methods, TABLE)
    settings_of = studies.gather_settings(settings_files or [], settings or [])
    study = studies.make_study(data, out, protocol, mode, ks, settings_of, cache_dir)
    numbers = range(seeds)
    check_file(json_file)
    with claimed(out):
        shared.check_lengths(ks, study.dataset().log.n_items)
        studies.run_study(study, chosen, numbers, jobs)
        rows = summary_rows(study, chosen, numbers)
        tests = significance(study, chosen, numbers)
        paper = study.protocol is Protocol.PAPER
        write_json(out / "comparison.json", {"rows": rows, "significance": tests})
        write_tables(out, rows, tests, ks, paper, typed_command(context))
        if json_file is not None:
            write_json(json_file, {"rows": rows, "significance": tests})
    console = Console()
    console.print(comparison.comparison_table(rows, ks=ks, paper=paper))
    if tests:
        console.print(comparison.significance_table(tests))
    studies.print_notes(rows)
    typer.echo(f"{out / 'index.html'}: the page, open it in a browser")


def write_tables(
    out: Path,
    rows: "list[Row]",
    tests: "list[Row]",
    ks: tuple[int, ...],
    paper: bool,
    command: str,
) -> None:
    """table.md for documents and index.html for a browser."""
    from fairhorizon.files import write_atomically
    from fairhorizon.report import comparison, page
    from fairhorizon.report.tables import PAPER_METRICS

    markdown = comparison.comparison_markdown(rows, ks=ks, paper=paper)
    if tests:
        markdown += "\n" + comparison.significance_markdown(tests)
    write_atomically(out / "table.md", lambda draft: draft.write_text(markdown, encoding="utf-8"))
    sections = [comparison.comparison_section(rows, ks=ks, paper=paper)]
    if tests:
        sections.append(comparison.significance_section(tests))
    page.write_page(
        out / "index.html",
        title=f"Fair recommenders on {rows[0]['dataset']}",
        intro=INTRO,
        sections=[
            *sections,
            page.glossary_section(PAPER_METRICS, (rows[0]["protocol"], rows[0]["mode"])),
            page.commands_section([command]),
        ],
    )
