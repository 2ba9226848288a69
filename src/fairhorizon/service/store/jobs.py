"""Long work: a row that any replica may take up, and that says how far it is."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import jobs, replicas
from fairhorizon.service.vocabulary import JobState

OPEN = (JobState.WAITING, JobState.RUNNING)


def ask(
    database: Database, connection: Connection, kind: str, once: str, arguments: dict[str, Any]
) -> int:
    """The number of the job; it is made once, however often it is asked for."""
    insert = database.insert(jobs).on_conflict_do_nothing(index_elements=["once"])
    row: dict[str, Any] = {
        "kind": kind,
        "once": once,
        "arguments": arguments,
        "state": JobState.WAITING.value,
    }
    begun = {"progress": 0.0, "message": "", "created_at": database.now(connection)}
    connection.execute(insert.values(row | begun))
    return int(connection.execute(sa.select(jobs.c.id).where(jobs.c.once == once)).scalar_one())


def take(connection: Connection, replica: str) -> Any:
    """The next job that waits, or whose replica is gone; None: there is none.

    Of several replicas that ask at the same time one gets it.
    """
    gone = jobs.c.owner.not_in(sa.select(replicas.c.id))
    free = (jobs.c.state == JobState.WAITING) | ((jobs.c.state == JobState.RUNNING) & gone)
    row = connection.execute(sa.select(jobs).where(free).order_by(jobs.c.id).limit(1)).first()
    if row is None:
        return None
    same = jobs.c.owner.is_(None) if row.owner is None else jobs.c.owner == row.owner
    claim = jobs.update().where(jobs.c.id == row.id, same, jobs.c.state == row.state)
    claimed = connection.execute(claim.values(state=JobState.RUNNING.value, owner=replica))
    return row if claimed.rowcount else None


def report(connection: Connection, number: int, progress: float, message: str) -> None:
    connection.execute(
        jobs.update().where(jobs.c.id == number).values(progress=progress, message=message)
    )


def finish(
    database: Database, connection: Connection, number: int, state: JobState, message: str
) -> None:
    values: dict[str, Any] = {
        "state": state.value,
        "message": message,
        "ended_at": database.now(connection),
    }
    if state is JobState.DONE:
        values["progress"] = 1.0
    connection.execute(jobs.update().where(jobs.c.id == number).values(values))


def get(connection: Connection, number: int) -> Any:
    return connection.execute(sa.select(jobs).where(jobs.c.id == number)).first()


def newest(connection: Connection, n: int) -> list[Any]:
    return list(connection.execute(sa.select(jobs).order_by(jobs.c.id.desc()).limit(n)))
