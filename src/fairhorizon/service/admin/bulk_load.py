"""Load a database from files: tables of items and of users, and logs of events.

A file is read and checked as a whole, so that a bad row is reported before anything is written.
Then rows are written in blocks, each in a transaction of its own, because a long one would keep
replicas from recording lists. An interruption loses nothing: rows that are there already are known
by their id or, as events, by their content, so loading the same file again adds what is missing.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.engine import Connection

from fairhorizon.data.columns import as_column, encode, is_missing, to_ratings, to_times
from fairhorizon.data.items import attribute_cells
from fairhorizon.data.tables import POSITIONS, UTF_8, Table, find_columns, is_usual_name, read_table
from fairhorizon.service.budget.impressions import record_feedback
from fairhorizon.service.settings import ID_LENGTH
from fairhorizon.service.store.catalogue import (
    Forgotten,
    Item,
    User,
    forgotten_users,
    put_items,
    put_users,
)
from fairhorizon.service.store.database import BLOCK, Database
from fairhorizon.service.store.feedback import Event
from fairhorizon.service.store.schema import items, users

CATEGORIES, HIDDEN, COMMENT = ("categories", "category"), "hidden", "comment"
VALUES = ("value", "weight")  # of an event, beside the usual names of a rating
YES, NO = ("true", "yes", "1"), ("false", "no", "0", "")
DAY = 86_400  # seconds, by which clocks may differ

Cell = str | list[str]
AT_ONCE = 500  # ids in one query

Tell = Callable[[int, int], None]  # rows done, of how many


@dataclass(frozen=True)
class FileColumns:
    """Which columns hold what, and how text is read; None looks for the usual names."""

    user: str | int | None = None
    item: str | int | None = None
    time: str | int | None = None
    value: str | int | None = None
    header: bool | None = None
    separator: str | None = None
    encoding: str = UTF_8

    def table(self, path: Path) -> Table:
        given = (self.user, self.item, self.time, self.value)
        names = [name for name in given if isinstance(name, str)]
        return read_table(
            path,
            names=names,
            header=self.header,
            separator=self.separator,
            encoding=self.encoding,
        )


@dataclass(frozen=True, eq=False)
class LogRows:
    """A log, by row."""

    type: str
    users: list[str]
    items: list[str]
    times: NDArray[np.float64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.users)

    def events(self, rows: Sequence[int]) -> list[Event]:
        """Some rows; which event each is follows from its content."""
        return [
            Event(
                self.type,
                self.users[row],
                self.items[row],
                float(self.values[row]),
                float(self.times[row]),
            )
            for row in rows
        ]


def read_items(path: Path, columns: FileColumns) -> list[Item]:
    """A row per item: its id, categories, hidden and comment; every other column is a label."""
    table = columns.table(path)
    column = _id_column(table, "item", columns.item)
    ids = _distinct_ids(table, column)
    cells = _cells(table, column)
    named = {name.strip().lower(): name for name in cells}
    categories = [named[name] for name in CATEGORIES if name in named]
    if len(categories) > 1:
        table.origin.fail(
            f"{categories[0]!r} and {categories[1]!r} both are categories", remedy="drop one"
        )
    hidden, comment = named.get(HIDDEN), named.get(COMMENT)
    used = {*categories, hidden, comment}
    return [
        Item(
            one,
            hidden=hidden is not None and _is_yes(table, hidden, cells[hidden][row], row),
            categories=tuple(_several(cells[categories[0]][row])) if categories else (),
            labels=_labels(cells, used, row),
            comment="" if comment is None else _joined(cells[comment][row]),
        )
        for row, one in enumerate(ids)
    ]


def read_users(path: Path, columns: FileColumns) -> list[User]:
    """A row per user: the id and a comment; every other column is a label."""
    table = columns.table(path)
    column = _id_column(table, "user", columns.user)
    ids = _distinct_ids(table, column)
    cells = _cells(table, column)
    comment = next((name for name in cells if name.strip().lower() == COMMENT), None)
    return [
        User(
            one,
            labels=_labels(cells, {comment}, row),
            comment="" if comment is None else _joined(cells[comment][row]),
        )
        for row, one in enumerate(ids)
    ]


def read_log(path: Path, columns: FileColumns, kind: str) -> LogRows:
    """A row per event of one type: user, item, time, and a value where there is one."""
    table = columns.table(path)
    wanted = {
        "user": columns.user,
        "item": columns.item,
        "rating": columns.value,
        "timestamp": columns.time,
    }
    found = find_columns(table, wanted, POSITIONS)
    moment, value = found["timestamp"], found["rating"]
    if moment is None:
        table.origin.fail(
            "no column looks like the time",
            remedy=f"the columns are {', '.join(map(repr, table.frame.columns))}: name it with the "
            "option `time`; it tells one event from another",
        )
    if value is None:
        value = next((name for name in table.frame.columns if name.lower() in VALUES), None)
    values = np.ones(len(table.frame))
    if value is not None:
        values = to_ratings(as_column(table.frame[value]), value, table.origin)
        # Without a value it still is an event, which counts like one of a log without values.
        values = np.where(np.isnan(values), 1.0, values)
    users, items = (_ids(table, str(found[role])) for role in ("user", "item"))
    return LogRows(kind, users, items, _times(table, moment), values)


def _times(table: Table, column: str) -> NDArray[np.float64]:
    times = to_times(as_column(table.frame[column]), column, table.origin).astype(np.float64)
    # Most often milliseconds, which as seconds are thousands of years ahead.
    later = times > time.time() + DAY
    if later.any():
        row = int(later.argmax())
        table.origin.fail(
            f"{column} {table.frame[column][row]} is in the future",
            row,
            "give seconds since 1970, not milliseconds, or an ISO date",
        )
    return times


def _id_column(table: Table, role: str, wanted: str | int | None) -> str:
    """The column that is wanted, else one of a usual name, else `id`; the first without header."""
    names = table.frame.columns
    if isinstance(wanted, str) and wanted not in names:
        # It is how the log beside this table calls the column.
        wanted = None
    if wanted is None and not table.header:
        wanted = 0
    if wanted is None and not any(is_usual_name(name, role) for name in names):
        wanted = next((name for name in names if name.lower() == "id"), None)
    # Both roles have to be found; any column does for the one that is not wanted.
    other = "user" if role == "item" else "item"
    return str(find_columns(table, {role: wanted, other: 0}, {})[role])


def _ids(table: Table, column: str) -> list[str]:
    """The id of each row as text, as models have it too."""
    ids, codes = encode(as_column(table.frame[column]), column, table.origin)
    texts = [str(one) for one in ids.tolist()]
    for code, text in enumerate(texts):
        if len(text) > ID_LENGTH or "\0" in text:
            fault = f"is longer than {ID_LENGTH} characters" if "\0" not in text else "has a NUL"
            row = int((codes == code).argmax())
            table.origin.fail(f"{column} {text[:20]!r}... {fault}", row, "give another id")
    return [texts[code] for code in codes.tolist()]


def _distinct_ids(table: Table, column: str) -> list[str]:
    ids, seen = _ids(table, column), set()
    for row, one in enumerate(ids):
        if one in seen:
            table.origin.fail(f"{column} {one!r} has a row already", row, "drop one of the rows")
        seen.add(one)
    return ids


def _cells(table: Table, id_column: str) -> dict[str, list[Any]]:
    """The other columns by name; None where a cell is empty."""
    found = {}
    for name in table.frame.columns:
        if name != id_column:
            series = table.frame[name]
            # Whole numbers that were read as floats, since a cell is empty, are written without
            # ".0".
            floats = series.dtype in (pl.Float32, pl.Float64)
            cells = attribute_cells(series.to_numpy()).tolist() if floats else series.to_list()
            found[name] = [None if is_missing(cell) else cell for cell in cells]
    return found


def _several(cell: Any) -> list[str]:
    """The values of a cell, which has bars between them or, in Parquet, is a list."""
    if cell is None:
        return []
    parts = cell if isinstance(cell, list) else str(cell).split("|")
    return [str(part) for part in parts if not is_missing(part)]


def _joined(cell: Any) -> str:
    return "|".join(_several(cell))


def _labels(cells: Mapping[str, Sequence[Any]], used: set[str | None], row: int) -> dict[str, Cell]:
    found: dict[str, Cell] = {}
    for name, column in cells.items():
        values = [] if name in used else _several(column[row])
        if values:
            found[name] = values if len(values) > 1 else values[0]
    return found


def _is_yes(table: Table, column: str, cell: Any, row: int) -> bool:
    text = "" if cell is None else str(cell).strip().lower()
    if text not in (*YES, *NO):
        table.origin.fail(f"{column} {cell!r} is neither true nor false", row, "give true or false")
    return text in YES


@dataclass
class LoadedRows:
    """What became of the rows of a file."""

    rows: int
    new: int = 0
    changed: int = 0  # were there, with other columns
    left_out: int = 0  # of people who asked to be forgotten

    @property
    def same(self) -> int:
        """Were there, as they are; of events also those that are in the file twice."""
        return self.rows - self.new - self.changed - self.left_out


@dataclass
class BulkLoad:
    """Writes rows of files to one database.

    tell: is called after every block with the rows done and their number.
    """

    database: Database
    tell: Tell
    _forgotten: Forgotten | None = field(default=None, init=False)

    def items(self, some: Sequence[Item]) -> LoadedRows:
        """Insert items, and replace those that are there and differ."""
        done = LoadedRows(len(some))
        for begin in range(0, len(some), BLOCK):
            block = some[begin : begin + BLOCK]
            with self.database.writing() as connection:
                # A deleted item equals no row: a file that names it brings it back.
                there = {
                    row.id: None if row.deleted else Item.from_row(row)
                    for row in _known(connection, items, [one.id for one in block])
                }
                other = [one for one in block if one.id not in there or there[one.id] != one]
                put_items(self.database, connection, other)
            self._count(done, other, there)
            self.tell(begin + len(block), len(some))
        return done

    def users(self, some: Sequence[User]) -> LoadedRows:
        """Insert users, and replace those that are there and differ."""
        done = LoadedRows(len(some))
        for begin in range(0, len(some), BLOCK):
            block = [one for one in some[begin : begin + BLOCK] if not self._is_forgotten(one.id)]
            done.left_out += len(some[begin : begin + BLOCK]) - len(block)
            with self.database.writing() as connection:
                known = _known(connection, users, [one.id for one in block])
                there = {row.id: User.from_row(row) for row in known}
                other = [one for one in block if there.get(one.id) != one]
                put_users(self.database, connection, other)
            self._count(done, other, there)
            self.tell(min(begin + BLOCK, len(some)), len(some))
        return done

    def log(self, rows: LogRows) -> LoadedRows:
        """Record events that were not seen before."""
        done = LoadedRows(len(rows))
        # Once per user and not per row: every look computes a hash.
        gone = {one for one in set(rows.users) if self._is_forgotten(one)}
        for begin in range(0, len(rows), BLOCK):
            end = min(begin + BLOCK, len(rows))
            kept = [row for row in range(begin, end) if rows.users[row] not in gone]
            done.left_out += end - begin - len(kept)
            # With no types that confirm: an old event names no list.
            done.new += record_feedback(self.database, rows.events(kept), read=())
            self.tell(end, len(rows))
        return done

    def _count(self, done: LoadedRows, other: Sequence[Any], there: dict[str, Any]) -> None:
        changed = sum(one.id in there for one in other)
        done.changed += changed
        done.new += len(other) - changed

    def _is_forgotten(self, user: str) -> bool:
        """Whether the user asked to be forgotten, whom an old log must not bring back."""
        if self._forgotten is None:
            with self.database.reading() as connection:
                self._forgotten = forgotten_users(connection)
        return user in self._forgotten


def add_labels(database: Database, some: Sequence[Item]) -> None:
    """Insert items that are not there, and put the labels of the others to those that they have.

    A service does this whenever it starts with a table of items. What was changed since stays:
    whether an item is hidden or deleted, its categories and its other labels.
    """
    for begin in range(0, len(some), BLOCK):
        block = some[begin : begin + BLOCK]
        with database.writing() as connection:
            there = {row.id: row for row in _known(connection, items, [one.id for one in block])}
            changed = [one for one in block if one.id not in there]
            for one in block:
                row = there.get(one.id)
                # New items are among the changed already; deleted ones stay deleted.
                if row is None or row.deleted:
                    continue
                before = row.labels if isinstance(row.labels, Mapping) else {}
                labels = {**before, **(one.labels or {})}
                if labels != before:
                    changed.append(replace(Item.from_row(row), labels=labels))
            put_items(database, connection, changed)


def _known(connection: Connection, table: sa.Table, ids: Sequence[str]) -> list[Any]:
    found: list[Any] = []
    for begin in range(0, len(ids), AT_ONCE):
        some = ids[begin : begin + AT_ONCE]
        found += connection.execute(sa.select(table).where(table.c.id.in_(some)))
    return found
