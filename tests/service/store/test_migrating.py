"""Migrations make the tables of the schema, once, whoever begins."""

import subprocess
import sys

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from fairhorizon.errors import ModelError
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.migrating import migrate, prepare
from fairhorizon.service.store.schema import metadata

PROGRAM = """
import sys
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.migrating import prepare
print("loaded", flush=True)
sys.stdin.readline()
prepare(Database(sys.argv[1]))
"""


@pytest.fixture
def url(bare_url: str) -> str:
    """Here a new database has no tables."""
    return bare_url


def differences(database: Database) -> list[object]:
    """Of the tables that are there from those of the schema, types and defaults included."""
    options = {"compare_type": True, "compare_server_default": True}
    with database.reading() as connection:
        return list(
            compare_metadata(MigrationContext.configure(connection, opts=options), metadata)
        )


def version(database: Database) -> list[str]:
    with database.reading() as connection:
        rows = connection.execute(sa.text("SELECT version_num FROM alembic_version"))
        return list(rows.scalars())


@pytest.mark.essential
def test_a_new_database_has_the_tables_of_the_schema(database: Database) -> None:
    assert len(differences(database)) >= len(metadata.tables)
    migrate(database)
    assert differences(database) == []
    with database.reading() as connection:
        there = set(sa.inspect(connection).get_table_names())
    assert there == {*metadata.tables, "alembic_version"}


def test_primary_keys_and_indexes_are_those_of_the_schema(database: Database) -> None:
    migrate(database)
    with database.reading() as connection:
        look = sa.inspect(connection)
        for name, table in metadata.tables.items():
            wanted = [column.name for column in table.primary_key.columns]
            assert look.get_pk_constraint(name)["constrained_columns"] == wanted
            found = {
                tuple(index["column_names"])
                for index in look.get_indexes(name)
                if not index.get("duplicates_constraint")
            }
            assert found == {tuple(column.name for column in one.columns) for one in table.indexes}


def test_a_second_time_nothing_changes(database: Database) -> None:
    prepare(database)
    before = version(database)
    with database.writing() as connection:
        connection.execute(sa.text("UPDATE state SET lists = 7"))
        secret = connection.execute(sa.text("SELECT secret FROM state")).scalar_one()
    prepare(database)
    assert version(database) == before
    assert len(before) == 1
    with database.reading() as connection:
        row = connection.execute(sa.text("SELECT lists, secret FROM state")).one()
    assert tuple(row) == (7, secret)
    assert differences(database) == []


@pytest.mark.slow
def test_four_processes_at_once_all_succeed(database: Database, url: str) -> None:
    pipe = subprocess.PIPE
    begun = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, url], stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        for _ in range(4)
    ]
    for one in begun:
        assert one.stdout is not None
        assert one.stdout.readline() == "loaded\n"
    for one in begun:  # all of them at the same moment
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    ended = [(one.communicate(timeout=120), one.returncode) for one in begun]
    assert [code for _, code in ended] == [0, 0, 0, 0], ended
    assert differences(database) == []
    assert len(version(database)) == 1
    with database.reading() as connection:
        assert connection.execute(sa.text("SELECT count(*) FROM state")).scalar_one() == 1


def test_a_later_version_is_refused_and_left_as_it_is(database: Database) -> None:
    migrate(database)
    with database.writing() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(sa.text("ALTER TABLE users ADD COLUMN nickname VARCHAR(10)"))
    with pytest.raises(ModelError) as refused:
        migrate(database)
    message = str(refused.value)
    assert message == (
        f"{database}: its tables are of a later version (9999) (install that version)"
    )
    assert version(database) == ["9999"]
    with database.reading() as connection:
        columns = {column["name"] for column in sa.inspect(connection).get_columns("users")}
    assert "nickname" in columns


def test_a_failure_leaves_nothing_behind(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the power is gone")

    with monkeypatch.context() as patched:
        patched.setattr("alembic.op.create_index", broken)
        with pytest.raises(RuntimeError, match="the power is gone"):
            migrate(database)
    with database.reading() as connection:
        assert sa.inspect(connection).get_table_names() == []
    migrate(database)
    assert differences(database) == []
