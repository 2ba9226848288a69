"""fairhorizon forget: nothing of the person stays, and all counts do."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
import sqlalchemy as sa
from asking import ask

import fairhorizon as fh
from fairhorizon.cli.app import run
from fairhorizon.data.synthetic import synthetic
from fairhorizon.service.admin.set_up import create_limit, set_up
from fairhorizon.service.budget.impressions import record_feedback
from fairhorizon.service.budget.recount import recounted
from fairhorizon.service.monitoring.counts import roll_up
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.catalogue import User, put_users
from fairhorizon.service.store.database import SQLITE, Database
from fairhorizon.service.store.feedback import Event
from fairhorizon.service.store.schema import (
    accounts,
    feedback,
    item_hours,
    lists,
    metadata,
    windows,
)
from fairhorizon.service.store.state import read_state, register_model

NAME = "jané.doe@example"  # in nothing else
COUNTS = (accounts, windows, item_hours)


@pytest.fixture(scope="module")
def known_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model without limits, whose log knows the person."""
    log = synthetic(20, 40, 12, seed=5).interactions
    rows = pl.DataFrame(
        {
            "user": [NAME if user == 3 else f"someone{user}" for user in log.users.tolist()],
            "item": [f"a{item}" for item in log.items.tolist()],
            "time": range(len(log)),
        }
    )
    folder = tmp_path_factory.mktemp("known") / "run"
    fh.fit(fh.load(rows, name="known"), "ease+lists").save(folder)
    return folder


@pytest.fixture
def serving(database: Database, known_run: Path) -> Iterator[Callable[..., Engine]]:
    """Serves the model, with limits if there are any."""
    begun: list[Engine] = []

    def make(*limits: str) -> Engine:
        settings = ServiceSettings(relabel=0)
        set_up(database, settings, run=known_run)
        for text in limits:
            create_limit(database, text, settings, counts="confirmed")
        begun.append(Engine(database, settings))
        begun[0].prepare()
        begun[0].start()
        return begun[0]

    yield make
    for engine in begun:
        engine.stop()


def places_of(database: Database, text: str) -> list[str]:
    """Every column of every table that has the text in it."""
    found = []
    with database.reading() as connection:
        for table in metadata.sorted_tables:
            for row in connection.execute(sa.select(table)):
                found += [
                    f"{table.name}.{column}"
                    for column, cell in row._mapping.items()
                    if text in str(cell)
                ]
    return found


def counts_of(database: Database) -> list[object]:
    with database.reading() as connection:
        number = connection.execute(sa.select(sa.func.count()).select_from(lists)).scalar_one()
        shown = connection.execute(
            sa.select(lists.c.number, lists.c["items"], lists.c.labels).order_by(lists.c.number)
        )
        rows = [
            [
                tuple(row)
                for row in connection.execute(sa.select(table).order_by(*table.primary_key))
            ]
            for table in COUNTS
        ]
        state = read_state(database, connection)
        return [number, [tuple(row) for row in shown], rows, state.lists, state.showings]


def live(engine: Engine) -> None:
    """The person and others are served, see, take and refuse."""
    for number in range(12):
        user = NAME if number % 3 == 0 else f"someone{number}"
        made = ask(engine, user, 6)
        events = [
            Event("read", user, made.items[0], list_id=made.id),
            Event("take", user, made.items[1], 1.0, 1_700_000_000.0 + number, list_id=made.id),
            Event("take", user, made.items[2], event_id=f"event of {user} {number}"),
        ]
        record_feedback(engine.database, events, read=("read",))
    with engine.database.writing() as connection:
        put_users(engine.database, connection, [User(NAME, {"mail": NAME}, f"called {NAME}")])
    roll_up(engine.database)


def test_nothing_of_the_person_is_left_and_counts_stay(
    serving: Callable[..., Engine],
    database: Database,
    url: str,
    known_run: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    engine = serving("popular<=0.4")
    live(engine)
    assert {place.partition(".")[0] for place in places_of(database, NAME)} == {
        *("users", "feedback", "lists"),
    }
    before = counts_of(database)
    assert run(["forget", NAME, "--database", url]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"{NAME}: removed 1 description, 12 events, and the name from 4 lists",
        f"{known_run}: its log has the user (drop their rows, and fit it again)",
    ]
    assert places_of(database, NAME) == []
    assert counts_of(database) == before
    with database.reading() as connection:
        named = connection.execute(sa.select(lists.c.user_id)).scalars().all()
        assert connection.execute(sa.select(sa.func.count()).select_from(feedback)).scalar() == 24
    assert named.count(None) == 4
    with database.reading() as connection:
        assert all(one.agrees for one in recounted(connection))


def test_the_next_list_is_that_of_a_stranger(
    serving: Callable[..., Engine], database: Database, url: str
) -> None:
    """Without limits a list depends on nothing but who asks."""
    engine = serving()
    known, unknown = ask(engine, NAME), ask(engine, "a stranger")
    assert known.items != unknown.items
    taken = Event("take", NAME, unknown.items[0])
    record_feedback(database, [taken], read=())
    assert unknown.items[0] not in ask(engine, NAME).items
    assert run(["forget", NAME, "--database", url]) == 0
    again = ask(engine, NAME)
    assert (again.items, again.values) == (unknown.items, unknown.values)
    assert ask(engine, "someone1").items != unknown.items


@pytest.mark.parametrize("dialect", [SQLITE])
def test_the_file_of_sqlite_does_not_have_it_either(
    serving: Callable[..., Engine], url: str, tmp_path: Path
) -> None:
    live(serving())
    files = [tmp_path / f"service.db{end}" for end in ("", "-wal")]
    assert any(NAME.encode() in file.read_bytes() for file in files)
    assert run(["forget", NAME, "--database", url]) == 0
    assert not any(NAME.encode() in file.read_bytes() for file in files)


def test_who_is_in_no_log_needs_no_new_fit(
    serving: Callable[..., Engine],
    database: Database,
    url: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    serving()
    with database.writing() as connection:
        register_model(database, connection, "/gone/away", "ease")
    assert run(["forget", "a stranger", "--database", url]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "a stranger: removed 0 description, 0 events, and the name from 0 lists",
        "/gone/away: could not be read (if its log has the user, fit it again)",
    ]


class Terminal(io.StringIO):
    """What somebody types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "stays"), [("n\n", True), ("", True), ("y\n", False)])
def test_on_a_terminal_it_asks(
    serving: Callable[..., Engine],
    database: Database,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    typed: str,
    stays: bool,
) -> None:
    serving()
    with database.writing() as connection:
        put_users(database, connection, [User(NAME)])
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    assert (run(["forget", NAME, "--database", url]) != 0) is stays
    assert bool(places_of(database, NAME)) is stays
    monkeypatch.setattr("sys.stdin", Terminal(""))
    assert run(["forget", NAME, "--database", url, "--yes"]) == 0
    assert places_of(database, NAME) == []
