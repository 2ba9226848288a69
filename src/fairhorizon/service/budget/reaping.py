"""Leases of replicas that are gone: what their recorded lists did not use goes back.

Safe even if such a replica is only slow: it can record no list any more, because its row is gone,
and a list that is not recorded is not answered.
"""

from sqlalchemy.engine import Connection

from fairhorizon.service.budget.ledger import give_back
from fairhorizon.service.store import replicas
from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import leases


def reap(database: Database, timeout: float) -> int:
    """Take leases of silent replicas back; how many replicas were silent."""
    with database.reading() as connection:
        if not replicas.silent(database, connection, timeout):
            return 0
    with database.writing() as connection:
        service_state.lock(database, connection)
        gone = replicas.silent(database, connection, timeout)
        _end(connection, gone)
    return len(gone)


def leave(database: Database, replica: str) -> None:
    """End one replica in good order."""
    with database.writing() as connection:
        service_state.lock(database, connection)
        _end(connection, [replica])


def _end(connection: Connection, gone: list[str]) -> None:
    replicas.leave(connection, gone)
    give_back(connection, leases.c.replica_id.in_(gone))
