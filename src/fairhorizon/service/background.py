"""A serving process: the engine that makes lists, and what goes on beside it."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fairhorizon.errors import FairHorizonError
from fairhorizon.service.admin import jobs
from fairhorizon.service.admin.jobs import JobRunner
from fairhorizon.service.budget.impressions import any_over, give_up
from fairhorizon.service.budget.ledger import recover_leases, sign_of_life
from fairhorizon.service.monitoring.alerts import Watch
from fairhorizon.service.monitoring.counts import roll_up
from fairhorizon.service.monitoring.metrics import Metrics
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.replica.snapshot import loaded
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.database import Database, DatabaseAwayError
from fairhorizon.service.store.state import last_epoch, model_row, read_state

EVERY = 1.0  # seconds
AGAIN_AFTER = 30.0  # seconds, to empty a log that somebody has read from for too long
LOG = logging.getLogger("fairhorizon.service")


class Maintenance:
    """The threads of a replica that keep things in order; one of them does the jobs."""

    def __init__(self, engine: Engine, also: Sequence[Callable[[], None]] = ()) -> None:
        self.engine, self.database, self.settings = engine, engine.database, engine.settings
        self._tasks = (
            self._begin,
            self._live,
            lambda: recover_leases(self.database, self.settings.replica_timeout),
            self._roll_up,
            self._give_up,
            self._ask_for_labels,
            self._load_what_comes,
            self._empty_log,
            *also,
        )
        self._next_sign, self._next_emptying = 0.0, 0.0
        self._ended = threading.Event()
        self._jobs = JobRunner(self.database, self._ended, self.settings.value)
        self._threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("maintenance", self._maintain), ("jobs", self._do_jobs))
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(timeout=10)

    def _maintain(self) -> None:
        while not self._ended.is_set():
            for task in self._tasks:
                _attempted(task)
            self._ended.wait(EVERY)

    def _do_jobs(self) -> None:
        while not self._ended.is_set():
            _attempted(self._next_job)
            self._ended.wait(EVERY)

    def _next_job(self) -> None:
        replica = self.engine.replica.id
        while replica is not None and self._jobs.work(replica) and not self._ended.is_set():
            pass

    def _begin(self) -> None:
        """The engine joins and loads by itself when it is asked to."""
        if self.engine.snapshot is None:
            self.engine.refresh()

    def _live(self) -> None:
        replica = self.engine.replica.id
        if replica is not None and time.monotonic() >= self._next_sign:
            with self.database.writing() as connection:
                sign_of_life(self.database, connection, replica)
            # Several signs within the timeout, so that a missed one is no death.
            self._next_sign = time.monotonic() + self.settings.replica_timeout / 5
        with self.database.reading() as connection:
            generation = read_state(self.database, connection).generation
        snapshot = self.engine.snapshot
        if snapshot is not None and snapshot.generation != generation:
            self.engine.refresh()

    def _roll_up(self) -> None:
        while roll_up(self.database) and not self._ended.is_set():
            # A pause in between: lists that are recorded need the same lock.
            time.sleep(0.02)

    def _give_up(self) -> None:
        with self.database.reading() as connection:
            # A look without a lock first: mostly there is nothing to do, and a write would make
            # lists wait.
            if not any_over(self.database, connection):
                return
        with self.database.writing() as connection:
            give_up(self.database, connection)

    def _empty_log(self) -> None:
        if time.monotonic() >= self._next_emptying and not self.database.empty_log():
            # A backup or an export reads: writers need not wait for it every second.
            self._next_emptying = time.monotonic() + AGAIN_AFTER

    def _ask_for_labels(self) -> None:
        """The next epoch is due; all replicas ask for the same job, which is made once."""
        if not self.settings.relabel:
            return
        with self.database.reading() as connection:
            epoch, begun = last_epoch(connection)
            due = epoch and self.database.now(connection) >= begun + self.settings.relabel
        if due:
            with self.database.writing() as connection:
                # The same name in all replicas, so that the job is made once.
                once = f"{jobs.RELABEL} after epoch {epoch}"
                jobs.ask(self.database, connection, jobs.RELABEL, once, {})

    def _load_what_comes(self) -> None:
        """Load a model that is to be promoted, and say so."""
        replica = self.engine.replica.id
        with self.database.reading() as connection:
            number = jobs.to_be_promoted(connection)
            row = None if number is None else model_row(connection, number)
        if row is not None and replica is not None:
            # Before the promotion: the switch is then a change of a number, and no request waits
            # for a model.
            loaded(row.folder)
            with self.database.writing() as connection:
                sign_of_life(self.database, connection, replica, model_ready=row.id)


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
        LOG.exception("a task of the maintenance failed")


@dataclass
class Service:
    """One worker: its database, its engine that makes lists, and its maintenance.

    open_to: hosts that may be called without keys; empty: keys are needed.
    """

    database: Database
    settings: ServiceSettings
    open_to: tuple[str, ...] = ("127.0.0.1", "localhost", "::1")
    metrics: Metrics = field(default_factory=Metrics)

    def __post_init__(self) -> None:
        self.engine = Engine(self.database, self.settings)
        self.watch = Watch(self.engine)
        self.maintenance = Maintenance(self.engine, also=(self.watch,))

    def start(self) -> None:
        self.engine.start()
        self.maintenance.start()

    def stop(self) -> None:
        self.maintenance.stop()
        self.watch.stop()
        self.engine.stop()
        self.database.close()
