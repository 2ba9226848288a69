"""A log to CSV or Parquet with its original ids, a stretch of rows at a time."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split
from fairhorizon.errors import DataError
from fairhorizon.files import STANDARD_OUTPUT, is_used, write_atomically

Format = Literal["csv", "parquet"]
ROWS = 1_000_000  # held as text at once


@contextmanager
def new_folder(folder: Path) -> Iterator[Path]:
    """A draft of a folder to fill, which becomes the folder at the end; nothing after a failure."""
    if folder == STANDARD_OUTPUT:
        raise DataError("is no folder but standard output", file=folder, remedy="name a folder")
    if is_used(folder):
        raise DataError("already exists", file=folder, remedy="name a new folder or empty it")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
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
    """One file, CSV or Parquet by its suffix; whole or not at all."""
    write = _write_parquet if path.suffix.lower() in (".parquet", ".pq") else write_csv
    write_atomically(path, lambda draft: write(log, draft))


def write_parts(log: Interactions, folder: Path, parts: int, kind: Format) -> None:
    """So many files of nearly equal size, in time order, in a new folder."""
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
    """A header, then rows; text is always quoted: ids may look like numbers or hold separators."""
    with path.open("wb") as file:
        for number, frame in enumerate(_frames(log)):
            if number == 0:
                file.write(frame.clear().write_csv().encode())
            frame.write_csv(file, include_header=False, quote_style="non_numeric")


def _write_parquet(log: Interactions, path: Path) -> None:
    pl.concat(_frames(log)).write_parquet(path)


def _frames(log: Interactions) -> Iterator[pl.DataFrame]:
    """The rows of the log with its ids, some at a time; one frame without rows of an empty log."""
    users, items = (_ids(ids) for ids in (log.user_ids, log.item_ids))
    described = {name: pl.Series(cells.tolist()) for name, cells in log.attributes.items()}
    numbers = {"rating": log.ratings, "timestamp": log.timestamps, "weight": log.total_weights()}
    for start in range(0, max(1, len(log)), ROWS):
        here = slice(start, start + ROWS)
        taken = log.items[here]
        columns = {"user": users.gather(log.users[here]), "item": items.gather(taken)}
        for name, values in numbers.items():
            if values is not None:
                columns[name] = pl.Series(values[here], nan_to_null=True)
        columns |= {name: cells.gather(taken) for name, cells in described.items()}
        yield pl.DataFrame(columns)


def _ids(ids: NDArray[Any]) -> pl.Series:
    return pl.Series(ids.tolist(), dtype=pl.String if ids.dtype == object else pl.Int64)
