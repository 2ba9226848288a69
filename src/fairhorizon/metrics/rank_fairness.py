"""Attention-weighted rank fairness (AWRF): do groups have their part of the attention to a list?

Sapiezynski et al., "Quantifying the Impact of User Attention on Fair Group Representation in
Ranked Lists" (WWW 2019), with the distance of the TREC 2021 Fair Ranking Track.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fairhorizon.metrics.accuracy import discount
from fairhorizon.metrics.item_groups import exposure_matrix


def attention_weighted_rank_fairness(
    lists: NDArray[np.integer[Any]],
    members: csr_array,
    k: int,
    *,
    target: NDArray[np.float64] | None = None,
    weights: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """1 - the Jensen-Shannon divergence, in bits, of a list's attention by group from the target.

    a_g = sum_i w_i [item i in g] / sum_i w_i  over the first k places,  m = (a + target) / 2,
    AWRF = 1 - (KL(a || m) + KL(target || m)) / 2:  1 where a list is as the target, at least 0.

    lists: (n_users, K) item codes.  members: (n_items, n_groups) as in `item_groups`.
    target: (n_groups,) shares that add up to 1; None: those of the catalogue.
    weights: (k,) the attention to each place; None: 1 / log2(1 + place).

    Returns (n_users,), NaN where no item of a list is in any group.
    """
    attention = discount(np.arange(1, k + 1)) if weights is None else weights
    if attention.shape != (k,):
        raise ValueError(f"weights have shape {attention.shape}, expected ({k},)")
    by_group = (exposure_matrix(lists, attention, members.shape[0]) @ members).toarray()
    total = by_group.sum(axis=1, keepdims=True)
    shares = np.divide(by_group, total, out=np.full_like(by_group, np.nan), where=total > 0)
    if target is None:
        sizes = np.asarray(members.sum(axis=0))
        target = sizes / sizes.sum()
    middle = (shares + target) / 2
    divergence = (_divergence(shares, middle) + _divergence(target, middle)) / 2
    return np.asarray(1 - divergence, dtype=np.float64)


def _divergence(p: NDArray[np.float64], q: NDArray[np.float64]) -> NDArray[np.float64]:
    """KL(p || q) in bits over the last axis, with 0 log 0 = 0."""
    ratio = np.divide(p, q, out=np.ones_like(q), where=p != 0)
    return np.asarray((p * np.log2(ratio)).sum(axis=-1), dtype=np.float64)
