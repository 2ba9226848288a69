"""All metrics by name, and what they are computed from."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fairhorizon.errors import ConfigError
from fairhorizon.metrics import (
    accuracy,
    diversity,
    fairness,
    group_parity,
    popularity_bias,
    rank_fairness,
)
from fairhorizon.metrics.expected_exposure import ExpectedExposure, expected_exposure
from fairhorizon.metrics.item_groups import membership, shared_membership

ACCURACY = ("recall", "f1", "ndcg")  # the other metrics of every evaluation are of exposure
OF_HITS = ("hit", "mrr", "map", "precision")  # further metrics of accuracy
COLUMN = ":"  # between the name of a metric and the column that its groups are from


def no_attributes(column: str) -> Sequence[Collection[str]]:
    """Where nothing is known of items."""
    raise ValueError(f"items have no {column!r}")


@dataclass(frozen=True, eq=False)
class MeasuredLists:
    """The lists of all users, and all that a metric may compare them with."""

    lists: NDArray[np.integer[Any]]  # (n_users, K) item codes, best first, -1: an empty place
    relevant: csr_array  # (n_users, n_items), not 0 where a user took an item in the test part
    log: csr_array  # (all users, n_items), not 0 where a user took an item in the training log
    popular: NDArray[np.bool_]  # (n_items,) G0, the limited group
    alpha_prime: float = 1.0  # the largest share of G0 in a list
    # The values of a column for each item, {"Drama", "War"}.
    attribute: Callable[[str], Sequence[Collection[str]]] = no_attributes
    users: NDArray[np.integer[Any]] | None = None  # (n_users,) their rows of the log; None: all

    def __post_init__(self) -> None:
        if self.popular.shape != (self.relevant.shape[1],):
            shapes = f"{self.popular.shape}, relevant items {self.relevant.shape}"
            raise ValueError(f"groups have shape {shapes}")

    @property
    def n_items(self) -> int:
        """Items of the catalogue."""
        return len(self.popular)

    @cached_property
    def hits(self) -> NDArray[np.bool_]:
        """(n_users, K) where a list shows a relevant item."""
        # Looked up once for the longest list; every k takes the first k columns.
        return accuracy.hit_matrix(self.lists, self.relevant)

    @cached_property
    def n_relevant(self) -> NDArray[np.int64]:
        """(n_users,) relevant items of each user."""
        return np.asarray((self.relevant != 0).sum(axis=1))

    @property
    def taken(self) -> csr_array:
        """(n_users, n_items), not 0 where a user of the lists took an item in the training log."""
        return self.log if self.users is None else self.log[self.users]

    @cached_property
    def taken_counts(self) -> NDArray[np.int64]:
        """(n_items,) how many users took each item in the training log."""
        return np.asarray((self.log != 0).sum(axis=0))

    @cached_property
    def takers(self) -> csr_array:
        """(n_items, all users): 1 where a user took the item in the training log."""
        return csr_array((self.log != 0).astype(np.float64).T)

    def exposure(self, k: int) -> NDArray[np.int64]:
        """(n_items,) how often each item is among the first k of a list."""
        return fairness.exposure_counts(self.lists, self.n_items, k)

    def members(self, column: str = "") -> csr_array:
        """(n_items, n_groups) the groups of a column; without one, G0 and all other items."""
        return shared_membership(self.attribute(column)) if column else membership(self.popular)


# A metric at k places: one number, or one per user, of which the mean over users is taken; users
# whose number is NaN are left out.
Metric = Callable[[MeasuredLists, int], float | NDArray[Any]]

ALWAYS: dict[str, Metric] = {
    "recall": lambda m, k: accuracy.recall(m.hits, m.n_relevant, k),
    "f1": lambda m, k: accuracy.f1(m.hits, m.n_relevant, k),
    "ndcg": lambda m, k: accuracy.ndcg(m.hits, m.n_relevant, k),
    "gini": lambda m, k: fairness.gini(m.exposure(k)),
    "popularity_rate": lambda m, k: fairness.popularity_rate(m.lists, m.popular, k),
    "coverage": lambda m, k: fairness.coverage(m.exposure(k)),
    "exposure_ratio": lambda m, k: fairness.exposure_ratio(m.exposure(k), m.popular),
    "demographic_parity_gap": lambda m, k: fairness.demographic_parity_gap(
        m.exposure(k), m.popular
    ),
    "worst_off": lambda m, k: fairness.worst_off_share(m.exposure(k), m.popular),
    "exact_k_violation": lambda m, k: fairness.exact_k_violation_rate(
        m.lists, m.popular, m.alpha_prime, k
    ),
}
"""The metrics of every evaluation."""

ByGroup = Callable[[MeasuredLists, int, csr_array], float | NDArray[Any]]
BY_GROUP: dict[str, ByGroup] = {
    "awrf": lambda m, k, groups: rank_fairness.attention_weighted_rank_fairness(m.lists, groups, k),
    "poprsp": lambda m, k, groups: group_parity.statistical_parity(m.lists, m.taken, groups, k),
    "popreo": lambda m, k, groups: group_parity.equal_opportunity(m.lists, m.relevant, groups, k),
    "max_min": lambda m, k, groups: fairness.worst_off_share(m.exposure(k), groups),
}
"""Over groups of items: G0 and all others, or the values of a column, as in `awrf:seller`."""

ByItem = Callable[[MeasuredLists, int, csr_array | None], float | NDArray[Any]]
BY_ITEM: dict[str, ByItem] = {
    "ee_d": lambda m, k, groups: _expected_exposure(m, k, groups).disparity,
    "ee_r": lambda m, k, groups: _expected_exposure(m, k, groups).relevance,
    "ee_l": lambda m, k, groups: _expected_exposure(m, k, groups).loss,
    # Without a column, items are alike that the same users took.
    "ild": lambda m, k, groups: diversity.intra_list_diversity(
        m.lists, m.takers if groups is None else groups, k
    ),
    "entropy": lambda m, k, groups: fairness.entropy(
        m.exposure(k) if groups is None else groups.T @ m.exposure(k)
    ),
}
"""Over single items, or over the values of a column."""


def _expected_exposure(m: MeasuredLists, k: int, groups: csr_array | None) -> ExpectedExposure:
    return expected_exposure(m.lists, m.relevant, k, members=groups)


def _over(name: str, column: str = "") -> Metric:
    """The metric of a name over the groups of a column."""
    if name in BY_GROUP:
        by_group = BY_GROUP[name]
        return lambda m, k: by_group(m, k, m.members(column))
    by_item = BY_ITEM[name]
    return lambda m, k: by_item(m, k, m.members(column) if column else None)


METRICS: dict[str, Metric] = {
    **ALWAYS,
    "hit": lambda m, k: accuracy.hit_rate(m.hits, m.n_relevant, k),
    "mrr": lambda m, k: accuracy.reciprocal_rank(m.hits, m.n_relevant, k),
    "map": lambda m, k: accuracy.average_precision(m.hits, m.n_relevant, k),
    "precision": lambda m, k: accuracy.precision(m.hits, m.n_relevant, k),
    "arp": lambda m, k: popularity_bias.average_popularity(m.lists, m.taken_counts, k),
    "aplt": lambda m, k: popularity_bias.tail_share(m.lists, m.popular, k),
    "aclt": lambda m, k: popularity_bias.tail_count(m.lists, m.popular, k),
    "novelty": lambda m, k: popularity_bias.novelty(m.lists, m.taken_counts, m.log.shape[0], k),
    **{name: _over(name) for name in (*BY_GROUP, *BY_ITEM)},
}
"""All metrics by name: functions of `MeasuredLists` and the number of places that count."""


def metric(name: str) -> Metric:
    """The metric of a name, such as mrr or awrf:seller; a ConfigError lists those there are."""
    base, colon, column = name.partition(COLUMN)
    if not colon and base in METRICS:
        return METRICS[base]
    if column and base in (*BY_GROUP, *BY_ITEM):
        return _over(base, column)
    with_column = ", ".join(f"{one}{COLUMN}COLUMN" for one in (*BY_GROUP, *BY_ITEM))
    raise ConfigError(f"no metric {name!r} (there are {', '.join(METRICS)}; {with_column})")


def summarise(
    measured: MeasuredLists, ks: Sequence[int], further: Iterable[str] | Mapping[str, Metric] = ()
) -> dict[str, float]:
    """Metrics as fractions under the keys `recall@5`, `f1@5`, ..., one k after the other.

    further: metrics in addition to those of every evaluation: names, or functions by names.
    """
    functions = ALWAYS | named(further)
    return {
        f"{name}@{k}": mean_value(name, function(measured, k), len(measured.lists))
        for k in ks
        for name, function in functions.items()
    }


def named(metrics: Iterable[str] | Mapping[str, Metric]) -> dict[str, Metric]:
    """Metrics by names; a name that is not known and a function that is none are errors."""
    if isinstance(metrics, str):
        raise ConfigError(f"metrics={metrics!r} is one name (give a list of them)")
    if not isinstance(metrics, Mapping):
        return {name: metric(name) for name in metrics}
    for name, function in metrics.items():
        if not callable(function):
            raise ConfigError(f"metric {name!r} is {function!r} (give a function)")
        # The names of reports are NAME@K, and what is called recall has to be recall.
        if "@" in name or METRICS.get(name, function) is not function:
            raise ConfigError(f"a metric of your own cannot be called {name!r} (name it otherwise)")
    return dict(metrics)


def mean_value(name: str, value: Any, n_users: int) -> float:
    """What a metric found as one number; an error if it is neither one nor one per user."""
    found = np.asarray(value, dtype=np.float64)
    if found.shape == ():
        return float(found)
    if found.shape != (n_users,):
        raise ConfigError(
            f"metric {name!r} has the shape {found.shape} (return one number, or one per user, "
            f"({n_users},))"
        )
    return accuracy.mean_over_users(found)
