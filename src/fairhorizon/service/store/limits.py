"""Limits, as they were asked for; one that is changed is a new one, because it counts anew."""

from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import limits


@dataclass(frozen=True)
class AskedLimit:
    """What is asked for, in the language of limits (docs/limits.md)."""

    text: str
    window: str
    counts: str
    slack: int  # in units


def create(database: Database, connection: Connection, asked: AskedLimit) -> int:
    """Count from now on; the number of the limit."""
    service_state.next_generation(database, connection)
    row = {**vars(asked), "created_at": database.now(connection)}
    made = connection.execute(limits.insert().values(row).returning(limits.c.id))
    return int(made.scalar_one())


def end(database: Database, connection: Connection, number: int) -> bool:
    """Keep it no longer; whether it was in force."""
    update = limits.update().where(limits.c.id == number, limits.c.ended_at.is_(None))
    ended = connection.execute(update.values(ended_at=database.now(connection))).rowcount
    if ended:
        service_state.next_generation(database, connection)
    return bool(ended)


def get(connection: Connection, number: int) -> Any:
    return connection.execute(sa.select(limits).where(limits.c.id == number)).first()


def in_force(connection: Connection) -> list[Any]:
    query = sa.select(limits).where(limits.c.ended_at.is_(None)).order_by(limits.c.id)
    return list(connection.execute(query))


def every(connection: Connection) -> list[Any]:
    return list(connection.execute(sa.select(limits).order_by(limits.c.id)))
