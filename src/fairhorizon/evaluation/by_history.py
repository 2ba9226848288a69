"""Accuracy apart for users with little history, and how many new items the lists found."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from fairhorizon.data.interactions import Interactions
from fairhorizon.evaluation.rows import ByHistory, HistoryRow, NewItems
from fairhorizon.metrics import accuracy

# training interactions of a user: from, to
HISTORIES = {"none": (0, 0), "1 or 2": (1, 2), "3 or more": (3, np.inf)}


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
        here = (low <= counts) & (counts <= high) & (n_relevant > 0)
        means = (accuracy.mean_over_users(values[here]) for values in (ndcg, recall))
        rows.append(HistoryRow(name, int(here.sum()), *means))
    is_new = train.item_counts() == 0
    wanted = relevant.tocoo()
    items = wanted.col[wanted.data != 0]
    found = hits[:, :k] & is_new[lists[:, :k]]  # an empty place, -1, is no hit
    new = NewItems(int(is_new[items].sum()), len(items), int(found.sum()))
    return ByHistory(k, tuple(rows), new)
