"""Expected exposure: what items get over the lists a system may draw, against what they should get.

Diaz et al., "Evaluating Stochastic Rankings with Expected Exposure" (CIKM 2020). A user reads from
the top and goes on from each place with probability `patience`, so that place i is seen with
w_i = patience^(i - 1), and nothing beyond place k. e is the exposure of every item in the mean over
the lists that may be drawn. The target t is that of a system that draws any order of the relevant
items first, then any order of the others: equal exposure for items that are equally relevant.

    EE-D = |e|^2  disparity      EE-R = e.t  relevance      EE-L = |e - t|^2 = EE-D - 2 EE-R + |t|^2

Over groups of items, e and t are first added up by group, as for the fairness to demographic groups
in section 5 of the paper.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fairhorizon.metrics.item_groups import exposure_matrix

PATIENCE = 0.85


@dataclass(frozen=True, eq=False)
class ExpectedExposure:
    """EE-D, EE-R and EE-L of every user, (n_users,) each; NaN for users without relevant items."""

    disparity: NDArray[np.float64]  # less is fairer among all items, whatever they deserve
    relevance: NDArray[np.float64]  # more is more accurate
    loss: NDArray[np.float64]  # less is nearer to the target


def expected_exposure(
    lists: NDArray[np.integer[Any]],
    relevant: csr_array,
    k: int,
    *,
    members: csr_array | None = None,
    patience: float = PATIENCE,
) -> ExpectedExposure:
    """Measure the lists of every user against the items that are relevant to them.

    lists: (n_users, K) item codes; or (n_draws, n_users, K), the same users drawn several times.
    relevant: (n_users, n_items), not 0 where an item is relevant.
    k: places that are seen.
    members: (n_items, n_groups) as in `item_groups`; None: every item by itself.
    patience: the probability to go on from one place to the next, above 0 and at most 1.
    """
    if not 0 < patience <= 1:
        raise ValueError(f"patience = {patience} is not above 0 and at most 1")
    n_items = relevant.shape[1]
    draws = lists if lists.ndim == 3 else lists[None]
    weights = patience ** np.arange(k, dtype=np.float64)  # (k,)
    # The mean over the draws, as expectation is linear.
    exposure = sum(exposure_matrix(one, weights, n_items) for one in draws) / len(draws)
    wanted = (relevant != 0).astype(np.float64)
    n = np.asarray(wanted.sum(axis=1))  # (n_users,)
    # The first n places go to the relevant items and the next ones to the others, each in equal
    # parts: target exposures of one item of either kind.
    seen = np.append(0, np.cumsum(weights))
    for_relevant = seen[np.minimum(n, k).astype(np.int64)]
    with np.errstate(invalid="ignore", divide="ignore"):
        own = np.where(n > 0, for_relevant / n, np.nan)
        other = np.where(n < n_items, (seen[k] - for_relevant) / (n_items - n), 0.0)
    if members is None:
        on_wanted = np.asarray((exposure * wanted).sum(axis=1))
        in_all = np.asarray(exposure.sum(axis=1))
        disparity = np.asarray((exposure * exposure).sum(axis=1))
        relevance = own * on_wanted + other * (in_all - on_wanted)
        ideal = own**2 * n + other**2 * (n_items - n)
    else:
        by_group = (exposure @ members).toarray()  # (n_users, n_groups)
        wanted_by_group = (wanted @ members).toarray()
        others_by_group = np.asarray(members.sum(axis=0)) - wanted_by_group
        target = own[:, None] * wanted_by_group + other[:, None] * others_by_group
        disparity = (by_group**2).sum(axis=1)
        relevance, ideal = (by_group * target).sum(axis=1), (target**2).sum(axis=1)
    disparity = np.where(n > 0, disparity, np.nan)
    return ExpectedExposure(disparity, relevance, disparity - 2 * relevance + ideal)
