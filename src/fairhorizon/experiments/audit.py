"""An audit of what a system shows, whoever made the lists: how good it is and how fair.

Users without a list are counted, and left out of all averages: accuracy is the mean over users that
have a list and test items, the exact-K violation is a share of the lists there are.
In an impression log every impression is exposure, also that of an item seen before; accuracy looks
at the first K distinct items.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.recommendations import Order, Recommendations
from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.short_term import relevance
from fairhorizon.experiments.runs import Dataset
from fairhorizon.metrics.fairness import coverage, demographic_parity_gap, exposure_ratio, gini
from fairhorizon.metrics.summary import summarise
from fairhorizon.vocabulary import Mode, Protocol

ACCURACY = ("recall", "f1", "ndcg")
UNNAMED = "audit"  # what a system is called that nobody named
ALL = "all"  # in place of K: every impression of a log


@dataclass(frozen=True)
class Counts:
    """What the metrics rest on."""

    kind: str  # lists or impressions
    order: Order
    users: int  # of the data
    users_without_list: int
    users_judged: int  # with a list and with test items
    shown: int  # rows, repeats included
    from_history: int  # of those, items that the user had taken before the test items
    shorter_lists: dict[int, int]  # by K
    unknown_rows: int  # left out

    @property
    def from_history_share(self) -> float:
        return self.from_history / self.shown

    @property
    def lists(self) -> int:
        return self.users - self.users_without_list


@dataclass(frozen=True)
class Audit:
    """One row of results, and the exposure that it was computed from."""

    dataset: str
    name: str
    protocol: Protocol
    alpha_prime: float
    metrics: dict[str, float]
    counts: Counts
    exposure: NDArray[np.int64]  # (n_items,) how often each item is in the file

    def row(self) -> dict[str, Any]:
        """As of an evaluation; lists that were made elsewhere have no seed."""
        return {
            "dataset": self.dataset,
            "method": self.name,
            "protocol": self.protocol,
            "mode": Mode.ONE_SHOT,
            "seed": None,
            "alpha_prime": self.alpha_prime,
            "metrics": self.metrics,
        }

    def to_json(self) -> dict[str, Any]:
        """The row in strict JSON: an infinite or undefined metric is null."""
        metrics = {k: v if math.isfinite(v) else None for k, v in self.metrics.items()}
        counts = asdict(self.counts) | {"from_history_share": self.counts.from_history_share}
        return {"rows": [self.row() | {"metrics": metrics, "counts": counts}]}


def audit(
    dataset: Dataset,
    shown: Recommendations,
    *,
    ks: Sequence[int] = (5, 10, 20),
    alpha_prime: float = 1.0,
    name: str = UNNAMED,
) -> Audit:
    """Judge what was shown against the test items and the item groups of the data.

    The protocol is `standard` if nobody is shown an item of the own history, else `paper`.
    """
    if not 0 <= alpha_prime <= 1:
        raise ConfigError(f"alpha' = {alpha_prime} is no share (give one between 0 and 1)")
    parts, ks = dataset.split, sorted(ks)
    per_user = shown.per_user()
    served = per_user > 0
    relevant, lists = relevance(parts.test)[served], shown.first(max(ks))[served]
    groups = dataset.sensitive
    metrics = summarise(lists, relevant, groups, ks=ks, alpha_prime=alpha_prime)
    exposure = np.bincount(shown.items, minlength=dataset.log.n_items)
    if shown.is_log:
        lists = shown.distinct().first(max(ks))[served]
        distinct = summarise(lists, relevant, groups, ks=ks, alpha_prime=alpha_prime)
        metrics |= {f"{name}@{k}": distinct[f"{name}@{k}"] for k in ks for name in ACCURACY}
        metrics |= exposure_of_all(exposure, groups)
    from_history = int(in_history(shown, parts).sum())
    counts = Counts(
        kind="impressions" if shown.is_log else "lists",
        order=shown.order,
        users=shown.n_users,
        users_without_list=int((~served).sum()),
        users_judged=int((served & (parts.test.user_counts() > 0)).sum()),
        shown=len(shown),
        from_history=from_history,
        shorter_lists={k: int((served & (per_user < k)).sum()) for k in ks},
        unknown_rows=shown.dropped,
    )
    protocol = Protocol.PAPER if from_history else Protocol.STANDARD
    return Audit(parts.name, name, protocol, alpha_prime, metrics, counts, exposure)


def exposure_of_all(exposure: NDArray[np.int64], sensitive: NDArray[np.bool_]) -> dict[str, float]:
    """The metrics of exposure that need no K, over every impression."""
    values = {
        "gini": gini(exposure),
        "popularity_rate": float(exposure[sensitive].sum() / exposure.sum()),
        "coverage": coverage(exposure),
        "exposure_ratio": exposure_ratio(exposure, sensitive),
        "demographic_parity_gap": demographic_parity_gap(exposure, sensitive),
    }
    return {f"{name}@{ALL}": value for name, value in values.items()}


def in_history(shown: Recommendations, parts: Split) -> NDArray[np.bool_]:
    """Which rows show an item that the user took before the test items, (n,)."""
    past = (parts.train, parts.validation)
    known = np.concatenate([part.users * part.n_items + part.items for part in past])
    return np.isin(shown.users * parts.train.n_items + shown.items, known)


@dataclass(frozen=True)
class GroupExposure:
    """What a group of items is, and what it gets; shares of all."""

    group: str
    items: int
    of_catalogue: float
    of_training: float
    of_exposure: float
    per_item: float  # NaN in an empty group


def exposure_by_group(result: Audit, dataset: Dataset) -> list[GroupExposure]:
    """G0 and G1: their shares of the catalogue, of the training log and of what is shown."""
    training, exposure = dataset.split.train.item_counts(), result.exposure
    return [
        GroupExposure(
            group,
            int(inside.sum()),
            float(inside.mean()),
            float(shares(training)[inside].sum()),
            float(shares(exposure)[inside].sum()),
            float(exposure[inside].mean()) if inside.any() else math.nan,
        )
        for group, inside in (("G0", dataset.sensitive), ("G1", ~dataset.sensitive))
    ]


def most_changed(
    result: Audit, dataset: Dataset, n: int = 10
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The n items that are shown most beyond their share of the training log, and most below it."""
    change = shares(result.exposure) - shares(dataset.split.train.item_counts())
    over, under = np.argsort(-change, kind="stable")[:n], np.argsort(change, kind="stable")[:n]
    return over[change[over] > 0], under[change[under] < 0]


def shares(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Of all; nothing has no shares."""
    return counts / counts.sum() if counts.any() else np.zeros(len(counts))
