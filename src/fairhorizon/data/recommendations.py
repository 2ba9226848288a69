"""Showings of any system, read from a file: recommendation lists or an impression log."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.columns import as_column, encode, known_codes, to_numbers, to_times
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.tables import UTF_8, Table, find_columns, read_table

Order = Literal["rank", "time", "time and rank", "place in the file"]
POSITIONS = {"user": 0, "item": 1}  # of a file without header; a third column is ambiguous
OPTION = "list-"


@dataclass(frozen=True)
class ListColumns:
    """Columns of a file of lists: names, or positions from 0; None: found by their usual names."""

    user: str | int | None = None
    item: str | int | None = None
    rank: str | int | None = None
    timestamp: str | int | None = None

    def find(self, table: Table) -> dict[str, str | None]:
        return find_columns(table, vars(self), POSITIONS, option=OPTION)


@dataclass(frozen=True)
class Oddities:
    """How many rows of a file of lists are not as they should be."""

    unknown: int = 0  # rows of unknown users or items, left out
    duplicates: int = 0  # rows that are the same as an earlier one; in a log by time they count
    negative_ranks: int = 0  # rows with a rank below 0; they are on top
    skipped_ranks: int = 0  # places without an item before the last of a list; lists close up
    gapped_lists: int = 0  # lists with such places


NOTHING_ODD = Oddities()


@dataclass(frozen=True)
class Recommendations:
    """Showings by codes of users and items, sorted by user and then in the order of showing.

    A list shows a user an item once; an impression log may repeat it.
    """

    users: NDArray[np.int64]  # (n,)
    items: NDArray[np.int64]  # (n,)
    n_users: int
    order: Order
    is_log: bool  # of impressions
    oddities: Oddities = NOTHING_ODD

    def __len__(self) -> int:
        return len(self.users)

    def per_user(self) -> NDArray[np.int64]:
        """(n_users,) the number of rows of each user."""
        return np.bincount(self.users, minlength=self.n_users)

    def places(self) -> NDArray[np.int64]:
        """(n,) the place of each row in the list of its user, from 0."""
        counts = self.per_user()
        return np.arange(len(self)) - (np.cumsum(counts) - counts)[self.users]

    def first(self, k: int) -> NDArray[np.int64]:
        """(n_users, k) codes of the first items of each user, -1 where there are fewer."""
        position = self.places()
        kept = position < k
        lists = np.full((self.n_users, k), -1, dtype=np.int64)
        lists[self.users[kept], position[kept]] = self.items[kept]
        return lists

    def distinct(self) -> "Recommendations":
        """The same without repeats: only the first showing of each item to a user."""
        rows = _first_of_each(self.users, self.items)
        return replace(self, users=self.users[rows], items=self.items[rows])


def read_recommendations(
    path: str | Path,
    log: Interactions,
    columns: ListColumns | None = None,
    *,
    header: bool | None = None,
    separator: str | None = None,
    encoding: str = UTF_8,
    ignore_unknown: bool = False,
) -> Recommendations:
    """Read lists or impressions, with the ids of the log.

    A user's list is ordered by rank, else by time, else as in the file. With times and without
    ranks, or with ranks that repeat at other times, it is an impression log.

    Rows that are the same as an earlier one are left out, except in a log without ranks, whose
    times may be too coarse to tell two showings apart. A list with a negative rank, or with ranks
    missing, is in the order of the ranks that it has. All of these are counted in `oddities`.

    path: the file.
    log: whose ids the file has.
    columns: which columns hold what; None: found by their usual names.
    header, separator, encoding: of a text file, as in `load`.
    ignore_unknown: leave out rows of unknown users or items, which are an error otherwise.
    """
    columns = columns or ListColumns()
    names = [name for name in vars(columns).values() if isinstance(name, str)]
    table = read_table(
        path, names=names, header=header, separator=separator, encoding=encoding, option=OPTION
    )
    found = columns.find(table)
    rows, users, items, unknown = _known_rows(table, found, log, ignore_unknown)
    ranks = times = None
    oddities = Oddities(unknown)
    if found["rank"] is not None:
        column = as_column(table.frame[found["rank"]])
        ranks = to_numbers(column, found["rank"], table.origin)
        lists = encode(as_column(table.frame[str(found["user"])]), "user", table.origin)[1]
        # Of all rows of known users: a rank is not skipped because its item is unknown.
        oddities = _odd_ranks(oddities, lists, ranks, np.isin(lists, lists[rows]))
        ranks = ranks[rows]
    if found["timestamp"] is not None:
        column = as_column(table.frame[found["timestamp"]])
        times = to_times(column, found["timestamp"], table.origin)[rows]
    kept = _first_of_each(users, items, *(key for key in (ranks, times) if key is not None))
    oddities = replace(oddities, duplicates=len(rows) - len(kept))
    # In a log by time equal rows are showings of their own, and stay.
    if ranks is not None or times is None:
        rows, users, items = rows[kept], users[kept], items[kept]
        ranks = None if ranks is None else ranks[kept]
        times = None if times is None else times[kept]
    order, keys = _order(users, ranks, times)
    is_log = order.startswith("time")
    # A page that is shown again need not show all its places.
    if is_log:
        oddities = replace(oddities, skipped_ranks=0, gapped_lists=0)
    remedy = "drop one of the rows"
    if not is_log:
        remedy += f"; in an impression log, which may repeat, name the time with --{OPTION}time"
    if ranks is not None and (again := _repeated(users, *keys)) is not None:
        fault = f"user {log.user_ids[users[again]]} has rank {ranks[again]:g} twice"
        table.origin.fail(fault, int(rows[again]), remedy)
    if not is_log and (again := _repeated(users, items)) is not None:
        user, item = log.user_ids[users[again]], log.item_ids[items[again]]
        fault = f"item {item} is in the list of user {user} twice"
        table.origin.fail(fault, int(rows[again]), remedy)
    # `lexsort` sorts by its last key first: users, then the keys in their order.
    shown = np.lexsort((*reversed(keys), users))
    return Recommendations(users[shown], items[shown], log.n_users, order, is_log, oddities)


def _odd_ranks(
    oddities: Oddities,
    lists: NDArray[np.int64],
    ranks: NDArray[np.float64],
    known: NDArray[np.bool_],
) -> Oddities:
    """The oddities with the numbers of negative and of skipped ranks.

    Places are counted from 0 if some list of the file has a rank 0, else from 1. Ranks that are no
    whole numbers, such as negated scores, are an order and have no places to skip.
    """
    negative = int((known & (ranks < 0)).sum())
    places = known & (ranks >= 0)
    skipped = np.zeros(1, np.int64)
    if places.any() and (ranks == np.floor(ranks)).all():
        last = np.full(lists.max() + 1, -1, np.int64)
        np.maximum.at(last, lists[places], ranks[places].astype(np.int64))
        filled = _first_of_each(lists[places], ranks[places])
        taken = np.bincount(lists[places][filled], minlength=len(last))
        first = 0 if (ranks[places] == 0).any() else 1
        skipped = np.where(last < 0, 0, last - first + 1 - taken)
    return replace(
        oddities,
        negative_ranks=negative,
        skipped_ranks=int(skipped.sum()),
        gapped_lists=int((skipped > 0).sum()),
    )


def _order(
    users: NDArray[np.int64], ranks: NDArray[np.float64] | None, times: NDArray[Any] | None
) -> tuple[Order, list[NDArray[Any]]]:
    """How a user's rows are ordered, and the sort keys for it, the first key first."""
    if ranks is None:
        return ("place in the file", []) if times is None else ("time", [times])
    if times is None or _repeated(users, ranks) is None:
        return "rank", [ranks]
    return "time and rank", [times, ranks]


def _known_rows(
    table: Table, found: dict[str, str | None], log: Interactions, ignore_unknown: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
    """The rows with a known user and item, their codes, and the number of dropped rows."""
    codes = {
        role: known_codes(
            as_column(table.frame[str(found[role])]), str(found[role]), ids, table.origin
        )
        for role, ids in (("user", log.user_ids), ("item", log.item_ids))
    }
    unknown = (codes["user"] < 0) | (codes["item"] < 0)
    if unknown.any() and not ignore_unknown:
        row = int(unknown.argmax())
        role = "user" if codes["user"][row] < 0 else "item"
        table.origin.fail(
            f"{role} {table.frame[str(found[role])][row]!r} is not in {log.name or 'the data'}",
            row,
            f"{int(unknown.sum())} of {len(unknown)} rows have ids that are not in the data: give "
            "lists with the ids of the data, or --ignore-unknown to skip these rows",
        )
    rows = np.flatnonzero(~unknown)
    if not len(rows):
        table.origin.fail(
            f"no row has a user and an item of {log.name or 'the data'}",
            remedy=f"check the columns {found['user']!r} and {found['item']!r} and their ids",
        )
    return rows, codes["user"][rows], codes["item"][rows], int(unknown.sum())


def _repeated(*columns: NDArray[Any]) -> int | None:
    """The index of the first row with the same values as an earlier one, or None."""
    first = _first_of_each(*columns)
    missing = np.flatnonzero(first != np.arange(len(first)))
    if len(missing):
        return int(missing[0])
    return len(first) if len(first) < len(columns[0]) else None


def _first_of_each(*columns: NDArray[Any]) -> NDArray[np.int64]:
    """The indices of the first row of each combination of values, in ascending order."""
    keys = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, codes = np.unique(column, return_inverse=True)
        # Renumbered after every column: products of several numbers of values would overflow.
        keys = np.unique(keys * len(values) + codes, return_inverse=True)[1]
    return np.sort(np.unique(keys, return_index=True)[1])
