"""Who the limits of a study are about: groups by popularity, by novelty, or by a column."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.splits import Split
from fairhorizon.limits.binding import bind
from fairhorizon.limits.bound import BoundLimit
from fairhorizon.limits.groups import POPULAR_SHARE
from fairhorizon.limits.language import Limit
from fairhorizon.studies.datasets import DataSpec, item_attribute, opened


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
        lambda column: item_attribute(data, item_table, column, cache_dir),
        popular_share=popular_share,
        elsewhere="" if item_table else "name one, or give the --item-table that has it",
    )
