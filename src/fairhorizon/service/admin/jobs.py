"""Jobs: long work that is asked for, that one replica does, and that all can follow.

A job is a row that any replica may take up, also after the one that had it is gone. So everything
in a job can be done again.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.errors import FairHorizonError
from fairhorizon.service.admin.set_up import register, relabel
from fairhorizon.service.budget.ledger import live_replicas
from fairhorizon.service.monitoring.counts import roll_up
from fairhorizon.service.replica.snapshot import loaded
from fairhorizon.service.settings import JobState
from fairhorizon.service.store.database import Database, DatabaseAwayError
from fairhorizon.service.store.schema import jobs, replicas
from fairhorizon.service.store.state import model_row, promote_model
from fairhorizon.vocabulary import ListValue

REGISTER, PROMOTE, RELABEL = "register", "promote", "relabel"
OPEN = (JobState.WAITING, JobState.RUNNING)
WAIT_FOR_REPLICAS = 60.0  # seconds, to load a model that is to be promoted
LOG = logging.getLogger("fairhorizon.service")

Say = Callable[[float, str], None]  # how far a job is, from 0 to 1


def ask(
    database: Database, connection: Connection, kind: str, once: str, arguments: dict[str, Any]
) -> int:
    """The number of the job; it is made once, however often it is asked for."""
    # `once` is unique: of replicas that ask for the same work at the same time one makes the job.
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
    # A replica whose row is gone is dead: its jobs are free again.
    gone = jobs.c.owner.not_in(sa.select(replicas.c.id))
    free = (jobs.c.state == JobState.WAITING) | ((jobs.c.state == JobState.RUNNING) & gone)
    row = connection.execute(sa.select(jobs).where(free).order_by(jobs.c.id).limit(1)).first()
    if row is None:
        return None
    # Only if nobody has claimed it since it was read: the update finds the row as it was, or none.
    same = jobs.c.owner.is_(None) if row.owner is None else jobs.c.owner == row.owner
    claim = jobs.update().where(jobs.c.id == row.id, same, jobs.c.state == row.state)
    claimed = connection.execute(claim.values(state=JobState.RUNNING.value, owner=replica))
    return row if claimed.rowcount else None


def report(connection: Connection, number: int, progress: float, message: str) -> None:
    """Say how far a job is."""
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


def to_be_promoted(connection: Connection) -> int | None:
    """The model that a job at work is about to promote."""
    query = sa.select(jobs.c.arguments).where(
        jobs.c.kind == PROMOTE, jobs.c.state == JobState.RUNNING
    )
    arguments = connection.execute(query.limit(1)).scalar()
    return None if arguments is None else int(arguments["model"])


class _LeftError(Exception):
    """The replica stops in the middle of a job."""


@dataclass(frozen=True)
class JobRunner:
    """Does the jobs that wait."""

    database: Database
    ended: threading.Event  # set when the replica stops: what is not done is left to another
    value: ListValue = ListValue.NDCG  # by which a model has to make lists

    def work(self, replica: str) -> bool:
        """Do the next job; whether there was one."""
        with self.database.writing() as connection:
            job = take(connection, replica)
        if job is None:
            return False

        def say(progress: float, message: str) -> None:
            with self.database.writing() as connection:
                report(connection, job.id, progress, message)

        does = {REGISTER: self._register, PROMOTE: self._promote, RELABEL: self._relabel}
        try:
            message, state = does[job.kind](job.arguments, say), JobState.DONE
        except _LeftError:
            # The job stays in state running; another replica takes it once this one's row is gone.
            return False
        except DatabaseAwayError:
            # Nothing can be written of the job now; it is taken up again later.
            raise
        except FairHorizonError as error:
            message, state = str(error), JobState.FAILED
            LOG.warning("job %s (%s) failed: %r", job.id, job.kind, str(error))
        except Exception:
            message, state = "something went wrong (see the log of the service)", JobState.FAILED
            LOG.exception("job %s (%s) failed", job.id, job.kind)
        with self.database.writing() as connection:
            finish(self.database, connection, job.id, state, message)
        return True

    def _register(self, arguments: dict[str, Any], say: Say) -> str:
        say(0.1, "loading the model")
        model = loaded(arguments["folder"])
        # Raises for a model that cannot serve lists of this value.
        model.retention_for(self.value)
        with self.database.writing() as connection:
            number = register(self.database, connection, arguments["folder"], model)
        return f"model {number} (POST /v1/models/{number}/promote)"

    def _promote(self, arguments: dict[str, Any], say: Say) -> str:
        """All replicas load it; then they switch with one transaction."""
        number = int(arguments["model"])
        with self.database.reading() as connection:
            row = model_row(connection, number)
        # Again, as the setting may have changed since the model was registered.
        loaded(row.folder).retention_for(self.value)
        # Replicas find this job and load the model by themselves (`Maintenance`). One that takes
        # longer than this loads it when it sees the promotion.
        until = time.monotonic() + WAIT_FOR_REPLICAS
        while time.monotonic() < until:
            with self.database.reading() as connection:
                there = live_replicas(connection)
            ready = sum(one.model_ready == number for one in there)
            say(0.9 * ready / max(1, len(there)), f"loaded by {ready} of {len(there)} replicas")
            if ready == len(there):
                break
            if self.ended.wait(0.2):
                raise _LeftError
        with self.database.writing() as connection:
            promote_model(self.database, connection, number)
        return f"model {number} is served"

    def _relabel(self, arguments: dict[str, Any], say: Say) -> str:  # noqa: ARG002
        # Whoever is popular is decided by all showings, so they are counted to the end first.
        while roll_up(self.database):
            say(0.5, "counting what was shown")
        return f"epoch {relabel(self.database)} of labels has begun"
