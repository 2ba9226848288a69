"""fairhorizon frontier: accuracy against fairness, over all levels of each method."""

from dataclasses import replace

import typer

from fairhorizon.cli import limit_options, list_lengths, studies
from fairhorizon.cli.typed import typed_command

# the paper's re-ranked rows, the strongest rankers behind every re-ranker, rankers with the same
# allocation as our method, the simplest ranker, and our method
METHODS = (
    *("mf+foe", "bpr+foe", "ncf+foe"),
    *(
        "ease:recent+foe",
        "ease:recent+quota",
        "ease:recent+penalty",
        "gru4rec+foe",
        "gru4rec+quota",
        "gru4rec+penalty",
    ),
    *("stack+pmmf", "stack+fairco", "stack+tfrom"),
    *("stack+lists", "gru4rec+lists", "ease:recent+lists", "popularity", "fcpo"),
)


@studies.takes_study(
    seeds=1,
    out="frontier",
    holds="figure, page, models and results",
    methods=studies.methods_option(METHODS),
)
def frontier(
    context: typer.Context,
    options: studies.StudyOptions,
    limit: limit_options.StudiedLimits = None,
    k: list_lengths.Length = None,
) -> None:
    """Plot NDCG against negative Gini and long-tail rate; print the area each method dominates.

    A method with @level is run at that level alone. Results in --out are not
    computed again.
    """
    from rich.console import Console

    from fairhorizon.report import frontier as report
    from fairhorizon.report.limits import methods_table
    from fairhorizon.studies.compare import summary_rows
    from fairhorizon.studies.frontier import curves, swept
    from fairhorizon.studies.study import study_limits

    data, asked = limit_options.apart(options.data, limit)
    options = replace(options, data=data)
    levels = [level for method in options.chosen(METHODS) for level in swept(method)]
    chosen = list(dict.fromkeys(levels))  # ease+quota and ease+quota@0.4 have one in common
    with options.study_of_one_length(k) as (study, length):
        study = asked.on_study(study)
        studies.run_study(options, study, chosen)
        rows = summary_rows(study, chosen, options.seeds)
        lines = curves(rows)
        limits = study_limits(study, chosen, options.seeds)
        report.write_frontier(
            options.out,
            lines,
            length,
            group=options.data.group_name,
            command=typed_command(context),
            json_file=options.json_file,
            limits=limits,
        )
    if limits:
        Console().print(methods_table(limits))
    Console().print(report.hypervolume_table(lines, length, options.data.group_name))
    studies.print_notes(rows)
    page, figure = options.out / "index.html", options.out / "frontier.png"
    typer.echo(f"{page}: the page, {figure}: the figure")
