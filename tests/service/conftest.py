"""A small shop that is served, on SQLite and on a real PostgreSQL."""

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
import sqlalchemy as sa

import fairhorizon as fh
from fairhorizon.data.synthetic import synthetic
from fairhorizon.service.replica.engine import Engine
from fairhorizon.service.setting_up import set_up
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.database import Database

BINARIES = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
HAS_POSTGRESQL = shutil.which("initdb") is not None or bool(BINARIES)
DAY = 86_400


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass
class Postgres:
    """A server of its own on a temporary folder, under the user postgres where tests are root's."""

    folder: Path
    port: int
    owner: int | None  # the user that it runs as, if that is another one

    @classmethod
    def make(cls, folder: Path) -> "Postgres":
        owner = pwd.getpwnam("postgres").pw_uid if os.getuid() == 0 else None
        server = cls(folder, free_port(), owner)
        folder.mkdir()
        if owner is not None:
            os.chown(folder, owner, -1)
            for parent in [*folder.parents]:
                if parent.stat().st_uid == os.getuid() and parent != Path("/"):
                    parent.chmod(parent.stat().st_mode | 0o011)
        server.call("initdb", "-D", str(folder), "-U", "fairhorizon", "-A", "trust", "-E", "UTF8")
        return server

    def call(self, program: str, *arguments: str) -> None:
        found = shutil.which(program) or str(BINARIES[-1] / program)
        subprocess.run(
            [found, *arguments], user=self.owner, check=True, capture_output=True, cwd=self.folder
        )

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -h 127.0.0.1"
        log = str(self.folder / "log")
        self.call("pg_ctl", "-D", str(self.folder), "-o", options, "-l", log, "-w", "start")

    def stop(self, mode: str = "fast") -> None:
        self.call("pg_ctl", "-D", str(self.folder), "-m", mode, "-w", "stop")

    def url(self, name: str = "postgres") -> str:
        return f"postgresql://fairhorizon@127.0.0.1:{self.port}/{name}"

    def new_database(self, name: str) -> str:
        engine = sa.create_engine(
            self.url().replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
        )
        with engine.connect() as connection:
            connection.execute(sa.text(f'CREATE DATABASE "{name}"'))
        engine.dispose()
        return self.url(name)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    if not HAS_POSTGRESQL:
        if os.environ.get("CI"):
            pytest.fail("in CI there has to be a PostgreSQL")
        pytest.skip("no PostgreSQL on this machine (Debian: apt-get install postgresql)")
    server = Postgres.make(tmp_path_factory.mktemp("postgres") / "data")
    server.start()
    yield server
    server.stop("immediate")


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
