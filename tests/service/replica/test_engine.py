"""A replica: lists under limits, recorded before they are answered."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from asking import ask

from fairhorizon.service.admin.set_up import set_up
from fairhorizon.service.replica.list_builder import BuiltList, ListRequest
from fairhorizon.service.replica.replica import Engine, Replica, ReplicaState
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.catalogue import update_item
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import lists
from service_checks import accounts_agree


def test_a_single_replica_keeps_the_share_itself_after_every_list(
    replicas: Callable[..., Engine],
) -> None:
    engine = replicas()
    for number in range(60):
        ask(engine, f"c{number % 40}")
    with engine.database.reading() as connection:
        rows = connection.execute(sa.select(lists).order_by(lists.c.number)).all()
    shown = np.cumsum([len(row.items) for row in rows])
    inside = np.cumsum([sum(map(bool, row.labels)) for row in rows])
    assert [row.number for row in rows] == list(range(1, 61))
    assert (inside <= 0.3 * shown).all()
    assert inside[-1] > 0.25 * shown[-1]


def test_a_replica_joins_loads_and_begins_anew(url: str, shop_run: Path) -> None:
    database, settings = Database(url), ServiceSettings()
    set_up(database, settings, run=shop_run)
    replica = Replica(database, settings)
    states = [replica.state]
    assert replica.id is None
    replica.make_ready()
    first = replica.id
    states.append(replica.state)
    replica.outdated()
    states.append(replica.state)
    (made,) = replica.answer([ListRequest("c1", 10)])
    assert isinstance(made, BuiltList)
    states.append(replica.state)
    assert replica.id == first  # it has only loaded
    replica.lost()
    replica.outdated()  # changes nothing: everything is loaded when it has joined
    states.append(replica.state)
    (made,) = replica.answer([ListRequest("c1", 10)])
    assert isinstance(made, BuiltList)
    states.append(replica.state)
    assert replica.id != first  # under another name
    outside, stale, ready = ReplicaState
    assert states == [outside, ready, stale, ready, outside, ready]
    assert accounts_agree(database)
    replica.leave()
    database.close()


def test_who_hangs_up_gets_no_list_and_the_others_do(replicas: Callable[..., Engine]) -> None:
    engine = replicas()
    gone, waiting = ListRequest("c1", 10), ListRequest("c2", 10)
    assert gone.answer.cancel()
    engine.submit(gone)
    assert len(engine.submit(waiting).result(timeout=60).items) == 10
    with engine.database.reading() as connection:
        users = connection.execute(sa.select(lists.c.user_id)).scalars().all()
    assert users == ["c2"]


def test_coroutines_that_wait_share_a_batch_and_who_hangs_up_gets_no_list(
    database: Database, shop_run: Path
) -> None:
    settings = ServiceSettings()
    set_up(database, settings, run=shop_run)
    engine = Engine(database, settings)
    engine.prepare()
    users = [f"c{number}" for number in range(12)]

    async def ask_all() -> list[BuiltList]:
        waiting = [asyncio.create_task(engine.recorded(ListRequest(one, 10))) for one in users]
        gone = asyncio.create_task(engine.recorded(ListRequest("gone", 10)))
        await asyncio.sleep(0)  # until all of them wait
        gone.cancel()
        await asyncio.wait([gone])
        engine.start()
        return await asyncio.gather(*waiting)

    made = asyncio.run(ask_all())
    engine.stop()
    assert [one.user for one in made] == users
    with database.reading() as connection:
        rows = connection.execute(sa.select(lists).order_by(lists.c.number)).all()
    assert [row.user_id for row in rows] == users
    assert [row.id for row in rows] == [one.id for one in made]
    # One transaction has one time.
    assert len({row.served_at for row in rows}) == 1


def test_a_batch_waits_for_as_many_as_asked_before_and_no_longer_than_it_may(
    database: Database,
) -> None:
    engine = Engine(database, ServiceSettings(batch=3))
    requests = [ListRequest(f"c{number}", 10) for number in range(5)]
    first, *others = requests
    engine.submit(first)
    late = threading.Timer(0.2, lambda: engine.submit(others[0]))
    late.start()
    # Two asked before: the second is waited for, a third is not.
    assert engine._next_batch(2, time.monotonic() + 600) == [first, others[0]]
    late.join()
    engine.submit(first)
    # Nobody is waited for when the time is over, or by who asks alone.
    assert engine._next_batch(2, time.monotonic()) == [first]
    engine.submit(first)
    assert engine._next_batch(1, time.monotonic() + 600) == [first]
    for one in requests:
        engine.submit(one)
    assert engine._next_batch(0, 0.0) == requests[:3]
    assert engine._next_batch(0, 0.0) == requests[3:]


@pytest.mark.slow
def test_lists_are_made_while_everything_changes_all_the_time(
    replicas: Callable[..., Engine],
) -> None:
    engine, ended = replicas(), threading.Event()
    database = Database(engine.database.url.render_as_string(hide_password=False))

    def change() -> None:
        while not ended.is_set():
            with database.writing() as connection:
                update_item(database, connection, "a1", {"comment": "new"})

    changing = threading.Thread(target=change)
    changing.start()
    made = [ask(engine, f"c{number}") for number in range(4)]
    ended.set()
    changing.join()
    database.close()
    assert all(len(one.items) == 10 for one in made)
    assert accounts_agree(engine.database)


def test_an_item_that_is_hidden_changes_nothing_else_of_the_world(
    replicas: Callable[..., Engine],
) -> None:
    engine = replicas()
    ask(engine, "c1")
    before = engine.snapshot
    with engine.database.writing() as connection:
        update_item(engine.database, connection, "a1", {"hidden": True})
    ask(engine, "c1")
    after = engine.snapshot
    assert before is not None
    assert after is not None
    assert after.generation == before.generation + 1
    assert after.state is before.state
    assert after.rules is before.rules
    changed = np.flatnonzero(after.catalogue.hidden != before.catalogue.hidden)
    assert [after.catalogue.ids[code] for code in changed] == ["a1"]


def test_a_category_that_nobody_has_is_not_kept(replicas: Callable[..., Engine]) -> None:
    engine = replicas()
    for number in range(5):
        assert ask(engine, "c1", categories=(f"nothing {number}",)).items == []
    assert engine.snapshot is not None
    assert engine.snapshot.catalogue._by_category == {}
