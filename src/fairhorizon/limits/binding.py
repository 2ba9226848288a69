"""Who limits are about: groups by popularity, by novelty, or by a column of the items."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.errors import ConfigError, DataError, NoColumnError
from fairhorizon.limits.bound import BoundLimit
from fairhorizon.limits.groups import (
    POPULAR_SHARE,
    attribute_group,
    popular_group,
    values_of_items,
)
from fairhorizon.limits.language import NEW, POPULAR, Limit, LimitError

Attribute = Callable[[str], NDArray[Any]]  # the column of a name, (n_items,) text


def bind(
    limits: Sequence[Limit],
    counts: Callable[[], NDArray[np.int64]],
    attribute: Attribute,
    *,
    popular_share: float = POPULAR_SHARE,
    elsewhere: str = "",
) -> list[BoundLimit]:
    """The limits on the items of some data; COLUMN:each becomes a limit for every value.

    counts: (n_items,) interactions of every item in training; asked for where a limit needs them.
    attribute: the column of a name, of every item; a NoColumnError where there is none.
    popular_share: of the catalogue, by count, that is the group `popular`.
    elsewhere: what to do about a column that is missing, for the message.
    """
    bound: list[BoundLimit] = []
    for limit in limits:
        if limit.group.reserved:
            bound.append(BoundLimit(limit, _reserved(limit.group.column, counts(), popular_share)))
            continue
        try:
            cells = attribute(limit.group.column)
            if limit.group.each:
                bound += [
                    BoundLimit(limit.of_values((value,)), members)
                    for value, members in _groups_of_each(cells).items()
                ]
            else:
                bound.append(BoundLimit(limit, attribute_group(cells, limit.group.values)))
        except NoColumnError as error:
            raise LimitError(f"{str(limit)!r}: {_no_column(error, elsewhere)}") from None
        except DataError as error:
            raise LimitError(f"{str(limit)!r}: {error}") from None
    names = Counter(str(one) for one in bound)
    if twice := sorted(name for name, times in names.items() if times > 1):
        raise ConfigError(f"{twice[0]} is given twice (give it once)")
    return bound


def _groups_of_each(cells: NDArray[Any]) -> dict[str, NDArray[np.bool_]]:
    """Of every value, in alphabetical order, the items that have it; all values in one pass."""
    items_of: dict[str, list[int]] = {}
    for item, values in enumerate(values_of_items(cells)):
        for value in values:
            items_of.setdefault(value, []).append(item)
    groups = {}
    for value in sorted(items_of):
        groups[value] = np.zeros(len(cells), dtype=np.bool_)
        groups[value][items_of[value]] = True
    return groups


def _no_column(error: NoColumnError, elsewhere: str) -> str:
    """What was looked for, what there is, and where else it may be."""
    known = f"there are {', '.join(error.columns)}" if error.columns else "there are none"
    where = f"{error.file}: " if error.file is not None else ""
    return f"{where}no column {error.column!r}; {known}" + (f" ({elsewhere})" if elsewhere else "")


def _reserved(word: str, counts: NDArray[np.int64], popular_share: float) -> NDArray[np.bool_]:
    if word == POPULAR:
        return popular_group(counts, popular_share)
    members: NDArray[np.bool_] = counts == 0 if word == NEW else np.ones_like(counts, bool)
    return members
