"""PopRSP and PopREO: have groups of items the same chance to be shown?

Zhu, Wang and Caverlee, "Measuring and Mitigating Item Under-Recommendation Bias in Personalized
Ranking Systems" (SIGIR 2020). Both are the standard deviation over groups of a chance, divided by
its mean: 0 where all groups have the same chance. With the short head and the long tail as groups
they are called PopRSP and PopREO.

lists: (n_users, K) item codes.  members: (n_items, n_groups) as in `item_groups`.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fairhorizon.metrics.item_groups import exposure_matrix


def statistical_parity(
    lists: NDArray[np.integer[Any]], taken: csr_array, members: csr_array, k: int
) -> float:
    """Ranking-based statistical parity (RSP), over P(shown | g).

    P(shown | g) = showings of g in the first k places / pairs of a user and an item of g that the
    user has not taken.

    taken: (n_users, n_items), not 0 where a user took an item in the training log.
    """
    had = _by_group(taken != 0, members)
    sizes = np.asarray(members.sum(axis=0))
    return _relative_spread(_shown(lists, members, k), len(lists) * sizes - had)


def equal_opportunity(
    lists: NDArray[np.integer[Any]], relevant: csr_array, members: csr_array, k: int
) -> float:
    """Ranking-based equal opportunity (REO), over P(shown | g, relevant).

    P(shown | g, relevant) = showings of g in the first k places to users to whom the item is
    relevant / pairs of a user and an item of g that is relevant.

    relevant: (n_users, n_items), not 0 where an item is relevant to a user.
    """
    wanted = (relevant != 0).astype(np.float64)
    shown = exposure_matrix(lists, np.ones(k), members.shape[0])
    return _relative_spread(_by_group(shown * wanted, members), _by_group(wanted, members))


def _shown(lists: NDArray[np.integer[Any]], members: csr_array, k: int) -> NDArray[np.float64]:
    return _by_group(exposure_matrix(lists, np.ones(k), members.shape[0]), members)


def _by_group(pairs: csr_array, members: csr_array) -> NDArray[np.float64]:
    """(n_groups,) pairs of a user and an item, summed by the group of the item."""
    return np.asarray(members.T @ np.asarray(pairs.sum(axis=0), dtype=np.float64))


def _relative_spread(shown: NDArray[np.float64], possible: NDArray[np.float64]) -> float:
    """Standard deviation by mean of the chances; NaN with fewer than two groups or no showing."""
    # A group of which nothing could be shown has no chance that could be compared.
    chances = shown[possible > 0] / possible[possible > 0]
    if chances.size < 2 or not chances.any():
        return float("nan")
    return float(chances.std() / chances.mean())
