"""fairhorizon ablation: what each part of FCPO contributes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import list_lengths, studies
from fairhorizon.cli import options as shared
from fairhorizon.cli.typed import typed_command

if TYPE_CHECKING:
    from fairhorizon.experiments.ablation import Variant
    from fairhorizon.experiments.study import Study
    from fairhorizon.results.studies import AblationRow


@studies.takes_study(
    seeds=3,
    out="ablation",
    holds="page, tables, rankers and results",
    without=("methods", "protocol", "mode", "settings_files"),
)
def ablation(
    context: typer.Context,
    options: studies.StudyOptions,
    alpha_prime: Annotated[
        float,
        typer.Option(help="Largest share of the limited group, in training and in the lists."),
    ] = 0.4,
    variants: Annotated[
        str | None, typer.Option("--variants", help="Comma-separated variants.", show_default="all")
    ] = None,
    k: list_lengths.Length = None,
) -> None:
    """Compare the preset fast of FCPO with variants that differ in one part.

    Settings given by --set apply to all variants. Results in --out are not
    computed again.
    """
    from rich.console import Console

    from fairhorizon.report import ablation as report

    chosen = parse_variants(variants)
    with options.study_of_one_length(k) as (study, length):
        rows = run(options, study, chosen, alpha_prime)
        report.write_ablation(
            options.out,
            rows,
            length,
            group=options.data.group_name,
            command=typed_command(context),
            json_file=options.json_file,
        )
    Console().print(report.ablation_table(rows, length, options.data.group_name))
    studies.print_notes([row.summary for row in rows])
    page, figure = options.out / "index.html", options.out / "ablation.png"
    typer.echo(f"{page}: the page, {figure}: the figure")


def parse_variants(text: str | None) -> "list[Variant]":
    """The variants in the order given, each once."""
    from fairhorizon.experiments.ablation import VARIANTS

    known = {variant.name: variant for variant in VARIANTS}
    names = list(known) if text is None else [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise typer.BadParameter(
            f"{unknown[0]!r} (there are {', '.join(known)})", param_hint="--variants"
        )
    return [known[name] for name in dict.fromkeys(names)]


def run(
    options: studies.StudyOptions, study: "Study", variants: "Sequence[Variant]", level: float
) -> "list[AblationRow]":
    """Compute missing results, a line for each; wrong settings are refused first."""
    from fairhorizon.experiments.ablation import check, run_ablation

    check(study, variants, level)
    shared.warn_if_untested(study.dataset().split)
    with studies.result_lines(
        max(study.ks),
        options.engine,
        total=len(variants) * len(options.seeds),
        shares=(options.data.group_name, ["share_before", "share_after"]),
    ) as lines:
        return run_ablation(
            study,
            variants,
            level,
            options.seeds,
            engine=options.engine,
            on_ranker=lines.ranker,
            on_row=lambda row: lines.result(row.result),
        )
