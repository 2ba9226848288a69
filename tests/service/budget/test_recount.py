"""The accounts counted once more, and faults that this finds."""

from collections.abc import Callable

import pytest
import sqlalchemy as sa
from asking import ask

from fairhorizon.cli.app import run
from fairhorizon.service.admin.set_up import create_limit
from fairhorizon.service.budget import recount
from fairhorizon.service.budget.impressions import give_up, record_feedback
from fairhorizon.service.budget.recount import Recount, recounted
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.settings import Counts, ServiceSettings
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.feedback import Event
from fairhorizon.service.store.schema import accounts, lists, unconfirmed, windows

pytestmark = pytest.mark.slow

LIMITS = (  # beside popular<=0.3, which the run brings
    ("seller=small>=0.2", "always", "served"),
    ("kind:each<=0.5", "day", "confirmed"),
    ("popular<=0.5;weights=log", "50 showings", "served"),
    ("seller=big<=0.7@3", "50 showings", "confirmed"),
)
UNIT = 1_000_000


def counted(database: Database) -> list[Recount]:
    with database.reading() as connection:
        return recounted(connection)


def serve(replicas: Callable[..., Engine], n_lists: int) -> list[Engine]:
    """Two replicas that serve by turns; every third list is seen, to its fourth place."""
    settings = {"slack": 12}
    first = replicas(**settings)
    for text, window, counts in LIMITS:
        chosen = ServiceSettings.model_validate(settings)
        create_limit(first.database, text, chosen, window=window, counts=counts)
    engines = [first, replicas(**settings)]
    for number in range(n_lists):
        engine = engines[number % 2]
        made = ask(engine, f"c{number % 40}", 5 + number % 3)
        if number % 3 == 0:
            seen = [Event("read", made.user, item, list_id=made.id) for item in made.items[:4]]
            record_feedback(engine.database, seen, read=("read",))
    return engines


def test_what_is_stored_is_what_lists_say(
    replicas: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recount, "AT_ONCE", 7)  # several blocks
    database = serve(replicas, 45)[0].database
    found = counted(database)
    assert all(one.agrees for one in found)
    assert {str(one.limit) for one in found} >= {text for text, *_ in LIMITS}
    assert max(int(one.window) for one in found if one.window.isdigit()) >= 3
    assert any(one.found.pending for one in found)
    assert any(one.left for one in found)
    for one in found:
        assert one.counts is Counts.CONFIRMED or one.found.pending == 0


def test_counts_are_those_worked_out_from_the_lists_by_hand(
    replicas: Callable[..., Engine],
) -> None:
    """Counts of sellers and kinds by the items themselves: article 3k is of the small seller."""
    database = serve(replicas, 12)[0].database
    with database.reading() as connection:
        rows = connection.execute(sa.select(lists).order_by(lists.c.number)).all()
    number = [[int(item[1:]) for item in row.items] for row in rows]
    seen = [one[:4] if at % 3 == 0 else [] for at, one in enumerate(number)]
    found = {(str(one.limit), one.group): one for one in counted(database)}
    small = found["seller=small>=0.2", "seller=small"].found
    assert small.used == UNIT * sum(item % 3 == 0 for one in number for item in one)
    assert small.shown == UNIT * sum(map(len, number))
    third = found["kind:each<=0.5", "kind=k3"].found
    assert third.used == UNIT * sum(item % 5 == 3 for one in seen for item in one)
    assert third.shown == UNIT * sum(map(len, seen)) == UNIT * 16
    waiting = sum(item % 5 == 3 for one in number for item in one) * UNIT - third.used
    assert third.pending == waiting
    logs = found["popular<=0.5;weights=log", "popular"]
    assert logs.found.shown < UNIT * 50


def test_after_the_time_to_confirm_nothing_is_pending(replicas: Callable[..., Engine]) -> None:
    database = serve(replicas, 20)[0].database
    before = {one.account: one.found for one in counted(database)}
    with database.writing() as connection:
        connection.execute(unconfirmed.update().values(until=0.0))
        assert give_up(database, connection) == 20
    after = counted(database)
    assert all(one.agrees for one in after)
    assert not any(one.found.pending for one in after)
    assert {one.account: one.found.used for one in after} == {
        account: one.used for account, one in before.items()
    }
    late = next(
        row for row in _rows(database) if row.number % 3 == 2
    )  # seen after its time: it counts all the same
    event = Event("read", late.user_id, late.items[0], list_id=late.id)
    record_feedback(database, [event], read=("read",))
    again = counted(database)
    assert all(one.agrees for one in again)
    assert sum(one.found.used for one in again) > sum(one.found.used for one in after)


def _rows(database: Database) -> list[sa.Row[tuple[object, ...]]]:
    with database.reading() as connection:
        return list(connection.execute(sa.select(lists).order_by(lists.c.number)))


@pytest.mark.parametrize("column", ["used", "pending", "charged"])
def test_a_planted_fault_is_found(
    replicas: Callable[..., Engine], column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    database = serve(replicas, 6)[0].database
    url = database.url.render_as_string(hide_password=False)
    capsys.readouterr()
    assert run(["ledger", "--database", url]) == 0
    said = capsys.readouterr().out
    assert "accounts that are what the lists say: all " in said
    assert "NO" not in said
    with database.writing() as connection:
        one = connection.execute(sa.select(sa.func.max(accounts.c.id))).scalar_one()
        change = accounts.update().where(accounts.c.id == one)
        connection.execute(change.values({column: accounts.c[column] + 1}))
    assert [each.account for each in counted(database) if not each.agrees] == [one]
    assert run(["ledger", "--database", url]) == 1
    said = capsys.readouterr().out
    assert said.count(" NO") == 1
    assert "accounts that are not what the lists say: 1 of " in said


def test_a_fault_in_what_was_shown_is_found_in_all_accounts_of_the_window(
    replicas: Callable[..., Engine],
) -> None:
    database = serve(replicas, 6)[0].database
    kinds = [one.account for one in counted(database) if str(one.limit) == "kind:each<=0.5"]
    with database.writing() as connection:
        where = accounts.c.id == kinds[0]
        window = sa.select(accounts.c.window_id).where(where).scalar_subquery()
        change = windows.update().where(windows.c.id == window)
        connection.execute(change.values(shown=windows.c.shown - 1))
    assert [one.account for one in counted(database) if not one.agrees] == kinds
    assert len(kinds) == 5
