"""fairhorizon ablation: what each part of FCPO brings."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fairhorizon.cli import options as shared
from fairhorizon.cli import studies
from fairhorizon.cli.folders import check_file, claimed
from fairhorizon.cli.progress import Progress
from fairhorizon.cli.typed import typed_command
from fairhorizon.vocabulary import Mode, Protocol

if TYPE_CHECKING:
    from fairhorizon.experiments.ablation import Variant
    from fairhorizon.experiments.runs import DataSpec
    from fairhorizon.experiments.study import Row, Study
    from fairhorizon.results.studies import TrainingRow


@shared.takes_data
def ablation(
    context: typer.Context,
    data: "DataSpec",
    alpha_prime: Annotated[
        float,
        typer.Option(help="Largest share of the limited group, in training and in the lists."),
    ] = 0.4,
    variants: Annotated[
        str | None, typer.Option("--variants", help="Comma-separated variants.", show_default="all")
    ] = None,
    k: Annotated[int, typer.Option("--k", min=1, help="Length of the lists.")] = 20,
    seeds: studies.Seeds = 3,
    settings: studies.Set = None,
    jobs: studies.Jobs = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for tables, rankers and results.")
    ] = Path("ablation"),
    json_file: shared.JsonFile = None,
    cache_dir: Path | None = None,
) -> None:
    """Compare the preset strong of FCPO with variants that differ in one part.

    Settings given by --set apply to all variants. Results in --out are not
    computed again.
    """
    from rich.console import Console

    from fairhorizon.files import write_atomically, write_json
    from fairhorizon.report.ablation import ablation_markdown, ablation_table

    chosen = parse_variants(variants)
    settings_of = studies.gather_settings([], settings or [])
    words = Protocol.STANDARD, Mode.ONE_SHOT
    study = studies.make_study(data, out, *words, (k,), settings_of, cache_dir)
    check_file(json_file)
    with claimed(out):
        shared.check_lengths([k], study.dataset().log.n_items)
        rows = run(study, chosen, alpha_prime, range(seeds), jobs)
        content = {"command": typed_command(context), "k": k, "rows": rows}
        text = ablation_markdown(rows, k)
        write_json(out / "ablation.json", content)
        write_atomically(
            out / "ablation.md", lambda draft: draft.write_text(text, encoding="utf-8")
        )
        if json_file is not None:
            write_json(json_file, content)
    Console().print(ablation_table(rows, k))
    studies.print_notes(rows)
    typer.echo(f"{out / 'ablation.md'}: the tables")


def parse_variants(text: str | None) -> "list[Variant]":
    """In the order given, each once."""
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
    study: "Study",
    variants: "Sequence[Variant]",
    level: float,
    seeds: Sequence[int],
    jobs: int | None,
) -> "list[Row]":
    """Make what is missing, a line for every result; wrong settings are told before any work."""
    from fairhorizon.experiments.ablation import check, run_ablation

    check(study, variants, level)
    shared.tell_if_untested(study.dataset().split)
    total, done, begin = len(variants) * len(seeds), 0, time.monotonic()
    ndcg = f"ndcg@{max(study.ks)}"
    with Progress() as progress:

        def show(row: "Row") -> None:
            nonlocal done
            done += 1
            values = (row["metrics"][name] for name in ("share_before", "share_after", ndcg))
            first, last, score = ("-" if v is None else f"{100 * v:.2f}" for v in values)
            progress.line(
                f"{done}/{total}  {row['method']} seed {row['seed']}  popular {first} to {last}  "
                f"{ndcg.upper()} {score}  fit {row['seconds']['fit']:.0f} s  "
                f"({time.monotonic() - begin:.0f} s so far)"
            )

        def show_ranker(row: "TrainingRow") -> None:
            progress.line(f"{row.name} fitted in {row.seconds:.0f} s")

        return run_ablation(
            study,
            variants,
            level,
            seeds,
            jobs=jobs or os.cpu_count() or 1,
            on_ranker=show_ranker,
            on_row=show,
        )
