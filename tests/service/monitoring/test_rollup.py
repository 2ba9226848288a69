"""Counts by minute and hour are those of the recorded lists, each of them once."""

import threading
from collections import Counter
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from asking import ask

from fairhorizon.service.monitoring import counts
from fairhorizon.service.monitoring.counts import roll_up
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.store.schema import (
    account_minutes,
    accounts,
    item_hours,
    lists,
    minutes,
    window_minutes,
    windows,
)


def test_counts_are_those_of_the_lists(
    replicas: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "AT_ONCE", 7)
    engine = replicas(window="60 showings")
    made = [ask(engine, f"c{number}", n=5 + number % 3) for number in range(30)]
    workers = [threading.Thread(target=lambda: _all(engine)) for _ in range(3)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert roll_up(engine.database) == 0
    shown = Counter(item for one in made for item in one.items)
    with engine.database.reading() as connection:

        def total(table: sa.Table, name: str) -> int:
            query = sa.select(sa.func.sum(table.c[name]))
            return int(connection.execute(query).scalar_one())

        by_item: Counter[str] = Counter()
        for row in connection.execute(sa.select(item_hours)):
            by_item[row.item_id] += row.shown
        assert by_item == shown
        assert total(minutes, "lists") == 30
        assert total(minutes, "showings") == sum(len(one.items) for one in made)
        slowest = connection.execute(sa.select(sa.func.max(lists.c.milliseconds))).scalar_one()
        assert connection.execute(sa.select(sa.func.max(minutes.c.slowest))).scalar_one() == slowest
        assert total(window_minutes, "shown") == total(windows, "shown")
        assert total(account_minutes, "used") == total(accounts, "used")


def _all(engine: Engine) -> None:
    for _ in range(10):
        roll_up(engine.database)
