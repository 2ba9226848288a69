"""Diversity within a list."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from fairhorizon.metrics.item_groups import exposure_matrix

USERS_AT_ONCE = 1000  # whose sums of vectors are in memory


def intra_list_diversity(
    lists: NDArray[np.integer[Any]], vectors: csr_array, k: int
) -> NDArray[np.float64]:
    """Mean of 1 - cosine over the pairs of items of a list: 0 when all items are alike.

    Ziegler et al., "Improving Recommendation Lists Through Topic Diversification" (WWW 2005), with
    the mean instead of the sum.

    lists: (n_users, K) item codes.  vectors: (n_items, d) what items are compared by; an item
    without any entry is like no other.

    Returns (n_users,), NaN for lists of fewer than two items.
    """
    lengths = np.sqrt(np.asarray((vectors * vectors).sum(axis=1), dtype=np.float64))
    scale = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    unit = csr_array(diags_array(scale) @ vectors)
    shown = exposure_matrix(lists, np.ones(k), vectors.shape[0])
    n = np.asarray(shown.sum(axis=1))  # (n_users,) items
    known = shown @ (lengths > 0)  # of them, those with a vector
    # |sum_i v_i|^2 = sum_i |v_i|^2 + 2 sum_{i<j} v_i.v_j: all pairs at once.
    squared = np.zeros(len(lists))
    for start in range(0, len(lists), USERS_AT_ONCE):
        some = slice(start, start + USERS_AT_ONCE)
        sums = shown[some] @ unit
        squared[some] = np.asarray((sums * sums).sum(axis=1))
    pairs = n * (n - 1)
    alike = np.divide(squared - known, pairs, out=np.full(len(n), np.nan), where=pairs > 0)
    return np.asarray(1 - alike, dtype=np.float64)
