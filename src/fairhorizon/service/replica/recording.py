"""Lists are recorded before they are answered: one transaction for a batch, its lists in order."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.budget.leases import LeaseBalance
from fairhorizon.service.budget.ledger import Ledger
from fairhorizon.service.crash_points import AFTER_COMMIT, BEFORE_COMMIT, crash_point
from fairhorizon.service.replica.requests import BuiltList
from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import lists, replicas, unconfirmed
from fairhorizon.service.store.schema import state as state_table
from fairhorizon.service.vocabulary import Counts

ALIVE = sa.select(replicas.c.id).where(replicas.c.id == sa.bindparam("replica"))
INSERT = lists.insert()
COUNT = state_table.update().values(
    {name: sa.bindparam(f"to_{name}") for name in ("lists", "showings", "clock")}
)


class StaleError(Exception):
    """Items, limits, labels or the model have changed: lists have to be decided anew."""


class FencedError(Exception):
    """This replica was taken for dead and its leases were given back: it has to begin anew."""


@dataclass(frozen=True)
class ListRecorder:
    """Writes the lists of one replica."""

    database: Database
    replica: str
    confirm_within: float

    def record(
        self,
        decided: Sequence[BuiltList],
        balance: LeaseBalance,
        prices: Sequence[float],
        *,
        generation: int,
    ) -> LeaseBalance:
        """Charge, count and write lists that were decided with this balance; the balance after it.

        prices: those of the model's values, to begin with after a restart.
        """
        with self.database.writing() as connection:
            state = service_state.lock(self.database, connection)
            if state.generation != generation:
                raise StaleError
            after = self.write(connection, state, decided, balance, prices)
            crash_point(BEFORE_COMMIT)
        crash_point(AFTER_COMMIT)
        return after

    def write(
        self,
        connection: Connection,
        state: service_state.ServiceState,
        decided: Sequence[BuiltList],
        balance: LeaseBalance,
        prices: Sequence[float],
    ) -> LeaseBalance:
        """The same inside a transaction that holds the lock, in the state that it has found."""
        self._check_alive(connection)
        weighed = [balance.weigh(one.codes) for one in decided]
        inside = sum((one[0] for one in weighed), np.zeros(len(balance.rules), dtype=np.int64))
        total = sum(
            (one[1] for one in weighed), np.zeros(len(balance.rules.limits), dtype=np.int64)
        )
        ledger = Ledger(self.database, connection, self.replica)
        after = ledger.settle(balance, inside, total, prices, state.now)
        rows = [
            self._row(one, number, after, state)
            for number, one in enumerate(decided, start=state.lists + 1)
        ]
        connection.execute(INSERT, rows)
        if any(limit.counts is Counts.CONFIRMED for limit in balance.rules.limits):
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
        self, one: BuiltList, number: int, balance: LeaseBalance, state: service_state.ServiceState
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
            "replica_id": self.replica,
            "milliseconds": 1000 * (time.perf_counter() - one.begun),
        }
