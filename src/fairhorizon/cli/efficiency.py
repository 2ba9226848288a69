"""fairhorizon efficiency: the paper's efficiency study."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli.folders import check_file, claimed
from fairhorizon.cli.progress import Progress
from fairhorizon.cli.typed import typed_command

if TYPE_CHECKING:
    from fairhorizon.experiments.runs import DataSpec
    from fairhorizon.experiments.study import Row

INTRO = (
    "How long it takes to make a list of {length} for every user on one thread: fairness of "
    "exposure over more and more candidates, compared with a policy that has learned the limit."
)


@shared.takes_data
def efficiency(
    context: typer.Context,
    data: "DataSpec",
    ranker: Annotated[str, typer.Option(help="Ranker whose scores are re-ranked.")] = "mf",
    k: Annotated[int, typer.Option("--k", min=1, help="Length of the lists.")] = 100,
    repeats: Annotated[int, typer.Option(min=1, help="Number of measurements of each.")] = 3,
    seed: shared.Seed = 0,
    out: Annotated[Path, typer.Option("--out", help="Folder for figure and page.")] = Path(
        "efficiency"
    ),
    json_file: shared.JsonFile = None,
    cache_dir: Path | None = None,
) -> None:
    """Measure the CPU seconds for lists of K for all users: FOE against FCPO."""
    from rich.console import Console

    from fairhorizon.experiments.efficiency import efficiency as measure
    from fairhorizon.files import write_json
    from fairhorizon.rankers import RANKERS
    from fairhorizon.report import efficiency as report
    from fairhorizon.report.paper import paper_hours

    if ranker not in RANKERS:
        raise typer.BadParameter(
            f"{ranker!r} (there are {', '.join(RANKERS)})", param_hint="--ranker"
        )
    check_file(json_file)
    with claimed(out):
        dataset = data.open(cache_dir)
        shared.check_lengths([k], dataset.log.n_items)
        with Progress() as progress:

            def show(row: "Row") -> None:
                over = f" over {row['candidates']}" if row["candidates"] else ""
                progress.line(f"{row['method']}{over}  {row['metrics']['seconds']['mean']:.2f} s")

            rows = measure(
                dataset, ranker=ranker, length=k, repeats=repeats, seed=seed, on_row=show
            )
        rows = [
            row
            | {
                "seconds": row["metrics"]["seconds"]["mean"],
                "paper_hours": paper_hours(row["dataset"], row["method"], row["candidates"]),
            }
            for row in rows
        ]
        write_report(out, rows, typed_command(context))
        write_json(out / "efficiency.json", {"rows": rows})
        if json_file is not None:
            write_json(json_file, {"rows": rows})
    Console().print(report.efficiency_table(rows))
    typer.echo(f"{out / 'index.html'}: the page, {out / 'efficiency.png'}: the figure")


def write_report(out: Path, rows: "list[Row]", command: str) -> None:
    """efficiency.png and index.html."""
    from fairhorizon.report import efficiency as report
    from fairhorizon.report import page
    from fairhorizon.report.figures import save_figure

    save_figure(out / "efficiency.png", report.efficiency_figure(rows))
    page.write_page(
        out / "index.html",
        title=f"Efficiency on {rows[0]['dataset']}",
        intro=INTRO.format(length=rows[0]["length"]),
        sections=[report.efficiency_section(rows), page.commands_section([command])],
    )
