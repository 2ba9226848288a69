"""What a replica does beside serving: signs of life, counts, labels, alerts, and jobs."""

import logging
import threading
import time
from collections.abc import Callable, Sequence

import sqlalchemy as sa

from fairhorizon.errors import FairHorizonError
from fairhorizon.service.admin.jobs import PROMOTE, RELABEL, Jobs
from fairhorizon.service.budget.impressions import any_over, give_up
from fairhorizon.service.budget.reaping import reap
from fairhorizon.service.monitoring.rollup import roll_up
from fairhorizon.service.replica.engine import Engine
from fairhorizon.service.replica.loaded_models import loaded
from fairhorizon.service.store import jobs, labels, models, replicas
from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import DatabaseAwayError
from fairhorizon.service.store.schema import jobs as job_table
from fairhorizon.service.vocabulary import JobState

EVERY = 1.0  # seconds
LOG = logging.getLogger("fairhorizon.service")


class Keeper:
    """The threads of a replica that keep things in order; one of them does the jobs."""

    def __init__(self, engine: Engine, also: Sequence[Callable[[], None]] = ()) -> None:
        self.engine, self.database, self.settings = engine, engine.database, engine.settings
        self._tasks = (
            self._begin,
            self._live,
            lambda: reap(self.database, self.settings.replica_timeout),
            self._roll_up,
            self._give_up,
            self._ask_for_labels,
            self._load_what_comes,
            *also,
        )
        self._next_sign = 0.0
        self._ended = threading.Event()
        self._jobs = Jobs(self.database, self._ended, self.settings.value)
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("keeper", self._keep), ("jobs", self._work))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(timeout=10)

    def _keep(self) -> None:
        while not self._ended.is_set():
            for task in self._tasks:
                _attempted(task)
            self._ended.wait(EVERY)

    def _work(self) -> None:
        while not self._ended.is_set():
            _attempted(self._next_job)
            self._ended.wait(EVERY)

    def _next_job(self) -> None:
        replica = self.engine.replica
        while replica is not None and self._jobs.work(replica) and not self._ended.is_set():
            pass

    def _begin(self) -> None:
        """The engine joins and loads by itself when it is asked to."""
        if self.engine.world is None:
            self.engine.refresh()

    def _live(self) -> None:
        replica = self.engine.replica
        if replica is not None and time.monotonic() >= self._next_sign:
            with self.database.writing() as connection:
                replicas.seen(self.database, connection, replica)
            self._next_sign = time.monotonic() + self.settings.replica_timeout / 5
        with self.database.reading() as connection:
            generation = service_state.read(self.database, connection).generation
        world = self.engine.world
        if world is not None and world.generation != generation:
            self.engine.refresh()

    def _roll_up(self) -> None:
        while roll_up(self.database) and not self._ended.is_set():
            time.sleep(0.02)  # lists go before their counts

    def _give_up(self) -> None:
        with self.database.reading() as connection:
            if not any_over(self.database, connection):
                return
        with self.database.writing() as connection:
            give_up(self.database, connection)

    def _ask_for_labels(self) -> None:
        """The next epoch is due; all replicas ask for the same job, which is made once."""
        if not self.settings.relabel:
            return
        with self.database.reading() as connection:
            epoch, begun = labels.last(connection)
            due = epoch and self.database.now(connection) >= begun + self.settings.relabel
        if due:
            with self.database.writing() as connection:
                once = f"{RELABEL} after epoch {epoch}"
                jobs.ask(self.database, connection, RELABEL, once, {})

    def _load_what_comes(self) -> None:
        """Load a model that is to be promoted, and say so."""
        replica = self.engine.replica
        with self.database.reading() as connection:
            job = connection.execute(
                sa.select(job_table)
                .where(job_table.c.kind == PROMOTE, job_table.c.state == JobState.RUNNING)
                .limit(1)
            ).first()
            row = None if job is None else models.get(connection, int(job.arguments["model"]))
        if row is not None and replica is not None:
            loaded(row.folder)
            with self.database.writing() as connection:
                replicas.seen(self.database, connection, replica, model_ready=row.id)


def _attempted(task: Callable[[], object]) -> None:
    """Go on whatever happens: the next attempt may be luckier."""
    try:
        task()
    except DatabaseAwayError as error:
        LOG.warning("%s", error)
        time.sleep(EVERY)
    except FairHorizonError as error:
        LOG.warning("%s", error)
    except Exception:
        LOG.exception("a task of the keeper failed")
