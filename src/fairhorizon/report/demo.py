"""The demonstration as figures and a page."""

from collections.abc import Sequence
from pathlib import Path

from fairhorizon.files import written_together
from fairhorizon.report import page
from fairhorizon.report.charts import save_png
from fairhorizon.report.figures import LOG, exposure_chart, training_chart
from fairhorizon.report.findings import Kept, limits_sentence, percent
from fairhorizon.report.looks import looks_of
from fairhorizon.report.page import Section
from fairhorizon.report.tables import PAPER_METRICS, group_items
from fairhorizon.results.evaluation import DemoResult
from fairhorizon.vocabulary import POPULAR

INTRO = (
    "FCPO learns which items to show to whom while the share of {limited} stays within a limit. "
    "Two policies, the same data, the same seed: one may show at most 40 % {items}, the other has "
    "no limit."
)
WHICH = " (the top 20 % of the catalogue by training count)"


@written_together()
def write_demo_report(out: Path, result: DemoResult, ks: Sequence[int], command: str) -> None:
    """index.html, training.png and exposure.png."""
    histories = {level.label: level.history for level in result.levels}
    counts = {LOG: result.training}
    counts |= {level.label: level.exposure for level in result.levels}
    looks = looks_of(histories)
    training = training_chart(histories, looks)
    exposure = exposure_chart(counts, result.sensitive, looks, result.group)
    save_png(out / "training.png", training)
    save_png(out / "exposure.png", exposure)
    items = group_items(result.group)
    limited = items + WHICH if result.group == POPULAR else items
    used = {word for row in result.rows for word in (row.protocol, row.mode)}
    page.write_page(
        out / "index.html",
        title=f"FairHorizon on {result.dataset}",
        finding=finding(result, max(ks)),
        intro=INTRO.format(limited=limited, items=items),
        sections=[
            page.results_section(result.rows, PAPER_METRICS, ks),
            Section(training.title, [training]),
            Section(exposure.title, [exposure]),
            page.glossary_section(PAPER_METRICS, used, result.group),
            page.commands_section([command]),
        ],
    )


def finding(result: DemoResult, k: int) -> str:
    """What a limit costs, in lists of k made at once; and whether it was kept."""
    rows = {level.label: level.one_shot for level in result.levels}
    accuracy = ", ".join(
        f"{percent(row.metrics[f'ndcg@{k}'])} ({label})" for label, row in rows.items()
    )
    limits = [
        Kept(label, 1.0 if row.alpha_prime is None else row.alpha_prime, rate)
        for label, row in rows.items()
        for rate in [row.metrics[f"popularity_rate@{k}"]]
    ]
    return f"NDCG@{k} is {accuracy}. {limits_sentence(limits, result.group)}"
