"""What came of long runs, from their rows: how they ended, and how further limits were kept."""

import json
from collections.abc import Sequence

import polars as pl

from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.metrics.shares import exceeds
from fairhorizon.metrics.spread import Spread
from fairhorizon.studies.long_rows import LimitSummary, RunSummary
from fairhorizon.vocabulary import Scope

AT_THE_END = (
    *(
        "ndcg",
        "recall",
        "likes",
        "showings",
        "here",
        "gini",
        "limited_rate",
        "popularity_rate",
        "popularity_rate_initial",
    ),
    *("popularity_rate_lagged", "popularity_rate_retrospective", "lorenz_share"),
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


def limit_summaries(
    steps: pl.DataFrame, warm_up: int, bound: Sequence[ResolvedLimit]
) -> list[LimitSummary]:
    """What was reached of each limit but that on G0, and how it was broken after the warm-up."""
    limits = {str(one): one.limit for one in bound}
    noted = steps.filter(pl.col("notes").is_not_null()).sort("step", maintain_order=True)
    after: dict[tuple[str, str], list[float]] = {}  # excesses, by limit and method
    last: dict[tuple[str, str], dict[int, float]] = {}  # the excess at the last step, by seed
    for method, seed, step, notes in noted.select("method", "seed", "step", "notes").iter_rows():
        for note, excess in json.loads(notes).items():
            limit = note.removeprefix("excess of ")
            if limit not in limits or limit == note:
                continue
            found = after.setdefault((limit, method), [])
            last.setdefault((limit, method), {})[seed] = excess
            if step > warm_up:
                found.append(excess)
    return [
        _limit_summary(limits[limit], method, found, list(last[limit, method].values()))
        for (limit, method), found in after.items()
    ]


def _limit_summary(
    limit: Limit, method: str, after: list[float], last: list[float]
) -> LimitSummary:
    sign = -1 if limit.is_floor else 1  # a floor is exceeded downwards
    of_all = limit.scope is Scope.ALL  # else the excess is a share of lists
    return LimitSummary(
        str(limit),
        method,
        sum(exceeds(excess, 0.0) for excess in after) / len(after) if after else None,
        max([0.0, *after]),
        limit.share,
        limit.is_floor,
        Spread.of([limit.share + sign * excess for excess in last] if of_all else []),
    )
