"""Result rows as a table: on the terminal here, as cells for any other place."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.markup import escape
from rich.table import Table

from fairhorizon.data.splits import Statistics

# dataset, method, protocol, mode, seed, alpha_prime, and metrics: fractions under keys as `ndcg@20`
Row = Mapping[str, Any]

MISSING = "-"
HEADINGS = ("Data", "Method", "alpha'", "Protocol", "Mode", "Seed", "K")
N_WORDS = 5  # the columns up to Mode; from the seed on they are numbers


@dataclass(frozen=True)
class Metric:
    """How a metric is headed, explained and printed."""

    heading: str
    meaning: str
    better: Literal["more", "less", "zero"]
    percent: bool = True
    short: str = ""  # where the heading is wider than its numbers


METRICS = {
    "recall": Metric(
        "Recall", "share of a user's test items that the list found", "more", short="Rec."
    ),
    "f1": Metric("F1", "harmonic mean of recall and of the share of the list that hit", "more"),
    "ndcg": Metric("NDCG", "hits weighted by rank, against the best list possible", "more"),
    "gini": Metric(
        "Gini", "inequality of exposure over the whole catalogue: 0 % when all items alike", "less"
    ),
    "popularity_rate": Metric(
        "Popular", "share of the shown items that are popular (group G0)", "less", short="Pop."
    ),
    "coverage": Metric("Coverage", "share of the catalogue shown to anyone at all", "more"),
    "exposure_ratio": Metric(
        "G0/G1", "exposure of the popular group over that of the long tail", "less", percent=False
    ),
    "demographic_parity_gap": Metric(
        "Parity gap", "exposure per popular item minus per long-tail item", "zero", percent=False
    ),
    "exact_k_violation": Metric(
        "Over limit", "share of lists with more popular items than alpha' allows", "less"
    ),
}


PAPER_METRICS = ("recall", "f1", "ndcg", "gini", "popularity_rate")


def statistics_table(name: str, statistics: Statistics) -> Table:
    """The paper's table of data sets, one row."""
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("Dataset", "#users", "#items", "#act./user", "#act./item", "#act.", "density"):
        table.add_column(heading, justify="left" if heading == "Dataset" else "right")
    means = (statistics.per_user, statistics.per_item)
    table.add_row(
        escape(name),
        str(statistics.users),
        str(statistics.items),
        *(f"{mean:.0f}" if mean >= 100 else f"{mean:.2f}" for mean in means),
        f"{statistics.interactions:,}",
        f"{100 * statistics.density:.3f}%",
    )
    return table


def format_value(metric: str, value: float | None) -> str:
    """Two decimals, of a percentage where the metric is a share."""
    if value is None or math.isnan(value):
        return MISSING
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{100 * value if METRICS[metric].percent else value:.2f}"


def table_headings(metrics: Sequence[str], *, short: bool = False) -> list[str]:
    """Headings of the columns that `table_lines` fills."""
    unknown = sorted(set(metrics) - set(METRICS))
    if unknown:
        raise ValueError(f"unknown metric {unknown[0]!r}; known are {', '.join(METRICS)}")
    chosen = [METRICS[name] for name in metrics]
    return [*HEADINGS, *((short and metric.short) or metric.heading for metric in chosen)]


def units(metrics: Sequence[str]) -> str:
    """The sentence that says which columns are percentages."""
    plain = [METRICS[name].heading for name in metrics if not METRICS[name].percent]
    return "Metrics in percent" + (f", except {' and '.join(plain)}." if plain else ".")


def table_lines(rows: Sequence[Row], metrics: Sequence[str], ks: Sequence[int]) -> list[list[str]]:
    """One line of cells per row and K; each says its protocol, mode and seed."""
    return [
        [
            *(_text(row[key]) for key in ("dataset", "method", "alpha_prime")),
            *(_text(row[key]) for key in ("protocol", "mode", "seed")),
            str(k),
            *(format_value(name, row["metrics"].get(f"{name}@{k}")) for name in metrics),
        ]
        for row in rows
        for k in ks
    ]


def metrics_table(rows: Sequence[Row], metrics: Sequence[str], ks: Sequence[int]) -> Table:
    """The rows for a terminal, those of one result set apart from the next."""
    headings = table_headings(metrics, short=True)
    # one space between columns: the five metrics of the paper fit into 80
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
        caption=units(metrics),
        caption_justify="left",
    )
    for position, heading in enumerate(headings):
        is_word = position < N_WORDS
        justify: Literal["left", "right"] = "left" if is_word else "right"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=not is_word)
    for number, line in enumerate(table_lines(rows, metrics, ks), 1):
        table.add_row(*map(escape, line), end_section=len(ks) > 1 and number % len(ks) == 0)
    return table


def _text(value: Any) -> str:
    return MISSING if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
