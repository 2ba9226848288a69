"""A log from parallel columns or from a pandas or polars frame."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal

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
from fairhorizon.data.interactions import Interactions, NoTimestampsWarning
from fairhorizon.errors import ConfigError

Repeats = Literal["first", "last"]


def from_arrays(
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
) -> Interactions:
    """A log from parallel columns; of repeated (user, item) pairs one is kept, the first in time.

    `origin` and `labels` (the names of columns in the file) are for error messages only.
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
    return Interactions(
        users=user_codes[keep],
        items=item_codes[keep],
        user_ids=user_ids,
        item_ids=item_ids,
        ratings=None if rated is None else rated[keep],
        timestamps=None if timed is None else timed[keep],
        attributes=_per_item(raw_attributes, item_codes, origin),
        name=name,
    )


def from_frame(
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
) -> Interactions:
    """A log from a pandas or polars frame with a row per interaction.

    frame: the frame.
    user, item, rating, timestamp: names of its columns; None: there is no such column. Without
        timestamps the rows count as being in time order, and a warning says so.
    attributes: columns with an attribute of the item, such as its seller.
    name: what results call the log.
    repeats: which row of a repeated (user, item) pair is kept, in time order.
    origin: where the frame comes from, for error messages.
    """
    origin, attributes = origin or Origin(), tuple(attributes)
    known = [str(column) for column in frame.columns]
    for column in (user, item, rating, timestamp, *attributes):
        if column is not None and column not in known:
            origin.fail(
                f"there is no column {column!r}", remedy=f"the columns are {', '.join(known)}"
            )
    labels = {"user": user, "item": item, "rating": rating, "timestamp": timestamp}
    log = from_arrays(
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


def _column(frame: Any, name: str) -> Column:
    column = frame[name]
    return as_column(column if isinstance(column, pl.Series) else column.to_numpy())


def _kept_rows(
    pairs: NDArray[np.int64], times: NDArray[Any] | None, repeats: Repeats
) -> NDArray[np.int64]:
    """Row numbers in time order, one row per (user, item) pair."""
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
    """The value of each item in its first row, as text."""
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
