"""Rows that repeat a user and an item: what was bought, visited or seen again."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.interactions import Repeated

Codes = NDArray[np.int64]


def repeated_rows(
    users: Codes,
    items: Codes,
    weights: NDArray[np.float64] | None,
    times: NDArray[Any] | None,
    kept: Codes,
) -> Repeated | None:
    """The rows that are not kept in the log, in time order; None without weights or repeats.

    kept: (n,) the rows of the log, in time order.
    """
    if weights is None or len(kept) == len(users):
        return None
    order = np.arange(len(users)) if times is None else np.argsort(times, kind="stable")
    is_kept = np.zeros(len(users), dtype=np.bool_)
    is_kept[kept] = True
    so_far = _running_by_user(users[order], is_kept[order])
    again = ~is_kept[order]
    rows = order[again]
    moments = None if times is None else times[rows]
    return Repeated(users[rows], items[rows], weights[rows], so_far[again], moments)


def _running_by_user(users: Codes, counted: NDArray[np.bool_]) -> Codes:
    """(n,) how many of the user's rows up to each are counted."""
    by_user = np.argsort(users, kind="stable")
    total = np.cumsum(counted[by_user])
    first = np.searchsorted(users[by_user], users[by_user])  # of the same user
    before: Codes = total[first] - counted[by_user][first]
    running = np.empty(len(users), dtype=np.int64)
    running[by_user] = total - before
    return running
