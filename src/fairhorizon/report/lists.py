"""Recommendation lists as CSV: user,rank,item with the original ids."""

from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.files import write_atomically


def write_lists(path: Path, lists: NDArray[np.int64], log: Interactions) -> None:
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
