"""The log: immutable rows of user and item in time order, with the maps to the original ids."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray


class NoTimestampsWarning(UserWarning):
    """The data has no timestamps, so its rows are assumed to be in time order."""


class MissingValuesWarning(UserWarning):
    """Cells of a rating or an attribute are missing or empty."""


class RepeatsWarning(UserWarning):
    """Rows of the data repeat a (user, item) pair and were merged."""


class EqualTimesWarning(UserWarning):
    """Many rows share user and time with another, so a split shuffles their order."""


class WeightsIgnoredWarning(UserWarning):
    """A method that cannot use the weights of a log is fitted on it."""


@dataclass(frozen=True, eq=False)
class Repeated:
    """Rows that repeat the user and item of a row of the log, with their weights.

    They are kept apart from the log, with their times, so that the part of a log before a split
    does not count what was bought again after it.
    """

    users: NDArray[np.int64]  # (m,)
    items: NDArray[np.int64]  # (m,)
    weights: NDArray[np.float64]  # (m,)
    after: NDArray[np.int64]  # (m,) how many rows of the log the user had by then
    timestamps: NDArray[Any] | None = None  # (m,)

    def until(self, rows: NDArray[np.int64]) -> "Repeated":
        """The repeats up to each user's last row, if users have `rows` (n_users,) rows."""
        return self._take(self.after <= rows[self.users])

    def before(self, time: float) -> "Repeated":
        """The repeats before a time; all of them in a log without times."""
        return self if self.timestamps is None else self._take(self.timestamps < time)

    def _take(self, rows: NDArray[np.bool_]) -> "Repeated":
        return Repeated(
            self.users[rows],
            self.items[rows],
            self.weights[rows],
            self.after[rows],
            None if self.timestamps is None else self.timestamps[rows],
        )


@dataclass(frozen=True)
class PartsRead:
    """How many files of a folder a log was read from, and how many were known from before."""

    read: int
    kept: int  # files that were read before and had not changed


@dataclass(frozen=True, eq=False)
class Interactions:
    """A log: which user took which item when, in time order.

    `load` makes it, with equal times in the order of the file; a split may shuffle these. Users and
    items are codes: the position of an id in `user_ids` or `item_ids`. These are sorted (integers
    by value, text by code point), so that a tie that goes to the smaller code goes to the smaller
    id.
    """

    users: NDArray[np.int64]  # (n,)
    items: NDArray[np.int64]  # (n,)
    user_ids: NDArray[Any]  # (n_users,)
    item_ids: NDArray[Any]  # (n_items,)
    ratings: NDArray[np.float64] | None = None  # (n,), NaN where one is missing
    timestamps: NDArray[Any] | None = None  # (n,) int64 or float64, ascending
    # name -> (n_items,) text, empty where it is missing
    attributes: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    name: str = ""
    weights: NDArray[np.float64] | None = None  # (n,) how much: quantity, dwell time; of one row
    repeated: Repeated | None = None  # further rows of the same users and items, if weighted
    last_times: NDArray[Any] | None = None  # (n,) when the user took the item last; None: unknown
    further: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # as `attributes`, on request
    columns: Mapping[str, str] = field(default_factory=dict)  # role -> name: user, item, time, ...
    repeats: str = "first"  # which row of a repeated (user, item) pair was kept
    parts: PartsRead | None = None  # of a log in a folder

    def __post_init__(self) -> None:
        # Logs share their arrays: what is written into one would change the others.
        for entry in fields(self):
            value = getattr(self, entry.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, entry.name, _read_only(value))
        attributes = {name: _read_only(values) for name, values in self.attributes.items()}
        object.__setattr__(self, "attributes", attributes)

    def __len__(self) -> int:
        return len(self.users)

    @property
    def n_users(self) -> int:
        """Number of users with an id, also those without a row in this part of a log."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items with an id, also those without a row: the size of the catalogue."""
        return len(self.item_ids)

    def item_counts(self) -> NDArray[np.int64]:
        """(n_items,) interactions of each item."""
        return np.bincount(self.items, minlength=self.n_items).astype(np.int64)

    def user_counts(self) -> NDArray[np.int64]:
        """(n_users,) interactions of each user."""
        return np.bincount(self.users, minlength=self.n_users).astype(np.int64)

    def by_user(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """indptr (n_users + 1,), items (n,): user u took items[indptr[u]:indptr[u + 1]] in turn."""
        indptr = np.concatenate([[0], np.cumsum(self.user_counts())]).astype(np.int64)
        return indptr, self.items[np.argsort(self.users, kind="stable")]

    def take(self, rows: ArrayLike) -> Self:
        """The log of some rows (indices or a mask), in time order, with the same codes and ids."""
        chosen = np.asarray(rows)
        chosen = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64)
        if self.timestamps is not None:
            # Stable: rows of one time keep the order in which they were asked for.
            chosen = chosen[np.argsort(self.timestamps[chosen], kind="stable")]
        return replace(
            self,
            users=self.users[chosen],
            items=self.items[chosen],
            ratings=None if self.ratings is None else self.ratings[chosen],
            timestamps=None if self.timestamps is None else self.timestamps[chosen],
            weights=None if self.weights is None else self.weights[chosen],
            last_times=None if self.last_times is None else self.last_times[chosen],
        )

    def total_weights(self) -> NDArray[np.float64] | None:
        """(n,) the weight of each row and all rows that repeat it; None without weights."""
        if self.weights is None or self.repeated is None:
            return self.weights
        again = self.repeated
        pairs = self.users * self.n_items + self.items
        repeats = again.users * self.n_items + again.items
        order = np.argsort(pairs, kind="stable")
        place = np.searchsorted(pairs, repeats, sorter=order).clip(max=max(0, len(pairs) - 1))
        if not len(pairs):
            return self.weights
        rows = order[place]
        # After a split, some repeat a row of another part.
        known = pairs[rows] == repeats
        totals = self.weights.copy()
        np.add.at(totals, rows[known], again.weights[known])
        return totals

    def rated(self) -> Self:
        """The log of the rows that have a rating; no rows in a log without ratings."""
        if self.ratings is None:
            return self.take([])
        missing = np.isnan(self.ratings)
        return self.take(~missing) if missing.any() else self

    def fingerprint(self) -> str:
        """16 hexadecimal digits that tell two logs apart, by everything but their names."""
        digest = hashlib.sha256()
        # The separators keep ids "ab", "c" apart from "a", "bc".
        for ids in (self.user_ids, self.item_ids):
            digest.update("\x1f".join(map(str, ids.tolist())).encode("utf-8", "surrogatepass"))
            digest.update(b"\x1e")
        # A fixed byte order and width, so that all machines agree.
        for values in (self.users, self.items):
            digest.update(np.ascontiguousarray(values, "<i8").data)
        for optional in (self.ratings, self.timestamps):
            digest.update(b"-" if optional is None else np.ascontiguousarray(optional, "<f8").data)
        totals = self.total_weights()
        # Without weights nothing is added, so that such a log keeps its fingerprint.
        if totals is not None:
            digest.update(np.ascontiguousarray(totals, "<f8").data)
        return digest.hexdigest()[:16]


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view


# ---- Rows that repeat a user and an item: bought, visited or seen again --------------------------
Codes = NDArray[np.int64]


def repeated_rows(
    users: Codes,
    items: Codes,
    weights: NDArray[np.float64] | None,
    times: NDArray[Any] | None,
    kept: Codes,
) -> Repeated | None:
    """The rows that the log leaves out as repeats, in time order; None without weights or repeats.

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
    log_row: Codes  # (n,) the row of the log with the same user and item
    weights: NDArray[np.float64] | None  # (n,)
    times: NDArray[Any] | None  # (n,)


def all_rows(log: Interactions) -> AllRows:
    """All rows of a log with the repeats in their places, in time order."""
    own, again = np.arange(len(log)), log.repeated
    if again is None:
        return AllRows(log.users, log.items, own, log.weights, log.timestamps)
    by_user = np.argsort(log.users, kind="stable")  # the rows of user u from starts[u] on
    starts = np.searchsorted(log.users[by_user], again.users)
    # With repeats="last" a repeat may stand before all rows that were kept of its user.
    before = again.after == 0
    # Halves put a repeat between two rows of the log.
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
    """(n,) how many of the same user's rows are counted, up to and including each row."""
    by_user = np.argsort(users, kind="stable")
    # A running count over all users, less what it was before the user's first row.
    total = np.cumsum(counted[by_user])
    first = np.searchsorted(users[by_user], users[by_user])  # of the same user
    before: Codes = total[first] - counted[by_user][first]
    running = np.empty(len(users), dtype=np.int64)
    running[by_user] = total - before
    return running
