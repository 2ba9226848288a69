"""Several replicas with one budget: leases, windows, epochs, and what becomes of the dead."""

import threading
from collections.abc import Callable

import numpy as np
import pytest
import sqlalchemy as sa
from asking import ask

from fairhorizon.service.admin.set_up import create_limit, relabel
from fairhorizon.service.budget.ledger import leave_replica, recover_leases
from fairhorizon.service.budget.rules import UNIT
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.catalogue import Item, put_items, remove_item, update_item
from fairhorizon.service.store.schema import accounts, labels, leases, lists, windows
from fairhorizon.service.store.schema import limits as limit_table
from fairhorizon.service.store.schema import replicas as replica_table
from fairhorizon.service.store.state import end_limit, limits_in_force
from service_checks import accounts_agree, excesses

pytestmark = pytest.mark.slow

Make = Callable[..., Engine]


def everybody_asks(engines: list[Engine], each: int) -> None:
    """Requests to all replicas at the same time."""

    def one(number: int) -> None:
        for request in range(each):
            ask(engines[number], f"c{(7 * request + number) % 40}")

    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(engines))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def rows(engine: Engine, table: sa.Table) -> list[sa.Row[tuple[object, ...]]]:
    with engine.database.reading() as connection:
        return list(connection.execute(sa.select(table)))


def test_the_limit_holds_after_every_list_whatever_replica_made_it(replicas: Make) -> None:
    engines = [replicas(slack=20) for _ in range(3)]
    everybody_asks(engines, 30)
    (found,) = excesses(engines[0].database)
    assert found.showings == 900
    assert found.kept
    assert found.slack == 20
    assert found.share > 0.25  # and the budget is used
    assert accounts_agree(engines[0].database)
    made = {row.replica_id for row in rows(engines[0], lists)}
    assert made == {engine.replica.id for engine in engines}


def test_leases_of_all_replicas_are_within_the_slack(replicas: Make) -> None:
    engines = [replicas(slack=30) for _ in range(3)]
    everybody_asks(engines, 5)
    (account,) = rows(engines[0], accounts)
    held = rows(engines[0], leases)
    # 30 for the one that was alone, until it had to share with the others
    assert account.charged == account.used + sum(row.left for row in held)
    assert account.charged <= 0.3 * 150 * UNIT + 30 * UNIT


def test_a_replica_that_is_taken_for_dead_begins_anew(replicas: Make) -> None:
    engine = replicas()
    ask(engine, "c1")
    before = engine.replica.id
    leave_replica(engine.database, str(before))  # as another replica does after its silence
    assert len(ask(engine, "c2").items) == 10
    assert engine.replica.id != before
    assert accounts_agree(engine.database)


def test_the_lease_of_the_dead_goes_back_to_the_account(replicas: Make) -> None:
    alive, dead = replicas(slack=40), replicas(slack=40)
    ask(dead, "c1")
    assert {row.id for row in rows(alive, replica_table)} == {alive.replica.id, dead.replica.id}
    assert recover_leases(alive.database, 60.0) == 0
    assert recover_leases(alive.database, -1.0) == 2  # everybody is silent for longer than that
    (account,) = rows(alive, accounts)
    assert account.charged == account.used
    assert rows(alive, leases) == []
    assert accounts_agree(alive.database)


def test_windows_of_showings_count_by_themselves(replicas: Make) -> None:
    engine = replicas(window="50 showings")
    for number in range(12):
        ask(engine, f"c{number}")
    opened = rows(engine, windows)
    assert [row.name for row in opened] == ["1", "2", "3"]
    assert [row.shown // UNIT for row in opened] == [50, 50, 20]
    assert [row.closed_at is None for row in opened] == [False, False, True]
    spent = [row.used // UNIT for row in rows(engine, accounts)]
    assert all(0 < used <= 0.3 * shown for used, shown in zip(spent, (50, 50, 20), strict=True))
    assert accounts_agree(engine.database)


def test_a_new_window_is_entered_in_the_middle_of_the_work_of_others(replicas: Make) -> None:
    engines = [replicas(window="40 showings", slack=12) for _ in range(3)]
    everybody_asks(engines, 12)
    assert all(one.kept for one in excesses(engines[0].database))
    assert accounts_agree(engines[0].database)
    counted = [row.shown // UNIT for row in rows(engines[0], windows)]
    assert sum(counted) == 360
    assert all(shown >= 40 for shown in counted[:-1])


def test_all_replicas_switch_to_new_labels_together(replicas: Make) -> None:
    engines = [replicas(slack=20, relabel=0) for _ in range(2)]
    everybody_asks(engines, 8)
    switching = threading.Thread(target=lambda: [relabel(engines[0].database) for _ in range(4)])
    switching.start()
    everybody_asks(engines, 8)
    switching.join()
    everybody_asks(engines, 2)
    popular = {row.epoch: set(row.popular) for row in rows(engines[0], labels)}
    made = sorted(rows(engines[0], lists), key=lambda row: row.number)
    epochs = [row.epoch for row in made]
    assert epochs == sorted(epochs)
    assert epochs[-1] == 5
    for row in made:  # every showing counts under the labels of its epoch
        inside = [bool(labels) for labels in row.labels]
        assert inside == [item in popular[row.epoch] for item in row.items]
    assert all(one.kept for one in excesses(engines[0].database))


def test_hidden_and_deleted_items_are_gone_from_the_next_list(replicas: Make) -> None:
    engines = [replicas(), replicas()]
    first = ask(engines[0], "c1").items
    database = engines[0].database
    with database.writing() as connection:
        update_item(database, connection, first[0], {"hidden": True})
        remove_item(database, connection, first[1])
    for engine in engines:
        assert not set(first[:2]) & set(ask(engine, "c1").items)
    with database.writing() as connection:
        update_item(database, connection, first[0], {"hidden": False})
    assert first[0] in ask(engines[1], "c1").items


def test_a_limit_of_several_groups_and_floors(replicas: Make) -> None:
    engine = replicas()
    settings = ServiceSettings()
    create_limit(engine.database, "kind:each<=0.25", settings)
    create_limit(engine.database, "seller=small>=0.5", settings)
    for number in range(80):
        ask(engine, f"c{number % 40}")
    assert all(one.kept for one in excesses(engine.database))
    assert len(excesses(engine.database)) == 1 + 5  # popular, and five kinds
    assert accounts_agree(engine.database)
    made = sorted(rows(engine, lists), key=lambda row: row.number)
    late = [item for row in made[40:] for item in row.items]
    small = np.mean([int(item[1:]) % 3 == 0 for item in late])
    assert small >= 0.48  # steered by its price, not promised


def test_a_limit_that_ends_or_changes_is_known_to_all_replicas(replicas: Make) -> None:
    engines = [replicas(), replicas()]
    (limit,) = rows(engines[0], limit_table)
    create_limit(engines[0].database, "popular<=0.1", ServiceSettings(), instead_of=limit.id)
    for _ in range(2):
        everybody_asks(engines, 15)
    found = {one.limit: one for one in excesses(engines[0].database)}
    assert found["popular<=0.1"].kept
    assert found["popular<=0.1"].showings == 600
    with engines[0].database.writing() as connection:
        (now,) = limits_in_force(connection)
        end_limit(engines[0].database, connection, now.id)
    made = ask(engines[1], "c3")
    (row,) = [row for row in rows(engines[1], lists) if row.id == made.id]
    assert row.labels == [[]] * 10


def test_items_of_a_new_label_are_counted_from_now_on(replicas: Make) -> None:
    engine = replicas()
    database = engine.database
    with database.writing() as connection:
        new = [Item(f"n{number}", labels={"seller": "newcomer"}) for number in range(3)]
        put_items(database, connection, new)
    create_limit(database, "seller=newcomer<=0.1", ServiceSettings())
    for number in range(20):
        ask(engine, f"c{number}")
    found = {one.limit: one for one in excesses(database)}
    assert found["seller=newcomer<=0.1"].kept


def test_an_ended_group_makes_a_limit_on_nothing_but_no_error(replicas: Make) -> None:
    engine = replicas()
    database = engine.database
    with database.writing() as connection:
        put_items(database, connection, [Item("n1", labels={"seller": "newcomer"})])
    create_limit(database, "seller=newcomer<=0.1", ServiceSettings())
    with database.writing() as connection:
        put_items(database, connection, [Item("n1", labels={"seller": "other"})])
    assert len(ask(engine, "c1").items) == 10
    assert engine.snapshot is not None
    assert "newcomer" in engine.snapshot.troubles[0]


@pytest.mark.parametrize(
    "text", ["gini<=0.8", "popular<=0.4;scope=list", "popular<=0.4;labels=first"]
)
def test_limits_that_a_service_cannot_keep_are_refused(replicas: Make, text: str) -> None:
    engine = replicas()
    with pytest.raises(Exception, match=r"\((give a group|leave out .*)\)"):
        create_limit(engine.database, text, ServiceSettings())
