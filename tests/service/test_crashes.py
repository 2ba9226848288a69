"""Processes that end at the worst moment: nothing answered is lost, no budget is exceeded."""

import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy as sa
from asking import ask
from crashing_replica import replica_until

from fairhorizon.parallel.engine import start_method
from fairhorizon.service.admin.set_up import set_up
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store import database as databases
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import accounts, labels, leases, lists, state
from service_checks import accounts_agree, excesses, missing_events, missing_lists
from service_load import Server
from service_traffic import Traffic

pytestmark = pytest.mark.slow


def crashed(url: str, point: str) -> set[str]:
    """The lists that a replica has answered before it ended at a point."""
    context = start_method(1)
    here, there = context.Pipe(duplex=False)
    replica = context.Process(target=replica_until, args=(url, point, there))
    replica.start()
    there.close()  # so that the pipe ends with the process
    answered = set()
    with suppress(EOFError):
        while True:
            answered.add(here.recv())
    replica.join()
    assert replica.exitcode == -signal.SIGKILL
    return answered


def one(database: Database, query: sa.Select[tuple[object]]) -> object:
    with database.reading() as connection:
        return connection.execute(query).scalar()


@pytest.mark.parametrize(
    ("point", "answered", "recorded"),
    [
        (databases.AFTER_CHARGE, 0, 0),
        (databases.BEFORE_COMMIT, 0, 0),
        (databases.AFTER_COMMIT, 0, 1),  # recorded, but its answer is lost
        (databases.IN_EPOCH_SWITCH, 5, 5),
    ],
)
def test_a_replica_that_ends_at_a_point(
    url: str, database: Database, shop_run: Path, point: str, answered: int, recorded: int
) -> None:
    set_up(database, ServiceSettings(slack=20), run=shop_run)
    ids = crashed(url, point)
    assert len(ids) == answered
    assert missing_lists(database, ids) == 0
    assert one(database, sa.select(sa.func.count()).select_from(lists)) == recorded
    # the switch of labels was one transaction: none of it is there
    assert one(database, sa.select(state.c.epoch)) == 1
    assert one(database, sa.select(sa.func.count()).select_from(labels)) == 1
    left = one(database, sa.select(sa.func.sum(leases.c.left)))
    assert left == one(database, sa.select(accounts.c.charged - accounts.c.used))
    assert int(str(left)) > 0  # of the dead, until another replica takes it back
    engine = Engine(Database(url), ServiceSettings(slack=20))
    engine.prepare()  # sees that the process is gone, and takes its lease back
    engine.start()
    for number in range(20):
        ask(engine, f"c{number}")
    engine.stop()
    engine.database.close()
    assert one(database, sa.select(sa.func.count()).select_from(leases)) == 0
    assert accounts_agree(database)
    assert all(found.kept for found in excesses(database))


def test_a_worker_that_is_killed_under_load_is_replaced(tmp_path: Path, shop_run: Path) -> None:
    server = Server(shop_run, str(tmp_path / "service.db"), workers=2)
    server.start()
    traffic = Traffic([server.port], [f"c{number}" for number in range(40)]).start()
    first = server.worker_pids()
    server.kill(first[0])
    server.wait_until_ready()
    while not set(server.worker_pids()) - set(first):
        time.sleep(0.1)
    before = len(traffic.answered)
    while len(traffic.answered) < before + 50:
        time.sleep(0.1)
    traffic.stop()
    server.stop()
    database = Database(server.database)
    assert missing_lists(database, traffic.answered) == 0
    assert missing_events(database, traffic.acknowledged) == 0
    assert accounts_agree(database)
    assert all(found.kept for found in excesses(database))
    database.close()


def test_a_batch_whose_record_fails_is_not_answered_and_spends_nothing(
    replicas: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the database went away in the middle of a commit."""
    engine = replicas()
    ask(engine, "c1")

    def broken(*_: object) -> None:
        raise ConnectionError("gone")

    monkeypatch.setattr(engine.replica, "_row", broken)  # after everything was charged
    with pytest.raises(ConnectionError):
        ask(engine, "c2")
    monkeypatch.undo()
    assert len(ask(engine, "c3").items) == 10
    assert one(engine.database, sa.select(sa.func.count()).select_from(lists)) == 2
    assert accounts_agree(engine.database)
