"""Traffic, the share in a window so far, and who gains or loses: numbers worked out by hand."""

import pytest
from recorded_lists import POPULAR, SELLERS, Shown, T, fill, record

from fairhorizon.service.admin.set_up import prepare
from fairhorizon.service.budget.rules import Window
from fairhorizon.service.monitoring.counts import (
    NEWEST,
    Period,
    TrafficPoint,
    latest_lists,
    roll_up,
    traffic,
)
from fairhorizon.service.monitoring.exposure import RememberedChanges, exposure_changes
from fairhorizon.service.monitoring.limits import limit_series, window_share, window_totals
from fairhorizon.service.store.catalogue import Item, put_items, update_item
from fairhorizon.service.store.database import Database

HOUR = 3600
THREE_HOURS = Period(T, T + 3 * HOUR, HOUR)


def test_the_share_in_the_window_so_far(database: Database) -> None:
    fill(database)
    with database.reading() as connection:
        (series,) = limit_series(connection, THREE_HOURS, {(POPULAR, "popular")})
        totals = window_totals(connection, POPULAR, "popular", Window(), THREE_HOURS)
    assert window_share(series, totals) == [
        (T, 2 / 4),
        (T + HOUR, 2 / 6),
        (T + 2 * HOUR, 2 / 8),
    ]


def test_a_day_begins_anew(database: Database) -> None:
    fill(database)
    day = Window(daily=True)
    with database.reading() as connection:
        (series,) = limit_series(connection, THREE_HOURS, {(SELLERS, "seller=x")})
        totals = window_totals(connection, SELLERS, "seller=x", day, THREE_HOURS)
        none = window_totals(connection, SELLERS, "seller=x", Window(showings=5), THREE_HOURS)
    assert window_share(series, totals) == [
        (T, 3 / 4),
        (T + HOUR, 4 / 6),
        (T + 2 * HOUR, 1 / 2),  # after midnight
    ]
    assert none == {}


def test_some_groups_alone(database: Database) -> None:
    fill(database)
    with database.reading() as connection:
        every = limit_series(connection, THREE_HOURS)
        some = limit_series(connection, THREE_HOURS, {(SELLERS, "seller=y"), (POPULAR, "popular")})
    wanted = {(SELLERS, "seller=y"), (POPULAR, "popular")}
    assert some == [one for one in every if (one.limit_id, one.group) in wanted]
    assert len(some) == 2


def test_lists_a_second_and_how_long_they_take(database: Database) -> None:
    fill(database)
    now = T + 7260.0
    with database.reading() as connection:
        latest = latest_lists(connection, now)
        points = traffic(connection, Period(T - HOUR, T + 3 * HOUR, HOUR), now)
        early = traffic(connection, Period(T - HOUR, T + 3 * HOUR, HOUR), T + 2.5 * HOUR)
    # 2, 4, 9 and 1 milliseconds; one list in the last minute
    assert (latest.n, latest.since, latest.per_second) == (4, T + 10, 1 / 60)
    assert (latest.mean, latest.median, latest.slowest) == (4.0, 3.0, 9.0)
    assert latest.p99 == pytest.approx(4 + 0.97 * 5)  # 2.97 steps of 3, from 1
    # before the first list there is nothing, and the last hour has just begun
    first, second = TrafficPoint(T, 2 / HOUR, 3.0, 4.0), TrafficPoint(T + HOUR, 1 / HOUR, 9.0, 9.0)
    assert points == [first, second]
    assert early == [first, second, TrafficPoint(T + 2 * HOUR, 1 / (HOUR / 2), 1.0, 1.0)]


def test_the_very_first_step_is_told_at_once(database: Database) -> None:
    prepare(database)
    record(database, [Shown(T + 1, ["a"], [[]], [], "u", 5.0)])
    roll_up(database)
    with database.reading() as connection:
        points = traffic(connection, THREE_HOURS, T + 10.0)
    assert points == [TrafficPoint(T, 0.1, 5.0, 5.0)]


@pytest.mark.slow
def test_a_busy_minute_is_counted_by_the_newest_lists(database: Database) -> None:
    prepare(database)
    record(database, [Shown(T + n / 100, ["a"], [[]], []) for n in range(NEWEST + 500)])
    with database.reading() as connection:
        latest = latest_lists(connection, T + 25.0)
    assert latest.n == NEWEST
    assert latest.per_second == pytest.approx(100)


def test_nothing_served_is_no_traffic(database: Database) -> None:
    prepare(database)
    with database.reading() as connection:
        latest = latest_lists(connection, T)
        assert traffic(connection, THREE_HOURS, T + 3.0 * HOUR) == []
        moved = exposure_changes(connection, T, HOUR)
    assert (latest.n, latest.per_second, latest.p99) == (0, 0, None)
    assert (moved.gains, moved.losses) == ((), ())


def test_who_gains_and_who_loses(database: Database) -> None:
    fill(database)
    with database.writing() as connection:
        update_item(database, connection, "a", {"labels": {"title": "Alpha"}})
    now = T + 7260
    with database.reading() as connection:
        moved = exposure_changes(connection, now, HOUR)
    # hours 1 and 2 against 0 and the one before: b 1 c 1 a 1 d 1 of 4, and a 2 b 1 c 1 of 4
    hour = T // HOUR
    assert (moved.before, moved.now) == ((hour - 1, hour + 1), (hour + 1, hour + 3))
    assert (moved.n_before, moved.n_now) == (4, 4)
    assert moved.popular == 0.25  # b alone
    assert [(one.item, one.before, one.now) for one in moved.gains] == [("d", 0.0, 0.25)]
    assert [(one.title, one.before, one.now) for one in moved.losses] == [("Alpha", 0.5, 0.25)]


def test_the_ten_that_change_most(database: Database) -> None:
    prepare(database)
    with database.writing() as connection:
        put_items(database, connection, [Item(f"i{n}") for n in range(30)])
    # before, item n is shown n times; now all of them are shown once
    before = [f"i{n}" for n in range(30) for _ in range(n)]
    record(database, [Shown(10, before, [[]] * len(before), [])], begin=T)
    record(database, [Shown(2 * HOUR, [f"i{n}" for n in range(30)], [[]] * 30, [])], begin=T)
    while roll_up(database):
        pass
    with database.reading() as connection:
        moved = exposure_changes(connection, T + 3 * HOUR - 1, HOUR)
    assert [one.item for one in moved.gains] == [f"i{n}" for n in range(10)]
    assert [one.item for one in moved.losses] == [f"i{n}" for n in range(29, 19, -1)]
    assert moved.gains[0].change == pytest.approx(1 / 30)
    assert moved.losses[0].change == pytest.approx(1 / 30 - 29 / 435)


def test_they_are_counted_anew_after_some_seconds_only(database: Database) -> None:
    fill(database)
    remembered, now = RememberedChanges(), T + 7260
    with database.reading() as connection:
        first = remembered.over(connection, now, HOUR)
    record(database, [Shown(now, ["e"], [[]], [])])
    roll_up(database)
    with database.reading() as connection:
        assert remembered.over(connection, now, HOUR) is first
        assert exposure_changes(connection, now, HOUR) != first
