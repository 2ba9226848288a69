"""What came of long runs, from their rows: how they ended, and how further limits were kept."""

import json

import polars as pl

from fairhorizon.exposure.limits import PopularityLimit
from fairhorizon.metrics.shares import exceeds
from fairhorizon.results.long_term import LimitSummary, RunSummary
from fairhorizon.results.spread import Spread

AT_THE_END = (
    *("ndcg", "recall", "gini", "popularity_rate", "popularity_rate_initial"),
    *("violation_share", "largest_overshoot", "coverage"),
)


def summary_rows(steps: pl.DataFrame) -> list[RunSummary]:
    """A row a method: how its runs ended, mean and standard deviation over the seeds.

    A share that one of the runs has no value for is None; `churn` is a sum over all steps and
    `seconds_per_step` a mean.
    """
    runs = (
        steps.sort("step", maintain_order=True)
        .group_by("method", "seed", maintain_order=True)
        .agg(
            pl.col("step").last(),
            pl.col(*AT_THE_END).last(),
            pl.col("churn").sum(),
            pl.col("seconds").mean().alias("seconds_per_step"),
        )
    )
    metrics = [*AT_THE_END, "churn", "seconds_per_step"]
    rows = []
    for method in steps["method"].unique(maintain_order=True):
        own = runs.filter(pl.col("method") == method)
        spreads = {name: Spread.of(own[name].to_list()) for name in metrics}
        rows.append(RunSummary(method, tuple(own["seed"]), min(own["step"]), spreads))
    return rows


def broken_limits(steps: pl.DataFrame, warm_up: int) -> list[LimitSummary]:
    """How often and how far each limit but that on G0 was broken after the warm-up."""
    after = steps.filter(pl.col("step") > warm_up, pl.col("notes").is_not_null())
    excesses: dict[tuple[str, str], list[float]] = {}
    for method, notes in after.select("method", "notes").iter_rows():
        for note, value in json.loads(notes).items():
            limit = note.removeprefix("excess of ")
            if limit not in (note, PopularityLimit.name):
                excesses.setdefault((limit, method), []).append(value)
    return [
        LimitSummary(
            limit,
            method,
            sum(exceeds(excess, 0.0) for excess in found) / len(found),
            max(0.0, *found),
        )
        for (limit, method), found in excesses.items()
    ]
