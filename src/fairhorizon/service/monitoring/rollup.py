"""Counts by minute and hour, made of the recorded lists that are not in them yet."""

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.limits.language import Limit
from fairhorizon.service.budget.rules import place_units
from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import (
    account_minutes,
    accounts,
    item_hours,
    limits,
    lists,
    minutes,
    window_minutes,
    windows,
)

AT_ONCE = 25  # lists of one transaction: requests wait for it
COLUMNS = [
    lists.c[name] for name in ("number", "served_at", "milliseconds", "items", "labels", "windows")
]
MINUTE, HOUR = 60, 3600

Counts = defaultdict[tuple[int, Any], int]  # by time and whatever is counted


def roll_up(database: Database) -> int:
    """Count lists that were recorded since the last time; how many these were.

    Every list is counted once, whatever replica asks and whenever one ends: which lists are in the
    counts is written with the counts. They are added up before the lock is taken, which whoever
    records lists waits for.
    """
    with database.reading() as connection:
        seen = service_state.read(database, connection)
        if seen.rolled_up == seen.lists:
            return 0
        query = sa.select(*COLUMNS).where(lists.c.number > seen.rolled_up)
        rows = list(connection.execute(query.order_by(lists.c.number).limit(AT_ONCE)))
        by_time = _CountsByTime.from_lists(connection, rows)
    with database.writing() as connection:
        if service_state.lock(database, connection).rolled_up != seen.rolled_up:
            return 0  # another replica was faster
        by_time.write(database, connection)
        service_state.change(connection, rolled_up=rows[-1].number)
    return len(rows)


@dataclass(frozen=True)
class _CountsByTime:
    """Some lists, added up by time."""

    traffic: dict[int, list[float]]  # by minute: lists, showings, milliseconds, the slowest
    items: Counts  # by hour and item
    shown: Counts  # units by minute and window
    used: Counts  # units by minute and account, served ones whether or not they are confirmed
    prices: dict[int, float]  # of accounts

    @classmethod
    def from_lists(cls, connection: Connection, rows: list[Any]) -> "_CountsByTime":
        limit_of, window_of, prices = _known(connection, rows)
        tally = cls({}, defaultdict(int), defaultdict(int), defaultdict(int), prices)
        for row in rows:
            minute, length = int(row.served_at // MINUTE), len(row.items)
            one = tally.traffic.setdefault(minute, [0, 0, 0.0, 0.0])
            one[0] += 1
            one[1] += length
            one[2] += row.milliseconds
            one[3] = max(one[3], row.milliseconds)
            for item in row.items:
                tally.items[int(row.served_at // HOUR), item] += 1
            for window in row.windows:
                tally.shown[minute, window] += sum(place_units(limit_of[window], length))
            for place, inside in enumerate(row.labels):
                for account in inside:
                    units = place_units(limit_of[window_of[account]], length)[place]
                    tally.used[minute, account] += units
        return tally

    def write(self, database: Database, connection: Connection) -> None:
        """Add it to what the tables have."""
        names = ("lists", "showings", "milliseconds", "slowest")
        traffic = [
            {"minute": minute, **dict(zip(names, one, strict=True))}
            for minute, one in self.traffic.items()
        ]
        _add(database, connection, minutes, ("minute",), traffic)
        items = [{"hour": h, "item_id": i, "shown": n} for (h, i), n in self.items.items()]
        _add(database, connection, item_hours, ("hour", "item_id"), items)
        shown = [{"minute": m, "window_id": w, "shown": n} for (m, w), n in self.shown.items()]
        _add(database, connection, window_minutes, ("minute", "window_id"), shown)
        used = [
            {"minute": m, "account_id": a, "used": n, "price": self.prices[a]}
            for (m, a), n in self.used.items()
        ]
        _add(database, connection, account_minutes, ("minute", "account_id"), used)


def _known(
    connection: Connection, rows: list[Any]
) -> tuple[dict[int, Limit], dict[int, int], dict[int, float]]:
    """The limits of windows, the windows of accounts, and the prices of these."""
    ids = {window for row in rows for window in row.windows}
    query = sa.select(windows.c.id, limits.c.text).join(limits, limits.c.id == windows.c.limit_id)
    found = connection.execute(query.where(windows.c.id.in_(ids)))
    limit_of = {row.id: Limit.parse(row.text) for row in found}
    query = sa.select(accounts.c.id, accounts.c.window_id, accounts.c.price)
    own = list(connection.execute(query.where(accounts.c.window_id.in_(ids))))
    return limit_of, {one.id: one.window_id for one in own}, {one.id: one.price for one in own}


def _add(
    database: Database,
    connection: Connection,
    table: sa.Table,
    keys: tuple[str, ...],
    rows: list[dict[str, Any]],
) -> None:
    """Add rows to those that are there; of a price the last one stays, of the slowest the most."""
    if not rows:
        return
    insert = database.insert(table)
    new: dict[str, Any] = {}
    for name in (one.name for one in table.c if one.name not in keys):
        old, more = table.c[name], insert.excluded[name]
        if name == "slowest":
            new[name] = sa.case((old > more, old), else_=more)
        else:
            new[name] = more if name == "price" else old + more
    connection.execute(insert.on_conflict_do_update(index_elements=list(keys), set_=new), rows)
