"""All tables of a database in one file that any database can be restored from.

A zip with a JSON array per row and line, a file for every table, and a manifest: what it is, the
version of the tables, their columns, and for each its number of rows and the SHA-256 of its lines.
"""

import hashlib
import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon import __version__
from fairhorizon.files import write_atomically
from fairhorizon.service.moving.opening import in_blocks, newest_revision, snapshot
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import metadata

FORMAT = "fairhorizon service backup 1"
MANIFEST = "manifest.json"
FOR_THE_OWNER = 0o600  # it has the secret of the dashboard and the ids of people


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
            snapshot(database) as connection,
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

    write_atomically(file, write)
    file.chmod(FOR_THE_OWNER)
    return {name: part.rows for name, part in parts.items()}


def _write_part(archive: zipfile.ZipFile, connection: Connection, table: sa.Table) -> BackupPart:
    columns = tuple(column.name for column in table.columns)
    query = sa.select(table).order_by(*table.primary_key.columns)
    digest, rows = hashlib.sha256(), 0
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
