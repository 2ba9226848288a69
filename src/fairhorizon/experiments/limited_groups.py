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
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.experiments.datasets import Dataset, DataSpec, opened
from fairhorizon.exposure.bound import BoundLimit
from fairhorizon.exposure.groups import attribute_group, attribute_values, popular_group
from fairhorizon.exposure.limits import NEW, POPULAR, Limit, LimitError


def bound_limits(
    limits: Sequence[Limit], data: DataSpec, cache_dir: Path | None, item_table: str | None = None
) -> list[BoundLimit]:
    """The limits on the items of the data; COLUMN:each becomes a limit for every value.

    item_table: a file with a row per item; without it, the columns are those of the log.
    """
    bound = []
    for limit in limits:
        if limit.group.reserved:
            members = _reserved(limit.group.column, opened(data, cache_dir))
            bound.append(BoundLimit(limit, members))
            continue
        try:
            cells = _attribute(data, item_table, limit.group.column, cache_dir)
            values = [limit.group.values]
            if limit.group.each:
                values = [(value,) for value in attribute_values(cells)]
            bound += [BoundLimit(limit.of_values(v), attribute_group(cells, v)) for v in values]
        except DataError as error:
            raise LimitError(f"{str(limit)!r}: {error}") from None
    names = [str(one) for one in bound]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"{twice[0]} is given twice (give it once)")
    return bound


def _reserved(word: str, dataset: Dataset) -> NDArray[np.bool_]:
    counts = dataset.split.train.item_counts()
    if word == POPULAR:
        return popular_group(counts)
    members: NDArray[np.bool_] = counts == 0 if word == NEW else np.ones_like(counts, bool)
    return members


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
        raise DataError(f"{data.source} has no column {column!r}", remedy="give an item table")
    return log.attributes[column]
