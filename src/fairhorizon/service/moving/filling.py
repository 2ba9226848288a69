"""The first fill of a database with items, users and events, a block of rows at a time.

Each block is a transaction, because a long one would keep replicas from recording lists all the
time. Nothing is lost by an interruption: rows that are there already are known by their id or, as
events, by their content, so the same fill again adds what is missing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.events import take
from fairhorizon.service.moving.opening import BLOCK
from fairhorizon.service.moving.reading import LogRows
from fairhorizon.service.store import items as item_rows
from fairhorizon.service.store import users as user_rows
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.items import Item
from fairhorizon.service.store.schema import items, users
from fairhorizon.service.store.users import Forgotten, User, forgotten_users

AT_ONCE = 500  # ids in one query

Tell = Callable[[int, int], None]  # rows done, of how many


@dataclass
class Filled:
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
class Filling:
    """Writes to one database."""

    database: Database
    tell: Tell
    _forgotten: Forgotten | None = field(default=None, init=False)

    def items(self, some: Sequence[Item]) -> Filled:
        """Insert items, and replace those that are there and differ."""
        done = Filled(len(some))
        for begin in range(0, len(some), BLOCK):
            block = some[begin : begin + BLOCK]
            with self.database.writing() as connection:
                there = {
                    row.id: None if row.deleted else Item.of(row)
                    for row in _known(connection, items, [one.id for one in block])
                }
                other = [one for one in block if one.id not in there or there[one.id] != one]
                item_rows.put(self.database, connection, other)
            self._count(done, other, there)
            self.tell(begin + len(block), len(some))
        return done

    def users(self, some: Sequence[User]) -> Filled:
        """Insert users, and replace those that are there and differ."""
        done = Filled(len(some))
        for begin in range(0, len(some), BLOCK):
            block = [one for one in some[begin : begin + BLOCK] if not self._is_forgotten(one.id)]
            done.left_out += len(some[begin : begin + BLOCK]) - len(block)
            with self.database.writing() as connection:
                known = _known(connection, users, [one.id for one in block])
                there = {row.id: User.of(row) for row in known}
                other = [one for one in block if there.get(one.id) != one]
                user_rows.put(self.database, connection, other)
            self._count(done, other, there)
            self.tell(min(begin + BLOCK, len(some)), len(some))
        return done

    def log(self, rows: LogRows) -> Filled:
        """Record events that were not seen before."""
        done = Filled(len(rows))
        gone = {one for one in set(rows.users) if self._is_forgotten(one)}
        for begin in range(0, len(rows), BLOCK):
            end = min(begin + BLOCK, len(rows))
            kept = [row for row in range(begin, end) if rows.users[row] not in gone]
            done.left_out += end - begin - len(kept)
            done.new += take(self.database, rows.events(kept), read=())
            self.tell(end, len(rows))
        return done

    def _count(self, done: Filled, other: Sequence[Any], there: dict[str, Any]) -> None:
        changed = sum(one.id in there for one in other)
        done.changed += changed
        done.new += len(other) - changed

    def _is_forgotten(self, user: str) -> bool:
        """An old log must not bring back who asked to be forgotten."""
        if self._forgotten is None:
            with self.database.reading() as connection:
                self._forgotten = forgotten_users(connection)
        return user in self._forgotten


def _known(connection: Connection, table: sa.Table, ids: Sequence[str]) -> list[Any]:
    found: list[Any] = []
    for begin in range(0, len(ids), AT_ONCE):
        some = ids[begin : begin + AT_ONCE]
        found += connection.execute(sa.select(table).where(table.c.id.in_(some)))
    return found
