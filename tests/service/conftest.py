"""A small shop that is served, on SQLite and on a real PostgreSQL."""

import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

import fairhorizon as fh
from fairhorizon.data.synthetic import synthetic
from fairhorizon.service.admin.set_up import set_up
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store import database as databases
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.migrating import migrate
from local_postgres import HAS_POSTGRESQL, Postgres

DAY = 86_400


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if not HAS_POSTGRESQL:
        if os.environ.get("CI"):
            pytest.fail("in CI there has to be a PostgreSQL")
        pytest.skip("no PostgreSQL on this machine (Debian: apt-get install postgresql)")
    server = Postgres.make(durable=False)  # processes end here, the machine goes on
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="session", autouse=True)
def _sqlite_does_not_wait_for_the_disk() -> Iterator[None]:
    """Processes end here, the machine goes on: what is written need not reach the disk."""
    prepared = databases._prepare_sqlite

    def quick(connection: sqlite3.Connection, record: object) -> None:
        prepared(connection, record)
        connection.execute("PRAGMA synchronous=OFF")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(databases, "_prepare_sqlite", quick)
        yield


# What differs by database: transactions, locks, SQL that is written twice. Everything else runs on
# SQLite, and test_postgresql.py goes once through the whole service on PostgreSQL.
ON_BOTH = {"store", "budget", "replica", "test_backup_command.py", "test_crashes.py"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests of a database on both kinds of it, where they can differ."""
    chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    if "dialect" in metafunc.fixturenames and "dialect" not in chosen:
        names: list[object] = ["sqlite"]
        if ON_BOTH & set(metafunc.definition.path.parts):
            # for `make test-all`, but for a few tests marked `essential`
            names.append(pytest.param("postgresql", marks=pytest.mark.slow))
        metafunc.parametrize("dialect", names, indirect=True)


@pytest.fixture
def dialect(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def bare_url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new database without any table."""
    if dialect == "sqlite":
        return str(tmp_path / "service.db")
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database(f"test{time.time_ns()}")


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of SQLite with all tables, to be copied."""
    file = tmp_path_factory.mktemp("migrated") / "service.db"
    _migrate(str(file))
    return file


@pytest.fixture(scope="session")
def migrated_name(postgres: Postgres) -> str:
    """A database of PostgreSQL with all tables, to be copied."""
    _migrate(postgres.new_database("migrated"))
    return "migrated"


def _migrate(url: str) -> None:
    database = Database(url)
    migrate(database)
    database.close()


@pytest.fixture
def url(dialect: str, request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new database, whose tables are empty."""
    if dialect == "sqlite":
        file = tmp_path / "service.db"
        shutil.copyfile(request.getfixturevalue("migrated_file"), file)
        return str(file)
    server: Postgres = request.getfixturevalue("postgres")
    like = request.getfixturevalue("migrated_name")
    return server.new_database(f"test{time.time_ns()}", like)


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    """A new, empty database."""
    made = Database(url)
    yield made
    made.close()


@pytest.fixture(scope="session")
def shop_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a small shop: customers c0 to c39, articles a0 to a59, two sellers."""
    log = synthetic(40, 60, 12, seed=3).interactions
    rows = pl.DataFrame(
        {
            "customer": [f"c{user}" for user in log.users.tolist()],
            "sku": [f"a{item}" for item in log.items.tolist()],
            "day": [DAY * row for row in range(len(log))],
        }
    )
    articles = pl.DataFrame(
        {
            "sku": [f"a{item}" for item in range(63)],
            "seller": ["small" if item % 3 == 0 else "big" for item in range(63)],
            "kind": [f"k{item % 5}" for item in range(63)],
        }
    )
    model = fh.fit(
        fh.load(rows, user="customer", item="sku", time="day", name="shop"),
        "ease+lists",
        limits=["popular<=0.3"],
        items=articles,
    )
    folder = tmp_path_factory.mktemp("shop") / "run"
    model.save(folder)
    return folder


@pytest.fixture
def replicas(database: Database, shop_run: Path) -> Iterator[Callable[..., Engine]]:
    """Makes replicas of the shop, each with a connection of its own to the one database."""
    begun: list[Engine] = []

    def make(**settings: object) -> Engine:
        chosen = ServiceSettings.model_validate(settings)
        own = Database(database.url.render_as_string(hide_password=False))
        if not begun:
            set_up(own, chosen, run=shop_run)
        engine = Engine(own, chosen)
        engine.prepare()
        engine.start()
        begun.append(engine)
        return engine

    yield make
    for engine in begun:
        engine.stop()
        engine.database.close()
