"""All tables of a database in one file, from which any empty database can be restored.

A zip with a JSON array per row and line, a file for every table, and a manifest: what it is, the
version of the tables, their columns, and for each its number of rows and the SHA-256 of its lines.
A restore is one transaction: all of it, or nothing.
"""

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

from fairhorizon import __version__
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.files import write_atomically
from fairhorizon.service.budget.ledger import give_back
from fairhorizon.service.store.database import BLOCK, POSTGRESQL, Database, in_blocks
from fairhorizon.service.store.migrating import migrate, newest_revision, revision
from fairhorizon.service.store.schema import metadata, replicas, state

FORMAT = "fairhorizon service backup 1"
MANIFEST = "manifest.json"
FOR_THE_OWNER = 0o600  # it has the secret of the dashboard and the ids of people
PIECE = 2**20  # bytes read at a time
# What reading a damaged zip can raise: more than BadZipFile.
NOT_WHOLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error),
    *(EOFError, OSError, RuntimeError, ValueError),
)
AGAIN = "make the backup again, or copy it again"
# The state of a database that the service was started with once, but that it never worked with.
UNTOUCHED = {"generation": 0, "epoch": 0, "lists": 0, "showings": 0, "model_id": None}


@dataclass(frozen=True)
class BackupPart:
    """One table in the file."""

    columns: tuple[str, ...]
    rows: int
    sha256: str


def part_name(table: str) -> str:
    return f"{table}.jsonl"


def back_up(database: Database, file: Path) -> dict[str, int]:
    """Write one state of all tables; how many rows each has."""
    parts: dict[str, BackupPart] = {}

    def write(draft: Path) -> None:
        with (
            zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive,
            database.reading() as connection,
        ):
            for table in metadata.sorted_tables:
                parts[table.name] = _write_part(archive, connection, table)
            manifest = {
                "format": FORMAT,
                "fairhorizon": __version__,
                "revision": newest_revision(),
                "made_at": database.now(connection),
                "tables": {name: vars(part) for name, part in parts.items()},
            }
            archive.writestr(MANIFEST, json.dumps(manifest, indent=2) + "\n")

    write_atomically(file, write, mode=FOR_THE_OWNER)
    return {name: part.rows for name, part in parts.items()}


def _write_part(archive: zipfile.ZipFile, connection: Connection, table: sa.Table) -> BackupPart:
    columns = tuple(column.name for column in table.columns)
    # In a fixed order, so that backups of the same content have the same sums.
    query = sa.select(table).order_by(*table.primary_key.columns)
    digest, rows = hashlib.sha256(), 0
    # How large a part gets is not known before: beyond 2 GiB it needs the wider fields.
    with archive.open(part_name(table.name), "w", force_zip64=True) as out:
        for block in in_blocks(connection, query):
            lines = "".join(json.dumps(list(row)) + "\n" for row in block).encode()
            digest.update(lines)
            out.write(lines)
            rows += len(block)
    return BackupPart(columns, rows, digest.hexdigest())


def described(part: dict[str, Any]) -> BackupPart:
    """A part as the manifest has it."""
    return BackupPart(tuple(part["columns"]), int(part["rows"]), str(part["sha256"]))


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
            # With a name it is the file itself, which is missing or may not be read.
            if isinstance(error, OSError) and error.filename:
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
        # Checked after the lock, so that nobody fills a table between the look and the first row.
        _lock(database, connection)
        _check_empty(database, connection)
        # Sorted so that a row comes after those that its foreign keys point to.
        for table in metadata.sorted_tables:
            if table is not replicas:
                _fill(connection, table, backup)
        # All leases: none of their replicas was restored.
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
    """Refuse a database with rows. The row of a state in which nothing has happened is removed."""
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
    # The sum was checked before, so this is a backup whose manifest contradicts it.
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
