"""What users did, every event once however often it is sent, and what they were shown last."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.store.database import INSERTS, Database
from fairhorizon.service.store.schema import feedback, lists
from fairhorizon.service.store.state import read_state

MOST_OF_USER = 2000  # newest events of a user that a list looks at
AT_ONCE = 500  # ids of one query


@dataclass(frozen=True)
class Event:
    """One event."""

    type: str
    user: str
    item: str
    value: float = 1.0
    time: float | None = None  # None: now
    event_id: str | None = None  # None: two events with the same content are the same
    list_id: str | None = None

    @property
    def key(self) -> str:
        """What makes it the same event as another one."""
        if self.event_id is not None:
            return self.event_id
        # The value is not part of it: a corrected value is the same event sent again.
        content = (self.type, self.user, self.item, self.time, self.list_id)
        return "-" + hashlib.sha256(repr(content).encode()).hexdigest()


SEEN = sa.select(feedback.c.event_id).where(
    feedback.c.event_id.in_(sa.bindparam("keys", expanding=True))
)


def add(
    database: Database, connection: Connection, events: Sequence[Event]
) -> tuple[int, list[Event]]:
    """Record events that were not seen before; how many these are, and which."""
    now = read_state(database, connection).now
    fresh = _unseen(connection, events)
    rows = [
        {
            "event_id": key,
            "type": one.type,
            "user_id": one.user,
            "item_id": one.item,
            "value": one.value,
            # Clocks of clients may be wrong: nothing happens after it was received.
            "time": now if one.time is None else min(one.time, now),
            "received_at": now,
            "list_id": one.list_id,
        }
        for key, one in fresh.items()
    ]
    # `_unseen` looked before this transaction wrote: another one may have inserted the same event
    # since, so conflicts are passed over and not counted.
    added = connection.execute(_insert(database.dialect), rows).rowcount if rows else 0
    return added, list(fresh.values())


@cache
def _insert(dialect: str) -> sa.Insert:
    insert: sa.Insert = INSERTS[dialect](feedback).on_conflict_do_nothing(
        index_elements=["event_id"]
    )
    return insert.execution_options(preserve_rowcount=True)


def _unseen(connection: Connection, events: Sequence[Event]) -> dict[str, Event]:
    fresh: dict[str, Event] = {}
    for one in events:
        # The first of equal events in one call.
        fresh.setdefault(one.key, one)
    keys = list(fresh)
    for begin in range(0, len(keys), AT_ONCE):
        some = {"keys": keys[begin : begin + AT_ONCE]}
        for key in connection.execute(SEEN, some).scalars():
            del fresh[key]
    return fresh


_NEWEST_FIRST = (feedback.c.time.desc(), feedback.c.id.desc())
_RANKED = (
    sa.select(
        feedback.c.user_id,
        feedback.c.type,
        feedback.c.item_id,
        feedback.c.list_id,
        sa.func.row_number()
        .over(partition_by=feedback.c.user_id, order_by=_NEWEST_FIRST)
        .label("age"),
    )
    .where(
        feedback.c.user_id.in_(sa.bindparam("users", expanding=True)),
        feedback.c.type.not_in(sa.bindparam("read", expanding=True)),
    )
    .subquery()
)
OF_USERS = sa.select(_RANKED).where(_RANKED.c.age <= MOST_OF_USER).order_by(_RANKED.c.age.desc())


def of_users(
    connection: Connection, users: Sequence[str], read: Sequence[str]
) -> dict[str, list[Any]]:
    """What some users took or refused, oldest first: rows of type, item_id and list_id."""
    found: dict[str, list[Any]] = {}
    for row in connection.execute(OF_USERS, {"users": users, "read": read}):
        found.setdefault(row.user_id, []).append(row)
    return found


def page(
    connection: Connection,
    after: int,
    n: int,
    *,
    user: str | None = None,
    item: str | None = None,
    kind: str | None = None,
) -> list[Any]:
    """The next events in the order in which they were received."""
    query = sa.select(feedback).where(feedback.c.id > after).order_by(feedback.c.id).limit(n)
    wanted = ((feedback.c.user_id, user), (feedback.c.item_id, item), (feedback.c.type, kind))
    for column, value in wanted:
        if value is not None:
            query = query.where(column == value)
    return list(connection.execute(query))


def newest(
    connection: Connection, n: int, *, user: str | None = None, item: str | None = None
) -> list[Any]:
    """The last events of a user or of an item, newest first."""
    query = sa.select(feedback).order_by(feedback.c.time.desc(), feedback.c.id.desc()).limit(n)
    if user is not None:
        query = query.where(feedback.c.user_id == user)
    if item is not None:
        query = query.where(feedback.c.item_id == item)
    return list(connection.execute(query))


MOST_SHOWN = 64  # newest showings of a user that a list looks at
NEWEST_OF_USER = (
    sa.select(lists.c.id, lists.c["items"], lists.c.served_at)
    .where(lists.c.user_id == sa.bindparam("user"))
    .order_by(lists.c.number.desc())
    .limit(MOST_SHOWN)
)


def newest_lists(connection: Connection, users: Sequence[str]) -> dict[str, list[Any]]:
    """The newest lists of some users, oldest first: rows of id, items and served_at.

    A query for each of them: with its limit it reads no more of the index than it answers.
    """
    return {
        user: list(reversed(connection.execute(NEWEST_OF_USER, {"user": user}).all()))
        for user in users
    }
