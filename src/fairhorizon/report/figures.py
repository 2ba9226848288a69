"""Figures for paper and README, drawn with matplotlib's objects: no display, no global state."""

import math
from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import NDArray

from fairhorizon.files import write_atomically
from fairhorizon.metrics.fairness import gini, lorenz_curve

# Okabe and Ito's palette, told apart by colour-blind readers; all visible on white and on black
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
GREY = "#808080"


class History(TypedDict):
    """What training leaves behind; reward, cost and the limit on cost are per trajectory."""

    round: Sequence[int]
    reward: Sequence[float]
    cost: Sequence[float]
    limit: float


def training_curves(histories: Mapping[str, History]) -> Figure:
    """Reward beside cost over the rounds; each cost with its limit, dashed in the same colour."""
    figure = Figure(figsize=(9, 4), layout="constrained")
    reward, cost = figure.subplots(1, 2)
    for colour, (label, history) in zip(cycle(COLOURS), histories.items(), strict=False):
        reward.plot(history["round"], history["reward"], color=colour, label=label)
        cost.plot(history["round"], history["cost"], color=colour)
        if math.isfinite(history["limit"]):
            cost.axhline(history["limit"], color=colour, linestyle="--", linewidth=1.2)
    cost.plot([], [], color=GREY, linestyle="--", linewidth=1.2, label="limit")
    for axes, title in ((reward, "Reward per trajectory"), (cost, "Cost per trajectory")):
        style(axes, title)
        axes.set_xlabel("Training round")
        axes.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10], integer=True))
        axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    figure.legend(loc="outside lower center", ncols=min(4, len(histories) + 1), frameon=False)
    return figure


def exposure_plot(
    counts_by_label: Mapping[str, NDArray[Any]], popular: NDArray[np.bool_]
) -> Figure:
    """Lorenz curves of exposure; the legend gives the Gini index and the share of the popular."""
    figure = Figure(figsize=(5.6, 6), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1.2, label="all items alike")
    for colour, (label, counts) in zip(cycle(COLOURS), counts_by_label.items(), strict=False):
        axes.plot(*lorenz_curve(counts), color=colour, label=exposure_label(label, counts, popular))
    style(axes, "Who gets seen")
    axes.set_xlabel("Share of the catalogue, least shown items first")
    axes.set_ylabel("Share of all exposure")
    axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(PercentFormatter(1, decimals=0))
    figure.legend(loc="outside lower center", frameon=False)
    return figure


def exposure_label(label: str, counts: NDArray[Any], popular: NDArray[np.bool_]) -> str:
    """A curve's entry in the legend: its Gini index and what the popular group receives."""
    total = counts.sum()
    share = f", popular items {counts[popular].sum() / total:.1%}" if total else ", nothing shown"
    return f"{label}: Gini {gini(counts):.1%}{share}"


def style(axes: Axes, title: str) -> None:
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold")
    axes.grid(color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def save_figure(path: Path, figure: Figure) -> None:
    """Write a PNG, whole or not at all."""
    write_atomically(path, lambda temporary: figure.savefig(temporary, format="png", dpi=150))
