"""The demonstration as figures and a page."""

from collections.abc import Sequence
from pathlib import Path

from fairhorizon.files import written_together
from fairhorizon.report import page
from fairhorizon.report.figures import exposure_plot, save_figure, training_curves
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
    counts = {"training log": result.training}
    counts |= {level.label: level.exposure for level in result.levels}
    save_figure(out / "training.png", training_curves(histories))
    save_figure(out / "exposure.png", exposure_plot(counts, result.sensitive, result.group))
    items = group_items(result.group)
    limited = items + WHICH if result.group == POPULAR else items
    used = {word for row in result.rows for word in (row.protocol, row.mode)}
    page.write_page(
        out / "index.html",
        title=f"FairHorizon on {result.dataset}",
        intro=INTRO.format(limited=limited, items=items),
        sections=[
            page.results_section(result.rows, PAPER_METRICS, ks),
            page.training_section(histories),
            page.exposure_section(counts, result.sensitive, result.group),
            page.glossary_section(PAPER_METRICS, used, result.group),
            page.commands_section([command]),
        ],
    )
