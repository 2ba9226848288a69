"""Bringing a database to the tables of this version, by any number of replicas at once."""

from functools import cache
from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Connection

from fairhorizon.errors import ModelError
from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.database import POSTGRESQL, Database

SCRIPTS = Path(__file__).parent / "migrations"
LOCK = 0x46485A  # of PostgreSQL's advisory locks, the one that whoever migrates holds


def migrate(database: Database) -> None:
    """Make the tables, or change them to those of this version; what is up to date stays.

    One replica migrates and the others wait for it. Migrations only add what old replicas do not
    look at, so these may go on serving.
    """
    with database.writing() as connection:
        if database.dialect == POSTGRESQL:
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
    service_state.begin(database)


@cache
def _revisions() -> tuple[str, ...]:
    """All that this version knows, the newest first; read once, as the scripts are compiled."""
    return tuple(script.revision for script in ScriptDirectory(str(SCRIPTS)).walk_revisions())


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
