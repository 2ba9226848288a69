"""Who the limits of a study are about: groups by popularity, by novelty, or by a column."""

import warnings
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.readers import read_item_attribute
from fairhorizon.data.sources import load
from fairhorizon.data.splits import Split
from fairhorizon.errors import NoColumnError
from fairhorizon.experiments.datasets import DataSpec, opened
from fairhorizon.exposure.binding import bind
from fairhorizon.exposure.bound import BoundLimit
from fairhorizon.exposure.groups import POPULAR_SHARE
from fairhorizon.exposure.limits import Limit


def bound_limits(
    limits: Sequence[Limit],
    data: DataSpec,
    cache_dir: Path | None,
    item_table: str | None = None,
    *,
    split: Split | None = None,
    popular_share: float = POPULAR_SHARE,
) -> list[BoundLimit]:
    """The limits on the items of the data; COLUMN:each becomes a limit for every value.

    item_table: a file with a row per item; without it, the columns are those of the log.
    split: of the data, where it was read already.
    popular_share: of the catalogue, by training count, that is the group `popular`.
    """

    def counts() -> NDArray[np.int64]:
        return (split or opened(data, cache_dir).split).train.item_counts()

    return bind(
        limits,
        counts,
        lambda column: _attribute(data, item_table, column, cache_dir),
        popular_share=popular_share,
        elsewhere="" if item_table else "name one, or give the --item-table that has it",
    )


@lru_cache(maxsize=16)
def _attribute(
    data: DataSpec, item_table: str | None, column: str, cache_dir: Path | None
) -> NDArray[Any]:
    """(n_items,) the attribute of every item, from the table or else from the log."""
    options = {
        name: getattr(data, name)
        for name in ("user", "item", "rating", "timestamp", "header", "separator", "encoding")
    }
    in_log = () if item_table is not None else (column,)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the log: it has been read before
        log = load(data.source, cache_dir=cache_dir, attributes=in_log, **options)
    if item_table is not None:
        return read_item_attribute(item_table, log, attribute=column, encoding=data.encoding)
    if column not in log.attributes:
        known = tuple(log.attributes)
        raise NoColumnError(column, known, file=data.source, remedy="give an item table")
    return log.attributes[column]
