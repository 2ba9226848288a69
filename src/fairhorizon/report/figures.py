"""Figures for paper and README, drawn with matplotlib's objects: no display, no global state."""

import math
from collections.abc import Mapping
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from fairhorizon.files import write_atomically
from fairhorizon.metrics.fairness import gini, lorenz_curve
from fairhorizon.report.tables import group_items
from fairhorizon.results.evaluation import TrainingHistory
from fairhorizon.vocabulary import POPULAR

# Okabe and Ito's palette, distinguishable by colour-blind readers and visible on white and on black
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
GREY = "#808080"


def training_curves(histories: Mapping[str, TrainingHistory]) -> Figure:
    """Reward beside cost over the rounds; each cost with its limit, dashed in the same colour."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    reward, cost = figure.subplots(1, 2)
    for colour, (label, history) in zip(cycle(COLOURS), histories.items(), strict=False):
        reward.plot(history.rounds, history.reward, color=colour, label=label)
        cost.plot(history.rounds, history.cost, color=colour)
        if math.isfinite(history.limit):
            cost.axhline(history.limit, color=colour, linestyle="--", linewidth=1.2)
    cost.plot([], [], color=GREY, linestyle="--", linewidth=1.2, label="limit")
    for axes, title in ((reward, "Reward per trajectory"), (cost, "Cost per trajectory")):
        style(axes, title)
        axes.set_xlabel("Training round")
        axes.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], integer=True))
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    figure.legend(loc="outside lower center", ncols=min(4, len(histories) + 1), frameon=False)
    return figure


def exposure_plot(
    counts_by_label: Mapping[str, NDArray[Any]],
    members: NDArray[np.bool_],
    group: str = POPULAR,
) -> Figure:
    """Lorenz curves of exposure; the legend gives the Gini index and the share of the group."""
    figure = Figure(figsize=(5.6, 6), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.2, label="all items alike")
    for colour, (label, counts) in zip(cycle(COLOURS), counts_by_label.items(), strict=False):
        entry = as_written(exposure_label(label, counts, members, group))
        axes.plot(*lorenz_curve(counts), color=colour, label=entry)
    style(axes, "Distribution of exposure")
    axes.set_xlabel("Share of the catalogue, least shown items first")
    axes.set_ylabel("Share of all exposure")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    figure.legend(loc="outside lower center", frameon=False)
    return figure


def exposure_label(
    label: str, counts: NDArray[Any], members: NDArray[np.bool_], group: str = POPULAR
) -> str:
    """A curve's entry in the legend: its Gini index and what the group receives."""
    total = counts.sum()
    if not total:
        return f"{label}: Gini {gini(counts):.1%}, nothing shown"
    share = counts[members].sum() / total
    return f"{label}: Gini {gini(counts):.1%}, {group_items(group)} {share:.1%}"


def as_written(text: str) -> str:
    """Matplotlib reads what stands between two dollars as mathematics; names may have them."""
    return text.replace("$", r"\$")


def style(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.grid(color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(path: Path, figure: Figure) -> None:
    """Write a PNG, whole or not at all."""
    write_atomically(path, lambda temporary: figure.savefig(temporary, format="png", dpi=150))
