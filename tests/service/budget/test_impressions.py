"""Limits on confirmed showings: charged when served, counted when seen, later given back."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from asking import ask

from fairhorizon.service.budget.impressions import any_over, give_up, record_feedback
from fairhorizon.service.budget.rules import UNIT
from fairhorizon.service.replica.list_builder import BuiltList
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.store.feedback import Event
from fairhorizon.service.store.schema import accounts, labels, unconfirmed, windows
from service_checks import accounts_agree

Make = Callable[..., Engine]


@pytest.fixture
def engine(replicas: Make) -> Engine:
    return replicas(counts="confirmed", slack=30)


def seen(engine: Engine, made: BuiltList, *places: int) -> int:
    """Feedback that says that items at some places were seen."""
    events = [
        Event("read", made.user, made.items[place], list_id=made.id, event_id=f"{made.id}{place}")
        for place in places
    ]
    return record_feedback(engine.database, events, read=("read",))


def account(engine: Engine) -> tuple[int, int, int, int]:
    """Showings: all that were seen, those of the group, those that are pending, those charged."""
    with engine.database.reading() as connection:
        row = connection.execute(sa.select(accounts)).one()
        shown = connection.execute(sa.select(windows.c.shown)).scalar_one()
    numbers = (shown, row.used, row.pending, row.charged)
    return tuple(number // UNIT for number in numbers)  # type: ignore[return-value]


def popular_places(engine: Engine, made: BuiltList) -> list[int]:
    with engine.database.reading() as connection:
        popular = set(connection.execute(sa.select(labels.c.popular)).scalar_one())
    return [place for place, item in enumerate(made.items) if item in popular]


@pytest.mark.essential
def test_showings_count_when_they_are_seen_and_once(engine: Engine) -> None:
    made = ask(engine, "c1")
    inside = popular_places(engine, made)
    outside = [place for place in range(10) if place not in inside]
    assert inside
    assert outside
    assert account(engine)[:3] == (0, 0, len(inside))
    assert seen(engine, made, inside[0], outside[0]) == 2
    assert account(engine)[:3] == (2, 1, len(inside) - 1)
    assert seen(engine, made, inside[0], outside[0]) == 0  # again
    event = Event("read", "c1", made.items[inside[0]], list_id=made.id, event_id="another")
    assert (
        record_feedback(engine.database, [event], read=("read",)) == 1
    )  # another event, the same showing
    assert account(engine)[:3] == (2, 1, len(inside) - 1)
    assert accounts_agree(engine.database)


def test_what_other_feedback_says_confirms_nothing(engine: Engine) -> None:
    made = ask(engine, "c1")
    events = [
        Event("click", "c1", made.items[0], list_id=made.id),
        Event("read", "c1", "a-other", list_id=made.id),  # not in the list
        Event("read", "c1", made.items[0], list_id="0" * 32),  # no such list
        Event("read", "c1", made.items[0]),
    ]
    assert record_feedback(engine.database, events, read=("read",)) == 4
    assert account(engine)[0] == 0


def test_before_anything_is_seen_the_slack_is_all_there_is(engine: Engine) -> None:
    lists = [ask(engine, f"c{number}") for number in range(40)]
    shown = [len(popular_places(engine, made)) for made in lists]
    assert sum(shown) <= 30
    assert shown[-1] == 0
    for made in lists:
        seen(engine, made, *range(10))
    assert account(engine)[:2] == (400, sum(shown))
    again = [ask(engine, f"c{number}") for number in range(10)]
    assert sum(len(popular_places(engine, made)) for made in again) > 0
    assert accounts_agree(engine.database)


def test_what_is_not_seen_in_time_is_given_back_and_what_comes_late_counts(engine: Engine) -> None:
    made = ask(engine, "c1")
    inside = popular_places(engine, made)
    charged = account(engine)[3]
    with engine.database.writing() as connection:
        assert not any_over(engine.database, connection)
        connection.execute(unconfirmed.update().values(until=0.0))
        assert any_over(engine.database, connection)
        assert give_up(engine.database, connection) == 1
        assert give_up(engine.database, connection) == 0
    assert account(engine) == (0, 0, 0, charged - len(inside))
    seen(engine, made, inside[0])
    assert account(engine) == (1, 1, 0, charged - len(inside) + 1)
    assert accounts_agree(engine.database)
