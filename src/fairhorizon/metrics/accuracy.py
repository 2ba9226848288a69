"""Accuracy of recommendation lists, one number per user.

lists: (n_users, K) item codes, best first, -1 for a slot that could not be filled.
h, n: a user's hits among the first k, and the number of items relevant to that user.
A user with n = 0 has no accuracy: NaN, left out of `mean_over_users`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

# The code of a place in a list that no item could fill, here and wherever lists are arrays.
EMPTY = -1


def first_k(lists: NDArray[Any], k: int) -> NDArray[Any]:
    """The first k columns; a ValueError if there are fewer."""
    if lists.ndim != 2:
        raise ValueError(f"lists have shape {lists.shape}, expected (n_users, K)")
    if not 1 <= k <= lists.shape[1]:
        raise ValueError(f"k = {k} does not fit lists of length {lists.shape[1]}")
    return lists[:, :k]


def check_codes(lists: NDArray[np.integer[Any]], n_items: int) -> None:
    """A ValueError for item codes outside the catalogue."""
    wrong = lists[(lists < EMPTY) | (lists >= n_items)]
    if wrong.size:
        raise ValueError(f"lists hold item code {wrong[0]}, the catalogue has {n_items} items")


def hit_matrix(lists: NDArray[np.integer[Any]], relevant: csr_array) -> NDArray[np.bool_]:
    """Where a list shows a relevant item: (n_users, K); `relevant` is (n_users, n_items)."""
    n_users, n_items = relevant.shape
    if lists.ndim != 2 or len(lists) != n_users:
        raise ValueError(f"lists have shape {lists.shape}, relevant items {relevant.shape}")
    check_codes(lists, n_items)
    entries = relevant.tocoo()
    stored = entries.data != 0
    # A pair (user, item) becomes one number, so that one lookup in a sorted array finds all hits.
    wanted = entries.row[stored].astype(np.int64) * n_items + entries.col[stored]
    shown = np.arange(n_users, dtype=np.int64)[:, None] * n_items + lists
    # An empty slot is -1, so its pair would be that of the previous user and the last item.
    hits: NDArray[np.bool_] = np.isin(shown, wanted) & (lists != EMPTY)
    return hits


def recall(
    hits: NDArray[np.bool_], n_relevant: NDArray[np.integer[Any]], k: int
) -> NDArray[np.float64]:
    """h / n: the share of a user's relevant items that the first k places show.

    hits: (n_users, K) from `hit_matrix`.  n_relevant: (n_users,).  Returns (n_users,).
    """
    h, n = _hits_and_relevant(hits, n_relevant, k)
    return np.asarray(h.sum(axis=1) / n, dtype=np.float64)


def f1(
    hits: NDArray[np.bool_], n_relevant: NDArray[np.integer[Any]], k: int
) -> NDArray[np.float64]:
    """2h / (k + n), the harmonic mean of precision h/k and recall h/n; arrays as in `recall`."""
    h, n = _hits_and_relevant(hits, n_relevant, k)
    return np.asarray(2 * h.sum(axis=1) / (k + n), dtype=np.float64)


def precision(
    hits: NDArray[np.bool_], n_relevant: NDArray[np.integer[Any]], k: int
) -> NDArray[np.float64]:
    """h / k: the share of the first k places that hit, empty places included; as in `recall`."""
    h, n = _hits_and_relevant(hits, n_relevant, k)
    return np.where(np.isnan(n), np.nan, h.sum(axis=1) / k)


def hit_rate(
    hits: NDArray[np.bool_], n_relevant: NDArray[np.integer[Any]], k: int
) -> NDArray[np.float64]:
    """1 where the first k places have a hit, else 0; arrays as in `recall`."""
    h, n = _hits_and_relevant(hits, n_relevant, k)
    return np.where(np.isnan(n), np.nan, h.any(axis=1))


def reciprocal_rank(
    hits: NDArray[np.bool_], n_relevant: NDArray[np.integer[Any]], k: int
) -> NDArray[np.float64]:
    """1 / the place of the first hit, 0 without one; its mean is the MRR; as in `recall`."""
    h, n = _hits_and_relevant(hits, n_relevant, k)
    # `argmax` finds the first hit; of a list without hits it is 0, which `any` sets right.
    return np.where(np.isnan(n), np.nan, h.any(axis=1) / (1 + h.argmax(axis=1)))


def average_precision(
    hits: NDArray[np.bool_], n_relevant: NDArray[np.integer[Any]], k: int
) -> NDArray[np.float64]:
    """Sum of precision@i over the places i <= k that hit, / min(k, n); its mean is the MAP.

    Arrays as in `recall`.
    """
    h, n = _hits_and_relevant(hits, n_relevant, k)
    precision_at = np.cumsum(h, axis=1) / np.arange(1, k + 1)  # (n_users, k)
    return np.asarray((precision_at * h).sum(axis=1) / np.minimum(n, k), dtype=np.float64)


def discount(ranks: NDArray[Any]) -> NDArray[np.float64]:
    """The weight of rank 1, 2, ... of a list, in DCG and in exposure: 1 / log2(1 + rank).

    `ranking.discount` is the same for tensors.
    """
    return np.asarray(1 / np.log2(1 + ranks), dtype=np.float64)


def ndcg(
    hits: NDArray[np.bool_], n_relevant: NDArray[np.integer[Any]], k: int
) -> NDArray[np.float64]:
    """DCG / ideal DCG with gain discount(rank) per hit; the ideal list has min(k, n) hits.

    hits: (n_users, K) from `hit_matrix`.  n_relevant: (n_users,).  Returns (n_users,).
    """
    h, n = _hits_and_relevant(hits, n_relevant, k)
    gain = discount(np.arange(1, k + 1))  # (k,)
    ideal = np.append(np.cumsum(gain), np.nan)  # the last: users without relevant items
    # ideal[j] is the DCG of j + 1 hits at the top. NaN cannot be an index: users without relevant
    # items take the entry appended at k, which is NaN.
    best = np.where(np.isnan(n), k, np.fmin(n, k) - 1).astype(np.int64)
    return np.asarray(h @ gain / ideal[best], dtype=np.float64)


def mean_over_users(values: NDArray[np.float64]) -> float:
    """Mean over the users that have a value, with equal weights; NaN when none has."""
    present = values[~np.isnan(values)]
    return float(present.mean()) if present.size else float("nan")


def _hits_and_relevant(
    hits: NDArray[np.bool_], n_relevant: NDArray[np.integer[Any]], k: int
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """The first k hits, and n with NaN in place of 0."""
    h = first_k(hits, k)
    if n_relevant.shape != (len(hits),):
        raise ValueError(f"n_relevant has shape {n_relevant.shape}, expected ({len(hits)},)")
    return h, np.where(n_relevant > 0, n_relevant, np.nan)
