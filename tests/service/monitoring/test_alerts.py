"""Alerts: when they begin and end, once each whoever looks, and that they are sent."""

import logging
import threading
import time
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from listening import listening
from recorded_lists import Shown, record

from fairhorizon.service.admin.set_up import create_limit
from fairhorizon.service.background import Service
from fairhorizon.service.budget.rules import UNIT
from fairhorizon.service.monitoring.alerts import (
    BEGUN,
    ENDED,
    Watch,
    active_alerts,
    ended_alerts,
    look,
)
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.catalogue import Item, put_items
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.migrating import prepare
from fairhorizon.service.store.schema import accounts, feedback, limits, lists, windows
from fairhorizon.service.store.state import end_limit, read_state

NEAR, MISSED = ("limit-near", "popular<=0.4"), ("floor-missed", "seller:each>=0.2")
SETTINGS = ServiceSettings()  # alerts after 1000 showings, floors are missed below 95 %


def changes(database: Database, settings: ServiceSettings = SETTINGS) -> list[tuple[str, ...]]:
    return [(one.kind, one.subject, one.state) for one in look(database, settings, None)]


def limit(database: Database, text: str, groups: list[str]) -> list[int]:
    """A limit with a slack of 200, without a model; its accounts."""
    with database.writing() as connection:
        row = {"text": text, "window": "always", "counts": "served", "slack": 200 * UNIT}
        made = connection.execute(
            limits.insert().values(**row, created_at=0).returning(limits.c.id)
        )
        window = {"limit_id": made.scalar_one(), "name": "always", "opened_at": 0, "shown": 0}
        number = connection.execute(windows.insert().values(window).returning(windows.c.id))
        first = {"window_id": number.scalar_one(), "price": 0.0}
        first |= dict.fromkeys(("used", "pending", "charged"), 0)
        return [
            connection.execute(
                accounts.insert().values(**first, group=group).returning(accounts.c.id)
            ).scalar_one()
            for group in groups
        ]


def count(database: Database, account: int, used: float, shown: float = 1000) -> None:
    with database.writing() as connection:
        here = accounts.update().where(accounts.c.id == account)
        connection.execute(here.values(used=round(used * UNIT)))
        of = sa.select(accounts.c.window_id).where(accounts.c.id == account).scalar_subquery()
        there = windows.update().where(windows.c.id == of)
        connection.execute(there.values(shown=round(shown * UNIT)))


def test_a_limit_is_near_when_half_of_its_slack_is_used(database: Database) -> None:
    prepare(database)
    (popular,) = limit(database, "popular<=0.4", ["popular"])
    count(database, popular, 499.999)  # at its line are 400, and 100 are half of the slack
    assert changes(database) == []
    count(database, popular, 500, shown=999.99)  # too few to say anything
    assert changes(database) == []
    count(database, popular, 500)
    assert changes(database) == [(*NEAR, "begun")]
    assert changes(database) == []
    count(database, popular, 400.001)  # it goes on until all of it is given back
    assert changes(database) == []
    count(database, popular, 400)
    assert changes(database) == [(*NEAR, "ended")]
    assert changes(database) == []
    with database.reading() as connection:
        assert active_alerts(connection) == []
        (row,) = ended_alerts(connection, 9)
    assert row.message == (
        "popular has 50.00% of the showings in window always, 40.00% are asked for; 100 showings "
        "of the slack of 200 are used"
    )
    assert row.begun_at <= row.ended_at


def test_a_limit_that_binds_is_no_alert(database: Database) -> None:
    prepare(database)
    (popular,) = limit(database, "popular<=0.4", ["popular"])
    count(database, popular, 400_000, shown=1_000_000)
    assert changes(database) == []


def test_a_floor_is_missed_clearly_and_reached_fully(database: Database) -> None:
    prepare(database)
    one, other = limit(database, "seller:each>=0.2", ["seller=x", "seller=y"])
    count(database, one, 190)  # 95 % of 200
    count(database, other, 810)
    assert changes(database) == []
    count(database, one, 189.999)
    assert changes(database) == [(*MISSED, "begun")]
    count(database, one, 199.999)
    assert changes(database) == []
    count(database, other, 100)  # another group of the same limit is the same alert
    count(database, one, 900)
    assert changes(database) == []
    count(database, other, 200)
    assert changes(database) == [(*MISSED, "ended")]


def test_an_alert_ends_with_its_limit(database: Database) -> None:
    prepare(database)
    (popular,) = limit(database, "popular<=0.4", ["popular"])
    count(database, popular, 600)
    assert changes(database) == [(*NEAR, "begun")]
    with database.writing() as connection:
        end_limit(database, connection, 1)
    assert changes(database) == [(*NEAR, "ended")]


def test_whoever_looks_it_begins_and_ends_once(database: Database) -> None:
    prepare(database)
    (popular,) = limit(database, "popular<=0.4", ["popular"])
    url = database.url.render_as_string(hide_password=False)
    several = [Database(url) for _ in range(6)]
    for used, state in ((600, BEGUN), (300, ENDED)):
        count(database, popular, used)
        begin, found = threading.Barrier(len(several)), []

        def looks(one: Database, begin: threading.Barrier = begin, found: list = found) -> None:
            begin.wait(30)
            found += look(one, SETTINGS, None)

        threads = [threading.Thread(target=looks, args=(one,)) for one in several]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [one.state for one in found] == [state]
    for one in several:
        one.close()
    with database.reading() as connection:
        assert active_alerts(connection) == []
        assert len(ended_alerts(connection, 9)) == 1


def told(database: Database, before: float) -> None:
    """An event that was received so many seconds ago."""
    with database.writing() as connection:
        at = database.now(connection) - before
        row = {"event_id": f"-{at}", "type": "click", "user_id": "u", "item_id": "a"}
        row |= {"value": 1.0, "time": at, "received_at": at}
        connection.execute(feedback.insert().values(row))


def served(database: Database, before: float) -> None:
    with database.reading() as connection:
        at = database.now(connection) - before
    record(database, [Shown(at, ["a"], [[]], [])])


def test_feedback_stops_while_lists_are_served(database: Database) -> None:
    prepare(database)
    served(database, 800)
    assert changes(database) == []  # there never was any
    told(database, 1000)
    assert changes(database) == [("feedback-stopped", "feedback", "begun")]
    assert changes(database) == []
    told(database, 10)
    assert changes(database) == [("feedback-stopped", "feedback", "ended")]


def short(database: Database, items: list[str], missing: int, before: float = 10) -> None:
    """The list that was recorded last, with places that nothing was found for."""
    with database.reading() as connection:
        at = database.now(connection) - before
    record(database, [Shown(at, items, [[] for _ in items], [])])
    with database.writing() as connection:
        last = lists.c.number == read_state(database, connection).lists
        connection.execute(lists.update().where(last).values(missing=missing))


def test_empty_lists_and_too_many_short_ones_are_an_alert(database: Database) -> None:
    prepare(database)
    record(database, [Shown(0, ["a"], [[]], []) for _ in range(150)])
    short(database, ["a"], 9)
    assert changes(database) == []  # one of 151 is below one per cent
    short(database, ["a", "b"], 8)
    assert changes(database) == [("short-lists", "lists", "begun")]
    with database.reading() as connection:
        (alert,) = active_alerts(connection)
    assert alert.message.startswith(
        "2 of the last 152 lists are shorter than asked for, 0 of them are empty"
    )
    with database.writing() as connection:
        connection.execute(lists.update().values(missing=0))
    assert changes(database) == [("short-lists", "lists", "ended")]
    short(database, [], 10)
    assert changes(database) == [("short-lists", "lists", "begun")]  # an empty one is enough
    with database.writing() as connection:
        connection.execute(lists.update().values(served_at=0.0))
    assert changes(database) == [("short-lists", "lists", "ended")]  # of the last hour


@pytest.mark.parametrize(
    ("feedback_before", "list_before", "silence"),
    [
        (1000, 300, 900),  # the first visitor after a quiet time has not had the time to answer
        (1000, 901, 900),  # nobody was there to answer
        (800, 500, 900),  # it came in time
        (10_000, 800, 0),  # never asked for
    ],
)
def test_no_alert_where_no_feedback_can_be_expected(
    database: Database, feedback_before: float, list_before: float, silence: float
) -> None:
    prepare(database)
    told(database, feedback_before)
    served(database, list_before)
    assert changes(database, ServiceSettings(silence=silence)) == []


def wait_for_snapshot(engine: Engine, generation: int) -> None:
    engine.refresh()
    until = time.monotonic() + 60
    while engine.snapshot is None or engine.snapshot.generation < generation:
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_limit_about_nothing(replicas: Callable[..., Engine]) -> None:
    engine = replicas()
    database, settings = engine.database, engine.settings
    create_limit(database, "kind=k0<=0.5", settings)
    wait_for_snapshot(engine, engine.snapshot.generation + 1)
    assert look(database, settings, engine.snapshot) == []
    before = engine.snapshot
    with database.writing() as connection:
        rows = [Item(one.id, labels={"seller": "big"}) for one in before.catalogue.rows.values()]
        put_items(database, connection, rows)
    assert look(database, settings, before) == []  # an old snapshot says nothing
    wait_for_snapshot(engine, before.generation + 1)
    (begun,) = look(database, settings, engine.snapshot)
    assert (begun.kind, begun.subject) == ("limit-about-nothing", "kind=k0<=0.5")
    assert "no column 'kind'" in begun.message
    assert look(database, settings, before) == []
    assert look(database, settings, None) == []
    with database.writing() as connection:
        put_items(database, connection, [Item("a1", labels={"kind": "k0"})])
    wait_for_snapshot(engine, engine.snapshot.generation + 1)
    (ended,) = look(database, settings, engine.snapshot)
    assert (ended.subject, ended.state) == ("kind=k0<=0.5", ENDED)


@pytest.mark.slow
def test_alerts_are_logged_and_sent(database: Database, caplog: pytest.LogCaptureFixture) -> None:
    prepare(database)
    (popular,) = limit(database, "popular<=0.4", ["popular"])
    count(database, popular, 600)
    with listening(500) as listener, caplog.at_level(logging.INFO, "fairhorizon.service"):
        watch = Watch(Engine(database, ServiceSettings(webhook=listener.address)), every=0)
        watch.webhook.pauses = (0.0, 0.0)
        watch()
        watch()
        first, again = listener.next(), listener.next()
        count(database, popular, 300)
        watch()
        last = listener.next()
        watch.stop()
        assert listener.received.empty()
    assert first == again
    assert list(first) == ["Kind", "Subject", "Message", "State", "Time"]
    assert (first["Kind"], first["Subject"], first["State"]) == (*NEAR, "begun")
    assert "60.00%" in first["Message"]
    assert (last["Kind"], last["Subject"], last["State"]) == (*NEAR, "ended")
    assert last["Time"] >= first["Time"]
    said = [(one.levelname, one.getMessage()[:32]) for one in caplog.records]
    assert said == [
        ("WARNING", "alert limit-near begun: popular<"),
        ("INFO", "alert limit-near ended: popular<"),
    ]


@pytest.mark.slow
def test_a_service_at_work_looks_by_itself(database: Database) -> None:
    prepare(database)
    (popular,) = limit(database, "popular<=0.4", ["popular"])
    count(database, popular, 600)
    url = database.url.render_as_string(hide_password=False)
    with listening() as listener:
        service = Service(Database(url), ServiceSettings(webhook=listener.address))
        service.start()
        sent = listener.next()
        service.stop()
    assert (sent["Kind"], sent["Subject"], sent["State"]) == (*NEAR, "begun")


def test_it_looks_every_few_seconds_only(database: Database) -> None:
    prepare(database)
    watch = Watch(Engine(database, SETTINGS), every=3600)
    watch()
    (popular,) = limit(database, "popular<=0.4", ["popular"])
    count(database, popular, 600)
    watch()
    with database.reading() as connection:
        assert active_alerts(connection) == []
