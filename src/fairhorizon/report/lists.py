"""Recommendation lists as CSV: user,rank,item with the original ids."""

from pathlib import Path
from typing import Any
from typing import Protocol as Interface

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.files import write_atomically


class OriginalIds(Interface):
    """Whatever has the original ids by code, as a log does."""

    @property
    def user_ids(self) -> NDArray[Any]: ...

    @property
    def item_ids(self) -> NDArray[Any]: ...


def write_lists(path: Path, lists: NDArray[np.int64], log: OriginalIds) -> None:
    """A row for every item shown, rank from 1; lists: (n_users, K) codes, -1 for an empty slot."""
    users, ranks = np.nonzero(lists >= 0)
    frame = pl.DataFrame(
        {
            "user": pl.Series(log.user_ids[users].tolist()),
            "rank": ranks + 1,
            "item": pl.Series(log.item_ids[lists[users, ranks]].tolist()),
        }
    )
    write_atomically(path, frame.write_csv)
