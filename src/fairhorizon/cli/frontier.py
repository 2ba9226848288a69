"""fairhorizon frontier: accuracy against fairness, over all levels of each method."""

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
    "Each line is one method at all its levels, from unfair to fair. Up is more accurate, "
    "right is fairer: a line above and to the right of another is better at every level."
)


@shared.takes_data
def frontier(
    context: typer.Context,
    data: "DataSpec",
    methods: studies.Methods = None,
    seeds: studies.Seeds = 1,
    protocol: shared.ProtocolOption = Protocol.STANDARD,
    mode: shared.ModeOption = Mode.ONE_SHOT,
    k: Annotated[int, typer.Option("--k", min=1, help="Length of the lists.")] = 20,
    settings_files: studies.SettingsFiles = None,
    settings: studies.Set = None,
    jobs: studies.Jobs = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for figure, page, models and results.")
    ] = Path("frontier"),
    json_file: shared.JsonFile = None,
    cache_dir: Path | None = None,
) -> None:
    """Plot NDCG against negative Gini and long-tail rate; print the area each method dominates.

    A method with @level is run at that level alone. Results in --out are not
    computed again.
    """
    from rich.console import Console

    from fairhorizon.experiments.compare import summary_rows
    from fairhorizon.experiments.frontier import METHODS, curves, swept
    from fairhorizon.files import write_json
    from fairhorizon.report import frontier as report

    levels = [
        level for method in studies.parse_methods(methods, METHODS) for level in swept(method)
    ]
    chosen = list(dict.fromkeys(levels))  # ease+quota and ease+quota@0.4 have one in common
    settings_of = studies.gather_settings(settings_files or [], settings or [])
    study = studies.make_study(data, out, protocol, mode, (k,), settings_of, cache_dir)
    numbers = range(seeds)
    check_file(json_file)
    with claimed(out):
        dataset = study.dataset()
        shared.check_lengths([k], dataset.log.n_items)
        studies.run_study(study, chosen, numbers, jobs)
        rows = summary_rows(study, chosen, numbers)
        lines = curves(chosen, rows)
        write_report(out, lines, k, dataset.log.name, typed_command(context))
        content = {
            "rows": [row for line in lines.values() for row in line],
            "hypervolume": report.hypervolume_rows(lines, k),
        }
        write_json(out / "frontier.json", content)
        if json_file is not None:
            write_json(json_file, content)
    Console().print(report.hypervolume_table(lines, k))
    studies.print_notes(rows)
    typer.echo(f"{out / 'frontier.html'}: the page, {out / 'frontier.png'}: the figure")


def write_report(
    out: Path, lines: "dict[str, list[Row]]", k: int, dataset: str, command: str
) -> None:
    """frontier.png and frontier.html."""
    from fairhorizon.report import frontier as report
    from fairhorizon.report import page
    from fairhorizon.report.figures import save_figure

    save_figure(out / "frontier.png", report.frontier_figure(lines, k))
    page.write_page(
        out / "frontier.html",
        title=f"Accuracy and fairness on {dataset}",
        intro=INTRO,
        sections=[*report.frontier_sections(lines, k), page.commands_section([command])],
    )
