"""What is said of a log that was just read: warnings, and the one error of the whole."""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.columns import Origin
from fairhorizon.data.interactions import (
    Interactions,
    MissingValuesWarning,
    NoTimestampsWarning,
    RepeatsWarning,
)

STACK = 4  # a warning points at whoever reads the log


def check_log(log: Interactions, rows: int, labels: Mapping[str, str], origin: Origin) -> None:
    """Refuse the log of a single user; warn of missing times and of rows that were merged.

    rows: as many there were; labels: the columns by role, those that there are.
    """
    if log.n_users == 1:
        column = labels["user"]
        origin.fail(
            f"all rows are of one user, {log.user_ids[0]!s}",
            remedy=f"give the interactions of several users, or check the user column {column!r}",
        )
    if log.timestamps is None:
        warnings.warn(
            f"{origin.file or 'the frame'} has no timestamps: its rows are assumed to be "
            "in the order of time (name the column if there is one)",
            NoTimestampsWarning,
            stacklevel=STACK,
        )
    merged = rows - len(log)
    if merged and "weight" not in labels:  # else they add up, and nothing is lost
        warnings.warn(
            f"{origin.file or 'the frame'}: {counted(merged, 'row repeats', 'rows repeat')} the "
            f"user and item of another: the {log.repeats} of each pair is kept, {len(log):,} rows "
            f"of {rows:,}",
            RepeatsWarning,
            stacklevel=STACK,
        )


def warn_of_missing_ratings(ratings: NDArray[np.float64], origin: Origin) -> None:
    """Say how many ratings are NaN, if any."""
    missing = int(np.isnan(ratings).sum())
    if missing:
        warnings.warn(
            f"{origin.file or 'the data'}: {counted(missing, 'rating is', 'ratings are')} missing "
            f"of {len(ratings):,}: these rows count as interactions without a rating",
            MissingValuesWarning,
            stacklevel=STACK,
        )


def warn_of_missing_attribute(cells: NDArray[Any], column: str, origin: Origin) -> None:
    """Say how many items have no value, if any; `cells` are text per item, (n_items,)."""
    missing = int((cells == "").sum())
    if missing:
        warnings.warn(
            f"{origin.file or 'the data'}: {counted(missing, 'item has', 'items have')} no "
            f"{column} of {len(cells):,}: without one an item is in no group of {column}",
            MissingValuesWarning,
            stacklevel=STACK,
        )


def counted(number: int, one: str, many: str) -> str:
    """As in "1 item has" or "1,200 items have"."""
    return f"{number:,} {one if number == 1 else many}"
