"""One replica: its row in the database, its leases, and the lists that it makes and records.

Lists are recorded before they are answered: one transaction for a batch, its lists in order. The
engine is the thread that does it: requests that wait are served together.
"""

import asyncio
import logging
import queue
import threading
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from enum import Enum
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.budget.leases import LeaseBalance, OverdrawnError
from fairhorizon.service.budget.ledger import Ledger, join_replica, leave_replica, recover_leases
from fairhorizon.service.replica.list_builder import (
    BuiltList,
    ListBuilder,
    ListRequest,
    UserHistories,
    Waiter,
)
from fairhorizon.service.replica.snapshot import ServingSnapshot, SnapshotLoader
from fairhorizon.service.settings import Counts, ServiceSettings
from fairhorizon.service.store import feedback
from fairhorizon.service.store.database import (
    AFTER_CHARGE,
    AFTER_COMMIT,
    BEFORE_COMMIT,
    Database,
    DatabaseAwayError,
    crash_point,
)
from fairhorizon.service.store.schema import lists, unconfirmed
from fairhorizon.service.store.schema import replicas as replica_table
from fairhorizon.service.store.schema import state as state_table
from fairhorizon.service.store.state import ServiceState, lock_state, read_state
from fairhorizon.vocabulary import ListValue

ALIVE = sa.select(replica_table.c.id).where(replica_table.c.id == sa.bindparam("replica"))
INSERT = lists.insert()
COUNT = state_table.update().values(
    {name: sa.bindparam(f"to_{name}") for name in ("lists", "showings", "clock")}
)
TRIES = 4  # of requests during which something changes
LOG = logging.getLogger("fairhorizon.service")


class StaleError(Exception):
    """Items, limits, labels or the model have changed: lists have to be decided anew."""


class FencedError(Exception):
    """This replica was taken for dead and its leases were given back: it has to begin anew."""


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

    Lists are made in the state READY, or in a transaction that loads first and lets nobody change
    anything. Those that could not be recorded, because the replica is outdated or was taken for
    dead, are decided anew and never answered.
    """

    def __init__(self, database: Database, settings: ServiceSettings) -> None:
        self.database, self.settings = database, settings
        self.state = ReplicaState.OUTSIDE
        self.snapshot: ServingSnapshot | None = None  # the last one; None before the first
        self._loader = SnapshotLoader(database)
        self.id: str | None = None  # of its row; None before it has joined
        self._builder: ListBuilder | None = None
        self._balance: LeaseBalance | None = None

    def _move(self, to: ReplicaState) -> None:
        assert to in MOVES[self.state], f"{self.state} -> {to}"
        self.state = to

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
            leave_replica(self.database, self.id)

    def answer(self, requests: Sequence[ListRequest]) -> list[BuiltList | Exception]:
        """A recorded list for each request, or why there is none.

        Whatever changes in between, lists are decided anew until they can be recorded.
        """
        # Read once: what users do in between counts for their next list.
        users = self._histories(requests)
        for _ in range(TRIES):
            self.make_ready()
            # Lists are decided on a copy of the balance: it is spent once they are recorded.
            assert self._builder is not None
            assert self._balance is not None
            answers = self._builder.build(requests, users, self._balance.copy())
            made = [one for one in answers if isinstance(one, BuiltList)]
            if not made:
                if self._is_present():
                    return answers
                # What was refused may be known by now: an item, or a model.
                self.outdated()
                continue
            try:
                self._balance = self._record(
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

    def _record(
        self,
        decided: Sequence[BuiltList],
        balance: LeaseBalance,
        prices: Sequence[float],
        *,
        generation: int,
    ) -> LeaseBalance:
        """Charge, count and write lists that were decided with this balance; the balance after it.

        prices: those of the model's values, to begin with after a restart.
        generation: of the snapshot that the lists were made from.
        """
        with self.database.writing() as connection:
            state = lock_state(self.database, connection)
            if state.generation != generation:
                raise StaleError
            after = self._write(connection, state, decided, balance, prices)
            crash_point(BEFORE_COMMIT)
        crash_point(AFTER_COMMIT)
        return after

    def _write(
        self,
        connection: Connection,
        state: ServiceState,
        decided: Sequence[BuiltList],
        balance: LeaseBalance,
        prices: Sequence[float],
    ) -> LeaseBalance:
        """The same inside a transaction that holds the lock, in the state that it has found."""
        assert self.id is not None
        if connection.execute(ALIVE, {"replica": self.id}).first() is None:
            raise FencedError
        weighed = [balance.weigh(one.codes) for one in decided]
        inside = sum((one[0] for one in weighed), np.zeros(len(balance.rules), dtype=np.int64))
        total = sum(
            (one[1] for one in weighed), np.zeros(len(balance.rules.limits), dtype=np.int64)
        )
        ledger = Ledger(self.database, connection, self.id)
        # Charging comes first: where a lease does not cover the lists, nothing at all is written.
        after = ledger.settle(balance, inside, total, prices, state.now)
        rows = [
            self._row(one, number, after, state)
            for number, one in enumerate(decided, start=state.lists + 1)
        ]
        connection.execute(INSERT, rows)
        if any(limit.counts is Counts.CONFIRMED for limit in balance.rules.limits):
            until = state.now + self.settings.confirm_within
            waiting = [{"list_id": one.id, "until": until} for one in decided]
            connection.execute(unconfirmed.insert(), waiting)
        counts = {
            "to_lists": state.lists + len(decided),
            "to_showings": state.showings + sum(len(one.items) for one in decided),
            "to_clock": state.now,
        }
        connection.execute(COUNT, counts)
        return after

    def _row(
        self, one: BuiltList, number: int, balance: LeaseBalance, state: ServiceState
    ) -> dict[str, Any]:
        labels: list[list[int]] = [[] for _ in one.items]
        if len(balance.rules):
            groups, places = balance.rules.members[:, one.codes].nonzero()
            for group, place in zip(groups.tolist(), places.tolist(), strict=True):
                labels[place].append(int(balance.accounts[group]))
        return {
            "number": number,
            "id": one.id,
            "user_id": one.user,
            "served_at": state.now,
            "source": one.source,
            "items": one.items,
            "labels": labels,
            "windows": balance.windows,
            "scores": one.scores,
            "values": one.values,
            "propensities": one.propensities,
            "prices": one.prices,
            "model_id": one.model,
            "epoch": state.epoch,
            "replica_id": self.id,
            "milliseconds": 1000 * (time.perf_counter() - one.started),
            "missing": one.missing,
        }

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
            generation = read_state(self.database, connection).generation
        return self.snapshot is not None and self.snapshot.generation == generation

    def _answer_under_lock(
        self, requests: Sequence[ListRequest], users: UserHistories
    ) -> list[BuiltList | Exception]:
        """The same where everything changes all the time: now nobody else can change anything."""
        if self.state is ReplicaState.OUTSIDE:
            self._join()
        with self.database.writing() as connection:
            state = lock_state(self.database, connection)
            snapshot = self._loader.load(connection)
            builder, balance = self._take_leases(connection, snapshot, state.now)
            answers = builder.build(requests, users, balance.copy())
            made = [one for one in answers if isinstance(one, BuiltList)]
            if made:
                balance = self._write(connection, state, made, balance, builder.prices)
        self._begin(snapshot, builder, balance)
        return answers

    def _join(self) -> None:
        if self.id is not None:
            leave_replica(self.database, self.id)
            self.id = None
        recover_leases(self.database, self.settings.replica_timeout)
        with self.database.writing() as connection:
            lock_state(self.database, connection)
            name = join_replica(self.database, connection)
        # Only now: other threads read the id, and a row that was not committed is no row.
        self.id, self._balance = name, None
        self._move(ReplicaState.STALE)

    def _load(self) -> None:
        for _ in range(TRIES):
            # Loading takes long: it is done without the lock, which recording lists waits for.
            with self.database.reading() as connection:
                snapshot = self._loader.load(connection)
            with self.database.writing() as connection:
                state = lock_state(self.database, connection)
                if state.generation == snapshot.generation:
                    builder, balance = self._take_leases(connection, snapshot, state.now)
                    break
        else:
            # Something changes all the time: once more under the lock, where nothing can.
            with self.database.writing() as connection:
                state = lock_state(self.database, connection)
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
        if is_long and snapshot.state is not None and snapshot.retention is None:
            LOG.warning("value=long: model %s has learned from no answers", snapshot.model_id)
        # Replicas draw from different streams.
        draws = np.random.default_rng([self.settings.seed, zlib.crc32(self.id.encode())])
        builder = ListBuilder(snapshot, balance.prices, self.settings, draws, self._builder)
        return builder, balance


# For how long a batch waits for those who were just answered: a part of what the last one took, in
# seconds at most.
WAIT, LONGEST_WAIT = 0.15, 0.003
NOTHING = ""  # what wakes the thread without a request


class Engine:
    """A replica at work. `submit` and `refresh` may be called from any thread."""

    def __init__(self, database: Database, settings: ServiceSettings) -> None:
        self.database, self.settings = database, settings
        self.replica = Replica(database, settings)
        self._waiting: queue.SimpleQueue[ListRequest | str | None] = queue.SimpleQueue()
        self._refresh = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lists", daemon=True)

    @property
    def snapshot(self) -> ServingSnapshot | None:
        """What lists are made of now; None before the first was loaded."""
        return self.replica.snapshot

    @property
    def n_waiting(self) -> int:
        """Requests that nobody has looked at yet."""
        return self._waiting.qsize()

    def prepare(self) -> None:
        """Join and load; before `start`."""
        self.replica.make_ready()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Answer what waits, and give the leases back."""
        self._waiting.put(None)
        self._thread.join(timeout=10)
        try:
            self.replica.leave()
        except DatabaseAwayError:
            LOG.warning("the leases of this replica could not be given back; others will do it")

    def submit(self, request: ListRequest) -> "Future[BuiltList]":
        """The list of a request, once it is recorded."""
        self._waiting.put(request)
        return request.answer

    async def recorded(self, request: ListRequest) -> BuiltList:
        """The same for a coroutine: those that wait for lists of one batch are woken together."""
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._waiting.put(replace(request, waiter=waiter))
        return await waiter

    def refresh(self) -> None:
        """Load what has changed before the next request needs it."""
        self._refresh.set()
        self._waiting.put(NOTHING)

    def _run(self) -> None:
        expected, until = 0, 0.0
        while True:
            batch = self._next_batch(expected, until)
            # Who has hung up needs no list, and none is counted.
            requests = [one for one in batch if isinstance(one, ListRequest) and one.is_awaited()]
            started = time.monotonic()
            if requests:
                self._serve(requests)
            elif self._refresh.is_set():
                self._refresh_now()
            if None in batch:
                return
            ended = time.monotonic()
            expected = len(requests) + self._waiting.qsize()
            until = ended + min(LONGEST_WAIT, WAIT * (ended - started))

    def _next_batch(self, expected: int, until: float) -> list[ListRequest | str | None]:
        """What is decided together: one pass of the model and one transaction for all that waits.

        A commit takes long beside the lists in it, and most of those who were just answered ask
        again at once. So it waits for them a little, until as many ask as did before.

        expected: as many as were answered last and waited then.
        until: when their time is over, by the monotonic clock.
        """
        batch = [self._waiting.get()]
        while len(batch) < self.settings.batch and isinstance(batch[-1], ListRequest):
            left = until - time.monotonic() if len(batch) < expected else 0.0
            try:
                batch.append(self._waiting.get(timeout=max(0.0, left)))
            except queue.Empty:
                break
        return batch

    def _refresh_now(self) -> None:
        self._refresh.clear()
        try:
            self.replica.outdated()
            self.replica.make_ready()
        except DatabaseAwayError as error:
            self.replica.lost()
            LOG.warning("%s", error)
        except Exception:
            self.replica.lost()
            LOG.exception("what has changed could not be loaded")

    def _serve(self, requests: Sequence[ListRequest]) -> None:
        try:
            answers = self.replica.answer(requests)
        except Exception as error:
            if not isinstance(error, DatabaseAwayError):
                LOG.exception("lists could not be made")
            # Whether the lists were recorded is not known, so its leases are of no use any more.
            self.replica.lost()
            answers = [error] * len(requests)
        _deliver(requests, answers)


def _deliver(requests: Sequence[ListRequest], answers: Sequence[BuiltList | Exception]) -> None:
    waiters: dict[asyncio.AbstractEventLoop, list[tuple[Waiter, BuiltList | Exception]]] = {}
    for one, answer in zip(requests, answers, strict=True):
        if one.waiter is not None:
            waiters.setdefault(one.waiter.get_loop(), []).append((one.waiter, answer))
        elif isinstance(answer, Exception):
            one.answer.set_exception(answer)
        else:
            one.answer.set_result(answer)
    for loop, some in waiters.items():
        # Once for the batch: every call wakes the thread of the loop, which then takes turns with
        # this one.
        loop.call_soon_threadsafe(_wake, some)


def _wake(waiters: Sequence[tuple[Waiter, BuiltList | Exception]]) -> None:
    for waiter, answer in waiters:
        # Who has hung up meanwhile has cancelled it.
        if waiter.done():
            continue
        if isinstance(answer, Exception):
            waiter.set_exception(answer)
        else:
            waiter.set_result(answer)
