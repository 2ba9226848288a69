"""Interactions that came after a fit, as rows of the log to be."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.columns import Origin, as_column, encode, to_ratings, to_times
from fairhorizon.data.frames import from_arrays
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.item_columns import ItemTable
from fairhorizon.data.loading import as_frame, load_items
from fairhorizon.errors import DataError


@dataclass(frozen=True, eq=False)
class ObservedRows:
    """New rows in time order: ids, and ratings and times where the log has them."""

    users: list[Any]
    items: list[Any]
    ratings: list[float] | None
    times: list[float] | None

    @classmethod
    def of(cls, source: Any, log: Interactions) -> "ObservedRows":
        """From a frame with the columns of the log."""
        frame, names = as_frame(source), {"user": "user", "item": "item", **log.columns}
        known = [str(column) for column in frame.columns]
        needed = [names["user"], names["item"]]
        if log.timestamps is not None:
            needed.append(names.get("timestamp", "timestamp"))
        for name in needed:
            if name not in known:
                raise DataError(
                    f"there is no column {name!r} in what was observed",
                    remedy=f"give the columns of the log: {', '.join(needed)}; there are "
                    f"{', '.join(known)}",
                )
        origin = Origin()

        def column(name: str) -> Any:
            cells = frame[name]
            return as_column(cells if isinstance(cells, pl.Series) else cells.to_numpy())

        users, items = (_ids(column(names[role]), names[role]) for role in ("user", "item"))
        times = ratings = None
        if log.timestamps is not None:
            times = to_times(column(needed[2]), needed[2], origin)
        if log.ratings is not None and names.get("rating") in known:
            ratings = to_ratings(column(names["rating"]), names["rating"], origin).tolist()
        elif log.ratings is not None:
            ratings = [float("nan")] * len(users)
        order = np.arange(len(users)) if times is None else np.argsort(times, kind="stable")
        return cls(
            [users[row] for row in order],
            [items[row] for row in order],
            None if ratings is None else [ratings[row] for row in order],
            None if times is None else times[order].tolist(),
        )

    def __len__(self) -> int:
        return len(self.users)

    def after(self, log: Interactions) -> Interactions:
        """The log with these rows, as if it had been loaded with them."""
        again = _taken_again(log)  # rows that were merged, but for their times
        rows = np.append(np.arange(len(log)), again)
        users, items = (
            [*ids[codes[rows]].tolist(), *more]
            for ids, codes, more in (
                (log.user_ids, log.users, self.users),
                (log.item_ids, log.items, self.items),
            )
        )
        times = ratings = None
        if log.timestamps is not None and self.times is not None:
            last = log.timestamps if log.last_times is None else log.last_times
            times = np.concatenate([log.timestamps, last[again], self.times])
        if log.ratings is not None and self.ratings is not None:
            ratings = np.append(log.ratings[rows], self.ratings)
        return _merged(log, users, items, ratings, times)


def joined(rows: list[ObservedRows]) -> ObservedRows:
    """One after the other."""

    def together(name: str) -> Any:
        parts = [getattr(one, name) for one in rows]
        return None if None in parts else [cell for part in parts for cell in part]

    return ObservedRows(*(together(name) for name in ("users", "items", "ratings", "times")))


def described(source: Any, log: Interactions, table: ItemTable | None) -> ItemTable | None:
    """The columns of a frame of interactions that a table of items has, as a table; or None."""
    frame, item = as_frame(source), log.columns.get("item", "item")
    shared = [] if table is None else [name for name in table.columns if name in frame.columns]
    if not shared:
        return None
    return load_items(frame[[item, *shared]], item=item)


def _taken_again(log: Interactions) -> NDArray[np.int64]:
    """The rows of pairs of a user and an item that were taken again, later."""
    if log.timestamps is None or log.last_times is None:
        return np.empty(0, dtype=np.int64)
    return np.flatnonzero(log.last_times > log.timestamps)


def _merged(
    log: Interactions, users: list[Any], items: list[Any], ratings: Any, times: Any
) -> Interactions:
    if any(isinstance(one, str) for one in users):
        users = [str(one) for one in users]
    if any(isinstance(one, str) for one in items):
        items = [str(one) for one in items]
    repeats: Any = log.repeats
    return from_arrays(
        users,
        items,
        ratings=ratings,
        timestamps=times,
        name=log.name,
        repeats=repeats,
        labels=log.columns,
    )


def _ids(cells: Any, name: str) -> list[Any]:
    ids, codes = encode(cells, name, Origin())
    found: list[Any] = ids[codes].tolist()
    return found
