"""fairhorizon efficiency: the paper's efficiency study."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import list_lengths
from fairhorizon.cli import options as shared
from fairhorizon.cli.folders import check_file, claimed
from fairhorizon.cli.progress import Progress
from fairhorizon.cli.typed import typed_command

if TYPE_CHECKING:
    from fairhorizon.datasets import DataSpec
    from fairhorizon.studies.efficiency import EfficiencyRow

Length = Annotated[
    int | None,
    typer.Option(
        "--k", min=1, help="Length of the lists.", show_default="100, or all items if fewer"
    ),
]


@shared.takes_data
def efficiency(
    context: typer.Context,
    data: "DataSpec",
    ranker: Annotated[str, typer.Option(help="Ranker whose scores are re-ranked.")] = "mf",
    k: Length = None,
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

    from fairhorizon.rankers import RANKERS
    from fairhorizon.report import efficiency as report
    from fairhorizon.studies.efficiency import efficiency as measure

    if ranker not in RANKERS:
        raise typer.BadParameter(
            f"{ranker!r} (there are {', '.join(RANKERS)})", param_hint="--ranker"
        )
    check_file(json_file)
    with claimed(out):
        dataset = data.open(cache_dir)
        length = list_lengths.fitting_length(k, dataset.log.n_items, default=[100])
        with Progress() as progress:
            rows = measure(
                dataset,
                ranker=ranker,
                length=length,
                repeats=repeats,
                seed=seed,
                on_row=lambda row: progress.line(time_line(row)),
            )
        report.write_efficiency(out, rows, command=typed_command(context), json_file=json_file)
    Console().print(report.efficiency_table(rows))
    typer.echo(f"{out / 'index.html'}: the page, {out / 'efficiency.png'}: the figure")


def time_line(row: "EfficiencyRow") -> str:
    over = f" over {row.candidates}" if row.candidates else ""
    return f"{row.method}{over}  {row.seconds.mean:.2f} s"
