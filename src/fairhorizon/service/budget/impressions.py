"""Feedback as it comes in, and the showings that it confirms, or that nothing ever will.

Under a limit that counts confirmed showings, a showing of the group is charged when it is served,
counts when it is confirmed, and is given back when its time is over. A confirmation that comes
after that counts all the same: it is the one thing that can exceed the slack (docs/guarantee.md).
"""

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.limits.language import Limit
from fairhorizon.service.budget.rules import place_units
from fairhorizon.service.settings import Counts
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.feedback import Event, add
from fairhorizon.service.store.schema import (
    accounts,
    confirmations,
    limits,
    lists,
    unconfirmed,
    windows,
)
from fairhorizon.service.store.state import lock_state, read_state

GIVEN_UP_AT_ONCE = 1000


def record_feedback(database: Database, events: Sequence[Event], *, read: Sequence[str]) -> int:
    """Record events in one transaction; how many were not seen before.

    read: the types that confirm a showing, where an event names its list.
    """
    with database.writing() as connection:
        added, fresh = add(database, connection, events)
        seen = {(str(one.list_id), one.item) for one in fresh if one.list_id and one.type in read}
        if seen:
            confirm(database, connection, sorted(seen))
    return added


def confirm(database: Database, connection: Connection, seen: Sequence[tuple[str, str]]) -> None:
    """Count showings that were seen: pairs of a list and one of its items. Each counts once."""
    lock_state(database, connection)
    ids = sorted({name for name, _ in seen})
    rows = {row.id: row for row in connection.execute(sa.select(lists).where(lists.c.id.in_(ids)))}
    places: list[dict[str, Any]] = [
        {"list_id": name, "place": place}
        for name, item in seen
        if name in rows
        for place, shown in enumerate(rows[name].items)
        if shown == item
    ]
    if not places:
        return
    # Read under the lock: nobody confirms the same place in between.
    known = {(r.list_id, r.place) for r in connection.execute(_confirmed(ids))}
    fresh = [one for one in places if (one["list_id"], one["place"]) not in known]
    if not fresh:
        return
    connection.execute(confirmations.insert(), fresh)
    waiting = set(
        connection.execute(
            sa.select(unconfirmed.c.list_id).where(unconfirmed.c.list_id.in_(ids))
        ).scalars()
    )
    book = _Book(connection, [rows[name] for name in rows])
    for one in fresh:
        row = rows[one["list_id"]]
        # A list that no longer waits was given up: its charge is gone and is made again.
        book.confirmed(row, one["place"], late=row.id not in waiting)
    book.write()


def any_over(database: Database, connection: Connection) -> bool:
    """Whether some list's time to be confirmed is over."""
    now = read_state(database, connection).now
    query = sa.select(unconfirmed.c.list_id).where(unconfirmed.c.until <= now).limit(1)
    return connection.execute(query).first() is not None


def give_up(database: Database, connection: Connection) -> int:
    """Give back what was charged for showings whose time to be confirmed is over."""
    state = lock_state(database, connection)
    over = list(
        connection.execute(
            sa.select(unconfirmed.c.list_id)
            .where(unconfirmed.c.until <= state.now)
            .limit(GIVEN_UP_AT_ONCE)
        ).scalars()
    )
    if not over:
        return 0
    rows = list(connection.execute(sa.select(lists).where(lists.c.id.in_(over))))
    known = {(row.list_id, row.place) for row in connection.execute(_confirmed(over))}
    book = _Book(connection, rows)
    for row in rows:
        for place in range(len(row.items)):
            if (row.id, place) not in known:
                book.given_up(row, place)
    book.write()
    connection.execute(unconfirmed.delete().where(unconfirmed.c.list_id.in_(over)))
    return len(over)


def _confirmed(ids: Sequence[str]) -> Any:
    return sa.select(confirmations).where(confirmations.c.list_id.in_(ids))


class _Book:
    """Changes of windows and accounts of limits that count confirmed showings, added up."""

    def __init__(self, connection: Connection, rows: Iterable[Any]) -> None:
        self.connection = connection
        query = (
            sa.select(accounts.c.id, accounts.c.window_id, limits.c.text)
            .join(windows, windows.c.id == accounts.c.window_id)
            .join(limits, limits.c.id == windows.c.limit_id)
            .where(
                limits.c.counts == Counts.CONFIRMED,
                windows.c.id.in_({window for row in rows for window in row.windows}),
            )
        )
        self.limit_of: dict[int, Limit] = {}  # by window
        self.window_of: dict[int, int] = {}  # by account
        for row in connection.execute(query):
            self.window_of[row.id] = row.window_id
            self.limit_of[row.window_id] = Limit.parse(row.text)
        self.shown: dict[int, int] = {}
        self.changes: dict[int, list[int]] = {}  # account: used, pending, charged

    def confirmed(self, row: Any, place: int, *, late: bool) -> None:
        for window in row.windows:
            if window in self.limit_of:
                units = self._units(window, row, place)
                self.shown[window] = self.shown.get(window, 0) + units
        for account, units in self._charged(row, place):
            # In time: from pending to used, charged all along. Late: used and charged anew.
            self._change(account, units, 0 if late else -units, units if late else 0)

    def given_up(self, row: Any, place: int) -> None:
        for account, units in self._charged(row, place):
            self._change(account, 0, -units, -units)

    def _charged(self, row: Any, place: int) -> list[tuple[int, int]]:
        return [
            (account, self._units(self.window_of[account], row, place))
            for account in row.labels[place]
            if account in self.window_of
        ]

    def _units(self, window: int, row: Any, place: int) -> int:
        return place_units(self.limit_of[window], len(row.items))[place]

    def _change(self, account: int, *by: int) -> None:
        before = self.changes.get(account, [0, 0, 0])
        self.changes[account] = [a + b for a, b in zip(before, by, strict=True)]

    def write(self) -> None:
        for window, units in self.shown.items():
            change = windows.update().where(windows.c.id == window)
            self.connection.execute(change.values(shown=windows.c.shown + units))
        for account, (used, pending, charged) in self.changes.items():
            change = accounts.update().where(accounts.c.id == account)
            self.connection.execute(
                change.values(
                    used=accounts.c.used + used,
                    pending=accounts.c.pending + pending,
                    charged=accounts.c.charged + charged,
                )
            )
