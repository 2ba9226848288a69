"""Short-term evaluation: lists for every user against the test items, with fixed groups."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.items import log_attribute
from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError, DataError, ModelError, of_type, whole_number
from fairhorizon.limits.groups import popular_group, values_of_items
from fairhorizon.limits.measured import LimitOutcome
from fairhorizon.metrics import accuracy
from fairhorizon.metrics.spread import finite, strict_json
from fairhorizon.metrics.summary import MeasuredLists, Metric, summarise
from fairhorizon.recommenders.base import RankedLists, Recommender
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario, validation_scenario
from fairhorizon.vocabulary import POPULAR, Mode, Protocol

# training interactions of a user: from, to
HISTORIES = {"none": (0, 0), "1 or 2": (1, 2), "3 or more": (3, np.inf)}
CUTOFF = 20  # places of a list that validation looks at
# A scenario lives as long as its split and no longer.
_SCENARIOS: WeakKeyDictionary[Split, dict[tuple[int, Protocol], Scenario]] = WeakKeyDictionary()


@dataclass(frozen=True)
class HistoryRow:
    """Mean accuracy of users with a certain number of training interactions."""

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
    """Results where training data is scarce: accuracy by length of history, and new items."""

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
    limits: tuple[LimitOutcome, ...] = ()  # that were measured

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
    served: RankedLists | None = None,
    metrics: Iterable[str] | Mapping[str, Metric] = (),
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
    served: the lists of the model, where they have been made already.
    metrics: in addition to those of every evaluation: names, such as ["mrr", "ild:genre"], or
        functions by names, {"mine": function}. A function is given a `MeasuredLists` and the number
        k of places that count, and returns one number, or (n_users,) of which the mean is taken.
    """
    protocol, mode = Protocol(protocol), Mode(mode)
    check_fit(model, split)
    of_type(ks, (list, tuple, range), "ks", "give a list of lengths, as in [5, 10, 20]")
    for k in ks:
        whole_number(k, "k", "give lengths of lists, as in [5, 10, 20]")
    if not ks or min(ks) < 1 or max(ks) > split.train.n_items:
        raise ConfigError(
            f"ks {list(ks)}: a list has at least 1 and at most the {split.train.n_items} items "
            "there are"
        )
    seed = model.seed if seed is None else seed
    if served is None:
        scenario = _scenario(split, model.queue_length, protocol)
        feedback = mode is Mode.INTERACTIVE
        served = model.rank(scenario, length=max(ks), feedback=feedback, seed=seed)
    lists = served.lists
    if sensitive is None:
        sensitive = popular_group(split.train.item_counts())
    alpha_prime = model.alpha_prime
    measured = measured_lists(lists, split, sensitive, alpha_prime)
    found = summarise(measured, sorted(ks), metrics)
    apart = by_history(lists, measured.relevant, split.train, max(ks))
    return Result(
        *(split.name, model.method, protocol, mode, seed, alpha_prime),
        *(found, lists, apart, dict(served.prices)),
    )


def measured_lists(
    lists: NDArray[np.integer[Any]],
    split: Split,
    sensitive: NDArray[np.bool_],
    alpha_prime: float = 1.0,
    *,
    attribute: Callable[[str], NDArray[Any]] | None = None,
    users: NDArray[np.integer[Any]] | None = None,
) -> MeasuredLists:
    """Lists with the test items, the training log and the groups they are measured against.

    lists: (n_users, K) item codes.  sensitive: (n_items,) bool, the limited group.
    attribute: gives the cells of a column, (n_items,); None: those of the log.
    users: (n_users,) the codes of the users of the lists; None: all of them.
    """
    cells = attribute or (lambda column: log_attribute(split.train, column))
    relevant = relevance(split.test)
    return MeasuredLists(
        lists,
        relevant if users is None else relevant[users],
        relevance(split.train),
        sensitive,
        alpha_prime,
        lambda column: values_of_items(cells(column)),
        users,
    )


def validation_ndcg(
    model: Recommender, split: Split, protocol: Protocol | str = Protocol.STANDARD
) -> float:
    """NDCG@20 of the lists after the training items, against the validation items.

    In a catalogue of fewer than 20 items the lists hold all items.
    """
    check_fit(model, split)
    if not len(split.validation):
        raise DataError(
            f"{split.name or 'the split'} has no validation items to choose settings by",
            remedy="give more interactions, or split per user",
        )
    length = min(CUTOFF, split.train.n_items)
    scenario = validation_scenario(split, model.queue_length, Protocol(protocol))
    lists = model.recommend(scenario, length=length)
    relevant = relevance(split.validation)
    n_relevant = np.asarray((relevant != 0).sum(axis=1))
    return accuracy.mean_over_users(
        accuracy.ndcg(accuracy.hit_matrix(lists, relevant), n_relevant, length)
    )


def by_history(
    lists: NDArray[np.integer[Any]], relevant: csr_array, train: Interactions, k: int
) -> ByHistory:
    """NDCG and recall of the first k places by training interactions of the user, and new items.

    relevant: (n_users, n_items), not 0 where an item is a test item of the user; users without any
        count nowhere.
    """
    hits = accuracy.hit_matrix(lists, relevant)
    n_relevant = np.asarray((relevant != 0).sum(axis=1))
    ndcg, recall = (of(hits, n_relevant, k) for of in (accuracy.ndcg, accuracy.recall))
    counts = train.user_counts()
    rows = []
    for name, (low, high) in HISTORIES.items():
        # Users without test items have no accuracy; they would only inflate `users`.
        here = (low <= counts) & (counts <= high) & (n_relevant > 0)
        means = (accuracy.mean_over_users(values[here]) for values in (ndcg, recall))
        rows.append(HistoryRow(name, int(here.sum()), *means))
    is_new = train.item_counts() == 0
    wanted = relevant.tocoo()
    items = wanted.col[wanted.data != 0]
    found = hits[:, :k] & is_new[lists[:, :k]]  # an empty place, -1, is no hit
    new = NewItems(int(is_new[items].sum()), len(items), int(found.sum()))
    return ByHistory(k, tuple(rows), new)


def _scenario(split: Split, history: int, protocol: Protocol) -> Scenario:
    """The scenario of a split, made once: models cache by scenario what they computed for it."""
    known = _SCENARIOS.setdefault(split, {})
    if (history, protocol) not in known:
        known.clear()  # the last one only: queues are large
        known[history, protocol] = evaluation_scenario(split, history, protocol)
    return known[history, protocol]


def check_fit(model: Recommender, split: Split) -> None:
    """Refuse a model that was fitted on other data, or not at all."""
    of_type(split, Split, "the split", "make it: fh.split(log)")
    if not hasattr(model, "fingerprint_"):
        raise ModelError(
            "the model is not fitted (call its fit(split))"
            if isinstance(model, Recommender)
            else f"a {type(model).__name__} is not evaluated, but a method that was fitted on a "
            "split: fh.Ranked(fh.Ease()).fit(split)"
        )
    if model.fingerprint_ != split.train.fingerprint():
        raise ModelError(
            f"the model was fitted on other data than {split.name or 'this split'} (fit it again)"
        )


def relevance(log: Interactions) -> csr_array:
    """(n_users, n_items): 1 where a user took an item."""
    indptr, items = log.by_user()
    shape = (log.n_users, log.n_items)
    return csr_array((np.ones(len(items), dtype=np.int8), items, indptr), shape=shape)
