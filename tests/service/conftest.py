"""A small shop that is served, on SQLite and on a real PostgreSQL."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest

import fairhorizon as fh
from fairhorizon.data.synthetic import synthetic
from fairhorizon.service.replica.engine import Engine
from fairhorizon.service.setting_up import set_up
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.database import Database
from local_postgres import HAS_POSTGRESQL, Postgres

DAY = 86_400


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    if not HAS_POSTGRESQL:
        if os.environ.get("CI"):
            pytest.fail("in CI there has to be a PostgreSQL")
        pytest.skip("no PostgreSQL on this machine (Debian: apt-get install postgresql)")
    server = Postgres.make()
    server.start()
    yield server
    server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a new, empty database."""
    if request.param == "sqlite":
        return str(tmp_path / "service.db")
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database(f"test{time.time_ns()}")


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
