"""fairhorizon compare: the paper's table with every row computed here."""

from dataclasses import replace

import typer

from fairhorizon.cli import limit_options, list_lengths, studies
from fairhorizon.cli.typed import typed_command

# the paper's rows, then what people would use today, then our method at the paper's three levels:
# with the paper's settings, and with those that `fit` starts from
METHODS = (
    *("mf", "bpr", "ncf", "lird", "mf+foe", "bpr+foe", "ncf+foe"),
    *("popularity", "als", "itemknn:recent", "ease:recent", "gru4rec", "sasrec", "stack"),
    *("fcpo:paper@0.85", "fcpo:paper@0.65", "fcpo:paper@0.36"),
    *("fcpo@0.85", "fcpo@0.65", "fcpo@0.37"),
    # rankers with the same allocation as ours
    *("stack+lists@0.85", "stack+lists@0.65", "stack+lists@0.37"),
    *("gru4rec+lists@0.85", "gru4rec+lists@0.65", "gru4rec+lists@0.37"),
    *("ease:recent+lists@0.85", "ease:recent+lists@0.65", "ease:recent+lists@0.37"),
)


@studies.takes_study(
    seeds=5,
    out="comparison",
    holds="table, page, models and results",
    methods=studies.methods_option(METHODS),
)
def compare(
    context: typer.Context,
    options: studies.StudyOptions,
    limit: limit_options.StudiedLimits = None,
    k: list_lengths.Lengths = None,
) -> None:
    """Train and evaluate methods side by side; results in --out are not computed again."""
    from rich.console import Console

    from fairhorizon.report import comparison as report
    from fairhorizon.report.limits import methods_table
    from fairhorizon.studies.compare import significance, summary_rows
    from fairhorizon.studies.study import study_limits

    data, asked = limit_options.apart(options.data, limit)
    options = replace(options, data=data)
    typed, group = list_lengths.parse_lengths(k), options.data.group_name
    chosen = options.chosen(METHODS)
    with options.study(typed) as study:
        study, ks = asked.on_study(study), study.ks
        studies.run_study(options, study, chosen)
        rows = summary_rows(study, chosen, options.seeds)
        tests = significance(study, chosen, options.seeds)
        limits = study_limits(study, chosen, options.seeds)
        report.write_comparison(
            options.out,
            rows,
            tests,
            ks=ks,
            group=group,
            command=typed_command(context),
            json_file=options.json_file,
            limits=limits,
        )
    console = Console()
    paper = report.measured_as_in_paper(rows, group)
    console.print(report.comparison_table(rows, ks=ks, paper=paper, group=group))
    if tests:
        console.print(report.significance_table(tests))
    if limits:
        console.print(methods_table(limits))
    studies.print_notes(rows)
    typer.echo(f"{options.out / 'index.html'}: the page, open it in a browser")
