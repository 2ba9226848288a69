"""The chart of the exposure of items."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.metrics.fairness import gini, lorenz_curve
from fairhorizon.report import charts, marks
from fairhorizon.report.charts import Chart
from fairhorizon.report.looks import GREY, Look
from fairhorizon.report.marks import Axis
from fairhorizon.report.tables import group_items
from fairhorizon.vocabulary import POPULAR

EVEN = "all items alike"
LOG = "training log"
EXPOSURE_READING = (
    "The nearer a curve is to the dashed line, the more evenly items are shown; the Gini index is "
    "twice the area between the two."
)


def exposure_chart(
    counts_by_label: Mapping[str, NDArray[Any]],
    members: NDArray[np.bool_],
    looks: Mapping[str, Look],
    group: str = POPULAR,
) -> Chart:
    """Lorenz curves of exposure; the legend gives the Gini index and the share of the group."""
    drawn = {EVEN: Look(GREY, dashes=(6, 3))}
    drawn |= {label: looks.get(label, Look(GREY)) for label in counts_by_label}
    labels = {EVEN: EVEN} | {
        label: exposure_label(label, counts, members, group)
        for label, counts in counts_by_label.items()
    }
    rows = [{"series": EVEN, "x": end, "y": end, "marked": 0} for end in (0.0, 1.0)]
    for position, (label, counts) in enumerate(counts_by_label.items()):
        catalogue, exposure = lorenz_curve(counts)
        kept = marks.thinned(counts.size + 1, marks.points_each(len(counts_by_label)))
        start = position / len(counts_by_label)
        rows += [
            {"series": label, "x": round(float(catalogue[i]), 5), "y": round(float(exposure[i]), 5)}
            | {"marked": marks.is_marked(number, len(kept), start)}
            for number, i in enumerate(kept)
        ]
    y = Axis("Share of all exposure", domain=(0.0, 1.0), format=".1%", labels=".0%")
    x = replace(y, title="Share of the catalogue, least shown items first")
    panel = charts.panel([marks.lines(rows, marks.by_series(drawn), x, y)], height=420)
    title = "Distribution of exposure"
    return Chart(title, [panel], drawn, labels, EXPOSURE_READING, columns=1)


def exposure_label(
    label: str, counts: NDArray[Any], members: NDArray[np.bool_], group: str = POPULAR
) -> str:
    """A curve's entry in the legend: its Gini index and what the group receives."""
    total = counts.sum()
    if not total:
        return f"{label}: Gini {gini(counts):.1%}, nothing shown"
    share = counts[members].sum() / total
    return f"{label}: Gini {gini(counts):.1%}, {group_items(group)} {share:.1%}"
