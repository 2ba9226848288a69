"""Users: what describes them, and who asked to be forgotten."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import feedback, forgotten, lists, state, users


@dataclass(frozen=True)
class User:
    """One user."""

    id: str
    labels: Any = None
    comment: str = ""

    @classmethod
    def from_row(cls, row: Any) -> "User":
        return cls(row.id, row.labels, row.comment)


def put(database: Database, connection: Connection, some: Sequence[User]) -> int:
    """Insert users, or replace those that are there."""
    rows = [
        {"id": one.id, "labels": [] if one.labels is None else one.labels, "comment": one.comment}
        for one in {user.id: user for user in some}.values()
    ]
    if rows:
        insert = database.insert(users)
        update = {name: insert.excluded[name] for name in ("labels", "comment")}
        connection.execute(
            insert.on_conflict_do_update(index_elements=[users.c.id], set_=update), rows
        )
    return len(rows)


def get(connection: Connection, user: str) -> User | None:
    row = connection.execute(sa.select(users).where(users.c.id == user)).first()
    return None if row is None else User.from_row(row)


def change(connection: Connection, user: str, changes: Mapping[str, Any]) -> bool:
    """Change some columns; whether there is such a user."""
    if get(connection, user) is None:
        return False
    if changes:
        connection.execute(users.update().where(users.c.id == user).values(dict(changes)))
    return True


def delete(connection: Connection, user: str) -> bool:
    """Delete the user's row; `forget` also removes what they did."""
    return bool(connection.execute(users.delete().where(users.c.id == user)).rowcount)


def page(connection: Connection, after: str, n: int) -> list[User]:
    """The next users in order of their ids."""
    query = sa.select(users).where(users.c.id > after).order_by(users.c.id).limit(n)
    return [User.from_row(row) for row in connection.execute(query)]


@dataclass(frozen=True)
class Forgotten:
    """Who asked to be forgotten, known by hashes that only this database's secret can make."""

    secret: str
    hashes: frozenset[str] = frozenset()

    def __contains__(self, user: str) -> bool:
        return bool(self.hashes) and self.hashed(user) in self.hashes

    def hashed(self, user: str) -> str:
        return hmac.new(self.secret.encode(), user.encode(), hashlib.sha256).hexdigest()


def forget(database: Database, connection: Connection, user: str) -> dict[str, int]:
    """Remove what is known of a person; lists stay without a name, so that all counts stay.

    Returns how many rows of each kind there were.
    """
    service_state.next_generation(database, connection)
    insert = database.insert(forgotten).on_conflict_do_nothing()
    name = forgotten_users(connection).hashed(user)
    connection.execute(insert.values(user_hash=name))
    unnamed = lists.update().where(lists.c.user_id == user).values(user_id=None)
    return {
        "users": connection.execute(users.delete().where(users.c.id == user)).rowcount,
        "feedback": connection.execute(
            feedback.delete().where(feedback.c.user_id == user)
        ).rowcount,
        "lists": connection.execute(unnamed).rowcount,
    }


def forgotten_users(connection: Connection) -> Forgotten:
    secret = connection.execute(sa.select(state.c.secret)).scalar_one()
    hashes = connection.execute(sa.select(forgotten.c.user_hash)).scalars()
    return Forgotten(secret, frozenset(hashes))
