"""Limits on the items of some data: groups by popularity, by novelty, or by a column of items."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.errors import ConfigError, DataError, NoColumnError
from fairhorizon.limits.groups import (
    POPULAR_SHARE,
    attribute_group,
    popular_group,
    recent_group,
    values_of_items,
)
from fairhorizon.limits.language import NEW, POPULAR, GroupOf, Limit, LimitError

Attribute = Callable[[str], NDArray[Any]]  # the column of a name, (n_items,) text


@dataclass(frozen=True, eq=False)
class ResolvedLimit:
    """A limit, and the items that its group has in some data."""

    limit: Limit
    members: NDArray[np.bool_]  # (n_items,) of the group at the beginning; all items for gini

    @property
    def is_dynamic(self) -> bool:
        """Whether exposure changes who is in the group."""
        return self.limit.group == GroupOf(POPULAR)

    def __str__(self) -> str:
        return str(self.limit)


def resolve_limits(
    limits: Sequence[Limit],
    counts: Callable[[], NDArray[np.int64]],
    attribute: Attribute,
    *,
    popular_share: float = POPULAR_SHARE,
    elsewhere: str = "",
) -> list[ResolvedLimit]:
    """The limits on the items of some data; COLUMN:each becomes a limit for every value.

    counts: (n_items,) interactions of every item in training; asked for where a limit needs them.
    attribute: the column of a name, of every item; a NoColumnError where there is none.
    popular_share: of the catalogue, by count, that is the group `popular`.
    elsewhere: what to do about a column that is missing, for the message.
    """
    found: list[ResolvedLimit] = []
    for limit in limits:
        if limit.group.reserved:
            members = _reserved(limit.group.column, counts(), popular_share)
            found.append(ResolvedLimit(limit, members))
            continue
        try:
            cells = attribute(limit.group.column)
            if limit.group.each:
                found += [
                    ResolvedLimit(limit.of_values((value,)), members)
                    for value, members in _groups_of_each(cells).items()
                ]
            elif limit.group.days is not None:
                found.append(ResolvedLimit(limit, recent_group(cells, limit.group.days)))
            else:
                found.append(ResolvedLimit(limit, attribute_group(cells, limit.group.values)))
        except NoColumnError as error:
            raise LimitError(f"{str(limit)!r}: {_no_column(error, elsewhere)}") from None
        except DataError as error:
            raise LimitError(f"{str(limit)!r}: {error}") from None
    # After `each` is resolved: seller:each<=0.3 beside seller=A<=0.3 is given twice, too.
    names = Counter(str(one) for one in found)
    if twice := sorted(name for name, times in names.items() if times > 1):
        raise ConfigError(f"{twice[0]} is given twice (give it once)")
    return found


def _groups_of_each(cells: NDArray[Any]) -> dict[str, NDArray[np.bool_]]:
    """Of every value, in alphabetical order, the items that have it; all values in one pass."""
    items_of: dict[str, list[int]] = {}
    for item, values in enumerate(values_of_items(cells)):
        for value in values:
            items_of.setdefault(value, []).append(item)
    groups = {}
    # Alphabetical, so that the same table always gives limits in the same order.
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
    # `new` is what training never saw. The Gini index is one of all items.
    members: NDArray[np.bool_] = counts == 0 if word == NEW else np.ones_like(counts, bool)
    return members
