"""Charts of a training and of the exposure of items."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.metrics.fairness import gini, lorenz_curve
from fairhorizon.report import charts, marks
from fairhorizon.report.charts import Chart
from fairhorizon.report.looks import GREY, Look
from fairhorizon.report.marks import Axis, Spec
from fairhorizon.report.tables import group_items
from fairhorizon.results.evaluation import TrainingHistory
from fairhorizon.vocabulary import POPULAR

EVEN = "all items alike"
LOG = "training log"
TRAINING_READING = "Both per trajectory. Dashed: the limit on cost that training has to keep."
EXPOSURE_READING = (
    "The nearer a curve is to the dashed line, the more evenly items are shown; the Gini index is "
    "twice the area between the two."
)


def training_chart(histories: Mapping[str, TrainingHistory], looks: Mapping[str, Look]) -> Chart:
    """Reward beside cost over the rounds; each cost with its limit, dashed in the same colour."""
    looks = {label: looks[label] for label in histories}
    encodings = marks.by_series(looks)
    rounds = Axis("Training round", whole=True)
    panels = []
    for name in ("reward", "cost"):
        axis = Axis(f"{name.capitalize()} per trajectory", zero=True, is_titled=False)
        rows = [
            {"series": label, "x": history.rounds[i], "y": getattr(history, name)[i]}
            | {"marked": marks.is_marked(i, len(history.rounds), position / len(histories))}
            for position, (label, history) in enumerate(histories.items())
            for i in marks.thinned(len(history.rounds), marks.points_each(len(histories)))
        ]
        layers = [marks.lines(rows, encodings, rounds, axis)]
        if name == "cost":
            layers += _cost_limits(histories, encodings, rounds, axis)
        panels.append(charts.panel(layers, title=axis.title))
    return Chart("Training", panels, looks, reading=TRAINING_READING)


def _cost_limits(
    histories: Mapping[str, TrainingHistory], encodings: Mapping[str, Spec], x: Axis, y: Axis
) -> list[Spec]:
    rows = [
        {"series": label, "x": end, "y": history.limit}
        for label, history in histories.items()
        if math.isfinite(history.limit)
        for end in (history.rounds[0], history.rounds[-1])
    ]
    if not rows:
        return []
    encoding = {"x": x.of("x"), "y": y.of("y"), "color": encodings["color"]}
    encoding["opacity"] = marks.in_focus()
    line = marks.mark("line", encoding, strokeDash=[6, 3], strokeWidth=1.5)
    return [marks.layered([line], rows, hides=True)]


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
