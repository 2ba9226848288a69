"""Item groups: G0, the popular items, as a function of exposure counts; or by an attribute."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairhorizon.errors import ConfigError, DataError

POPULAR_SHARE = 0.2  # of the catalogue, as in the paper


def popular_group(counts: ArrayLike, share: float = POPULAR_SHARE) -> NDArray[np.bool_]:
    """(n_items,) bool, True for G0: the floor(share * n_items + 1/2) items of highest count.

    Ties go to the smaller index. Halves round up: 1682 items -> 336, 3706 -> 741 at the paper's
    share of 20 %.

    counts: (n_items,) exposure of every item.
    share: of the catalogue that counts as popular.
    """
    exposure = np.asarray(counts, dtype=np.float64)
    if not 0 <= share <= 1:
        raise ConfigError(f"the share of popular items must lie between 0 and 1, not {share}")
    if exposure.ndim != 1 or not np.isfinite(exposure).all():
        raise ConfigError("counts must be a vector of finite numbers, one for each item")
    size = math.floor(share * len(exposure) + 0.5)
    group = np.zeros(len(exposure), dtype=np.bool_)
    # A stable sort of the negated counts: of equal counts, the smaller index comes first.
    group[np.argsort(-exposure, kind="stable")[:size]] = True
    return group


@dataclass(frozen=True)
class PopularItems:
    """The popular items as a grouping: they follow from the counts of the moment."""

    share: float = POPULAR_SHARE

    def __call__(self, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        return popular_group(counts, self.share)

    def room(
        self, counts: NDArray[np.int64], group: NDArray[np.bool_], showings: int
    ) -> NDArray[np.int64]:
        """(n_items,) how many showings each item outside the group has left before it enters.

        It enters when it overtakes the last item of the group: the one of the smallest count and,
        of these, the largest index. Showings of the group only make that harder. No bound for
        items of the group, or without any group.

        Where all of that is no room for so many showings, as in a young log, the items of the
        smallest counts may be shown up to the same count, which is enough: some will enter, each
        with few showings.
        """
        room = np.full(len(counts), np.iinfo(np.int64).max)
        outside = np.flatnonzero(~group)
        if len(outside) in (0, len(counts)):
            return room
        least = counts[group].min()
        last = np.flatnonzero(group & (counts == least))[-1]
        overtakes = outside < last  # at equal counts the smaller index is in
        # Left are the showings up to the point where the item just does not overtake the last
        # member.
        left = np.maximum(0, least - counts[outside] - overtakes)
        if left.sum() < showings:
            left = np.maximum(left, _level(counts[outside], showings) - counts[outside])
        room[outside] = left
        return room


def _level(counts: NDArray[np.int64], showings: int) -> int:
    """The smallest count that all items can be raised to by at least so many showings."""
    rising = np.sort(counts)
    below = np.arange(1, len(rising) + 1)
    # The water-filling level: pour showings into the smallest counts until they are used up.
    needed = below * rising - np.cumsum(rising)  # to raise the first so many to the last of them
    n = int(np.searchsorted(needed, showings, side="right"))  # items below the level
    # Rounded up, in whole numbers.
    return int(-(-(showings + rising[:n].sum()) // n))


def attribute_group(values: ArrayLike, sensitive: Collection[str]) -> NDArray[np.bool_]:
    """(n_items,) bool, True for items with one of the given attribute values.

    values: (n_items,) the attribute of every item; "Drama|Comedy" holds two values, and an item
        with empty text is in no group.
    sensitive: the values of the group, or a single one.
    """
    # A string is itself a collection, of its letters.
    wanted = {sensitive} if isinstance(sensitive, str) else set(sensitive)
    cells = values_of_items(values)
    known: set[str] = set().union(*cells)
    unknown = sorted(wanted - known)
    if unknown:
        raise DataError(
            f"no item has the attribute value {', '.join(map(repr, unknown))}",
            remedy=f"the values are {', '.join(sorted(known))}",
        )
    return np.array([not wanted.isdisjoint(cell) for cell in cells], dtype=np.bool_)


def recent_group(dates: ArrayLike, days: int) -> NDArray[np.bool_]:
    """(n_items,) bool, True for items dated within so many days of the newest one.

    Counted back from the newest date and not from the clock, so that the same table has the same
    group on every day.

    dates: (n_items,) a date or a time of every item, as in ISO 8601; an item with empty text is not
        in the group.
    """
    times: dict[int, datetime] = {}
    for item, cell in enumerate(np.asarray(dates, dtype=object)):
        if not (text := str(cell).strip()):
            continue
        try:
            time = datetime.fromisoformat(text)
        except ValueError:
            raise DataError(f"{text!r} is no date", remedy="give it as in 2026-03-31") from None
        times[item] = time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
    group = np.zeros(np.shape(dates), dtype=np.bool_)
    if times:
        newest, span = max(times.values()), timedelta(days=days)
        group[[item for item, time in times.items() if newest - time < span]] = True
    return group


def attribute_values(values: ArrayLike) -> list[str]:
    """All values of an attribute, in alphabetical order."""
    return sorted(set().union(*values_of_items(values)))


def values_of_items(values: ArrayLike) -> list[set[str]]:
    """The values of every item; "Drama|Comedy" holds two, empty text none."""
    return [set(str(cell).split("|")) - {""} for cell in np.asarray(values, dtype=object).tolist()]
