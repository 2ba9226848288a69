"""Popularity of what each user is shown: one number per user, NaN for an empty list.

lists: (n_users, K) item codes, -1 for an empty place; the first k places count.
counts: (n_items,) how many users took each item in the training log.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.metrics.accuracy import EMPTY, check_codes, first_k


def average_popularity(
    lists: NDArray[np.integer[Any]], counts: NDArray[np.integer[Any]], k: int
) -> NDArray[np.float64]:
    """Mean training count of the items of a list; its mean over users is the ARP.

    Yin et al., "Challenging the Long Tail Recommendation" (VLDB 2012).
    """
    return _mean_of_list(lists, counts.astype(np.float64), k)


def tail_share(
    lists: NDArray[np.integer[Any]], popular: NDArray[np.bool_], k: int
) -> NDArray[np.float64]:
    """Share of a list that is of the long tail; its mean over users is the APLT.

    popular: (n_items,) True for the short head.
    Abdollahpouri et al., "Managing Popularity Bias in Recommender Systems with Personalized
    Re-ranking" (FLAIRS 2019).
    """
    return _mean_of_list(lists, (~popular).astype(np.float64), k)


def tail_count(
    lists: NDArray[np.integer[Any]], popular: NDArray[np.bool_], k: int
) -> NDArray[np.float64]:
    """Number of items of a list that are of the long tail; its mean is the ACLT of the same paper.

    popular: (n_items,) True for the short head.
    """
    shown = first_k(lists, k)
    check_codes(shown, len(popular))
    filled = shown != EMPTY
    in_tail = (filled & ~popular[shown]).sum(axis=1).astype(np.float64)
    return np.where(filled.any(axis=1), in_tail, np.nan)


def novelty(
    lists: NDArray[np.integer[Any]], counts: NDArray[np.integer[Any]], n_users: int, k: int
) -> NDArray[np.float64]:
    """Mean of -log2(count / n_users) over a list, in bits: how few users took its items before.

    Vargas and Castells, "Rank and Relevance in Novelty and Diversity Metrics" (RecSys 2011). An
    item that nobody took counts as one that a single user took.

    n_users: of the training log.
    """
    surprise = -np.log2(np.maximum(counts, 1) / n_users)
    return _mean_of_list(lists, surprise, k)


def _mean_of_list(
    lists: NDArray[np.integer[Any]], of_items: NDArray[np.float64], k: int
) -> NDArray[np.float64]:
    shown = first_k(lists, k)
    check_codes(shown, len(of_items))
    filled = shown != EMPTY
    sums, n = np.where(filled, of_items[shown], 0.0).sum(axis=1), filled.sum(axis=1)
    return np.asarray(np.divide(sums, n, out=np.full(len(n), np.nan), where=n > 0))
