"""Items: what describes them, and whether they may be shown."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import items

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


def put(database: Database, connection: Connection, some: Sequence[Item]) -> int:
    """Insert items, or replace those that are there; lists know them from now on."""
    if not some:
        return 0
    generation = service_state.next_generation(database, connection)
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


def add_missing(database: Database, connection: Connection, some: Sequence[Item]) -> int:
    """Insert the items that are not there, not even as deleted ones."""
    there: set[str] = set(connection.execute(sa.select(items.c.id)).scalars())
    return put(database, connection, [one for one in some if one.id not in there])


def get(connection: Connection, item: str) -> Item | None:
    query = sa.select(items).where(items.c.id == item, ~items.c.deleted)
    row = connection.execute(query).first()
    return None if row is None else Item.from_row(row)


def change(
    database: Database, connection: Connection, item: str, changes: Mapping[str, Any]
) -> bool:
    """Change some columns; whether there is such an item."""
    if get(connection, item) is None:
        return False
    if changes:
        generation = service_state.next_generation(database, connection)
        update = items.update().where(items.c.id == item)
        connection.execute(update.values({**changes, "generation": generation}))
    return True


def delete(database: Database, connection: Connection, item: str) -> bool:
    """Never show it again; the lists that have it stay. Whether there was such an item."""
    return change(database, connection, item, {"deleted": True})


def page(connection: Connection, after: str, n: int) -> list[Item]:
    """The next items in order of their ids."""
    query = sa.select(items).where(items.c.id > after, ~items.c.deleted).order_by(items.c.id)
    return [Item.from_row(row) for row in connection.execute(query.limit(n))]


def changed_since(connection: Connection, generation: int) -> list[tuple[Item, bool]]:
    """Items that changed after a generation, and whether each may be shown at all."""
    rows = connection.execute(sa.select(items).where(items.c.generation > generation))
    return [(Item.from_row(row), not row.deleted) for row in rows]


def titles(connection: Connection, ids: Sequence[str]) -> dict[str, str]:
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
