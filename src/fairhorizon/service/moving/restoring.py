"""A database from the file of a backup: all of it in one transaction, or nothing."""

import hashlib
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.errors import ConfigError, DataError
from fairhorizon.service.budget.ledger import give_back
from fairhorizon.service.moving.backing_up import (
    FORMAT,
    MANIFEST,
    BackupPart,
    described,
    part_name,
)
from fairhorizon.service.moving.opening import BLOCK, newest_revision, revision
from fairhorizon.service.store.database import POSTGRESQL, Database
from fairhorizon.service.store.migrating import migrate
from fairhorizon.service.store.schema import metadata, replicas, state

PIECE = 2**20  # bytes read at a time
# what reading a damaged zip can end in, beside the error made for it
NOT_WHOLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError),
)
AGAIN = "make the backup again, or copy it again"
UNTOUCHED = {"generation": 0, "epoch": 0, "lists": 0, "showings": 0, "model_id": None}


@dataclass(frozen=True)
class BackupFile:
    """A file that was found to be whole."""

    path: Path
    parts: dict[str, BackupPart]

    @classmethod
    def checked(cls, path: Path) -> "BackupFile":
        """Read all of it; a DataError says what is wrong with it."""
        try:
            with zipfile.ZipFile(path) as archive:
                parts = _parts(path, archive)
                for name, part in parts.items():
                    if _sha256(archive, part_name(name)) != part.sha256:
                        raise DataError(f"{part_name(name)} has changed", file=path, remedy=AGAIN)
        except NOT_WHOLE as error:
            if isinstance(error, OSError) and error.filename:  # the file cannot be read at all
                raise
            raise DataError(
                "is not a backup, or is truncated or damaged", file=path, remedy=AGAIN
            ) from None
        return cls(path, parts)

    def rows(self, table: sa.Table) -> Iterator[dict[str, Any]]:
        """The rows of a table, one after the other."""
        columns = self.parts[table.name].columns
        with (
            zipfile.ZipFile(self.path) as archive,
            archive.open(part_name(table.name)) as lines,
        ):
            for line in lines:
                yield dict(zip(columns, json.loads(line), strict=True))


def _parts(path: Path, archive: zipfile.ZipFile) -> dict[str, BackupPart]:
    """What the manifest says of each table, if it is one of this version."""
    try:
        manifest = json.loads(archive.read(MANIFEST))
        what, tables_of = manifest["format"], str(manifest["revision"])
        parts = {name: described(part) for name, part in manifest["tables"].items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise DataError(
            "is no backup of the service", file=path, remedy="give a file of `fairhorizon backup`"
        ) from None
    if what != FORMAT or tables_of != newest_revision():
        raise DataError(
            f"is of another version: {what!r} with tables {tables_of}, not {FORMAT!r} with "
            f"{newest_revision()}",
            file=path,
            remedy="restore it with the version that made it, start the service of this version on "
            "that database, and make another backup",
        )
    there = set(archive.namelist())
    for table in metadata.sorted_tables:
        columns = {column.name for column in table.columns}
        if table.name not in parts or set(parts[table.name].columns) != columns:
            raise DataError(f"has no table {table.name} as it should be", file=path, remedy=AGAIN)
        if part_name(table.name) not in there:
            raise DataError(f"{part_name(table.name)} is missing", file=path, remedy=AGAIN)
    return parts


def _sha256(archive: zipfile.ZipFile, name: str) -> str:
    digest = hashlib.sha256()
    with archive.open(name) as content:
        while piece := content.read(PIECE):
            digest.update(piece)
    return digest.hexdigest()


def restore(database: Database, file: Path) -> dict[str, int]:
    """Fill an empty database; how many rows each table has.

    No replica of the backup lives any more: what is left of their leases is given back.
    """
    backup = BackupFile.checked(file)
    present = revision(database)
    if present not in (None, newest_revision()):
        _refuse(database, "has tables of another version")
    migrate(database)
    with database.writing() as connection:
        _lock(database, connection)
        _check_empty(database, connection)
        for table in metadata.sorted_tables:
            if table is not replicas:
                _fill(connection, table, backup)
        give_back(connection, sa.true())
        if database.dialect == POSTGRESQL:
            _continue_numbers(connection)
    return {name: part.rows for name, part in backup.parts.items()}


def _lock(database: Database, connection: Connection) -> None:
    """Nobody writes before this is done; SQLite has one writer at a time anyway."""
    if database.dialect == POSTGRESQL:
        names = ", ".join(_quoted(connection, table) for table in metadata.sorted_tables)
        connection.execute(sa.text(f"LOCK TABLE {names} IN EXCLUSIVE MODE"))


def _check_empty(database: Database, connection: Connection) -> None:
    """Refuse a database with rows; that of a state in which nothing has happened is removed."""
    for table in metadata.sorted_tables:
        if table is state:
            for row in connection.execute(sa.select(state)):
                if any(getattr(row, name) != value for name, value in UNTOUCHED.items()):
                    _refuse(database, "the service has worked with it")
        elif connection.execute(sa.select(table).limit(1)).first() is not None:
            _refuse(database, f"has rows in {table.name}")
    connection.execute(state.delete())


def _refuse(database: Database, why: str) -> NoReturn:
    raise ConfigError(f"{database}: is not empty: it {why} (give a new, empty database)")


def _fill(connection: Connection, table: sa.Table, backup: BackupFile) -> None:
    rows, written = backup.rows(table), 0
    while block := list(islice(rows, BLOCK)):
        try:
            connection.execute(table.insert(), block)
        except (sa.exc.DataError, sa.exc.IntegrityError) as error:
            reason = str(error.orig).strip().splitlines()[0]
            raise DataError(
                f"rows of {table.name} cannot be stored: {reason}",
                file=backup.path,
                remedy="restore it into the kind of database that it is from",
            ) from error
        written += len(block)
    if written != backup.parts[table.name].rows:
        raise DataError(
            f"{part_name(table.name)} has {written} rows, not {backup.parts[table.name].rows}",
            file=backup.path,
            remedy=AGAIN,
        )


def _continue_numbers(connection: Connection) -> None:
    """Let PostgreSQL number the next rows after those that are there now."""
    for table in metadata.sorted_tables:
        column = table.autoincrement_column
        if column is None:
            continue
        sequence = connection.execute(
            sa.select(sa.func.pg_get_serial_sequence(_quoted(connection, table), column.name))
        ).scalar()
        last = connection.execute(sa.select(sa.func.max(column))).scalar()
        if sequence is not None and last is not None:
            setval = sa.text("SELECT setval(CAST(:sequence AS regclass), :last)")
            connection.execute(setval, {"sequence": sequence, "last": last})


def _quoted(connection: Connection, table: sa.Table) -> str:
    return connection.dialect.identifier_preparer.format_table(table)
