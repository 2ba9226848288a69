"""Jobs: long work that one replica does and all can follow."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fairhorizon.errors import FairHorizonError
from fairhorizon.service.replica.loaded_models import loaded
from fairhorizon.service.rollup import roll_up
from fairhorizon.service.setting_up import register, relabel
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store import jobs, models, replicas
from fairhorizon.service.store.database import Database
from fairhorizon.service.vocabulary import JobState

REGISTER, PROMOTE, RELABEL = "register", "promote", "relabel"
WAIT_FOR_REPLICAS = 60.0  # seconds, to load a model that is to be promoted
LOG = logging.getLogger("fairhorizon.service")

Report = Callable[[float, str], None]


@dataclass(frozen=True)
class Jobs:
    """Does the jobs that wait; everything in them can be done again if a replica ends within."""

    database: Database
    settings: ServiceSettings

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
        except FairHorizonError as error:
            message, state = str(error), JobState.FAILED
            LOG.warning("job %s (%s) failed: %s", job.id, job.kind, error)
        with self.database.writing() as connection:
            jobs.finish(self.database, connection, job.id, state, message)
        return True

    def _register(self, arguments: dict[str, Any], report: Report) -> str:
        report(0.1, "loading the model")
        model = loaded(arguments["folder"])
        with self.database.writing() as connection:
            number = register(self.database, connection, arguments["folder"], model)
        return f"model {number} (POST /v1/models/{number}/promote)"

    def _promote(self, arguments: dict[str, Any], report: Report) -> str:
        """All replicas load it; then they switch with one transaction."""
        number = int(arguments["model"])
        with self.database.reading() as connection:
            row = models.get(connection, number)
        loaded(row.folder)  # refuses what cannot be served
        until = time.monotonic() + WAIT_FOR_REPLICAS
        while time.monotonic() < until:
            with self.database.reading() as connection:
                alive = replicas.alive(connection)
            ready = sum(one.model_ready == number for one in alive)
            report(0.9 * ready / max(1, len(alive)), f"loaded by {ready} of {len(alive)} replicas")
            if ready == len(alive):
                break
            time.sleep(0.2)
        with self.database.writing() as connection:
            models.promote(self.database, connection, number)
        return f"model {number} is served"

    def _relabel(self, arguments: dict[str, Any], report: Report) -> str:  # noqa: ARG002
        while roll_up(self.database):
            report(0.5, "counting what was shown")
        return f"epoch {relabel(self.database)} of labels has begun"
