"""Recommendation lists as a file: a row per showing, with the original ids."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from typing import Protocol as Interface

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.files import write_atomically
from fairhorizon.vocabulary import ListFormat

OF_SUFFIX = {
    ".parquet": ListFormat.PARQUET,
    ".pq": ListFormat.PARQUET,
    ".jsonl": ListFormat.JSONL,
    ".ndjson": ListFormat.JSONL,
}


class OriginalIds(Interface):
    """Whatever has the original ids by code, as a log does."""

    @property
    def user_ids(self) -> NDArray[Any]: ...

    @property
    def item_ids(self) -> NDArray[Any]: ...


def format_of(path: Path) -> ListFormat:
    """By the suffix of the file; CSV unless it says something else."""
    return OF_SUFFIX.get(path.suffix.lower(), ListFormat.CSV)


def write_lists(
    path: Path,
    lists: NDArray[np.int64],
    log: OriginalIds,
    *,
    written_as: ListFormat | None = None,
    users: NDArray[np.int64] | None = None,
    numbers: Mapping[str, NDArray[np.float64]] | None = None,
) -> None:
    """A row for every item shown: user, rank from 1 and item, then the numbers of the showing.

    lists: (n_users, K) codes, -1 for an empty place.
    written_as: None: by the suffix of the path.
    users: (n_users,) their codes; None: 0, 1, ...
    numbers: further columns, (n_users, K) each, such as the score.
    """
    rows, ranks = np.nonzero(lists >= 0)
    codes = rows if users is None else users[rows]
    frame = pl.DataFrame(
        {
            "user": pl.Series(log.user_ids[codes].tolist()),
            "rank": ranks + 1,
            "item": pl.Series(log.item_ids[lists[rows, ranks]].tolist()),
            **{name: column[rows, ranks] for name, column in (numbers or {}).items()},
        }
    )
    write: dict[ListFormat, Callable[[Path], object]] = {
        ListFormat.CSV: frame.write_csv,
        ListFormat.PARQUET: frame.write_parquet,
        ListFormat.JSONL: frame.write_ndjson,
    }
    write_atomically(path, write[written_as or format_of(path)])
