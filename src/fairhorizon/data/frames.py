"""A log from parallel columns or from a pandas or polars frame."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from fairhorizon.data.columns import (
    Column,
    Origin,
    as_column,
    id_array,
)
from fairhorizon.data.interactions import (
    Interactions,
    MissingValuesWarning,
    NoTimestampsWarning,
    RepeatsWarning,
)
from fairhorizon.data.item_columns import Cells, ItemColumns
from fairhorizon.data.repeats import repeated_rows
from fairhorizon.data.rows import Rows
from fairhorizon.errors import ConfigError

Repeats = Literal["first", "last"]
ROWS = "rows"  # as a weight, unless a column is called so: every row counts 1, repeats add up


def from_arrays(
    users: ArrayLike | pl.Series,
    items: ArrayLike | pl.Series,
    *,
    ratings: ArrayLike | pl.Series | None = None,
    timestamps: ArrayLike | pl.Series | None = None,
    weights: ArrayLike | pl.Series | None = None,
    attributes: Mapping[str, ArrayLike | pl.Series] | None = None,  # per row, not per item
    name: str = "",
    repeats: Repeats = "first",
    origin: Origin | None = None,
    labels: Mapping[str, str] | None = None,
    further: Mapping[str, Column] | None = None,
) -> Interactions:
    """A log from parallel columns; of repeated (user, item) pairs one is kept, the first in time.

    With `weights` the others are kept beside it, in `repeated`, and their weights add up. A
    missing rating is NaN and a missing attribute empty text; a warning says how many there are.
    `origin` is for error messages; `labels` are the names of the columns of the file, by what they
    hold. `further` columns are attributes too, read only when they are asked for.
    """
    origin, labels = origin or Origin(), labels or {}
    given = {"user": users, "item": items, "rating": ratings, "timestamp": timestamps}
    given["weight"] = weights
    raw = {key: as_column(values) for key, values in given.items() if values is not None}
    raw_attributes = {key: as_column(values) for key, values in (attributes or {}).items()}
    _check_lengths({**raw, **raw_attributes}, origin)
    rows = Rows.of(raw, {key: labels.get(key, key) for key in given}, origin)
    described = ItemColumns(raw_attributes, rows.items, len(rows.item_ids))
    others = ItemColumns(further or {}, rows.items, len(rows.item_ids))
    return log_of_rows(
        rows, described, others, name=name, repeats=repeats, origin=origin, labels=labels
    )


def log_of_rows(
    rows: Rows,
    attributes: Mapping[str, Cells],
    further: Mapping[str, Cells],
    *,
    name: str,
    repeats: Repeats,
    origin: Origin,
    labels: Mapping[str, str],
) -> Interactions:
    """The log of rows, one per pair of user and item, with (n_items,) `attributes`."""
    ratings, times, weights = _ratings(rows, origin), rows.times, rows.weights
    if weights is not None and not weights.any():
        column = labels.get("weight", "weight")
        origin.fail(f"{column} is 0 everywhere", remedy="name another column, or none")
    pairs = rows.users * np.int64(len(rows.item_ids)) + rows.items
    keep = _kept_rows(pairs, times, repeats)
    for column, cells in attributes.items():
        warn_of_missing_attribute(cells, column, origin)
    return Interactions(
        users=rows.users[keep],
        items=rows.items[keep],
        user_ids=id_array(rows.user_ids),
        item_ids=id_array(rows.item_ids),
        ratings=None if ratings is None else ratings[keep],
        timestamps=None if times is None else times[keep],
        attributes=attributes,
        name=name,
        weights=None if weights is None else weights[keep],
        repeated=repeated_rows(rows.users, rows.items, weights, times, keep),
        last_times=None if times is None else _last_times(pairs, times, keep),
        further=further,
        columns=dict(labels),
        repeats=repeats,
    )


def _check_lengths(columns: Mapping[str, Column], origin: Origin) -> None:
    rows = len(columns["user"]) if columns["user"].shape else 0
    for key, values in columns.items():
        if len(values.shape) != 1:
            origin.fail(f"{key} is not one column", remedy="give one value for each row")
        if len(values) != rows:
            origin.fail(f"{key} has {len(values)} rows, user has {rows}", remedy="give as many")
    if rows == 0:
        origin.fail("there are no interactions", remedy="give at least one row")


def _last_times(
    pairs: NDArray[np.int64], times: NDArray[Any], keep: NDArray[np.int64]
) -> NDArray[Any]:
    """Of the kept rows, the latest time among all rows of the same pair of user and item."""
    if len(keep) == len(pairs):
        return times[keep]
    distinct, rows = np.unique(pairs, return_inverse=True)
    latest = np.full(len(distinct), times.min())
    np.maximum.at(latest, rows, times)
    return latest[rows[keep]]


class _FurtherColumns(Mapping[str, Column]):
    """Columns of a frame, converted when they are asked for."""

    def __init__(self, frame: Any, names: Sequence[str]) -> None:
        self.frame, self.names = frame[list(names)] if names else None, tuple(names)

    def __getitem__(self, name: str) -> Column:
        if name not in self.names:
            raise KeyError(name)
        return _column(self.frame, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def from_frame(
    frame: Any,
    *,
    user: str = "user",
    item: str = "item",
    rating: str | None = None,
    timestamp: str | None = None,
    weight: str | None = None,
    attributes: Iterable[str] = (),
    name: str = "",
    repeats: Repeats = "first",
    origin: Origin | None = None,
) -> Interactions:
    """A log from a pandas or polars frame with a row per interaction.

    frame: the frame.
    user, item, rating, timestamp: names of its columns; None: there is no such column. Without
        timestamps the rows count as being in time order, and a warning says so.
    weight: the column that says how much, such as a quantity or a time spent; None: every row
        counts once. The weights of repeated rows add up. "rows": a row weighs 1, so that the weight
        is how often the user took the item.
    attributes: columns with an attribute of the item, such as its seller. Ratings and attributes
        may be missing, and a warning says how many are; an item without the attribute is in no
        group.
    name: what results call the log.
    repeats: which row of a repeated (user, item) pair is kept, in time order.
    origin: where the frame comes from, for error messages.
    """
    origin, attributes = origin or Origin(), tuple(attributes)
    known = [str(column) for column in frame.columns]
    counts_rows = weight == ROWS and ROWS not in known
    needed = (user, item, rating, timestamp, None if counts_rows else weight, *attributes)
    _require(known, needed, origin)
    labels = {"user": user, "item": item, "rating": rating, "timestamp": timestamp}
    labels["weight"] = weight
    weights = np.ones(len(frame)) if counts_rows else _column(frame, weight) if weight else None
    log = from_arrays(
        _column(frame, user),
        _column(frame, item),
        ratings=None if rating is None else _column(frame, rating),
        timestamps=None if timestamp is None else _column(frame, timestamp),
        weights=weights,
        attributes={column: _column(frame, column) for column in attributes},
        name=name,
        repeats=repeats,
        origin=origin,
        labels={key: label for key, label in labels.items() if label is not None},
        further=_FurtherColumns(
            frame, [name for name in known if name not in (*labels.values(), *attributes)]
        ),
    )
    _check_users(log, user, origin)
    if timestamp is None:
        _warn_of_no_times(origin)
    if weight is None:  # else they add up, and nothing is lost
        _warn_of_repeats(len(frame) - len(log), len(log), repeats, origin)
    return log


def _require(known: Sequence[str], needed: Iterable[str | None], origin: Origin) -> None:
    for column in needed:
        if column is not None and column not in known:
            origin.fail(
                f"there is no column {column!r}", remedy=f"the columns are {', '.join(known)}"
            )


def _check_users(log: Interactions, column: str, origin: Origin) -> None:
    if log.n_users == 1:
        origin.fail(
            f"all rows are of one user, {log.user_ids[0]!s}",
            remedy=f"give the interactions of several users, or check the user column {column!r}",
        )


def _warn_of_no_times(origin: Origin) -> None:
    warnings.warn(
        f"{origin.file or 'the frame'} has no timestamps: its rows are assumed to be "
        "in the order of time (name the column if there is one)",
        NoTimestampsWarning,
        stacklevel=3,
    )


def _warn_of_repeats(merged: int, kept: int, repeats: Repeats, origin: Origin) -> None:
    if merged:
        warnings.warn(
            f"{origin.file or 'the frame'}: {counted(merged, 'row repeats', 'rows repeat')} the "
            f"user and item of another: the {repeats} of each pair is kept, {kept:,} rows of "
            f"{merged + kept:,}",
            RepeatsWarning,
            stacklevel=3,
        )


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
    distinct = np.sort(pairs)
    if np.all(distinct[1:] != distinct[:-1]):
        return order
    if repeats == "last":
        order = order[::-1]
    _, first = np.unique(pairs[order], return_index=True)
    kept = order[np.sort(first)]
    return kept[::-1] if repeats == "last" else kept


def _ratings(rows: Rows, origin: Origin) -> NDArray[np.float64] | None:
    """NaN where one is missing; None if all are, or if there are none."""
    if rows.ratings is None:
        return None
    missing = int(np.isnan(rows.ratings).sum())
    if missing:
        warnings.warn(
            f"{origin.file or 'the data'}: {counted(missing, 'rating is', 'ratings are')} missing "
            f"of {len(rows):,}: these rows count as interactions without a rating",
            MissingValuesWarning,
            stacklevel=3,
        )
    return None if missing == len(rows) else rows.ratings


def warn_of_missing_attribute(cells: NDArray[Any], column: str, origin: Origin) -> None:
    """Say how many items have no value, if any; `cells` are text per item, (n_items,)."""
    missing = int((cells == "").sum())
    if missing:
        warnings.warn(
            f"{origin.file or 'the data'}: {counted(missing, 'item has', 'items have')} no "
            f"{column} of {len(cells):,}: without one an item is in no group of {column}",
            MissingValuesWarning,
            stacklevel=3,
        )


def counted(number: int, one: str, many: str) -> str:
    """As in "1 item has" or "1,200 items have"."""
    return f"{number:,} {one if number == 1 else many}"
