"""A log from a file or a folder of files, and back to files.

The files of a folder are its parts. They have the same columns and are read one after the other.
What was read of a part is kept in a store, so that only new and changed parts are read next time.
An entry of the store is a file of arrays, named by the path of its part and the options it was read
with, and is valid as long as the part has the same size and time of change. Entries are written
whole or not at all, so that several processes may share a store. It may be deleted at any time.
"""

import hashlib
import io
import json
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.columns import Origin, as_column, codes_among, encoded
from fairhorizon.data.frames import (
    ROWS,
    Repeats,
    Rows,
    check_log,
    from_frame,
    joined,
    log_of_rows,
    only_complete,
    role_columns,
    warn_of_rows_left_out,
)
from fairhorizon.data.interactions import Interactions, PartsRead
from fairhorizon.data.items import Cells, per_item
from fairhorizon.data.splits import Split
from fairhorizon.data.tables import ParquetColumns, Table, column_named, log_columns, read_table
from fairhorizon.errors import ConfigError, DataError, NoColumnError
from fairhorizon.files import STANDARD_OUTPUT, is_used, write_atomically


class ReaderOptions(TypedDict, total=False):
    """How a file is read: the options of `load`."""

    user: str | int | None
    item: str | int | None
    rating: str | int | None
    time: str | int | None
    weight: str | int | None
    session: str | int | None
    attributes: Iterable[str | int]
    header: bool | None
    separator: str | None
    encoding: str
    repeats: Repeats
    drop_incomplete: bool


@dataclass(frozen=True)
class LocatedColumns:
    """The rows of a file, and which of its columns hold what."""

    frame: Any  # polars, or the columns of a Parquet file, read when they are asked for
    origin: Origin
    labels: dict[str, str]  # role -> column, of those there are
    attributes: list[str]
    left_out: int = 0  # rows with an empty cell


def locate(path: str | Path, options: ReaderOptions) -> LocatedColumns:
    """Open a file and find its columns; `options` as for `load`."""
    attributes = tuple(options.get("attributes", ()))
    who = user_or_session(options.get("user"), options.get("session"))
    columns = (who, options.get("item"), options.get("rating"), options.get("time"))
    given = (*columns, options.get("weight"), *attributes)
    names = [name for name in given if isinstance(name, str) and not name.isdecimal()]
    how: dict[str, Any] = {
        key: value for key, value in options.items() if key in ("header", "separator", "encoding")
    }
    lazy = ParquetColumns.from_file(Path(path))
    if lazy is None:
        table = read_table(path, names=names, **how)
    else:
        table = Table(lazy.nothing, Origin(path), header=True)
    found = log_columns(table, *columns)
    found["weight"] = _weight(options.get("weight"), table, found.values())
    others = [column_named(attribute, table, found.values()) for attribute in attributes]
    labels = {role: name for role, name in found.items() if name is not None}
    frame, origin, left_out = table.frame if lazy is None else lazy, table.origin, 0
    if options.get("drop_incomplete"):
        frame, origin, left_out = only_complete(frame, labels, origin)
    return LocatedColumns(frame, origin, labels, others, left_out)


def user_or_session(user: str | int | None, session: str | int | None) -> str | int | None:
    """The column whose ids are read as users: that of the user, or that of the session."""
    if user is not None and session is not None:
        raise ConfigError(f"user {user!r} and session {session!r}: who is served? (give one)")
    return user if session is None else session


def _weight(wanted: str | int | None, table: Table, roles: Iterable[str | None]) -> str | None:
    if wanted is None or (wanted == ROWS and ROWS not in table.frame.columns):
        return wanted
    return column_named(wanted, table, tuple(roles))


def read_file(path: str | Path, **options: Unpack[ReaderOptions]) -> Interactions:
    """The log of one file: CSV, TSV, Parquet, MovieLens u.data or ratings.dat, RecBole .inter."""
    found = locate(path, options)
    warn_of_rows_left_out(found.left_out, len(found.frame), found.origin)
    columns: dict[str, Any] = found.labels
    return from_frame(
        found.frame,
        **columns,
        attributes=found.attributes,
        name=Path(path).name,
        repeats=options.get("repeats", "first"),
        origin=found.origin,
    )


# ---- The store of what was read of parts ---------------------------------------------------------
VERSION = 2  # of the entries; others are not read
DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Stamp:
    """The size and time of change of a file, by which a change is noticed."""

    size: int
    changed: int  # nanoseconds

    @classmethod
    def from_file(cls, file: Path) -> "Stamp":
        found = file.stat()
        return cls(found.st_size, found.st_mtime_ns)


@dataclass(frozen=True)
class PartStore:
    """What was read of parts, in a folder; without a folder nothing is kept."""

    folder: Path | None
    options: Mapping[str, Any]  # how parts are read

    def get(self, part: Path, what: str) -> Arrays | None:
        """The arrays kept of the part as it is now; None if there are none or they are damaged."""
        if self.folder is None:
            return None
        try:
            with self._entry(part, what).open("rb") as file:
                stored = np.load(file, allow_pickle=False)
                arrays = {name: stored[name] for name in stored.files}
            stamp = Stamp.from_file(part)
            same = arrays.pop("stamp").tolist() == [stamp.size, stamp.changed]
        except DAMAGED:
            return None
        return arrays if same else None

    def keep(self, part: Path, what: str, stamp: Stamp, arrays: Arrays) -> None:
        """Keep arrays of a part; does nothing if the disk is full or read-only."""
        if self.folder is None:
            return
        # The stamp from before the part was read: if it changed meanwhile, it is read again.
        marked = {**arrays, "stamp": np.array([stamp.size, stamp.changed])}

        def write(draft: Path) -> None:
            with draft.open("wb") as file:
                np.savez(file, allow_pickle=False, **marked)

        try:
            write_atomically(self._entry(part, what), write)
        except OSError:
            # The part is read again next time.
            return

    def _entry(self, part: Path, what: str) -> Path:
        assert self.folder is not None
        key = json.dumps([VERSION, str(part.resolve()), what, dict(self.options)], sort_keys=True)
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"


def packed(content: Any) -> NDArray[np.uint8]:
    """A polars column, or anything that JSON can hold, as bytes."""
    if not isinstance(content, pl.Series):
        return np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    content.to_frame("").write_ipc(buffer)
    return np.frombuffer(buffer.getvalue(), dtype=np.uint8)


def column_of(stored: NDArray[np.uint8]) -> pl.Series:
    """A polars column that was packed."""
    return pl.read_ipc(io.BytesIO(stored.tobytes())).to_series()


def json_of(stored: NDArray[np.uint8]) -> Any:
    """JSON that was packed."""
    return json.loads(stored.tobytes())


# ---- Reading the parts ---------------------------------------------------------------------------
SUFFIXES = {
    *(".csv", ".tsv", ".parquet", ".pq", ".jsonl", ".ndjson", ".inter", ".data", ".dat", ".txt"),
    *(".gz", ".gzip", ".zip", ""),
}
NUMBERS = ("ratings", "times", "weights")


@dataclass(frozen=True, eq=False)
class ReadPart:
    """What is known of one file."""

    columns: tuple[str, ...]
    labels: Mapping[str, str]  # role -> column
    rows: Rows
    left_out: int  # rows with an empty cell


def part_files(folder: Path) -> list[Path]:
    """The parts of a folder and of folders below, by name; not those that begin with . or _."""
    found = []
    for file in sorted(folder.rglob("*")):
        below = file.relative_to(folder).parts
        is_hidden = any(name.startswith((".", "_")) for name in below)
        if file.is_file() and not is_hidden and file.suffix.lower() in SUFFIXES:
            found.append(file)
    if not found:
        raise DataError(
            "is a folder without parts", file=folder, remedy="put CSV or Parquet files into it"
        )
    return found


def first_file(source: str | Path) -> Path:
    """The file itself, or the first part of a folder."""
    path = Path(source)
    return part_files(path)[0] if path.is_dir() else path


def read_folder(
    folder: str | Path,
    *,
    store: Path | None,
    files: Sequence[Path] | None = None,
    **options: Unpack[ReaderOptions],
) -> Interactions:
    """The log of all parts of a folder, as if they were one file in the order of their names.

    store: the folder with what was read of parts before; None: all parts are read.
    files: the parts, one after the other; None: all there are.
    options: those of `load`.
    """
    folder = Path(folder)
    wanted = tuple(options.pop("attributes", ()))
    repeats = options.pop("repeats", "first")
    reader = _Reader(PartStore(store, options), options)
    files = part_files(folder) if files is None else files
    parts: list[ReadPart] = []
    kept = 0
    for file in files:
        part = reader.kept(file)
        kept += part is not None
        parts.append(reader.read(file) if part is None else part)
        _check_columns(parts[0], parts[-1], files[0], file)
    first, origin = parts[0], Origin(folder)
    rows = joined([part.rows for part in parts])
    warn_of_rows_left_out(sum(part.left_out for part in parts), len(rows), origin)
    # Else all rows are in memory twice.
    parts.clear()
    # Attributes that were asked for are read now, all others when a limit names them.
    attributes = [_name(column, first, folder) for column in wanted]
    known = (*first.labels.values(), *attributes)
    others = tuple(name for name in first.columns if name not in known)
    log = log_of_rows(
        rows,
        dict(_PartColumns(tuple(attributes), tuple(files), rows.item_ids, reader)),
        _PartColumns(others, tuple(files), rows.item_ids, reader),
        name=folder.resolve().name,
        repeats=repeats,
        origin=origin,
        labels=first.labels,
    )
    check_log(log, len(rows), first.labels, origin)
    return replace(log, parts=PartsRead(len(files) - kept, kept))


def _check_columns(first: ReadPart, part: ReadPart, first_file: Path, file: Path) -> None:
    if sorted(part.columns) != sorted(first.columns) or part.labels != first.labels:
        raise DataError(
            f"has the columns {', '.join(part.columns)}, and {first_file.name} has "
            f"{', '.join(first.columns)}",
            file=file,
            remedy="parts need the same columns; take the file out of the folder or write it again",
        )


def _name(column: str | int, part: ReadPart, folder: Path) -> str:
    """The column of an attribute, by its name or position."""
    if isinstance(column, int) and 0 <= column < len(part.columns):
        return part.columns[column]
    if column not in part.columns:
        others = [name for name in part.columns if name not in part.labels.values()]
        remedy = f"the columns are {', '.join(map(repr, part.columns))}"
        raise NoColumnError(column, others, file=folder, remedy=remedy)
    return str(column)


@dataclass(frozen=True)
class _Reader:
    """Parts and their columns, from the store or else from their files."""

    store: PartStore
    options: ReaderOptions

    def kept(self, file: Path) -> ReadPart | None:
        arrays = self.store.get(file, "rows")
        if arrays is None:
            return None
        columns, labels, left_out = json_of(arrays["about"])
        numbers = [arrays.get(name) for name in NUMBERS]
        user_ids, item_ids = (column_of(arrays[f"{who}_ids"]) for who in ("user", "item"))
        rows = Rows(user_ids, arrays["users"], item_ids, arrays["items"], *numbers)
        return ReadPart(tuple(columns), labels, rows, left_out)

    def read(self, file: Path) -> ReadPart:
        stamp, found = Stamp.from_file(file), locate(file, self.options)
        labels, frame, origin = found.labels, found.frame, found.origin
        rows = Rows.from_columns(role_columns(frame, labels), labels, origin)
        part = ReadPart(tuple(frame.columns), labels, rows, found.left_out)
        arrays = {
            "about": packed([part.columns, labels, part.left_out]),
            "user_ids": packed(rows.user_ids),
            "item_ids": packed(rows.item_ids),
            # In as few bytes as the number of ids needs.
            "users": rows.users.astype(np.min_scalar_type(len(rows.user_ids))),
            "items": rows.items.astype(np.min_scalar_type(len(rows.item_ids))),
        }
        given = {name: getattr(rows, name) for name in NUMBERS}
        arrays |= {name: values for name, values in given.items() if values is not None}
        self.store.keep(file, "rows", stamp, arrays)
        return part

    def cells(self, file: Path, column: str) -> tuple[pl.Series, pl.Series]:
        """The items of a part, and for each its cell of a column as text, "" where it has none."""
        arrays = self.store.get(file, f"column {column}")
        if arrays is not None:
            return column_of(arrays["items"]), column_of(arrays["cells"])
        stamp, found = Stamp.from_file(file), locate(file, self.options)
        frame, item = found.frame, found.labels["item"]
        items, codes = encoded(as_column(frame[item]), item, found.origin)
        texts = per_item(as_column(frame[column]), codes, len(items))
        cells = pl.Series(texts.tolist(), dtype=pl.String)
        content = {"items": packed(items), "cells": packed(cells)}
        self.store.keep(file, f"column {column}", stamp, content)
        return items, cells


@dataclass(frozen=True, eq=False)
class _PartColumns(Mapping[str, Cells]):
    """Columns of the parts as attributes of items, read when they are asked for."""

    names: Sequence[str]
    files: Sequence[Path]
    item_ids: pl.Series
    reader: _Reader

    def __getitem__(self, name: str) -> Cells:
        """An item has the value of the first row that has one."""
        if name not in self.names:
            raise KeyError(name)
        cells: Cells = np.full(len(self.item_ids), "", dtype=object)
        for file in self.files:
            items, found = self.reader.cells(file, name)
            rows = codes_among(items.cast(self.item_ids.dtype), self.item_ids)
            empty = cells[rows] == ""
            cells[rows[empty]] = found.to_numpy()[empty]
        return cells

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


# ---- Writing: CSV or Parquet with the original ids, some rows at a time --------------------------
Format = Literal["csv", "parquet"]
ROWS_AT_ONCE = 1_000_000  # in memory as text


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A draft to fill, which becomes the folder at the end; after a failure nothing is left."""
    if folder == STANDARD_OUTPUT:
        raise DataError("is no folder but standard output", file=folder, remedy="name a folder")
    if is_used(folder):
        raise DataError("already exists", file=folder, remedy="name a new folder or empty it")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that moving it into place is one rename on the same file system.
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise DataError(f"cannot be created: {error}", file=folder, remedy="name another") from None
    try:
        yield draft
        draft.chmod(0o755)
        draft.replace(folder)
    except OSError as error:
        raise DataError(
            f"cannot be written: {error}", file=folder, remedy="check the space left"
        ) from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def write_log(log: Interactions, path: Path) -> None:
    """Write a log to one file, CSV or Parquet by its suffix, whole or not at all."""
    write = _write_parquet if path.suffix.lower() in (".parquet", ".pq") else write_csv
    write_atomically(path, lambda draft: write(log, draft))


def write_parts(log: Interactions, folder: Path, parts: int, kind: Format) -> None:
    """Write a log to a new folder, as `parts` files of nearly equal size in time order."""
    write = _write_parquet if kind == "parquet" else write_csv
    bounds = np.linspace(0, len(log), parts + 1).astype(np.int64)
    with new_folder(folder) as draft:
        for number in range(parts):
            rows = np.arange(bounds[number], bounds[number + 1])
            write(log.take(rows), draft / f"part-{number + 1:04d}.{kind}")


def write_split(parts: Split, folder: str | Path) -> None:
    """Write train.csv, validation.csv and test.csv with the original ids: all three or nothing."""
    with new_folder(Path(folder)) as draft:
        for part in ("train", "validation", "test"):
            write_csv(getattr(parts, part), draft / f"{part}.csv")


def write_csv(log: Interactions, path: Path) -> None:
    """Write a log as CSV; text is quoted, as ids may look like numbers or hold separators."""
    with path.open("wb") as file:
        for number, frame in enumerate(_frames(log)):
            if number == 0:
                # The header without quotes, as other programs expect it; cells of text with.
                file.write(frame.clear().write_csv().encode())
            frame.write_csv(file, include_header=False, quote_style="non_numeric")


def _write_parquet(log: Interactions, path: Path) -> None:
    pl.concat(_frames(log)).write_parquet(path)


def _frames(log: Interactions) -> Iterator[pl.DataFrame]:
    """The log as frames with its ids, some rows each; of an empty log one frame without rows."""
    users, items = (_ids(ids) for ids in (log.user_ids, log.item_ids))
    described = {name: pl.Series(cells.tolist()) for name, cells in log.attributes.items()}
    numbers = {"rating": log.ratings, "timestamp": log.timestamps, "weight": log.total_weights()}
    for start in range(0, max(1, len(log)), ROWS_AT_ONCE):
        here = slice(start, start + ROWS_AT_ONCE)
        taken = log.items[here]
        columns = {"user": users.gather(log.users[here]), "item": items.gather(taken)}
        for name, values in numbers.items():
            if values is not None:
                columns[name] = pl.Series(values[here], nan_to_null=True)
        columns |= {name: cells.gather(taken) for name, cells in described.items()}
        yield pl.DataFrame(columns)


def _ids(ids: NDArray[Any]) -> pl.Series:
    return pl.Series(ids.tolist(), dtype=pl.String if ids.dtype == object else pl.Int64)
