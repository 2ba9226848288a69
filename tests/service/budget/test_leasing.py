"""Sizes of leases and what is handed out, by hand; and the ledger keeps to it."""

from collections.abc import Callable

import numpy as np
import pytest
import sqlalchemy as sa
from hypothesis import given
from hypothesis import strategies as st

from fairhorizon.service.budget.leases import OverdrawnError, granted, lease_size, used_lately
from fairhorizon.service.budget.ledger import Ledger, join_replica
from fairhorizon.service.budget.rules import UNIT, Window
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.store.schema import accounts, leases, windows
from fleet_simulation import Account

units = st.integers(0, 10**12)


def test_a_lease_is_an_equal_part_of_the_slack_or_what_its_replica_needs() -> None:
    assert lease_size(200 * UNIT, 4, 0) == 50 * UNIT
    assert lease_size(200 * UNIT, 4, 10 * UNIT) == 50 * UNIT
    assert lease_size(200 * UNIT, 4, 20 * UNIT) == 60 * UNIT  # three times what was used
    assert lease_size(200 * UNIT, 1000, 4 * UNIT) == 12 * UNIT
    assert lease_size(200 * UNIT, 1000, 0) == UNIT  # or nothing could ever begin
    assert lease_size(200 * UNIT, 0, 0) == 200 * UNIT


@given(slack=units, replicas=st.integers(1, 2000), lately=units, more=units)
def test_more_slack_or_more_use_means_a_larger_lease_more_replicas_a_smaller_one(
    slack: int, replicas: int, lately: int, more: int
) -> None:
    size = lease_size(slack, replicas, lately)
    assert lease_size(slack + more, replicas, lately) >= size
    assert lease_size(slack, replicas, lately + more) >= size
    assert lease_size(slack, replicas + more, lately) <= size


def test_what_was_used_lately_fades() -> None:
    assert used_lately(100, 0) == 90
    assert used_lately(100, 95) == 95
    assert used_lately(100, 120) == 120


def test_a_lease_is_filled_up_as_far_as_the_account_has_room() -> None:
    def grant(left: int, size: int, charged: int) -> int:
        """At 40 % of 100 showings and a slack of 20: 60 may be charged."""
        some = (UNIT * number for number in (charged, left, size, 90, 100))
        names = ("charged", "left", "size", "before", "shown")
        return granted(400_000, 20 * UNIT, **dict(zip(names, some, strict=True))) // UNIT

    assert grant(left=2, size=8, charged=50) == 6
    assert grant(left=2, size=30, charged=50) == 10
    assert grant(left=2, size=30, charged=56) == 4
    assert grant(left=9, size=8, charged=50) == 0  # a lease that is too large stays
    assert grant(left=-3, size=2, charged=50) == 5  # what was missing, and a new lease
    # what is missing has to be covered by 40 % of the 90 showings before, 36, and the slack
    assert grant(left=-6, size=2, charged=50) == 8
    with pytest.raises(OverdrawnError):
        grant(left=-7, size=2, charged=50)


def test_the_ledger_and_the_simulated_account_agree(replicas: Callable[..., Engine]) -> None:
    engine = replicas(slack=30, window="300 showings")
    database, snapshot = engine.database, engine.snapshot
    assert snapshot is not None
    (limit,) = snapshot.rules.limits
    simulated = Account(limit.share, limit.slack, Window.parse("300 showings"), lease_size)
    names = [str(engine.replica.id)]
    with database.writing() as connection:
        names += [join_replica(database, connection) for _ in range(2)]
    simulated.join(0)
    simulated.settle(0, 0, 0, 0, 0.0)  # the engine was alone when it opened
    simulated.join(1)
    simulated.join(2)
    draws = np.random.default_rng(0)
    balances = {}
    for step in range(60):
        who, length = int(draws.integers(3)), int(draws.integers(1, 11))
        with database.writing() as connection:
            ledger = Ledger(database, connection, names[who])
            if who not in balances:
                balances[who] = ledger.open(snapshot.rules, 0.0)
                simulated.settle(who, 0, 0, 0, 0.0)
            before = balances[who]
            inside = min(length, int(before.left[0]) // UNIT)
            used, shown = np.array([inside * UNIT]), np.array([length * UNIT])
            lately = used_lately(int(before.lately[0]), inside * UNIT)
            try:
                balances[who] = ledger.settle(before, used, shown, [0.0], 0.0)
            except OverdrawnError:
                with pytest.raises(OverdrawnError):
                    simulated.settle(who, inside * UNIT, length * UNIT, lately, 0.0)
                connection.rollback()
                del balances[who]
                continue
            seen = simulated.settle(who, inside * UNIT, length * UNIT, lately, 0.0)
            after, window = balances[who], connection.execute(sa.select(windows)).all()[-1]
            account = connection.execute(
                sa.select(accounts).where(accounts.c.window_id == window.id)
            ).one()
        assert (seen.window, seen.left) == (after.names[0], int(after.left[0])), step
        assert (seen.shown, seen.used) == (window.shown, account.used), step
        assert simulated.charged == account.charged, step
    with database.reading() as connection:
        query = sa.select(leases).where(leases.c.account_id == account.id)
        held = {names.index(row.replica_id): row.left for row in connection.execute(query)}
    assert held == {who: left for who, left in simulated.held.items() if who in held}
    assert int(simulated.name) > 1  # windows have changed on the way
