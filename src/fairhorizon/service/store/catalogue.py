"""Items and users: what describes them, which items may be shown, and who was forgotten."""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import feedback, forgotten, items, lists, state, users
from fairhorizon.service.store.state import next_generation

CHANGEABLE = ("hidden", "categories", "labels", "time", "comment")
AT_ONCE = 500  # ids in one query


@dataclass(frozen=True)
class Item:
    """One item; labels are columns that limits may be about, or a list of words."""

    id: str
    hidden: bool = False
    categories: tuple[str, ...] = ()
    labels: Any = None
    time: float = 0.0
    comment: str = ""

    @classmethod
    def from_row(cls, row: Any) -> "Item":
        return cls(row.id, row.hidden, tuple(row.categories), row.labels, row.time, row.comment)

    def columns(self) -> dict[str, str]:
        """Its attributes by column, several values of one with bars between them."""
        found = {}
        if self.categories:
            found["category"] = "|".join(self.categories)
        if isinstance(self.labels, Mapping):
            found |= {str(name): _cell(value) for name, value in self.labels.items()}
        elif isinstance(self.labels, Sequence) and not isinstance(self.labels, str):
            found["label"] = _cell(self.labels)
        return found


def _cell(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "|".join(map(str, value))
    return "" if value is None else str(value)


def put_items(database: Database, connection: Connection, some: Sequence[Item]) -> int:
    """Insert items, or replace those that are there; lists know them from now on."""
    if not some:
        return 0
    generation = next_generation(database, connection)
    # An upsert per row; replicas find what has changed by its generation.
    insert = database.insert(items)
    update = {name: insert.excluded[name] for name in (*CHANGEABLE, "deleted", "generation")}
    rows = [
        {
            "id": one.id,
            "hidden": one.hidden,
            "categories": list(one.categories),
            "labels": [] if one.labels is None else one.labels,
            "time": one.time,
            "comment": one.comment,
            "deleted": False,
            "generation": generation,
        }
        for one in {item.id: item for item in some}.values()
    ]
    connection.execute(insert.on_conflict_do_update(index_elements=[items.c.id], set_=update), rows)
    return len(rows)


def add_missing_items(database: Database, connection: Connection, some: Sequence[Item]) -> int:
    """Insert the items that are not there, not even as deleted ones."""
    # Deleted items are there too, and a first fill must not bring them back.
    there: set[str] = set(connection.execute(sa.select(items.c.id)).scalars())
    return put_items(database, connection, [one for one in some if one.id not in there])


def find_item(connection: Connection, item: str) -> Item | None:
    query = sa.select(items).where(items.c.id == item, ~items.c.deleted)
    row = connection.execute(query).first()
    return None if row is None else Item.from_row(row)


def update_item(
    database: Database, connection: Connection, item: str, changes: Mapping[str, Any]
) -> bool:
    """Change some columns; whether there is such an item."""
    if find_item(connection, item) is None:
        return False
    if changes:
        generation = next_generation(database, connection)
        update = items.update().where(items.c.id == item)
        connection.execute(update.values({**changes, "generation": generation}))
    return True


def remove_item(database: Database, connection: Connection, item: str) -> bool:
    """Never show it again; the lists that have it stay. Whether there was such an item."""
    # Kept as a row: recorded lists show it, and its groups are needed to recount them.
    return update_item(database, connection, item, {"deleted": True})


def page_of_items(connection: Connection, after: str, n: int) -> list[Item]:
    """The next items in order of their ids."""
    query = sa.select(items).where(items.c.id > after, ~items.c.deleted).order_by(items.c.id)
    return [Item.from_row(row) for row in connection.execute(query.limit(n))]


def items_changed_since(connection: Connection, generation: int) -> list[tuple[Item, bool]]:
    """Items that changed after a generation, and whether each may be shown at all."""
    rows = connection.execute(sa.select(items).where(items.c.generation > generation))
    return [(Item.from_row(row), not row.deleted) for row in rows]


def item_titles(connection: Connection, ids: Sequence[str]) -> dict[str, str]:
    """What people call some items: their label `title`, else their comment, else their id."""
    named = {}
    for begin in range(0, len(ids), AT_ONCE):
        query = sa.select(items.c.id, items.c.labels, items.c.comment).where(
            items.c.id.in_(ids[begin : begin + AT_ONCE])
        )
        for row in connection.execute(query):
            label = row.labels.get("title") if isinstance(row.labels, dict) else None
            named[row.id] = str(label or row.comment or row.id)
    return {one: named.get(one, one) for one in ids}


@dataclass(frozen=True)
class User:
    """One user."""

    id: str
    labels: Any = None
    comment: str = ""

    @classmethod
    def from_row(cls, row: Any) -> "User":
        return cls(row.id, row.labels, row.comment)


def put_users(database: Database, connection: Connection, some: Sequence[User]) -> int:
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


def find_user(connection: Connection, user: str) -> User | None:
    row = connection.execute(sa.select(users).where(users.c.id == user)).first()
    return None if row is None else User.from_row(row)


def update_user(connection: Connection, user: str, changes: Mapping[str, Any]) -> bool:
    """Change some columns; whether there is such a user."""
    if find_user(connection, user) is None:
        return False
    if changes:
        connection.execute(users.update().where(users.c.id == user).values(dict(changes)))
    return True


def remove_user(connection: Connection, user: str) -> bool:
    """Delete the user's row; `forget` also removes what they did."""
    return bool(connection.execute(users.delete().where(users.c.id == user)).rowcount)


def page_of_users(connection: Connection, after: str, n: int) -> list[User]:
    """The next users in order of their ids."""
    query = sa.select(users).where(users.c.id > after).order_by(users.c.id).limit(n)
    return [User.from_row(row) for row in connection.execute(query)]


@dataclass(frozen=True)
class Forgotten:
    """Who asked to be forgotten, known by hashes that only this database's secret can make."""

    secret: str
    hashes: frozenset[str] = frozenset()

    def __contains__(self, user: str) -> bool:
        # Without anybody forgotten no hash is computed, which would be for every request.
        return bool(self.hashes) and self.hashed(user) in self.hashes

    def hashed(self, user: str) -> str:
        # Keyed, so that ids cannot be guessed from the table by hashing all ids there are.
        return hmac.new(self.secret.encode(), user.encode(), hashlib.sha256).hexdigest()


def forget_user(database: Database, connection: Connection, user: str) -> dict[str, int]:
    """Remove what is known of a person; lists stay without a name, so that all counts stay.

    Returns how many rows of each kind there were.
    """
    next_generation(database, connection)
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
