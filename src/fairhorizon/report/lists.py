"""Recommendation lists as a file: a row per showing, with the original ids."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from typing import Protocol as Interface

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.errors import ConfigError
from fairhorizon.files import is_stream, write_atomically
from fairhorizon.vocabulary import ListFormat

OF_SUFFIX = {
    "": ListFormat.CSV,
    ".csv": ListFormat.CSV,
    ".txt": ListFormat.CSV,
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


FORMULA = r"^[=+\-@\t\r]"  # what a spreadsheet takes for the beginning of a formula


def format_of(path: Path) -> ListFormat:
    """By the suffix of the file; one that is not known is refused."""
    known = ListFormat.CSV if is_stream(path) else OF_SUFFIX.get(path.suffix.lower())
    if known is None:
        suffixes = ", ".join(filter(None, OF_SUFFIX))
        raise ConfigError(
            f"{path}: lists are written as {suffixes} (name one of these, or give --format)"
        )
    return known


def write_lists(
    path: Path,
    lists: NDArray[np.int64],
    log: OriginalIds,
    *,
    written_as: ListFormat | None = None,
    users: NDArray[np.int64] | None = None,
    numbers: Mapping[str, NDArray[np.float64]] | None = None,
    spreadsheet_safe: bool = False,
) -> None:
    """A row for every item shown: user, rank from 1 and item, then the numbers of the showing.

    lists: (n_users, K) codes, -1 for an empty place.
    written_as: None: by the suffix of the path.
    users: (n_users,) their codes; None: 0, 1, ...
    numbers: further columns, (n_users, K) each, such as the score.
    spreadsheet_safe: put an apostrophe before ids that a spreadsheet would run as formulas.
    """
    rows, ranks = np.nonzero(lists >= 0)
    # Row by row, places in order: the file is sorted by user and rank.
    codes = rows if users is None else users[rows]
    frame = pl.DataFrame(
        {
            "user": pl.Series(log.user_ids[codes].tolist()),
            "rank": ranks + 1,
            "item": pl.Series(log.item_ids[lists[rows, ranks]].tolist()),
            **{name: column[rows, ranks] for name, column in (numbers or {}).items()},
        }
    )
    if spreadsheet_safe:
        text = pl.col(pl.String)
        safe = pl.when(text.str.contains(FORMULA)).then("'" + text).otherwise(text)
        frame = frame.with_columns(safe.name.keep())
    write: dict[ListFormat, Callable[[Path], object]] = {
        ListFormat.CSV: frame.write_csv,
        ListFormat.PARQUET: frame.write_parquet,
        ListFormat.JSONL: frame.write_ndjson,
    }
    write_atomically(path, write[written_as or format_of(path)])
