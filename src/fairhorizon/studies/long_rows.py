"""Results of long runs: their progress, every step, and a summary."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.metrics.spread import Spread
from fairhorizon.studies.rows import LimitRow
from fairhorizon.vocabulary import POPULAR, Labels


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


UNKNOWN = Spread()


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
