"""What came of long runs, from their rows: how they ended, and how further limits were kept."""

import json
from typing import Any

import numpy as np
import polars as pl

from fairhorizon.exposure.limits import PopularityLimit
from fairhorizon.metrics.shares import exceeds

AT_THE_END = (
    *("ndcg", "recall", "gini", "popularity_rate", "popularity_rate_initial"),
    *("violation_share", "largest_overshoot", "coverage"),
)


def summary_rows(steps: pl.DataFrame) -> list[dict[str, Any]]:
    """A row a method: how its runs ended, mean and standard deviation over the seeds.

    A share that one of the runs has no value for is null; `churn` is a sum over all steps and
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
    order = steps["method"].unique(maintain_order=True)
    metrics = [*AT_THE_END, "churn", "seconds_per_step"]
    rows = []
    for method in order:
        own = runs.filter(pl.col("method") == method)
        rows.append(
            {
                "method": method,
                "seeds": own["seed"].to_list(),
                "steps": own["step"].min(),
                "metrics": {name: _spread(own[name]) for name in metrics},
            }
        )
    return rows


def _spread(values: pl.Series) -> dict[str, float | None]:
    """Mean and sample standard deviation, 0 of one seed."""
    if values.null_count():
        return {"mean": None, "std": None}
    sample = values.to_numpy().astype(np.float64)
    std = float(sample.std(ddof=1)) if len(sample) > 1 else 0.0
    return {"mean": float(sample.mean()), "std": std}


def broken_limits(steps: pl.DataFrame, warm_up: int) -> list[dict[str, Any]]:
    """How often and how far each limit but that on popular items was broken after the warm-up."""
    judged = steps.filter(pl.col("step") > warm_up, pl.col("notes").is_not_null())
    excesses: dict[tuple[str, str], list[float]] = {}
    for method, notes in judged.select("method", "notes").iter_rows():
        for note, value in json.loads(notes).items():
            limit = note.removeprefix("excess of ")
            if limit not in (note, PopularityLimit.name):
                excesses.setdefault((limit, method), []).append(value)
    return [
        {
            "limit": limit,
            "method": method,
            "violation_share": sum(exceeds(excess, 0.0) for excess in found) / len(found),
            "largest_overshoot": max(0.0, *found),
        }
        for (limit, method), found in excesses.items()
    ]
