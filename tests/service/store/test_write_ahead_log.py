"""SQLite's write-ahead log under traffic that never pauses: it grows, and is emptied again."""

import threading
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.background import EVERY, Service
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.catalogue import User, put_users
from fairhorizon.service.store.database import LARGEST_LOG, Database
from fairhorizon.service.store.migrating import prepare
from fairhorizon.service.store.schema import users

ROUNDS, ROWS = 40, 50
COMMENT = "x" * 10_000


@pytest.fixture
def database(tmp_path: Path) -> Database:
    made = Database(str(tmp_path / "service.db"))
    prepare(made)
    return made


def log_size(database: Database) -> int:
    return Path(f"{database.url.database}-wal").stat().st_size


def n_users(connection: Connection) -> int:
    return int(connection.execute(sa.select(sa.func.count()).select_from(users)).scalar_one())


def written_while_somebody_reads(database: Database) -> Connection:
    """Write 20 MB in pieces, each while a reader begins before the one before ends; the last."""
    reader = database.engine.connect()
    n_users(reader)
    for number in range(ROUNDS):
        with database.writing() as connection:
            some = [User(f"{number} {row}", comment=COMMENT) for row in range(ROWS)]
            put_users(database, connection, some)
        following = database.engine.connect()
        assert n_users(following) == ROWS * (number + 1)
        reader.close()
        reader = following
    return reader


def test_it_is_emptied_as_soon_as_nobody_reads_for_long(database: Database) -> None:
    reader = written_while_somebody_reads(database)
    assert log_size(database) > LARGEST_LOG  # SQLite by itself has never begun it anew
    assert not database.empty_log()  # somebody reads, and goes on with what they see
    assert n_users(reader) == ROUNDS * ROWS
    with database.writing() as connection:  # nobody is kept from writing afterwards
        put_users(database, connection, [User("another")])
    assert n_users(reader) == ROUNDS * ROWS
    reader.close()
    assert database.empty_log()
    assert log_size(database) == 0
    with database.reading() as connection:
        assert n_users(connection) == ROUNDS * ROWS + 1
    assert database.empty_log()  # nothing to do
    database.close()


def test_the_maintenance_does_it(database: Database) -> None:
    written_while_somebody_reads(database).close()
    size = log_size(database)
    assert size > LARGEST_LOG
    Service(database, ServiceSettings()).maintenance._empty_log()
    assert log_size(database) == 0
    file = Path(str(database.url.database))
    assert file.stat().st_size > ROUNDS * ROWS * len(COMMENT)
    database.close()


@pytest.mark.slow
def test_it_stays_below_64_mb_under_load(database: Database) -> None:
    """160 MB at 25 MB a second at most, far more than lists write, while three readers overlap."""
    ended, sizes, most_at_once = threading.Event(), [0], 64 * 2**20
    maintenance = Service(database, ServiceSettings()).maintenance

    def read() -> None:
        while not ended.is_set():
            with database.reading() as connection:
                n_users(connection)
                time.sleep(0.05)

    def maintain() -> None:
        while not ended.wait(EVERY):
            maintenance._empty_log()

    threads = [threading.Thread(target=work) for work in (read, read, read, maintain)]
    for thread in threads:
        thread.start()
    for number in range(320):
        with database.writing() as connection:
            some = [User(f"{number} {row}", comment=COMMENT) for row in range(ROWS)]
            put_users(database, connection, some)
        sizes.append(log_size(database))
        time.sleep(0.02)
    ended.set()
    for thread in threads:
        thread.join()
    assert 320 * ROWS * len(COMMENT) > 2 * most_at_once
    assert LARGEST_LOG < max(sizes) < most_at_once
    database.close()
