"""fairhorizon levels: how accurate each method is under the same limits."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import list_lengths, studies
from fairhorizon.cli import options as shared
from fairhorizon.cli.config_option import FROM_FILE, source_of
from fairhorizon.cli.typed import typed_command

if TYPE_CHECKING:
    from fairhorizon.limits.language import Limit
    from fairhorizon.methods import Method
    from fairhorizon.studies.level_search import MethodAtLimit
    from fairhorizon.studies.levels import LevelRow
    from fairhorizon.studies.study import Study

DEFAULT_LEVELS = "0.85,0.65,0.37"
Methods = Annotated[
    str | None,
    typer.Option(
        "--methods",
        help="Comma-separated list of methods without levels, as in fcpo,ease+quota,mf+foe.",
        show_default="fcpo, fcpo:start; stack, gru4rec, ease:recent +lists; popularity+quota; "
        "gru4rec, sasrec, ease:recent, itemknn:recent +foe, +quota, +penalty; "
        "stack, ease:recent +pmmf, +fairco, +tfrom",
    ),
]
Levels = Annotated[
    str | None,
    typer.Option(
        "--levels",
        help="Comma-separated limits: largest shares of the limited group in the lists.",
        show_default=f"{DEFAULT_LEVELS}, none with --limit",
    ),
]
LimitTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        help="Compare under a limit, as in 'popular<=0.37;weights=log' (places weighed), "
        "'popular<=0.4@5' or 'popular<=0.4;scope=list'. Repeatable.",
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
    shares: Levels = None,
    limit: LimitTexts = None,
    k: list_lengths.Length = None,
    tries: Tries = 8,
) -> None:
    """Compare the NDCG of methods under the same limit on the share of a group.

    FCPO serves at the limit. Each rival is shown with its best setting that keeps
    the limit, chosen with hindsight. Results in --out are not computed again.
    Tables by place, and of who pays: the accuracy of active users and of those
    with a taste for the tail, with the limit and without.
    """
    from rich.console import Console

    from fairhorizon.report import levels as report
    from fairhorizon.studies import levels as experiment
    from fairhorizon.studies.level_search import methods_at_limits
    from fairhorizon.studies.levels import LevelResults, gains, limit_rows
    from fairhorizon.studies.who_pays import user_traits, who_pays

    texts = limit or []
    if source_of(context, "limit") == FROM_FILE:
        texts = levels_among(texts, options)
    options, limits = limited(options, shares, texts)
    chosen = options.chosen(experiment.METHODS)
    refuse_set_dials(chosen)
    seeds, group = options.seeds, options.data.group_name
    with options.study_of_one_length(k) as (study, length):
        run(options, study, chosen, limits, tries)
        found = methods_at_limits(study, chosen, limits, seeds, tries=tries)
        rows = experiment.level_rows(study, found, seeds)
        run_without_limit(options, study, found, rows)
        ndcg_of, parts_of = experiment.ndcg_of(study, seeds), experiment.parts_of(study)
        dataset = study.dataset()
        traits = user_traits(dataset.split.train, dataset.sensitive)
        results = LevelResults(
            rows,
            gains(found, rows, ndcg_of, parts_of, length),
            who_pays(found, rows, ndcg_of, traits, length),
            length,
            group,
            list(limit_rows(study, found, seeds)),
        )
        report.write_levels(
            options.out, results, command=typed_command(context), json_file=options.json_file
        )
    Console().print(report.levels_table(results))
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


def levels_among(texts: Sequence[str], options: studies.StudyOptions) -> list[str]:
    """Limits of a file that levels can be: largest shares of one group; a note names the others."""
    from fairhorizon.limits.language import Limit, LimitError
    from fairhorizon.studies.level_search import data_limited_by

    found: list[Limit] = []
    for text in texts:
        try:
            limit = Limit.parse(text)
            data_limited_by([*found, limit], options.data)
            found.append(limit)
        except LimitError as error:
            typer.echo(f"note: of the file, {error}; left out", err=True)
    return list(map(str, found))


def limited(
    options: studies.StudyOptions, shares: str | None, texts: Sequence[str]
) -> "tuple[studies.StudyOptions, list[Limit]]":
    """The limits of --levels and --limit, each once, and the options with the group they are on."""
    from fairhorizon.limits.language import Limit, LimitError
    from fairhorizon.studies.level_search import data_limited_by, level_limit

    try:
        given = [Limit.parse(text) for text in texts]
        options = replace(options, data=data_limited_by(given, options.data))
    except LimitError as error:
        raise typer.BadParameter(str(error), param_hint="--limit") from None
    typed = DEFAULT_LEVELS if shares is None and not given else shares
    levels = [] if typed is None else parse_levels(typed)
    limits = [*(level_limit(share, options.data) for share in levels), *given]
    return options, list(dict.fromkeys(limits))


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
    limits: "Sequence[Limit]",
    tries: int,
) -> None:
    """Compute missing results, a line for each; wrong settings are refused first."""
    from fairhorizon.studies.level_search import aims_at_level, run_levels

    at_levels = [
        method.limited_to(limit.share) if aims_at_level(method) else method
        for method in methods
        for limit in limits
    ]
    study.check(at_levels)
    shared.warn_if_untested(study.dataset().split)
    k, seeds, engine = max(study.ks), options.seeds, options.engine
    group = (options.data.group_name, [f"popularity_rate@{k}"])
    with studies.result_lines(k, engine, shares=group) as lines:
        run_levels(study, methods, limits, seeds, tries=tries, engine=engine, on_row=lines.result)


def run_without_limit(
    options: studies.StudyOptions,
    study: "Study",
    found: "Sequence[MethodAtLimit]",
    rows: "Sequence[LevelRow]",
) -> None:
    """Compute what the lists without a limit are, of ours and of the best rivals."""
    from fairhorizon.studies.who_pays import unlimited_methods

    k = max(study.ks)
    methods, seeds = unlimited_methods(found, rows, k), options.seeds
    with studies.result_lines(k, options.engine, total=len(methods) * len(seeds)) as lines:
        study.run(methods, seeds, engine=options.engine, on_row=lines.result)
