"""The log: an immutable, time-ordered list of (user, item) with the maps to the original ids."""

import hashlib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from fairhorizon.data.columns import (
    MISSING,
    Column,
    Origin,
    as_column,
    encode,
    is_missing,
    to_ratings,
    to_times,
)
from fairhorizon.errors import ConfigError

Repeats = Literal["first", "last"]


class NoTimestampsWarning(UserWarning):
    """The data has no timestamps, so the order of its rows is taken for their order in time."""


@dataclass(frozen=True, eq=False)
class Interactions:
    """Who took which item when: rows in time order, equal times in file order.

    A code is the position of an id in `user_ids` or `item_ids`, which are sorted (integers by
    value, text by code point); a tie to the smaller id is thus a tie to the smaller code.
    """

    users: NDArray[np.int64]  # (n,)
    items: NDArray[np.int64]  # (n,)
    user_ids: NDArray[Any]  # (n_users,)
    item_ids: NDArray[Any]  # (n_items,)
    ratings: NDArray[np.float64] | None = None  # (n,)
    timestamps: NDArray[Any] | None = None  # (n,) int64 or float64, ascending
    attributes: Mapping[str, NDArray[Any]] = field(default_factory=dict)  # name -> (n_items,) text
    name: str = ""

    def __post_init__(self) -> None:
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
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        return len(self.item_ids)

    def item_counts(self) -> NDArray[np.int64]:
        """Interactions of each item, (n_items,)."""
        return np.bincount(self.items, minlength=self.n_items).astype(np.int64)

    def user_counts(self) -> NDArray[np.int64]:
        """Interactions of each user, (n_users,)."""
        return np.bincount(self.users, minlength=self.n_users).astype(np.int64)

    def by_user(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Compressed rows in time order: user u took items[indptr[u]:indptr[u + 1]]."""
        indptr = np.concatenate([[0], np.cumsum(self.user_counts())]).astype(np.int64)
        return indptr, self.items[np.argsort(self.users, kind="stable")]

    def take(self, rows: ArrayLike) -> Self:
        """The given rows (indices or a mask) with the same id maps, put in time order, stably."""
        chosen = np.asarray(rows)
        chosen = np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.int64)
        if self.timestamps is not None:
            chosen = chosen[np.argsort(self.timestamps[chosen], kind="stable")]
        return replace(
            self,
            users=self.users[chosen],
            items=self.items[chosen],
            ratings=None if self.ratings is None else self.ratings[chosen],
            timestamps=None if self.timestamps is None else self.timestamps[chosen],
        )

    def fingerprint(self) -> str:
        """16 hexadecimal digits that depend on ids, rows, ratings and times, not on the name."""
        digest = hashlib.sha256()
        for ids in (self.user_ids, self.item_ids):
            digest.update("\x1f".join(map(str, ids.tolist())).encode("utf-8", "surrogatepass"))
            digest.update(b"\x1e")
        for values in (self.users, self.items):
            digest.update(values.astype("<i8").tobytes())
        for optional in (self.ratings, self.timestamps):
            digest.update(b"-" if optional is None else optional.astype("<f8").tobytes())
        return digest.hexdigest()[:16]

    @classmethod
    def from_arrays(
        cls,
        users: ArrayLike | pl.Series,
        items: ArrayLike | pl.Series,
        *,
        ratings: ArrayLike | pl.Series | None = None,
        timestamps: ArrayLike | pl.Series | None = None,
        attributes: Mapping[str, ArrayLike | pl.Series] | None = None,  # per row, not per item
        name: str = "",
        repeats: Repeats = "first",
        origin: Origin | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Self:
        """A log out of parallel columns; repeated (user, item) pairs keep one, the first in time.

        `origin` and `labels` (what the file calls a column) only serve the error messages.
        """
        origin, labels = origin or Origin(), labels or {}
        given = {"user": users, "item": items, "rating": ratings, "timestamp": timestamps}
        raw = {key: as_column(values) for key, values in given.items() if values is not None}
        raw_attributes = {key: as_column(values) for key, values in (attributes or {}).items()}
        rows = len(raw["user"]) if raw["user"].shape else 0
        for key, values in {**raw, **raw_attributes}.items():
            if len(values.shape) != 1:
                origin.fail(f"{key} is not one column", remedy="give one value for each row")
            if len(values) != rows:
                origin.fail(f"{key} has {len(values)} rows, user has {rows}", remedy="give as many")
        if rows == 0:
            origin.fail("there are no interactions", remedy="give at least one row")
        label = {key: labels.get(key, key) for key in given}
        user_ids, user_codes = encode(raw["user"], label["user"], origin)
        item_ids, item_codes = encode(raw["item"], label["item"], origin)
        rated = timed = None
        if "rating" in raw:
            rated = to_ratings(raw["rating"], label["rating"], origin)
        if "timestamp" in raw:
            timed = to_times(raw["timestamp"], label["timestamp"], origin)
        keep = _kept_rows(user_codes * len(item_ids) + item_codes, timed, repeats)
        return cls(
            users=user_codes[keep],
            items=item_codes[keep],
            user_ids=user_ids,
            item_ids=item_ids,
            ratings=None if rated is None else rated[keep],
            timestamps=None if timed is None else timed[keep],
            attributes=_per_item(raw_attributes, item_codes, origin),
            name=name,
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        *,
        user: str = "user",
        item: str = "item",
        rating: str | None = None,
        timestamp: str | None = None,
        attributes: Iterable[str] = (),
        name: str = "",
        repeats: Repeats = "first",
        origin: Origin | None = None,
    ) -> Self:
        """A log out of a pandas or polars frame, whose columns are named here."""
        origin, attributes = origin or Origin(), tuple(attributes)
        known = [str(column) for column in frame.columns]
        for column in (user, item, rating, timestamp, *attributes):
            if column is not None and column not in known:
                origin.fail(
                    f"there is no column {column!r}", remedy=f"the columns are {', '.join(known)}"
                )
        labels = {"user": user, "item": item, "rating": rating, "timestamp": timestamp}
        log = cls.from_arrays(
            _column(frame, user),
            _column(frame, item),
            ratings=None if rating is None else _column(frame, rating),
            timestamps=None if timestamp is None else _column(frame, timestamp),
            attributes={column: _column(frame, column) for column in attributes},
            name=name,
            repeats=repeats,
            origin=origin,
            labels={key: label for key, label in labels.items() if label is not None},
        )
        if log.n_users == 1:
            origin.fail(
                f"all rows are of one user, {log.user_ids[0]!s}",
                remedy=f"give the interactions of several users, or check the user column {user!r}",
            )
        if timestamp is None:
            warnings.warn(
                f"{origin.file or 'the frame'} has no timestamps: its rows are assumed to be "
                "in the order of time (name the column if there is one)",
                NoTimestampsWarning,
                stacklevel=2,
            )
        return log


def _read_only(values: NDArray[Any]) -> NDArray[Any]:
    view = values.view()
    view.flags.writeable = False
    return view


def _column(frame: Any, name: str) -> Column:
    column = frame[name]
    return as_column(column if isinstance(column, pl.Series) else column.to_numpy())


def _kept_rows(
    pairs: NDArray[np.int64], times: NDArray[Any] | None, repeats: Repeats
) -> NDArray[np.int64]:
    """Row numbers in time order with one row a pair."""
    if repeats not in ("first", "last"):
        raise ConfigError(f"repeats must be 'first' or 'last', not {repeats!r}")
    order = np.arange(len(pairs)) if times is None else np.argsort(times, kind="stable")
    if repeats == "last":
        order = order[::-1]
    _, first = np.unique(pairs[order], return_index=True)
    kept = order[np.sort(first)]
    return kept[::-1] if repeats == "last" else kept


def _per_item(
    columns: Mapping[str, Column], items: NDArray[np.int64], origin: Origin
) -> dict[str, NDArray[Any]]:
    """The value of each item where it is first seen, as text."""
    _, rows = np.unique(items, return_index=True)
    per_item = {}
    for name, column in columns.items():
        values = column.to_numpy() if isinstance(column, pl.Series) else column
        cells = values[rows].tolist()
        for row, cell in zip(rows, cells, strict=True):
            if is_missing(cell):
                origin.fail(f"{name} is missing", int(row), MISSING)
        per_item[name] = np.array([str(cell) for cell in cells], dtype=object)
    return per_item
