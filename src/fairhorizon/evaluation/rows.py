"""Results for single sets of lists: an evaluation, a search."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from fairhorizon.limits.reached import ReachedLimit
from fairhorizon.metrics.spread import finite, strict_json
from fairhorizon.vocabulary import POPULAR, Mode, Protocol


@dataclass(frozen=True)
class HistoryRow:
    """Mean accuracy of the users whose training interactions are so many."""

    history: str  # "none", "1 or 2", "3 or more"
    users: int  # with test items
    ndcg: float  # NaN without such users, like recall
    recall: float


@dataclass(frozen=True)
class NewItems:
    """Test interactions with items that the training log does not have."""

    interactions: int
    of: int  # all test interactions
    found: int  # those that are in the lists


@dataclass(frozen=True)
class ByHistory:
    """Where there is little to learn from: accuracy of users apart, and new items."""

    k: int  # places of a list that count
    users: tuple[HistoryRow, ...]  # from the shortest history to the longest
    new_items: NewItems

    def to_json(self) -> dict[str, Any]:
        return dict(strict_json(asdict(self)))


@dataclass(frozen=True)
class EvaluationRow:
    """The metrics of one set of lists, and the conditions of the measurement."""

    dataset: str
    method: str
    protocol: Protocol
    mode: Mode
    seed: int | None  # None: lists that were made elsewhere
    alpha_prime: float | None
    metrics: Mapping[str, float]  # fractions under keys as `ndcg@20`
    group: str = POPULAR  # the name of G0
    expected_exposure_share: float | None = None  # of G0, over the rankings that could be drawn
    by_history: ByHistory | None = None
    limits: tuple[ReachedLimit, ...] = ()  # that were measured

    def to_json(self) -> dict[str, Any]:
        """Strict JSON; what is None or empty by default is included only if there is one."""
        content: dict[str, Any] = {
            "dataset": self.dataset,
            "method": self.method,
            "protocol": self.protocol,
            "mode": self.mode,
            "seed": self.seed,
            "alpha_prime": self.alpha_prime,
            "group": self.group,
            "metrics": {name: finite(value) for name, value in self.metrics.items()},
        }
        if self.expected_exposure_share is not None:
            content["expected_exposure_share"] = self.expected_exposure_share
        if self.by_history is not None:
            content["by_history"] = self.by_history.to_json()
        if self.limits:
            content["limits"] = [one.to_json() for one in self.limits]
        return content


@dataclass(frozen=True)
class TuningResult:
    """The best trial of a search for settings."""

    method: str
    dataset: str
    protocol: Protocol
    seed: int
    metric: str
    value: float  # of the metric
    settings: Mapping[str, Any]
    trials: int  # number of trials

    def to_json(self) -> dict[str, Any]:
        row = {
            "method": self.method,
            "dataset": self.dataset,
            "protocol": self.protocol,
            "mode": Mode.ONE_SHOT,
            "seed": self.seed,
            "metrics": {self.metric: {"mean": self.value, "std": 0}},
            "settings": dict(self.settings),
            "trials": self.trials,
        }
        return {"rows": [row]}


@dataclass(frozen=True)
class DataStatistics:
    """A row of the paper's table of data sets; density is a fraction."""

    name: str
    users: int
    items: int
    interactions: int
    per_user: float
    per_item: float
    density: float
