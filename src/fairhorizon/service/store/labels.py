"""Who is popular: labels that hold for an epoch, for all replicas alike."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.crash_points import IN_EPOCH_SWITCH, crash_point
from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import item_hours, labels


def switch(database: Database, connection: Connection, popular: Sequence[str]) -> int:
    """Begin an epoch: lists recorded from now on count under these labels. Its number."""
    now = service_state.lock(database, connection)
    epoch = now.epoch + 1
    row = {"epoch": epoch, "begun_at": now.now, "popular": sorted(popular)}
    connection.execute(labels.insert().values(row))
    crash_point(IN_EPOCH_SWITCH)
    service_state.next_generation(database, connection, epoch=epoch)
    return epoch


def of_epoch(connection: Connection, epoch: int) -> set[str]:
    found = connection.execute(sa.select(labels.c.popular).where(labels.c.epoch == epoch)).scalar()
    return set(found or ())


def last(connection: Connection) -> tuple[int, float]:
    """The number of the last epoch and when it began; 0 before the first."""
    query = sa.select(labels.c.epoch, labels.c.begun_at).order_by(labels.c.epoch.desc()).limit(1)
    row = connection.execute(query).first()
    return (0, 0.0) if row is None else (row.epoch, row.begun_at)


def every(connection: Connection, *, since: float = 0.0) -> list[Any]:
    """Epochs in order, with when they began and their popular items."""
    query = sa.select(labels).where(labels.c.begun_at >= since).order_by(labels.c.epoch)
    return list(connection.execute(query))


def showings(connection: Connection) -> dict[str, int]:
    """How often each item was shown so far."""
    query = sa.select(item_hours.c.item_id, sa.func.sum(item_hours.c.shown).label("shown"))
    rows = connection.execute(query.group_by(item_hours.c.item_id))
    return {row.item_id: int(row.shown) for row in rows}
