"""Lists are recorded before they are answered: one transaction for a batch, its lists in order."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray
from sqlalchemy.engine import Connection

from fairhorizon.service.budget.ledger import Ledger
from fairhorizon.service.budget.purse import Purse
from fairhorizon.service.crash_points import AFTER_COMMIT, BEFORE_COMMIT, crash_point
from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import lists, replicas, unconfirmed
from fairhorizon.service.store.schema import state as state_table
from fairhorizon.service.vocabulary import Counts, Source

Codes = NDArray[np.int64]
ALIVE = sa.select(replicas.c.id).where(replicas.c.id == sa.bindparam("replica"))
INSERT = lists.insert()
COUNT = state_table.update().values(
    {name: sa.bindparam(f"to_{name}") for name in ("lists", "showings", "clock")}
)


class StaleError(Exception):
    """Items, limits, labels or the model have changed: lists have to be decided anew."""


class FencedError(Exception):
    """This replica was taken for dead and its leases were given back: it has to begin anew."""


@dataclass(frozen=True, eq=False)
class Decided:
    """A list as it will be recorded and answered."""

    id: str
    user: str
    source: Source
    codes: Codes  # of the items, by place
    items: list[str]
    scores: list[float]
    values: list[float]
    propensities: list[float] | None
    model: int | None  # that the values are of
    begun: float  # when its request came, by the clock of this process
    prices: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ListRecorder:
    """Writes the lists of one replica."""

    database: Database
    replica: str
    confirm_within: float

    def record(
        self,
        decided: Sequence[Decided],
        purse: Purse,
        prices: Sequence[float],
        *,
        generation: int,
    ) -> Purse:
        """Charge, count and write lists that were decided with this purse; the purse after it.

        prices: those of the model's values, to begin with after a restart.
        """
        with self.database.writing() as connection:
            state = service_state.lock(self.database, connection)
            if state.generation != generation:
                raise StaleError
            after = self.write(connection, state, decided, purse, prices)
            crash_point(BEFORE_COMMIT)
        crash_point(AFTER_COMMIT)
        return after

    def write(
        self,
        connection: Connection,
        state: service_state.ServiceState,
        decided: Sequence[Decided],
        purse: Purse,
        prices: Sequence[float],
    ) -> Purse:
        """The same inside a transaction that holds the lock, in the state that it has found."""
        self._check_alive(connection)
        weighed = [purse.weigh(one.codes) for one in decided]
        inside = sum((one[0] for one in weighed), np.zeros(len(purse.rules), dtype=np.int64))
        total = sum((one[1] for one in weighed), np.zeros(len(purse.rules.limits), dtype=np.int64))
        ledger = Ledger(self.database, connection, self.replica)
        after = ledger.settle(purse, inside, total, prices, state.now)
        rows = [
            self._row(one, number, after, state)
            for number, one in enumerate(decided, start=state.lists + 1)
        ]
        connection.execute(INSERT, rows)
        if any(limit.counts is Counts.CONFIRMED for limit in purse.rules.limits):
            until = state.now + self.confirm_within
            waiting = [{"list_id": one.id, "until": until} for one in decided]
            connection.execute(unconfirmed.insert(), waiting)
        counts = {
            "to_lists": state.lists + len(decided),
            "to_showings": state.showings + sum(len(one.items) for one in decided),
            "to_clock": state.now,
        }
        connection.execute(COUNT, counts)
        return after

    def _check_alive(self, connection: Connection) -> None:
        if connection.execute(ALIVE, {"replica": self.replica}).first() is None:
            raise FencedError

    def _row(
        self, one: Decided, number: int, purse: Purse, state: service_state.ServiceState
    ) -> dict[str, Any]:
        labels: list[list[int]] = [[] for _ in one.items]
        if len(purse.rules):
            groups, places = purse.rules.members[:, one.codes].nonzero()
            for group, place in zip(groups.tolist(), places.tolist(), strict=True):
                labels[place].append(int(purse.accounts[group]))
        return {
            "number": number,
            "id": one.id,
            "user_id": one.user,
            "served_at": state.now,
            "source": one.source,
            "items": one.items,
            "labels": labels,
            "windows": purse.windows,
            "scores": one.scores,
            "values": one.values,
            "propensities": one.propensities,
            "prices": one.prices,
            "model_id": one.model,
            "epoch": state.epoch,
            "replica_id": self.replica,
            "milliseconds": 1000 * (time.perf_counter() - one.begun),
        }
