"""Alerts: each begins once and ends once, whatever number of replicas look."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.store.schema import alerts


def active(connection: Connection) -> list[Any]:
    """Those that have not ended, the newest first."""
    query = sa.select(alerts).where(alerts.c.ended_at.is_(None))
    return list(connection.execute(query.order_by(alerts.c.begun_at.desc(), alerts.c.id.desc())))


def ended(connection: Connection, n: int) -> list[Any]:
    """Those that ended last."""
    query = sa.select(alerts).where(alerts.c.ended_at.is_not(None))
    query = query.order_by(alerts.c.ended_at.desc(), alerts.c.id.desc()).limit(n)
    return list(connection.execute(query))


def begin(connection: Connection, kind: str, subject: str, message: str, now: float) -> None:
    """Begin an alert; whoever calls holds the lock of the state."""
    row = {"kind": kind, "subject": subject, "message": message, "begun_at": now}
    connection.execute(alerts.insert().values(row))


def end(connection: Connection, number: int, now: float) -> None:
    """End an alert; whoever calls holds the lock of the state."""
    connection.execute(alerts.update().where(alerts.c.id == number).values(ended_at=now))
