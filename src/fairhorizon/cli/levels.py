"""fairhorizon levels: how accurate each method is under the same limits."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import list_lengths, studies
from fairhorizon.cli import options as shared
from fairhorizon.cli.typed import typed_command

if TYPE_CHECKING:
    from fairhorizon.agents.methods import Method
    from fairhorizon.experiments.study import Study

DEFAULT_LEVELS = "0.85,0.65,0.37"
Methods = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help="Comma-separated list of methods without levels, as in fcpo,ease+quota,mf+foe.",
        show_default="fcpo; stack, gru4rec, ease +lists; popularity+quota; and gru4rec, "
        "sasrec, ease, itemknn +foe, +quota, +penalty; and stack, ease +pmmf, +fairco, +tfrom",
    ),
]
Levels = Annotated[
    str,
    typer.Option(
        "--levels", help="Comma-separated limits: largest shares of the limited group in the lists."
    ),
]
Tries = Annotated[
    int,
    typer.Option(min=0, help="Number of further settings of a rival to try for each level."),
]


@studies.takes_study(
    seeds=5, out="levels", holds="page, tables, figure, models and results", methods=Methods
)
def levels(
    context: typer.Context,
    options: studies.StudyOptions,
    shares: Levels = DEFAULT_LEVELS,
    k: list_lengths.Length = None,
    tries: Tries = 8,
) -> None:
    """Compare the NDCG of methods under the same limit on the share of a group.

    FCPO serves at the limit. Each rival is shown with its best setting that keeps
    the limit, chosen with hindsight. Results in --out are not computed again.
    """
    from rich.console import Console

    from fairhorizon.experiments import levels as experiment
    from fairhorizon.report import levels as report

    limits = parse_levels(shares)
    chosen = options.chosen(experiment.METHODS)
    refuse_set_dials(chosen)
    with options.study_of_one_length(k) as (study, length):
        run(options, study, chosen, limits, tries)
        found = experiment.standings(study, chosen, limits, options.seeds, tries=tries)
        rows = experiment.level_rows(study, found, options.seeds)
        gains = experiment.gains(study, found, rows, options.seeds)
        report.write_levels(
            options.out,
            rows,
            gains,
            length,
            group=options.data.group_name,
            command=typed_command(context),
            json_file=options.json_file,
        )
    Console().print(report.levels_table(rows, gains, length, options.data.group_name))
    studies.print_notes(rows)
    page, figure = options.out / "index.html", options.out / "levels.png"
    typer.echo(f"{page}: the page, {figure}: the figure")


def parse_levels(text: str) -> list[float]:
    """The limits in the order given, each once."""
    try:
        limits = [float(part) for part in text.split(",") if part.strip()]
    except ValueError:
        limits = []
    if not limits or not all(0 < limit <= 1 for limit in limits):
        raise typer.BadParameter(
            f"{text!r} (give shares above 0 and up to 1, as in {DEFAULT_LEVELS})",
            param_hint="--levels",
        )
    return list(dict.fromkeys(limits))


def refuse_set_dials(methods: "Sequence[Method]") -> None:
    """Refuse methods with a level: the study sets their levels itself."""
    for method in methods:
        if method.level is not None:
            raise typer.BadParameter(
                f"{method}: the levels are those of --levels (give {method.name})",
                param_hint="--methods",
            )


def run(
    options: studies.StudyOptions,
    study: "Study",
    methods: "Sequence[Method]",
    limits: Sequence[float],
    tries: int,
) -> None:
    """Compute missing results, a line for each; wrong settings are refused first."""
    from fairhorizon.experiments.levels import is_ours, run_levels

    at_levels = [
        method.limited_to(limit) if is_ours(method) else method
        for method in methods
        for limit in limits
    ]
    study.check(at_levels)
    shared.warn_if_untested(study.dataset().split)
    k, seeds, jobs = max(study.ks), options.seeds, options.jobs
    group = (options.data.group_name, [f"popularity_rate@{k}"])
    with studies.result_lines(k, shares=group) as lines:
        run_levels(study, methods, limits, seeds, tries=tries, jobs=jobs, on_row=lines.result)
