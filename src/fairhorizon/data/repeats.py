"""Rows that repeat a user and an item: what was bought, visited or seen again."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions, Repeated

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


@dataclass(frozen=True, eq=False)
class AllRows:
    """Every row of a log as it was loaded, also those that repeat others."""

    users: Codes  # (n,)
    items: Codes  # (n,)
    like: Codes  # (n,) the row of the log with the same user and item
    weights: NDArray[np.float64] | None  # (n,)
    times: NDArray[Any] | None  # (n,)


def all_rows(log: Interactions) -> AllRows:
    """The rows of a log, and between them those that its weights come from, in time order."""
    own, again = np.arange(len(log)), log.repeated
    if again is None:
        return AllRows(log.users, log.items, own, log.weights, log.timestamps)
    by_user = np.argsort(log.users, kind="stable")  # the rows of user u from starts[u] on
    starts = np.searchsorted(log.users[by_user], again.users)
    before = again.after == 0  # of a pair whose last row was kept
    place = by_user[starts + np.maximum(0, again.after - 1)] + np.where(before, -0.5, 0.5)
    order = np.argsort(np.append(own, place), kind="stable")
    pairs = log.users * log.n_items + log.items
    by_pair = np.argsort(pairs)
    like = by_pair[np.searchsorted(pairs, again.users * log.n_items + again.items, sorter=by_pair)]

    def together(first: Any, second: Any) -> Any:
        return None if first is None or second is None else np.append(first, second)[order]

    return AllRows(
        together(log.users, again.users),
        together(log.items, again.items),
        together(own, like),
        together(log.weights, again.weights),
        together(log.timestamps, again.timestamps),
    )


def _running_by_user(users: Codes, counted: NDArray[np.bool_]) -> Codes:
    """(n,) how many of the user's rows up to each are counted."""
    by_user = np.argsort(users, kind="stable")
    total = np.cumsum(counted[by_user])
    first = np.searchsorted(users[by_user], users[by_user])  # of the same user
    before: Codes = total[first] - counted[by_user][first]
    running = np.empty(len(users), dtype=np.int64)
    running[by_user] = total - before
    return running
