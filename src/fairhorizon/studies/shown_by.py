"""Who is shown: groups by rank, and providers such as sellers, the worst-off first."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.recommendations import Recommendations
from fairhorizon.datasets import Dataset
from fairhorizon.limits.groups import attribute_values, values_of_items
from fairhorizon.limits.language import GroupOf
from fairhorizon.limits.measured import Showings
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.studies.audit_rows import ByRank, ProviderExposure, RankExposure

RANKS = 50  # reported one by one
OTHER = "other"
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ItemNotes:
    """What a table says of items beside the groups of limits."""

    provider_column: str = ""
    providers: NDArray[Any] | None = None  # (n_items,) text; "A|B" are two providers
    titles: NDArray[Any] | None = None  # (n_items,) text, empty where there is none

    def title(self, item: int) -> str:
        return "" if self.titles is None else str(self.titles[item])


def families_of(limits: Sequence[ResolvedLimit]) -> list[str]:
    """Of each limit, the one on each value of its column; of one on other groups, itself."""
    return [
        str(replace(one.limit, group=GroupOf(one.limit.group.column, each=True)))
        if len(one.limit.group.values) == 1
        else str(one)
        for one in limits
    ]


def exposure_by_rank(
    dataset: Dataset, showings: Showings, limits: Sequence[ResolvedLimit] = ()
) -> ByRank:
    """The share at each rank of the limited group, of all other items, and of each limit's group.

    A group that has the same items as an earlier one is left out.
    """
    groups = {dataset.group_name: dataset.sensitive, OTHER: ~dataset.sensitive}
    seen = {members.tobytes() for members in groups.values()}
    for one in limits:
        if not one.limit.is_gini and one.members.tobytes() not in seen:
            seen.add(one.members.tobytes())
            groups.setdefault(str(one.limit.group), one.members)
    length = min(RANKS, showings.length)
    counted = showings.places < length
    places, items = showings.places[counted], showings.items[counted]
    total = np.bincount(places, minlength=length)
    found = []
    for name, members in groups.items():
        inside = np.bincount(places[members[items]], minlength=length)
        shared = np.divide(inside, total, out=np.zeros(length), where=total > 0)
        everywhere = float(members[showings.items].mean())
        found.append(RankExposure(name, everywhere, tuple(shared.tolist())))
    return ByRank(tuple(total.tolist()), tuple(found))


def exposure_of_providers(
    dataset: Dataset, shown: Recommendations, notes: ItemNotes
) -> tuple[ProviderExposure, ...]:
    """Every provider that has items, the one with least exposure for its share of the log first.

    Of providers with the same ratio, the one with more of the log is first. Those that the training
    log does not have come last. An item of two providers counts for both.
    """
    if notes.providers is None:
        return ()
    cells = values_of_items(notes.providers)
    names = attribute_values(notes.providers)
    code_of = {name: code for code, name in enumerate(names)}
    items = np.repeat(np.arange(len(cells)), [len(cell) for cell in cells])
    owners = np.array([code_of[name] for cell in cells for name in sorted(cell)], dtype=np.int64)
    exposure = np.bincount(shown.items, minlength=dataset.log.n_items)
    training = dataset.split.train.item_counts()

    def summed(of_items: NDArray[Any]) -> NDArray[np.float64]:
        sums = np.bincount(owners, weights=of_items[items], minlength=len(names))
        return sums.astype(np.float64)

    best = np.full(dataset.log.n_items, np.iinfo(np.int64).max)
    np.minimum.at(best, shown.items, shown.places())
    best_of = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(best_of, owners, best[items])
    columns = zip(
        names,
        np.bincount(owners, minlength=len(names)).tolist(),
        summed(exposure).tolist(),
        summed(shares(exposure)).tolist(),
        summed(shares(training)).tolist(),
        best_of.tolist(),
        strict=True,
    )
    rows = [
        ProviderExposure(
            *(name, n, int(showings), of_exposure, of_training, n / dataset.log.n_items),
            best_rank=rank + 1 if showings and not shown.is_log else None,
        )
        for name, n, showings, of_exposure, of_training, rank in columns
    ]
    return tuple(sorted(rows, key=_worst_off_first))


def _worst_off_first(one: ProviderExposure) -> tuple[float, float, str]:
    return (math.inf if math.isnan(one.ratio) else one.ratio, -one.of_training, one.provider)


def shares(counts: Counts) -> NDArray[np.float64]:
    """Shares of the total; zeros if the total is zero."""
    return counts / counts.sum() if counts.any() else np.zeros(len(counts))
