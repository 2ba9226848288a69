"""Counts by minute and hour, made of the recorded lists that are not in them yet."""

from collections import defaultdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.exposure.limits import Limit
from fairhorizon.service.budget.units import place_units
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

AT_ONCE = 2000  # lists of one transaction
MINUTE, HOUR = 60, 3600


def roll_up(database: Database) -> int:
    """Count lists that were recorded since the last time; how many these were.

    Every list is counted once, whatever replica asks and whenever one ends: which lists are in the
    counts is written with the counts.
    """
    with database.reading() as connection:
        now = service_state.read(database, connection)
        if now.rolled_up == now.lists:
            return 0
    with database.writing() as connection:
        return roll_up_now(database, connection)


def roll_up_now(database: Database, connection: Connection) -> int:
    """The same inside a transaction, at most some thousand lists."""
    now = service_state.lock(database, connection)
    query = sa.select(lists).where(lists.c.number > now.rolled_up).order_by(lists.c.number)
    rows = list(connection.execute(query.limit(AT_ONCE)))
    if not rows:
        return 0
    _traffic(database, connection, rows)
    _items(database, connection, rows)
    _limits(database, connection, rows)
    service_state.change(connection, rolled_up=rows[-1].number)
    return len(rows)


def _traffic(database: Database, connection: Connection, rows: list[Any]) -> None:
    counts: dict[int, list[float]] = {}
    for row in rows:
        one = counts.setdefault(int(row.served_at // MINUTE), [0, 0, 0.0, 0.0])
        one[0] += 1
        one[1] += len(row.items)
        one[2] += row.milliseconds
        one[3] = max(one[3], row.milliseconds)
    insert = database.insert(minutes)
    added = {
        name: minutes.c[name] + insert.excluded[name]
        for name in ("lists", "showings", "milliseconds")
    }
    slowest = sa.case(
        (minutes.c.slowest > insert.excluded.slowest, minutes.c.slowest),
        else_=insert.excluded.slowest,
    )
    names = ("lists", "showings", "milliseconds", "slowest")
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=[minutes.c.minute], set_={**added, "slowest": slowest}
        ),
        [
            {"minute": minute, **dict(zip(names, one, strict=True))}
            for minute, one in counts.items()
        ],
    )


def _items(database: Database, connection: Connection, rows: list[Any]) -> None:
    counts: defaultdict[tuple[int, str], int] = defaultdict(int)
    for row in rows:
        for item in row.items:
            counts[int(row.served_at // HOUR), item] += 1
    insert = database.insert(item_hours)
    if counts:
        connection.execute(
            insert.on_conflict_do_update(
                index_elements=[item_hours.c.hour, item_hours.c.item_id],
                set_={"shown": item_hours.c.shown + insert.excluded.shown},
            ),
            [{"hour": hour, "item_id": item, "shown": n} for (hour, item), n in counts.items()],
        )


def _limits(database: Database, connection: Connection, rows: list[Any]) -> None:
    """Served showings by window and group, whether or not they are confirmed later."""
    ids = {window for row in rows for window in row.windows}
    query = sa.select(windows.c.id, limits.c.text).join(limits, limits.c.id == windows.c.limit_id)
    texts = {
        row.id: Limit.parse(row.text)
        for row in connection.execute(query.where(windows.c.id.in_(ids)))
    }
    query = sa.select(accounts.c.id, accounts.c.window_id, accounts.c.price)
    known = {row.id: row for row in connection.execute(query.where(accounts.c.window_id.in_(ids)))}
    shown: defaultdict[tuple[int, int], int] = defaultdict(int)
    used: defaultdict[tuple[int, int], int] = defaultdict(int)
    for row in rows:
        minute, length = int(row.served_at // MINUTE), len(row.items)
        for window in row.windows:
            shown[minute, window] += sum(place_units(texts[window], length))
        for place, inside in enumerate(row.labels):
            for account in inside:
                units = place_units(texts[known[account].window_id], length)[place]
                used[minute, account] += units
    if shown:
        insert = database.insert(window_minutes)
        connection.execute(
            insert.on_conflict_do_update(
                index_elements=[window_minutes.c.minute, window_minutes.c.window_id],
                set_={"shown": window_minutes.c.shown + insert.excluded.shown},
            ),
            [{"minute": m, "window_id": w, "shown": n} for (m, w), n in shown.items()],
        )
    if used:
        insert = database.insert(account_minutes)
        connection.execute(
            insert.on_conflict_do_update(
                index_elements=[account_minutes.c.minute, account_minutes.c.account_id],
                set_={
                    "used": account_minutes.c.used + insert.excluded.used,
                    "price": insert.excluded.price,
                },
            ),
            [
                {"minute": m, "account_id": a, "used": n, "price": known[a].price}
                for (m, a), n in used.items()
            ],
        )
