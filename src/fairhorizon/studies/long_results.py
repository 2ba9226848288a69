"""What came of long runs: how they ended, how limits were kept, one method against the others."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.metrics.shares import exceeds
from fairhorizon.metrics.significance import paired_difference
from fairhorizon.metrics.spread import Spread, finite
from fairhorizon.studies.rows import LimitRow
from fairhorizon.vocabulary import POPULAR, Labels, Scope

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
UNKNOWN = Spread()


@dataclass(frozen=True)
class CountsOverTime:
    """The exposure count of every item, and the members of G0, at some steps of a run."""

    steps: NDArray[np.int64]  # (s,)
    counts: NDArray[np.int64]  # (s, n_items) training log and showings since
    sensitive: NDArray[np.bool_]  # (s, n_items)


@dataclass(frozen=True)
class RunProgress:
    """The progress of a long run: its last step, and the metrics of everything shown so far."""

    method: str
    seed: int
    step: int
    ndcg: float | None
    gini: float | None
    limited_rate: float | None
    violation_share: float | None
    remarks: tuple[str, ...] = ()  # warnings of the method in the last step


@dataclass(frozen=True)
class RunSummary:
    """The final metrics of the long runs of a method."""

    method: str
    seeds: tuple[int, ...]
    steps: int
    metrics: Mapping[str, Spread]

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "seeds": list(self.seeds),
            "steps": self.steps,
            "metrics": {name: asdict(spread) for name, spread in self.metrics.items()},
        }


@dataclass(frozen=True)
class LimitSummary:
    """What a method reached of a limit, and how it broke it after the warm-up, if it did."""

    limit: str
    method: str
    violation_share: float | None  # of the steps after the warm-up; None: there are none
    largest_overshoot: float
    bound: float | None = None  # largest share or Gini index; of a floor, the smallest share
    is_floor: bool = False
    reached: Spread = UNKNOWN  # that share or index of all that was shown, over seeds

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class LongDifference:
    """NDCG of a method minus that of a rival at the end of long runs, paired over users.

    Each user's NDCG is the mean over the seeds; None: too few users.
    """

    method: str
    rival: str
    seeds: tuple[int, ...]
    users: int  # who like any item
    difference: float | None
    low: float | None  # of the interval of 95 % confidence
    high: float | None

    @property
    def is_shown(self) -> bool:
        """Whether the interval shows a difference, to either side."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"seeds": list(self.seeds)}


@dataclass(frozen=True)
class LongTermResult:
    """Long runs of many methods: every step, exposure over time, and a summary."""

    steps: pl.DataFrame  # a row per method, seed and step, shares as fractions
    counts: Mapping[tuple[str, int], CountsOverTime]  # by method and seed
    alpha_prime: float
    warm_up: int  # steps before the limit has to be kept
    rows: tuple[RunSummary, ...] = ()
    limits: tuple[LimitSummary, ...] = ()  # limits in addition to the limit on G0
    group: str = POPULAR  # the name of G0
    labels: Labels = Labels.RETROSPECTIVE  # which the limit counts by
    lag: int = 50  # steps, of labels that lag
    settings: Mapping[str, Any] | None = None  # how the runs were made, in JSON
    differences: tuple[LongDifference, ...] = ()  # of the first method to each other one
    limit_rows: tuple[LimitRow, ...] = ()  # of every limit, that on G0 first

    def to_json(self) -> dict[str, Any]:
        """The rows without the single steps."""
        found = [row.to_json() for row in self.limit_rows]
        return {
            "rows": [row.to_json() for row in self.rows],
            "limits": [limit.to_json() for limit in self.limits],
            "differences": [row.to_json() for row in self.differences],
            "settings": dict(self.settings or {}),
            **({"limit_rows": found} if found else {}),
        }


def run_summaries(steps: pl.DataFrame) -> list[RunSummary]:
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
        spreads = {name: Spread.from_values(own[name].to_list()) for name in metrics}
        rows.append(RunSummary(method, tuple(own["seed"]), min(own["step"]), spreads))
    return rows


def limit_summaries(
    steps: pl.DataFrame, warm_up: int, bound: Sequence[ResolvedLimit]
) -> list[LimitSummary]:
    """What was reached of each limit but that on G0, and how it was broken after the warm-up."""
    limits = {str(one): one.limit for one in bound}
    # Excesses of further limits are notes of the steps, under "excess of LIMIT".
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
        Spread.from_values([limit.share + sign * excess for excess in last] if of_all else []),
    )


def run_limit_rows(
    steps: pl.DataFrame, warm_up: int, main: Limit, further: Sequence[ResolvedLimit]
) -> list[LimitRow]:
    """The limit on the group of the data, then the others, method by method.

    Reached is what all showings of the run came to, violations are steps after the warm-up, the
    price is that of the last step. Lists are not kept, so nothing is known by place.
    """
    runs: dict[str, dict[int, pl.DataFrame]] = {}
    for run in steps.sort("step", maintain_order=True).partition_by(
        "method", "seed", maintain_order=True
    ):
        runs.setdefault(run["method"][0], {})[run["seed"][0]] = run
    rows = [_limit_row(method, main, own, warm_up, by_notes=False) for method, own in runs.items()]
    for one in further:
        rows += [
            _limit_row(method, one.limit, own, warm_up, by_notes=True)
            for method, own in runs.items()
        ]
    return [row for row in rows if row is not None]


def _limit_row(
    method: str, limit: Limit, runs: Mapping[int, pl.DataFrame], warm_up: int, *, by_notes: bool
) -> LimitRow | None:
    """None where some run has not recorded the limit."""
    found = []
    for seed, run in runs.items():
        excesses, price = _noted(run, limit) if by_notes else _recorded(run, limit)
        if not excesses:
            return None
        after = [excess for step, excess in excesses.items() if step > warm_up]
        last = excesses[max(excesses)]
        broken = sum(exceeds(excess, 0.0) for excess in after)
        sign = -1 if limit.is_floor else 1  # a floor is exceeded downwards
        found.append(
            LimitRow(
                method=method,
                seeds=(seed,),
                limit=str(limit),
                asked=limit.share,
                is_floor=limit.is_floor,
                # For a limit on lists the excess is a share of lists, not of showings.
                reached=limit.share + sign * last if limit.scope is Scope.ALL else None,
                # A run that ends within the warm-up has no step that counts; then its last one
                # does.
                kept=not (broken if after else exceeds(last, 0.0)),
                n_lists=0,
                violations=broken,
                price=price,
            )
        )
    return LimitRow.from_seeds(method, list(runs), found)


def _recorded(run: pl.DataFrame, limit: Limit) -> tuple[dict[int, float], float | None]:
    """By step, how far the share of the group of the data is above the limit; the last price."""
    rates = dict(run.select("step", "limited_rate").drop_nulls().iter_rows())
    return {step: rate - limit.share for step, rate in rates.items()}, run["price"][-1]


def _noted(run: pl.DataFrame, limit: Limit) -> tuple[dict[int, float], float | None]:
    """The same of another limit, which the notes of every step have."""
    noted = {
        step: json.loads(notes)
        for step, notes in run.select("step", "notes").drop_nulls().iter_rows()
    }
    name = f"excess of {limit}"
    excesses = {step: notes[name] for step, notes in noted.items() if notes.get(name) is not None}
    last = noted[max(noted)] if noted else {}
    return excesses, last.get(f"price of {limit}")


def differences(
    method: str, ndcg: Mapping[str, Sequence[NDArray[np.float64]]], seeds: Sequence[int]
) -> list[LongDifference]:
    """NDCG of a method minus that of each other one, at the end of the runs.

    ndcg: by method, for each of its seeds (n_users,). A user's value is the mean over the seeds,
    and differences are paired over users. Runs of an older version have no such values: without
    those of `method` there is nothing to compare.
    """
    if method not in ndcg:
        return []
    of_users = {name: np.mean(runs, axis=0) for name, runs in ndcg.items()}
    own, rows = of_users.pop(method), []
    for rival, theirs in of_users.items():
        found = paired_difference(own, theirs)
        ends = (finite(end) for end in (found.mean, found.low, found.high))
        rows.append(LongDifference(method, rival, tuple(seeds), found.users, *ends))
    return rows
