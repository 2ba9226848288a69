"""A log from parallel columns or from a frame: checked, encoded, and repeats merged."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from fairhorizon.data.columns import (
    Column,
    Origin,
    as_column,
    codes_among,
    encoded,
    has_value,
    id_array,
    refuse_zeros,
    to_ratings,
    to_times,
    to_weights,
)
from fairhorizon.data.interactions import (
    Interactions,
    MissingValuesWarning,
    NoTimestampsWarning,
    RepeatsWarning,
    repeated_rows,
)
from fairhorizon.data.items import Cells, ItemColumns
from fairhorizon.errors import ConfigError, DataError

Codes = NDArray[Any]  # (n,) integers; int64, or as short as they were stored


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a file or frame, encoded, in its order and with the repeats."""

    user_ids: pl.Series  # (n_users,) sorted, integers or text
    users: Codes  # (n,)
    item_ids: pl.Series  # (n_items,)
    items: Codes  # (n,)
    ratings: NDArray[np.float64] | None = None  # (n,), NaN where one is missing
    times: NDArray[Any] | None = None  # (n,) int64 or float64
    weights: NDArray[np.float64] | None = None  # (n,)

    @classmethod
    def from_columns(
        cls, columns: Mapping[str, Column], labels: Mapping[str, str], origin: Origin
    ) -> "Rows":
        """From raw columns by role; messages call them by their `labels`."""
        refuse_incomplete(columns, labels, origin)
        user_ids, users = encoded(columns["user"], labels["user"], origin)
        item_ids, items = encoded(columns["item"], labels["item"], origin)
        convert = {"rating": to_ratings, "timestamp": to_times, "weight": to_weights}
        found = {
            role: to_numbers(columns[role], labels[role], origin) if role in columns else None
            for role, to_numbers in convert.items()
        }
        return cls(user_ids, users, item_ids, items, *found.values())

    def __len__(self) -> int:
        return len(self.users)

    def among(self, users: pl.Series, items: pl.Series) -> "Rows":
        """The same rows, where these users and items have codes too, though they have no rows."""
        numbers: Any = {
            role: None if (cells := getattr(self, role)) is None else cells[:0]
            for role in ("users", "items", "ratings", "times", "weights")
        }
        return joined([self, Rows(user_ids=users, item_ids=items, **numbers)])


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of several parts, one part after the other, with codes among the ids of all."""
    if len(parts) == 1:
        return parts[0]
    user_ids, users = _renumbered([(part.user_ids, part.users) for part in parts])
    item_ids, items = _renumbered([(part.item_ids, part.items) for part in parts])

    def together(role: str) -> NDArray[Any] | None:
        columns = [getattr(part, role) for part in parts]
        return None if columns[0] is None else np.concatenate(columns)

    numbers = [together(role) for role in ("ratings", "times", "weights")]
    return Rows(user_ids, users, item_ids, items, *numbers)


def _renumbered(parts: Sequence[tuple[pl.Series, Codes]]) -> tuple[pl.Series, Codes]:
    """All ids, and all codes by them. Integer ids become text where some part has text."""
    # A part without ids has no type of ids either.
    parts = [part for part in parts if len(part[0])]
    whole = all(ids.dtype == pl.Int64 for ids, _ in parts)
    every = [ids if whole else ids.cast(pl.String) for ids, _ in parts]
    known = pl.concat(every).unique().sort()
    codes = [codes_among(ids, known)[old] for ids, (_, old) in zip(every, parts, strict=True)]
    return known, np.concatenate(codes)


NEEDED = ("user", "item", "timestamp", "weight")  # a rating may be missing


def complete_rows(columns: Mapping[str, Column]) -> NDArray[np.bool_]:
    """(n,) bool: rows with a value in all `columns`, given by role, that a row needs."""
    complete = np.ones(len(columns["user"]), dtype=np.bool_)
    for role in NEEDED:
        if role in columns:
            complete &= has_value(columns[role])
    return complete


def refuse_incomplete(
    columns: Mapping[str, Column], labels: Mapping[str, str], origin: Origin
) -> None:
    """DataError for missing cells, which says where the first one is and how many rows have one."""
    complete = complete_rows(columns)
    if complete.all():
        return
    row, incomplete = int(complete.argmin()), int((~complete).sum())
    # The message names the first column that is missing in the first incomplete row.
    role = next(one for one in NEEDED if one in columns and not has_value(columns[one])[row])
    cells = counted(incomplete, "row has an empty cell", "rows have an empty cell")
    origin.fail(
        f"{labels[role]} is missing; {cells} of {len(complete):,}",
        row,
        "fill them, or leave these rows out: --drop-incomplete, drop_incomplete=True in Python",
    )


def only_complete(frame: Any, labels: Mapping[str, str], origin: Origin) -> tuple[Any, Origin, int]:
    """The rows of a frame that have all the cells they need, and the number of rows left out.

    labels: the columns by role.
    """
    needed = {role: name for role, name in labels.items() if role in NEEDED}
    complete = complete_rows(role_columns(frame, needed))
    left_out = int((~complete).sum())
    if not left_out:
        return frame, origin, 0
    if left_out == len(complete):
        origin.fail("every row has an empty cell", remedy="name other columns, or fill the cells")
    kept = frame[complete] if _is_pandas(frame) else frame.filter(complete)
    return kept, origin.of_rows(np.flatnonzero(complete)), left_out


def warn_of_rows_left_out(left_out: int, rows: int, origin: Origin) -> None:
    """Warn of rows that were left out, if there are any.

    rows: those that are left.
    """
    if left_out:
        warnings.warn(
            f"{origin.file or 'the frame'}: {counted(left_out, 'row', 'rows')} of "
            f"{left_out + rows:,} left out: the user, the item, the time or the weight is missing",
            MissingValuesWarning,
            stacklevel=STACK,
        )


Repeats = Literal["first", "last"]
# As the name of a weight, unless a column has this name: every row weighs 1, and repeats add up.
ROWS = "rows"


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
    idle: tuple[pl.Series, pl.Series] | None = None,
) -> Interactions:
    """A log from parallel columns, (n,) each. One row of every (user, item) pair is kept.

    users, items: ids.
    ratings: numbers; a missing one is NaN, and a warning counts them.
    timestamps: seconds, dates or ISO text; None: the rows are in time order.
    weights: numbers from 0 on. Those of repeats add up; the repeats are kept in `repeated`.
    attributes: of the item of each row; a missing one is "", and a warning counts them.
    name: what results call the log.
    repeats: which row of a pair is kept, in time order.
    origin: where the columns come from, for error messages.
    labels: by role, the names of the columns in their file.
    further: attributes that are read only when they are asked for.
    idle: ids of users and of items without rows that are in the log all the same.
    """
    origin, labels = origin or Origin(), labels or {}
    given = {"user": users, "item": items, "rating": ratings, "timestamp": timestamps}
    given["weight"] = weights
    raw = {key: as_column(values) for key, values in given.items() if values is not None}
    raw_attributes = {key: as_column(values) for key, values in (attributes or {}).items()}
    _check_lengths({**raw, **raw_attributes}, origin)
    rows = Rows.from_columns(raw, {key: labels.get(key, key) for key in given}, origin)
    if idle is not None:
        rows = rows.among(*idle)
    described = ItemColumns(raw_attributes, rows.items, len(rows.item_ids))
    others = ItemColumns(further or {}, rows.items, len(rows.item_ids))
    return log_of_rows(
        rows, described, others, name=name, repeats=repeats, origin=origin, labels=labels
    )


def idle_ids(log: Interactions) -> tuple[pl.Series, pl.Series] | None:
    """The ids of users and of items that have no row in the log; None if there are none."""
    users, items = log.user_ids[log.user_counts() == 0], log.item_ids[log.item_counts() == 0]
    return (
        (pl.Series(users.tolist()), pl.Series(items.tolist())) if len(users) + len(items) else None
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
    """The log of rows, with one of every pair of user and item; attributes are (n_items,) each."""
    ratings, times, weights = rows.ratings, rows.times, rows.weights
    if ratings is not None:
        warn_of_missing_ratings(ratings, origin)
        ratings = None if np.isnan(ratings).all() else ratings
    if weights is not None:
        refuse_zeros(weights, labels.get("weight", "weight"), origin)
    # 64 bits, as stored codes may be shorter and their product would overflow.
    pairs = rows.users * np.int64(len(rows.item_ids)) + rows.items
    keep = _kept_rows(pairs, times, repeats)
    timestamps = None if times is None else times[keep]
    for column, cells in attributes.items():
        warn_of_missing_attribute(cells, column, origin)
    return Interactions(
        users=rows.users[keep],
        items=rows.items[keep],
        user_ids=id_array(rows.user_ids),
        item_ids=id_array(rows.item_ids),
        ratings=None if ratings is None else ratings[keep],
        timestamps=timestamps,
        attributes=attributes,
        name=name,
        weights=None if weights is None else weights[keep],
        repeated=repeated_rows(rows.users, rows.items, weights, times, keep),
        last_times=timestamps if len(keep) == len(pairs) else _last_times(pairs, times, keep),
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
    pairs: NDArray[np.int64], times: NDArray[Any] | None, keep: NDArray[np.int64]
) -> NDArray[Any] | None:
    """(n,) for each kept row the latest time of its user and item, repeats included."""
    if times is None:
        return None
    # All rows of a pair, kept or merged.
    distinct, rows = np.unique(pairs, return_inverse=True)
    latest = np.full(len(distinct), times.min())
    np.maximum.at(latest, rows, times)
    kept: NDArray[Any] = latest[rows[keep]]
    return kept


def as_frame(source: Any) -> Any:
    """A frame with named columns: polars and pandas stay as they are, Arrow becomes polars."""
    if isinstance(source, pl.LazyFrame):
        return source.collect()
    if isinstance(source, pl.DataFrame) or _is_pandas(source):
        return source
    try:
        return pl.DataFrame(source)
    except (TypeError, ValueError, pl.exceptions.PolarsError):
        raise DataError(
            f"a {type(source).__name__} is no log",
            remedy="give a pandas or polars frame, an Arrow table, a path or the name of a set",
        ) from None


def _is_pandas(frame: Any) -> bool:
    # Without importing pandas, which need not be installed.
    return type(frame).__module__.split(".")[0] == "pandas"


def in_polars(frame: Any) -> pl.DataFrame:
    """The frame in polars, with null for what pandas calls NaN, NaT or NA."""
    if isinstance(frame, pl.DataFrame):
        return frame
    cells = {str(name): frame[name].to_numpy(dtype=object).tolist() for name in frame.columns}
    missing = {
        name: [None if one is None or one != one else one for one in column]
        for name, column in cells.items()
    }
    return pl.DataFrame(missing, strict=False)


class _FurtherColumns(Mapping[str, Column]):
    """Columns of a frame, each converted when it is asked for."""

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
    drop_incomplete: bool = False,
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
    drop_incomplete: leave out rows without a user, an item, a time or a weight; a warning counts
        them. Without it they are an error.
    origin: where the frame comes from, for error messages.
    """
    origin, attributes = origin or Origin(), tuple(attributes)
    known = [str(column) for column in frame.columns]
    counts_rows = weight == ROWS and ROWS not in known
    needed = (user, item, rating, timestamp, None if counts_rows else weight, *attributes)
    _require(known, needed, origin)
    labels = {"user": user, "item": item, "rating": rating, "timestamp": timestamp}
    labels["weight"] = weight
    named = {role: column for role, column in labels.items() if column is not None}
    if drop_incomplete:
        frame, origin, left_out = only_complete(frame, named, origin)
        warn_of_rows_left_out(left_out, len(frame), origin)
    columns = role_columns(frame, named)
    others = [name for name in known if name not in (*named.values(), *attributes)]
    log = from_arrays(
        columns["user"],
        columns["item"],
        ratings=columns.get("rating"),
        timestamps=columns.get("timestamp"),
        weights=columns.get("weight"),
        attributes={column: _column(frame, column) for column in attributes},
        name=name,
        repeats=repeats,
        origin=origin,
        labels=named,
        further=_FurtherColumns(frame, others),
    )
    check_log(log, len(frame), named, origin)
    return log


def role_columns(frame: Any, labels: Mapping[str, str]) -> dict[str, Column]:
    """The columns of a frame by role, named by `labels`; weight `ROWS`: each row weighs 1."""
    found = {role: _column(frame, name) for role, name in labels.items() if role != "weight"}
    if (weight := labels.get("weight")) is not None:
        counts_rows = weight == ROWS and ROWS not in frame.columns
        found["weight"] = np.ones(len(frame)) if counts_rows else _column(frame, weight)
    return found


def _require(known: Sequence[str], needed: Iterable[str | None], origin: Origin) -> None:
    for column in needed:
        if column is not None and column not in known:
            origin.fail(
                f"there is no column {column!r}", remedy=f"the columns are {', '.join(known)}"
            )


def _column(frame: Any, name: str) -> Column:
    column = frame[name]
    return as_column(column if isinstance(column, pl.Series) else column.to_numpy())


def _kept_rows(
    pairs: NDArray[np.int64], times: NDArray[Any] | None, repeats: Repeats
) -> NDArray[np.int64]:
    """Indices of the rows to keep, in time order: one of every pair of user and item."""
    if repeats not in ("first", "last"):
        raise ConfigError(f"repeats must be 'first' or 'last', not {repeats!r}")
    order = np.arange(len(pairs)) if times is None else np.argsort(times, kind="stable")
    # Most logs have no repeats, and a sort is faster than the `unique` below.
    distinct = np.sort(pairs)
    if np.all(distinct[1:] != distinct[:-1]):
        return order
    if repeats == "last":
        order = order[::-1]
    # `unique` finds the first place of each pair; for the last rows it looks from the back.
    _, first = np.unique(pairs[order], return_index=True)
    kept = order[np.sort(first)]
    return kept[::-1] if repeats == "last" else kept


# ---- Warnings about a log that was just read -----------------------------------------------------
STACK = 4  # frames between a warning here and the caller of `load`


def check_log(log: Interactions, rows: int, labels: Mapping[str, str], origin: Origin) -> None:
    """Refuse a log of a single user; warn of missing times and of rows that were merged.

    rows: the number of rows before repeats were merged.
    labels: the names of the columns by role.
    """
    if log.n_users == 1:
        column = labels["user"]
        origin.fail(
            f"all rows are of one user, {log.user_ids[0]!s}",
            remedy=f"give the interactions of several users, or check the user column {column!r}",
        )
    if log.timestamps is None:
        warnings.warn(
            f"{origin.file or 'the frame'} has no timestamps: its rows are assumed to be "
            "in the order of time (name the column if there is one)",
            NoTimestampsWarning,
            stacklevel=STACK,
        )
    merged = rows - len(log)
    # With a weight repeats add up, and nothing is lost.
    if merged and "weight" not in labels:
        warnings.warn(
            f"{origin.file or 'the frame'}: {counted(merged, 'row repeats', 'rows repeat')} the "
            f"user and item of another: the {log.repeats} of each pair is kept, {len(log):,} rows "
            f"of {rows:,}",
            RepeatsWarning,
            stacklevel=STACK,
        )


def warn_of_missing_ratings(ratings: NDArray[np.float64], origin: Origin) -> None:
    """Warn of ratings that are NaN, if there are any."""
    missing = int(np.isnan(ratings).sum())
    if missing:
        warnings.warn(
            f"{origin.file or 'the data'}: {counted(missing, 'rating is', 'ratings are')} missing "
            f"of {len(ratings):,}: these rows count as interactions without a rating",
            MissingValuesWarning,
            stacklevel=STACK,
        )


def warn_of_missing_attribute(cells: NDArray[Any], column: str, origin: Origin) -> None:
    """Warn of items without a value, if there are any; `cells` (n_items,) are text."""
    missing = int((cells == "").sum())
    if missing:
        warnings.warn(
            f"{origin.file or 'the data'}: {counted(missing, 'item has', 'items have')} no "
            f"{column} of {len(cells):,}: without one an item is in no group of {column}",
            MissingValuesWarning,
            stacklevel=STACK,
        )


def counted(number: int, one: str, many: str) -> str:
    """The number and its noun, as in "1 item has" or "1,200 items have"."""
    return f"{number:,} {one if number == 1 else many}"
