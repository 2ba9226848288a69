"""Parquet files; of a log only the columns that are asked for are read."""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

import polars as pl

from fairhorizon.errors import DataError

SUFFIXES = (".parquet", ".pq")
MAGIC = b"PAR1"  # what a Parquet file begins with; one that is packed does not

Found = TypeVar("Found")


@dataclass(frozen=True, eq=False)
class ParquetColumns:
    """A file as a frame whose columns are read when they are asked for."""

    path: Path
    columns: list[str]
    rows: int

    @classmethod
    def of(cls, path: Path) -> "ParquetColumns | None":
        """None if it is no Parquet file, by its suffix, or a packed one."""
        try:
            with path.open("rb") as file:
                is_plain = path.suffix.lower() in SUFFIXES and file.read(len(MAGIC)) == MAGIC
        except (OSError, ValueError):
            return None
        if not is_plain:
            return None
        scan = _checked(path, lambda: pl.scan_parquet(path, glob=False))
        columns = _checked(path, lambda: scan.collect_schema().names())
        rows = _checked(path, lambda: int(scan.select(pl.len()).collect().item()))
        _refuse_empty(path, rows)
        return cls(path, columns, rows)

    @property
    def nothing(self) -> pl.DataFrame:
        """A frame with these columns and no rows."""
        return pl.DataFrame({name: [] for name in self.columns})

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, name: str | Sequence[str]) -> "pl.Series | Self":
        """One column; several are not read before they are asked for one by one."""
        if not isinstance(name, str):
            return self
        scan = pl.scan_parquet(self.path, glob=False)
        return _checked(self.path, lambda: scan.select(pl.col(name)).collect().to_series())


def parquet_frame(path: Path, raw: bytes) -> pl.DataFrame:
    """The frame of bytes, which may have been packed in the file."""
    frame = _checked(path, lambda: pl.read_parquet(io.BytesIO(raw)))
    _refuse_empty(path, len(frame))
    return frame


def _checked(path: Path, read: Callable[[], Found]) -> Found:
    try:
        return read()
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError):
        raise DataError(
            "is not a Parquet file or is damaged", file=path, remedy="write the file again"
        ) from None


def _refuse_empty(path: Path, rows: int) -> None:
    if not rows:
        raise DataError("there are no rows", file=path, remedy="give rows of user and item")
