"""Rows of a log as numbers: codes for ids, and ratings, times and weights; parts put together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.columns import (
    Column,
    Origin,
    encoded,
    places,
    to_ratings,
    to_weights,
)
from fairhorizon.data.times import to_times

Codes = NDArray[Any]  # (n,) integers; int64, or as short as they were stored


@dataclass(frozen=True, eq=False)
class Rows:
    """What a file or frame says of each row, also of those that repeat others, in its order."""

    user_ids: pl.Series  # (n_users,) sorted, integers or text
    users: Codes  # (n,)
    item_ids: pl.Series  # (n_items,)
    items: Codes  # (n,)
    ratings: NDArray[np.float64] | None = None  # (n,), NaN where one is missing
    times: NDArray[Any] | None = None  # (n,) int64 or float64
    weights: NDArray[np.float64] | None = None  # (n,)

    @classmethod
    def of(cls, columns: Mapping[str, Column], labels: Mapping[str, str], origin: Origin) -> "Rows":
        """From raw columns by role; `labels` are what messages call them."""
        user_ids, users = encoded(columns["user"], labels["user"], origin)
        item_ids, items = encoded(columns["item"], labels["item"], origin)
        convert = {"rating": to_ratings, "timestamp": to_times, "weight": to_weights}
        found = {
            role: to_numbers(columns[role], labels[role], origin) if role in columns else None
            for role, to_numbers in convert.items()
        }
        return cls(user_ids, users, item_ids, items, *found.values())

    def __len__(self) -> int:
        return len(self.users)

    def among(self, users: pl.Series, items: pl.Series) -> "Rows":
        """The same rows where these users and items have codes too, though none of the rows."""
        numbers: Any = {
            role: None if (cells := getattr(self, role)) is None else cells[:0]
            for role in ("users", "items", "ratings", "times", "weights")
        }
        return joined([self, Rows(user_ids=users, item_ids=items, **numbers)])


def joined(parts: Sequence[Rows]) -> Rows:
    """The rows of several parts, one after the other; ids are sorted anew."""
    if len(parts) == 1:
        return parts[0]
    user_ids, users = _renumbered([(part.user_ids, part.users) for part in parts])
    item_ids, items = _renumbered([(part.item_ids, part.items) for part in parts])

    def together(role: str) -> NDArray[Any] | None:
        columns = [getattr(part, role) for part in parts]
        return None if columns[0] is None else np.concatenate(columns)

    numbers = [together(role) for role in ("ratings", "times", "weights")]
    return Rows(user_ids, users, item_ids, items, *numbers)


def _renumbered(parts: Sequence[tuple[pl.Series, Codes]]) -> tuple[pl.Series, Codes]:
    """All ids, and all codes as places among them; integers are text if some part has text."""
    parts = [part for part in parts if len(part[0])]
    whole = all(ids.dtype == pl.Int64 for ids, _ in parts)
    every = [ids if whole else ids.cast(pl.String) for ids, _ in parts]
    known = pl.concat(every).unique().sort()
    codes = [places(ids, known)[old] for ids, (_, old) in zip(every, parts, strict=True)]
    return known, np.concatenate(codes)
