"""The thread of a replica that makes lists: requests that wait are served together."""

import logging
import queue
import threading
import zlib
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
from sqlalchemy.engine import Connection

from fairhorizon.service.budget import reaping
from fairhorizon.service.budget.leasing import OverdrawnError
from fairhorizon.service.budget.ledger import Ledger
from fairhorizon.service.budget.purse import Purse
from fairhorizon.service.crash_points import AFTER_CHARGE, crash_point
from fairhorizon.service.replica.deciding import Decider
from fairhorizon.service.replica.recording import Decided, FencedError, ListRecorder, StaleError
from fairhorizon.service.replica.requests import ListRequest
from fairhorizon.service.replica.weighing import UsersSoFar
from fairhorizon.service.replica.world import World, WorldLoader
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store import feedback, replicas, shown
from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database, DatabaseAwayError
from fairhorizon.vocabulary import ListValue

TRIES = 4  # of a batch whose world changes while it is decided
NOTHING = ""  # what wakes the thread without a request
LOG = logging.getLogger("fairhorizon.service")


class Engine:
    """One replica at work. `submit` may be called from any thread."""

    def __init__(self, database: Database, settings: ServiceSettings) -> None:
        self.database, self.settings = database, settings
        self._waiting: queue.SimpleQueue[ListRequest | str | None] = queue.SimpleQueue()
        self._refresh = threading.Event()
        self._loader = WorldLoader(database)
        self._purse: Purse | None = None
        self._decider: Decider | None = None
        self._recorder: ListRecorder | None = None
        self._world: World | None = None
        self._thread = threading.Thread(target=self._run, name="lists", daemon=True)

    @property
    def world(self) -> World | None:
        """What lists are made of now; None before the first was loaded."""
        return self._world

    @property
    def replica(self) -> str | None:
        """The id of this replica, while it has one."""
        return None if self._recorder is None else self._recorder.replica

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Answer what waits, and give the leases back."""
        self._waiting.put(None)
        self._thread.join(timeout=10)
        if self.replica is not None:
            try:
                reaping.leave(self.database, self.replica)
            except DatabaseAwayError:
                LOG.warning("the leases of this replica could not be given back; others will do it")

    @property
    def n_waiting(self) -> int:
        """Requests that nobody has looked at yet."""
        return self._waiting.qsize()

    def submit(self, request: ListRequest) -> "Future[Decided]":
        """The list of a request, once it is recorded."""
        self._waiting.put(request)
        return request.answer

    def refresh(self) -> None:
        """Load what has changed before the next request needs it; from any thread."""
        self._refresh.set()
        self._waiting.put(NOTHING)

    def prepare(self) -> None:
        """Join and load; before `start`."""
        if self._purse is None:
            self._begin()

    def _run(self) -> None:
        while True:
            batch = [self._waiting.get()]
            while len(batch) < self.settings.batch and not self._waiting.empty():
                batch.append(self._waiting.get())
            requests = [
                one
                for one in batch
                if isinstance(one, ListRequest) and one.answer.set_running_or_notify_cancel()
            ]  # who has hung up needs no list, and none is counted
            if requests:
                self._serve(requests)
            elif self._refresh.is_set():
                self._refresh_now()
            if None in batch:
                return

    def _refresh_now(self) -> None:
        self._refresh.clear()
        try:
            if self._purse is None:
                self._begin()
            else:
                self._open()
        except DatabaseAwayError as error:
            self._purse = None
            LOG.warning("%s", error)
        except Exception:
            self._purse = None
            LOG.exception("what has changed could not be loaded")

    def _serve(self, requests: Sequence[ListRequest]) -> None:
        try:
            answers = self._recorded(requests)
        except Exception as error:
            if not isinstance(error, DatabaseAwayError):
                LOG.exception("lists could not be made")
            self._purse = None  # whether it was recorded is not known: begin anew
            for one in requests:
                one.answer.set_exception(error)
            return
        for one, answer in zip(requests, answers, strict=True):
            if isinstance(answer, Exception):
                one.answer.set_exception(answer)
            else:
                one.answer.set_result(answer)

    def _recorded(self, requests: Sequence[ListRequest]) -> list[Decided | Exception]:
        """Lists that are recorded; whatever changes in between, they are decided anew."""
        with self.database.reading() as connection:
            asking = sorted({one.user for one in requests})
            events = feedback.of_users(connection, asking, self.settings.read)
            long = self.settings.value is ListValue.LONG
            users = UsersSoFar(events, shown.of_users(connection, asking) if long else {})
        for _ in range(TRIES):
            if self._purse is None:
                self._begin()
            assert self._purse is not None
            assert self._decider is not None
            assert self._recorder is not None
            answers = self._decider.decide(requests, users, self._purse.copy())
            made = [one for one in answers if isinstance(one, Decided)]
            if not made and self._is_present():
                return answers
            try:
                if not made:
                    raise StaleError  # what is refused may be known by now
                self._purse = self._recorder.record(
                    made,
                    self._purse,
                    self._decider.prices,
                    generation=self._decider.world.generation,
                )
            except (StaleError, OverdrawnError):
                self._open()
            except FencedError:
                self._purse = None
            else:
                return answers
        return self._under_lock(requests, users)

    def _is_present(self) -> bool:
        """Whether nothing has changed since what lists are made of was loaded."""
        with self.database.reading() as connection:
            generation = service_state.read(self.database, connection).generation
        return self._world is not None and self._world.generation == generation

    def _under_lock(
        self, requests: Sequence[ListRequest], users: UsersSoFar
    ) -> list[Decided | Exception]:
        """As above where everything changes all the time: nobody else can while it is decided."""
        assert self._recorder is not None
        with self.database.writing() as connection:
            state = service_state.lock(self.database, connection)
            world = self._loader.load(connection)
            purse = self._take(connection, world, state.now)
            assert self._decider is not None
            answers = self._decider.decide(requests, users, purse.copy())
            made = [one for one in answers if isinstance(one, Decided)]
            if made:
                prices = self._decider.prices
                purse = self._recorder.write(connection, state, made, purse, prices)
        self._purse = purse
        return answers

    def _begin(self) -> None:
        """Become a replica, a new one if it was one before: its leases are given back."""
        before = self.replica
        if before is not None:
            reaping.leave(self.database, before)
            self._recorder = None
        reaping.reap(self.database, self.settings.replica_timeout)
        with self.database.writing() as connection:
            service_state.lock(self.database, connection)
            replica = replicas.join(self.database, connection)
        self._recorder = ListRecorder(self.database, replica, self.settings.confirm_within)
        self._open()

    def _open(self) -> None:
        """Load what has changed and take leases; both belong to one generation."""
        for _ in range(TRIES):
            with self.database.reading() as connection:
                world = self._loader.load(connection)
            with self.database.writing() as connection:
                state = service_state.lock(self.database, connection)
                if state.generation == world.generation:
                    purse = self._take(connection, world, state.now)
                    break
        else:
            with self.database.writing() as connection:
                state = service_state.lock(self.database, connection)
                purse = self._take(connection, self._loader.load(connection), state.now)
        crash_point(AFTER_CHARGE)
        self._purse = purse

    def _take(self, connection: Connection, world: World, now: float) -> Purse:
        """Leases for a world, inside a transaction with the lock; lists are of it from now on."""
        assert self._recorder is not None
        replica = self._recorder.replica
        purse = Ledger(self.database, connection, replica).open(world.rules, now, self._purse)
        for trouble in world.troubles:
            LOG.warning("a limit is about nothing: %s", trouble)
        long = self.settings.value is ListValue.LONG
        if long and world.state is not None and world.outlook is None:
            LOG.warning("value=long: model %s has learned from no answers", world.model_id)
        draws = np.random.default_rng([self.settings.seed, zlib.crc32(replica.encode())])
        self._decider = Decider(world, purse.prices, self.settings, draws, self._decider)
        self._world = world
        return purse
