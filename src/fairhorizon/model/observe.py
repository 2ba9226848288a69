"""Interactions that came after a fit, as rows to be added to its log."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.columns import (
    Origin,
    as_column,
    encode,
    refuse_zeros,
    to_ratings,
    to_times,
    to_weights,
)
from fairhorizon.data.frames import ROWS, as_frame, from_arrays, idle_ids
from fairhorizon.data.interactions import Interactions, all_rows
from fairhorizon.data.items import ItemTable
from fairhorizon.data.loading import load_items
from fairhorizon.errors import DataError


@dataclass(frozen=True, eq=False)
class ObservedRows:
    """New rows in time order: ids, and ratings, times and weights where the log has them."""

    users: list[Any]
    items: list[Any]
    ratings: list[float] | None
    times: list[float] | None
    weights: list[float] | None = None

    @classmethod
    def from_frame(cls, source: Any, log: Interactions) -> "ObservedRows":
        """From a frame with the columns of the log; DataError if one is missing or wrong."""
        frame, names = as_frame(source), names_of(log)
        known = [str(column) for column in frame.columns]
        needed = _needed(log, known)
        origin = Origin()

        def column(name: str) -> Any:
            cells = frame[name]
            return as_column(cells if isinstance(cells, pl.Series) else cells.to_numpy())

        users, items = (_ids(column(names[role]), names[role]) for role in ("user", "item"))
        times = ratings = weights = None
        if "timestamp" in needed:
            times = to_times(column(names["timestamp"]), names["timestamp"], origin)
        if log.weights is not None:
            weights = np.ones(len(users))
            if "weight" in needed and len(users):
                weights = to_weights(column(names["weight"]), names["weight"], origin)
                refuse_zeros(weights, names["weight"], origin)
        if log.ratings is not None and names["rating"] in known:
            ratings = to_ratings(column(names["rating"]), names["rating"], origin).tolist()
        elif log.ratings is not None:
            # New rows may leave the rating out: rankers that predict ratings skip rows without one.
            ratings = [float("nan")] * len(users)
        order = np.arange(len(users)) if times is None else np.argsort(times, kind="stable")
        return cls(
            [users[row] for row in order],
            [items[row] for row in order],
            None if ratings is None else [ratings[row] for row in order],
            None if times is None else times[order].tolist(),
            None if weights is None else weights[order].tolist(),
        )

    def __len__(self) -> int:
        return len(self.users)

    def after(self, log: Interactions) -> Interactions:
        """The log with these rows, as if it had been loaded with them."""
        before = all_rows(log)
        # A log without weights keeps one row per user and item, with the time of the last one. That
        # later row comes back here, so that merging treats it as loading would have done.
        again = _taken_again(log) if log.weights is None else np.empty(0, dtype=np.int64)
        rows = np.append(before.log_row, again)
        users, items = (
            [*ids[codes[rows]].tolist(), *more]
            for ids, codes, more in (
                (log.user_ids, log.users, self.users),
                (log.item_ids, log.items, self.items),
            )
        )
        columns: dict[str, Any] = {}
        if before.times is not None and self.times is not None:
            last = before.times if log.last_times is None else log.last_times
            columns["timestamps"] = np.concatenate([before.times, last[again], self.times])
        if log.ratings is not None and self.ratings is not None:
            columns["ratings"] = np.append(log.ratings[rows], self.ratings)
        if before.weights is not None and self.weights is not None:
            columns["weights"] = np.append(before.weights, self.weights)
        return _merged(log, users, items, columns)


def joined(rows: list[ObservedRows]) -> ObservedRows:
    """The rows of several calls, one call after the other."""

    def together(name: str) -> Any:
        parts = [getattr(one, name) for one in rows]
        return None if None in parts else [cell for part in parts for cell in part]

    return ObservedRows(*(together(one.name) for one in fields(ObservedRows)))


def names_of(log: Interactions) -> dict[str, str]:
    """The log's names of columns by what they hold: user, item, rating, timestamp, weight."""
    return {name: name for name in ("user", "item", "rating", "timestamp", "weight")} | dict(
        log.columns
    )


def _needed(log: Interactions, known: Sequence[str]) -> list[str]:
    """What new rows must have a column for; DataError if one is missing."""
    names, roles = names_of(log), ["user", "item"]
    roles += [] if log.timestamps is None else ["timestamp"]
    # Where weights are numbers of rows, a row without a weight counts once.
    if log.weights is not None and (names["weight"] != ROWS or ROWS in known):
        roles.append("weight")
    needed = [names[role] for role in roles]
    for name in needed:
        if name not in known:
            raise DataError(
                f"there is no column {name!r} in what was observed",
                remedy=f"give the columns of the log: {', '.join(needed)}; there are "
                f"{', '.join(known)}",
            )
    return roles


def described(source: Any, log: Interactions, table: ItemTable | None) -> ItemTable | None:
    """The item columns of a frame of interactions, as a table: those that the table has too."""
    frame, item = as_frame(source), log.columns.get("item", "item")
    shared = [] if table is None else [name for name in table.columns if name in frame.columns]
    if not shared:
        return None
    return load_items(frame[[item, *shared]], item=item)


def _taken_again(log: Interactions) -> NDArray[np.int64]:
    """Indices of the rows whose user took the item again later."""
    if log.timestamps is None or log.last_times is None:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(log.last_times > log.timestamps)


def _merged(
    log: Interactions, users: list[Any], items: list[Any], columns: dict[str, Any]
) -> Interactions:
    # Ids of one kind: integers stay integers only as long as all of them are.
    if any(isinstance(one, str) for one in users):
        users = [str(one) for one in users]
    if any(isinstance(one, str) for one in items):
        items = [str(one) for one in items]
    repeats: Any = log.repeats
    columns |= {"name": log.name, "labels": log.columns, "idle": idle_ids(log)}
    return from_arrays(users, items, repeats=repeats, **columns)


def _ids(cells: Any, name: str) -> list[Any]:
    ids, codes = encode(cells, name, Origin())
    found: list[Any] = ids[codes].tolist()
    return found
