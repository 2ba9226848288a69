"""A log in a folder of parts: files with the same columns, read one after the other, each once.

What was read of a part is kept, so that it need not be read again.
An entry is a file of arrays per part, named by the part's path and the options it was read with. It
counts while the part has the size and the time of change that it had then. Entries are written
whole or not at all, so that several processes may share a store, and all may be deleted any time.
"""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.columns import Origin, as_column, encoded, places
from fairhorizon.data.frames import Rows, check_log, joined, log_of_rows, role_columns
from fairhorizon.data.interactions import Interactions, PartsRead
from fairhorizon.data.items import Cells, per_item
from fairhorizon.data.readers import ReaderOptions, locate
from fairhorizon.errors import DataError, NoColumnError
from fairhorizon.files import write_atomically

# The store of what was read.


VERSION = 1  # of the entries; others are not read
DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Stamp:
    """By what a change of a file is noticed."""

    size: int
    changed: int  # nanoseconds

    @classmethod
    def from_file(cls, file: Path) -> "Stamp":
        found = file.stat()
        return cls(found.st_size, found.st_mtime_ns)


@dataclass(frozen=True)
class PartStore:
    """Entries in a folder; without one nothing is kept."""

    folder: Path | None
    options: Mapping[str, Any]  # how parts are read

    def get(self, part: Path, what: str) -> Arrays | None:
        """The arrays kept of the part as it is now; None if there are none, or damaged ones."""
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
        """Keep arrays of a part that had this stamp before it was read, if the disk lets us."""
        if self.folder is None:
            return
        marked = {**arrays, "stamp": np.array([stamp.size, stamp.changed])}

        def write(draft: Path) -> None:
            with draft.open("wb") as file:
                np.savez(file, allow_pickle=False, **marked)

        try:
            write_atomically(self._entry(part, what), write)
        except OSError:
            return  # a full or read-only disk costs time, not the result

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


# Reading the parts.


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


def part_files(folder: Path) -> list[Path]:
    """The parts, also those in folders below, by name; hidden files and those with _ are none."""
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
    folder: str | Path, *, store: Path | None, **options: Unpack[ReaderOptions]
) -> Interactions:
    """The log of all parts together, as if they were one file in the order of their names.

    Of a part that was read before, with the same options, what is in `store` is used, unless the
    part has changed since; None: all parts are read. The options are those of `read_interactions`.
    """
    folder = Path(folder)
    wanted = tuple(options.pop("attributes", ()))
    repeats = options.pop("repeats", "first")
    reader = _Reader(PartStore(store, options), options)
    files = part_files(folder)
    parts: list[ReadPart] = []
    kept = 0
    for file in files:
        part = reader.kept(file)
        kept += part is not None
        parts.append(reader.read(file) if part is None else part)
        _check_columns(parts[0], parts[-1], files[0], file)
    first, origin = parts[0], Origin(folder)
    rows = joined([part.rows for part in parts])
    parts.clear()  # the rows are all in one place now
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
        columns, labels = json_of(arrays["names"])
        numbers = [arrays.get(name) for name in NUMBERS]
        user_ids, item_ids = (column_of(arrays[f"{who}_ids"]) for who in ("user", "item"))
        rows = Rows(user_ids, arrays["users"], item_ids, arrays["items"], *numbers)
        return ReadPart(tuple(columns), labels, rows)

    def read(self, file: Path) -> ReadPart:
        stamp, found = Stamp.from_file(file), locate(file, self.options)
        labels = {role: name for role, name in found.labels.items() if name is not None}
        frame, origin = found.frame, found.origin
        rows = Rows.from_columns(role_columns(frame, labels), labels, origin)
        part = ReadPart(tuple(frame.columns), labels, rows)
        arrays = {
            "names": packed([part.columns, labels]),
            "user_ids": packed(rows.user_ids),
            "item_ids": packed(rows.item_ids),
            "users": rows.users.astype(np.min_scalar_type(len(rows.user_ids))),
            "items": rows.items.astype(np.min_scalar_type(len(rows.item_ids))),
        }
        given = {name: getattr(rows, name) for name in NUMBERS}
        arrays |= {name: values for name, values in given.items() if values is not None}
        self.store.keep(file, "rows", stamp, arrays)
        return part

    def cells(self, file: Path, column: str) -> tuple[pl.Series, pl.Series]:
        """The items of a part, and what a column says of each, empty where it says nothing."""
        arrays = self.store.get(file, f"column {column}")
        if arrays is not None:
            return column_of(arrays["items"]), column_of(arrays["cells"])
        stamp, found = Stamp.from_file(file), locate(file, self.options)
        frame, item = found.frame, str(found.labels["item"])
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
            rows = places(items.cast(self.item_ids.dtype), self.item_ids)
            empty = cells[rows] == ""
            cells[rows[empty]] = found.to_numpy()[empty]
        return cells

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)
