"""Databases with the tables of this version: made, migrated and opened, by any number at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.service.store.database import POSTGRESQL, SQLITE, Database
from fairhorizon.service.store.state import begin_state

SCRIPTS = Path(__file__).parent / "migrations"
LOCK = 0x46485A  # of PostgreSQL's advisory locks, the one that whoever migrates holds


def migrate(database: Database) -> None:
    """Make the tables, or change them to those of this version; what is up to date stays.

    One replica migrates and the others wait for it. Migrations only add what old replicas do not
    look at, so these may go on serving.
    """
    with database.writing() as connection:
        if database.dialect == POSTGRESQL:
            # SQLite's writers wait for each other anyway.
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        present = MigrationContext.configure(connection).get_current_revision()
        newest, *earlier = _revisions()
        if present == newest:
            return
        if present is not None and present not in earlier:
            raise ModelError(
                f"{database}: its tables are of a later version ({present}) (install that version)"
            )
        command.upgrade(_config(connection), "head")


def prepare(database: Database) -> None:
    """The tables of this version, and the row of the state."""
    migrate(database)
    begin_state(database)


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
            # Asking SQLite would make the file.
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


def newest_revision() -> str:
    """The version of the tables that this version of the program makes."""
    return _revisions()[0]


@cache
def _revisions() -> tuple[str, ...]:
    """All that this version knows, the newest first; read once, as the scripts are compiled."""
    return tuple(script.revision for script in ScriptDirectory(str(SCRIPTS)).walk_revisions())


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
