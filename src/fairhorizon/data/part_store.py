"""What was read of the parts of a folder, kept so that they need not be read again.

An entry is a file of arrays per part, named by the part's path and the options it was read with. It
counts while the part has the size and the time of change that it had then. Entries are written
whole or not at all, so that several processes may share a store, and all may be deleted any time.
"""

import hashlib
import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.files import write_atomically

VERSION = 1  # of the entries; others are not read
DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Stamp:
    """By what a change of a file is noticed."""

    size: int
    changed: int  # nanoseconds

    @classmethod
    def of(cls, file: Path) -> "Stamp":
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
            stamp = Stamp.of(part)
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
