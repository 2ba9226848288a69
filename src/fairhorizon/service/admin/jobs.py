"""Jobs: long work that one replica does and all can follow."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairhorizon.errors import FairHorizonError
from fairhorizon.service.admin.set_up import register, relabel
from fairhorizon.service.monitoring.rollup import roll_up
from fairhorizon.service.replica.loaded_models import loaded
from fairhorizon.service.store import jobs, models, replicas
from fairhorizon.service.store.database import Database, DatabaseAwayError
from fairhorizon.service.vocabulary import JobState
from fairhorizon.vocabulary import ListValue

REGISTER, PROMOTE, RELABEL = "register", "promote", "relabel"
WAIT_FOR_REPLICAS = 60.0  # seconds, to load a model that is to be promoted
LOG = logging.getLogger("fairhorizon.service")

Report = Callable[[float, str], None]


class _LeftError(Exception):
    """The replica stops in the middle of a job."""


@dataclass(frozen=True)
class Jobs:
    """Does the jobs that wait; everything in them can be done again if a replica ends within."""

    database: Database
    ended: threading.Event  # set when the replica stops: what is not done is left to another
    value: ListValue = ListValue.NDCG  # by which a model has to make lists

    def work(self, replica: str) -> bool:
        """Do the next job; whether there was one."""
        with self.database.writing() as connection:
            job = jobs.take(connection, replica)
        if job is None:
            return False

        def report(progress: float, message: str) -> None:
            with self.database.writing() as connection:
                jobs.report(connection, job.id, progress, message)

        does = {REGISTER: self._register, PROMOTE: self._promote, RELABEL: self._relabel}
        try:
            message, state = does[job.kind](job.arguments, report), JobState.DONE
        except _LeftError:
            return False
        except DatabaseAwayError:
            raise  # nothing can be said of the job now
        except FairHorizonError as error:
            message, state = str(error), JobState.FAILED
            LOG.warning("job %s (%s) failed: %r", job.id, job.kind, str(error))
        except Exception:
            message, state = "something went wrong (see the log of the service)", JobState.FAILED
            LOG.exception("job %s (%s) failed", job.id, job.kind)
        with self.database.writing() as connection:
            jobs.finish(self.database, connection, job.id, state, message)
        return True

    def _register(self, arguments: dict[str, Any], report: Report) -> str:
        report(0.1, "loading the model")
        model = loaded(arguments["folder"])
        model.outlook_for(self.value)  # refuses what cannot be served
        with self.database.writing() as connection:
            number = register(self.database, connection, arguments["folder"], model)
        return f"model {number} (POST /v1/models/{number}/promote)"

    def _promote(self, arguments: dict[str, Any], report: Report) -> str:
        """All replicas load it; then they switch with one transaction."""
        number = int(arguments["model"])
        with self.database.reading() as connection:
            row = models.get(connection, number)
        loaded(row.folder).outlook_for(self.value)  # refuses what cannot be served
        until = time.monotonic() + WAIT_FOR_REPLICAS
        while time.monotonic() < until:
            with self.database.reading() as connection:
                alive = replicas.alive(connection)
            ready = sum(one.model_ready == number for one in alive)
            report(0.9 * ready / max(1, len(alive)), f"loaded by {ready} of {len(alive)} replicas")
            if ready == len(alive):
                break
            if self.ended.wait(0.2):
                raise _LeftError
        with self.database.writing() as connection:
            models.promote(self.database, connection, number)
        return f"model {number} is served"

    def _relabel(self, arguments: dict[str, Any], report: Report) -> str:  # noqa: ARG002
        while roll_up(self.database):
            report(0.5, "counting what was shown")
        return f"epoch {relabel(self.database)} of labels has begun"
