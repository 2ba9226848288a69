"""The processes that serve: they join, give signs of life, and leave or fall silent.

Leases of a replica that is gone go back to their accounts, as far as its recorded lists have not
used them. That is safe even if it is only slow: it can record no list any more, because its row is
gone, and a list that is not recorded is not answered.
"""

import os
import socket
import uuid
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.budget.ledger import give_back
from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import leases, replicas


def join(database: Database, connection: Connection) -> str:
    """A new replica; its id."""
    number, now = uuid.uuid4().hex, database.now(connection)
    row = {"id": number, "host": socket.gethostname()[:255], "pid": os.getpid()}
    connection.execute(replicas.insert().values(**row, started_at=now, seen_at=now))
    return number


def seen(
    database: Database, connection: Connection, replica: str, model_ready: int | None = None
) -> bool:
    """Give a sign of life; False: it was taken for dead."""
    update = replicas.update().where(replicas.c.id == replica)
    values: dict[str, Any] = {"seen_at": database.now(connection)}
    if model_ready is not None:
        values["model_ready"] = model_ready
    return bool(connection.execute(update.values(values)).rowcount)


def silent(database: Database, connection: Connection, seconds: float) -> list[str]:
    """Those without a sign of life for so long, and processes of this machine that have ended."""
    before, host = database.now(connection) - seconds, socket.gethostname()[:255]
    return [
        row.id
        for row in connection.execute(sa.select(replicas))
        if row.seen_at < before or (row.host == host and not _runs(row.pid))
    ]


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True


def alive(connection: Connection) -> list[Any]:
    return list(connection.execute(sa.select(replicas).order_by(replicas.c.started_at)))


def recover_leases(database: Database, timeout: float) -> int:
    """End the replicas that are silent and take their leases back; how many these were."""
    with database.reading() as connection:
        if not silent(database, connection, timeout):
            return 0
    with database.writing() as connection:
        service_state.lock(database, connection)
        gone = silent(database, connection, timeout)
        _end(connection, gone)
    return len(gone)


def leave(database: Database, replica: str) -> None:
    """End one replica in good order."""
    with database.writing() as connection:
        service_state.lock(database, connection)
        _end(connection, [replica])


def _end(connection: Connection, gone: list[str]) -> None:
    connection.execute(replicas.delete().where(replicas.c.id.in_(gone)))
    give_back(connection, leases.c.replica_id.in_(gone))
