"""Short-term evaluation: lists for every user against the test items, with fixed groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.evaluation.by_history import by_history
from fairhorizon.evaluation.rows import ByHistory, EvaluationRow
from fairhorizon.limits.groups import popular_group
from fairhorizon.metrics.spread import finite
from fairhorizon.metrics.summary import summarise
from fairhorizon.recommenders.base import Recommender
from fairhorizon.recommenders.served import Served
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import POPULAR, Mode, Protocol

_SCENARIOS: WeakKeyDictionary[Split, dict[tuple[int, Protocol], Scenario]] = WeakKeyDictionary()


@dataclass(frozen=True)
class Result:
    """The metrics of a model, and the lists (item codes) that they were computed from."""

    dataset: str
    method: str
    protocol: Protocol
    mode: Mode
    seed: int
    alpha_prime: float
    metrics: dict[str, float]
    lists: NDArray[np.int64]  # (n_users, longest K)
    by_history: ByHistory  # for the longest K
    prices: Mapping[str, float] = field(default_factory=dict)  # of limits, by their texts

    def row(self, group: str = POPULAR) -> EvaluationRow:
        """The row that a report reads; `group` is the name of G0."""
        return EvaluationRow(
            self.dataset,
            self.method,
            self.protocol,
            self.mode,
            self.seed,
            self.alpha_prime,
            self.metrics,
            group,
            by_history=self.by_history,
        )

    def to_json(self) -> dict[str, Any]:
        """All but lists and prices in strict JSON: an infinite or undefined metric is null."""
        left_out = ("lists", "prices")
        own = {name: value for name, value in vars(self).items() if name not in left_out}
        return own | {
            "metrics": {name: finite(value) for name, value in self.metrics.items()},
            "by_history": self.by_history.to_json(),
        }


def evaluate(
    model: Recommender,
    split: Split,
    *,
    ks: Sequence[int] = (5, 10, 20),
    protocol: Protocol | str = Protocol.STANDARD,
    mode: Mode | str = Mode.ONE_SHOT,
    sensitive: NDArray[np.bool_] | None = None,
    seed: int | None = None,
    served: Served | None = None,
) -> Result:
    """Recall, F1, NDCG and the fairness metrics of a model's lists, against the test items.

    The metrics are in `metrics` of the result, by names such as "ndcg@20", the lists in `lists`.
    `by_history` has the accuracy of users with few training interactions apart, and how many test
    items that are not in the training log the lists have.

    model: fitted on this split.
    ks: list lengths to measure; lists have the longest, and shorter ones are their first places.
    protocol: whether items of a user's history may be recommended.
    mode: whole lists at once, or item by item with feedback from the test items in between.
    sensitive: (n_items,) bool, the group of the fairness metrics; without it, the top 20 % of items
        by training count.
    seed: of what is random in serving; without it, the seed of the model.
    served: the lists, where they are made already, as the model makes them.
    """
    protocol, mode = Protocol(protocol), Mode(mode)
    check_fit(model, split)
    if not ks or min(ks) < 1 or max(ks) > split.train.n_items:
        raise ConfigError(
            f"ks {list(ks)}: a list has at least 1 and at most the {split.train.n_items} items "
            "there are"
        )
    seed = model.seed if seed is None else seed
    if served is None:
        scenario = _scenario(split, model.queue_length, protocol)
        feedback = mode is Mode.INTERACTIVE
        served = model.served(scenario, length=max(ks), feedback=feedback, seed=seed)
    lists = served.lists
    if sensitive is None:
        sensitive = popular_group(split.train.item_counts())
    relevant = relevance(split.test)
    alpha_prime = model.alpha_prime
    metrics = summarise(lists, relevant, sensitive, ks=sorted(ks), alpha_prime=alpha_prime)
    apart = by_history(lists, relevant, split.train, max(ks))
    return Result(
        *(split.name, model.method, protocol, mode, seed, alpha_prime),
        *(metrics, lists, apart, dict(served.prices)),
    )


def _scenario(split: Split, history: int, protocol: Protocol) -> Scenario:
    """The same object as long as there is the split: what models found out about it is kept."""
    known = _SCENARIOS.setdefault(split, {})
    if (history, protocol) not in known:
        known.clear()  # the last one only: queues are large
        known[history, protocol] = evaluation_scenario(split, history, protocol)
    return known[history, protocol]


def check_fit(model: Recommender, split: Split) -> None:
    """Refuse a model that was fitted on other data."""
    if model.fingerprint_ != split.train.fingerprint():
        raise ModelError(
            f"the model was fitted on other data than {split.name or 'this split'} (fit it again)"
        )


def relevance(log: Interactions) -> csr_array:
    """(n_users, n_items): 1 where a user took an item."""
    indptr, items = log.by_user()
    shape = (log.n_users, log.n_items)
    return csr_array((np.ones(len(items), dtype=np.int8), items, indptr), shape=shape)
