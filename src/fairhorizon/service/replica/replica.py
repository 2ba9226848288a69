"""One replica: its row in the database, its leases, and the lists that it makes and records."""

import logging
import zlib
from collections.abc import Sequence
from enum import Enum

import numpy as np
from sqlalchemy.engine import Connection

from fairhorizon.service.budget import replicas
from fairhorizon.service.budget.leases import LeaseBalance, OverdrawnError
from fairhorizon.service.budget.ledger import Ledger
from fairhorizon.service.crash_points import AFTER_CHARGE, crash_point
from fairhorizon.service.replica.list_builder import ListBuilder
from fairhorizon.service.replica.recording import FencedError, ListRecorder, StaleError
from fairhorizon.service.replica.requests import BuiltList, ListRequest, UserHistories
from fairhorizon.service.replica.snapshot import ServingSnapshot, SnapshotLoader
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store import feedback
from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database
from fairhorizon.vocabulary import ListValue

TRIES = 4  # of requests during which something changes
LOG = logging.getLogger("fairhorizon.service")


class ReplicaState(Enum):
    """How far a replica is from making lists."""

    OUTSIDE = "outside"  # without a row that it may record with, and without leases
    STALE = "stale"  # with a row; what lists are made of, or the leases, have to be loaded
    READY = "ready"  # with a snapshot and leases of the same generation


MOVES = {
    ReplicaState.OUTSIDE: {ReplicaState.STALE},
    ReplicaState.STALE: {ReplicaState.READY, ReplicaState.OUTSIDE},
    ReplicaState.READY: {ReplicaState.STALE, ReplicaState.OUTSIDE},
}


class Replica:
    """One of the processes that share the budgets of limits. Used by one thread.

                   join                load
        OUTSIDE ----------> STALE ------------> READY ---+
           ^                 | ^                 | |     | lists are recorded
           |                 | |    outdated     | |<----+
           |                 | +-----------------+ |
           |      lost       |                     |
           +-----------------+---------------------+

    join        a new row under a new name; the leases of its last name are given back
    load        the snapshot of the present generation, and leases for its limits
    outdated    items, limits, labels or the model have changed, or a lease does not cover a list
    lost        it was taken for dead, or it is not known whether its last lists were recorded

    Lists are made and recorded in the state READY only. Lists that could not be recorded because
    the replica is outdated or was taken for dead are decided anew, and never answered.
    """

    def __init__(self, database: Database, settings: ServiceSettings) -> None:
        self.database, self.settings = database, settings
        self.state = ReplicaState.OUTSIDE
        self.snapshot: ServingSnapshot | None = None  # the last one; None before the first
        self._loader = SnapshotLoader(database)
        self._recorder: ListRecorder | None = None
        self._builder: ListBuilder | None = None
        self._balance: LeaseBalance | None = None

    def _move(self, to: ReplicaState) -> None:
        assert to in MOVES[self.state], f"{self.state} -> {to}"
        self.state = to

    @property
    def id(self) -> str | None:
        """The name of its row; None before it has joined."""
        return None if self._recorder is None else self._recorder.replica

    def make_ready(self) -> None:
        """Join and load, as far as it is needed."""
        if self.state is ReplicaState.OUTSIDE:
            self._join()
        if self.state is ReplicaState.STALE:
            self._load()

    def outdated(self) -> None:
        """Load anew before the next list."""
        if self.state is ReplicaState.READY:
            self._move(ReplicaState.STALE)

    def lost(self) -> None:
        """Begin anew under another name before the next list."""
        if self.state is not ReplicaState.OUTSIDE:
            self._move(ReplicaState.OUTSIDE)

    def leave(self) -> None:
        """Give the leases back, for good."""
        if self.id is not None:
            replicas.leave(self.database, self.id)

    def answer(self, requests: Sequence[ListRequest]) -> list[BuiltList | Exception]:
        """A recorded list for each request, or why there is none.

        Whatever changes in between, lists are decided anew until they can be recorded.
        """
        users = self._histories(requests)
        for _ in range(TRIES):
            self.make_ready()
            assert self._builder is not None
            assert self._balance is not None
            assert self._recorder is not None
            answers = self._builder.build(requests, users, self._balance.copy())
            made = [one for one in answers if isinstance(one, BuiltList)]
            if not made:
                if self._is_present():
                    return answers
                self.outdated()  # what is refused may be known by now
                continue
            try:
                self._balance = self._recorder.record(
                    made,
                    self._balance,
                    self._builder.prices,
                    generation=self._builder.snapshot.generation,
                )
            except (StaleError, OverdrawnError):
                self.outdated()
            except FencedError:
                self.lost()
            else:
                return answers
        return self._answer_under_lock(requests, users)

    def _histories(self, requests: Sequence[ListRequest]) -> UserHistories:
        with self.database.reading() as connection:
            asking = sorted({one.user for one in requests})
            events = feedback.of_users(connection, asking, self.settings.read)
            is_long = self.settings.value is ListValue.LONG
            shown = feedback.newest_lists(connection, asking) if is_long else {}
        return UserHistories(events, shown)

    def _is_present(self) -> bool:
        """Whether nothing has changed since what lists are made of was loaded."""
        with self.database.reading() as connection:
            generation = service_state.read(self.database, connection).generation
        return self.snapshot is not None and self.snapshot.generation == generation

    def _answer_under_lock(
        self, requests: Sequence[ListRequest], users: UserHistories
    ) -> list[BuiltList | Exception]:
        """The same where everything changes all the time: now nobody else can change anything."""
        if self.state is ReplicaState.OUTSIDE:
            self._join()
        assert self._recorder is not None
        with self.database.writing() as connection:
            state = service_state.lock(self.database, connection)
            snapshot = self._loader.load(connection)
            builder, balance = self._take_leases(connection, snapshot, state.now)
            answers = builder.build(requests, users, balance.copy())
            made = [one for one in answers if isinstance(one, BuiltList)]
            if made:
                balance = self._recorder.write(connection, state, made, balance, builder.prices)
        self._begin(snapshot, builder, balance)
        return answers

    def _join(self) -> None:
        if self.id is not None:
            replicas.leave(self.database, self.id)
            self._recorder = None
        replicas.recover_leases(self.database, self.settings.replica_timeout)
        with self.database.writing() as connection:
            service_state.lock(self.database, connection)
            name = replicas.join(self.database, connection)
        self._recorder = ListRecorder(self.database, name, self.settings.confirm_within)
        self._balance = None
        self._move(ReplicaState.STALE)

    def _load(self) -> None:
        for _ in range(TRIES):
            # loading takes long: it is done without the lock, which recording lists waits for
            with self.database.reading() as connection:
                snapshot = self._loader.load(connection)
            with self.database.writing() as connection:
                state = service_state.lock(self.database, connection)
                if state.generation == snapshot.generation:
                    builder, balance = self._take_leases(connection, snapshot, state.now)
                    break
        else:
            with self.database.writing() as connection:
                state = service_state.lock(self.database, connection)
                snapshot = self._loader.load(connection)
                builder, balance = self._take_leases(connection, snapshot, state.now)
        crash_point(AFTER_CHARGE)
        self._begin(snapshot, builder, balance)

    def _begin(
        self, snapshot: ServingSnapshot, builder: ListBuilder, balance: LeaseBalance
    ) -> None:
        """Lists are of this snapshot from now on; its leases are committed."""
        self.snapshot, self._builder, self._balance = snapshot, builder, balance
        self._move(ReplicaState.READY)

    def _take_leases(
        self, connection: Connection, snapshot: ServingSnapshot, now: float
    ) -> tuple[ListBuilder, LeaseBalance]:
        """Leases for a snapshot, and what makes its lists; in a transaction that has the lock."""
        assert self.id is not None
        ledger = Ledger(self.database, connection, self.id)
        balance = ledger.open(snapshot.rules, now, self._balance)
        for trouble in snapshot.troubles:
            LOG.warning("a limit is about nothing: %s", trouble)
        is_long = self.settings.value is ListValue.LONG
        if is_long and snapshot.state is not None and snapshot.outlook is None:
            LOG.warning("value=long: model %s has learned from no answers", snapshot.model_id)
        draws = np.random.default_rng([self.settings.seed, zlib.crc32(self.id.encode())])
        builder = ListBuilder(snapshot, balance.prices, self.settings, draws, self._builder)
        return builder, balance
