"""Databases that are there already, and one state of them to read in blocks."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from fairhorizon.errors import ConfigError
from fairhorizon.service.store.database import POSTGRESQL, SQLITE, Database
from fairhorizon.service.store.migrating import SCRIPTS, migrate

BLOCK = 10_000  # rows in memory at a time


@contextmanager
def opened(url: str) -> Iterator[Database]:
    """A database that may be new; its connections are closed at the end."""
    scheme, _, rest = url.partition(":/")
    if rest and not rest.startswith("/"):  # no path, and it may hold a password
        raise ConfigError(f"{scheme}:/...: not the address of a database (give {scheme}://...)")
    database = Database(url)
    try:
        yield database
    finally:
        database.close()


@contextmanager
def existing(url: str) -> Iterator[Database]:
    """A database that the service has filled before, with the tables of this version."""
    with opened(url) as database:
        if database.dialect == SQLITE and not Path(str(database.url.database)).is_file():
            # asking SQLite would make the file
            raise ConfigError(f"{database}: there is no such file (check --database)")
        present = revision(database)
        if present is None:
            raise ConfigError(
                f"{database}: has no tables of the service (check --database; "
                "`fairhorizon load` fills a new one)"
            )
        if present != newest_revision():
            migrate(database)
        yield database


def revision(database: Database) -> str | None:
    """The version of the tables that a database has; None: it has none."""
    with database.reading() as connection:
        return MigrationContext.configure(connection).get_current_revision()


@cache
def newest_revision() -> str:
    """The version of the tables that this version of the program makes."""
    return str(ScriptDirectory(str(SCRIPTS)).get_current_head())


@contextmanager
def snapshot(database: Database) -> Iterator[Connection]:
    """A transaction that reads one state of the database, however long it takes.

    SQLite's readers have that by themselves, by its write-ahead log.
    """
    with database.reading() as connection:
        if database.dialect == POSTGRESQL:
            level = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
            connection.execute(sa.text(level))
        yield connection


def in_blocks(
    connection: Connection, query: sa.Select[Any], size: int = BLOCK
) -> Iterator[Sequence[Any]]:
    """The rows of a query, so many at a time; the rest stays in the database."""
    rows = connection.execute(query, execution_options={"yield_per": size})
    yield from rows.partitions()
