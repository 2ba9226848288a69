"""Everything that a model serves with at one moment; a refresh puts another in its place."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.item_columns import ItemTable
from fairhorizon.data.splits import Ties, with_ties
from fairhorizon.limits.binding import bind
from fairhorizon.limits.bound import BoundLimit
from fairhorizon.limits.groups import popular_group
from fairhorizon.limits.language import Limit
from fairhorizon.model.catalogue import Catalogue
from fairhorizon.model.fitting import group_of, own_limit
from fairhorizon.model.newcomers import Newcomers, OpenRanker
from fairhorizon.model.people import People
from fairhorizon.recommenders.base import Recommender

NO_COLUMN = "name one, or give the table of items that has it: fh.fit(..., items=...)"


@dataclass(frozen=True, eq=False)
class ServingState:
    """A fitted recommender with its people, items and limits."""

    recommender: Recommender  # as it was fitted
    people: People
    catalogue: Catalogue
    bound: tuple[BoundLimit, ...]
    free: Recommender  # the same over new items too, without the limits
    serving: Recommender  # under the limits

    @classmethod
    def of(
        cls,
        recommender: Recommender,
        people: People,
        catalogue: Catalogue,
        limits: Sequence[Limit],
    ) -> "ServingState":
        """The recommender, opened for the new items of the catalogue, under the limits."""
        counts, free = catalogue.log.item_counts(), recommender
        bound = bound_to(limits, catalogue, recommender.popular_share)
        if recommender.rankers:
            newcomers = Newcomers.of(catalogue)
            rankers = [OpenRanker(one, newcomers, counts) for one in recommender.rankers]
            group = torch.from_numpy(group_in(catalogue, limits, recommender.popular_share))
            new = group[catalogue.n_fitted :].to(recommender.sensitive_)
            free = recommender.over(rankers, torch.cat([recommender.sensitive_, new]))
        else:  # what is not made of rankers shows no new items
            bound = [BoundLimit(one.limit, one.members[: len(counts)]) for one in bound]
        serving = free.under(bound) if bound else free
        return cls(recommender, people, catalogue, tuple(bound), free, serving)

    @property
    def n_items(self) -> int:
        """Items that can be shown."""
        return len(self.free.sensitive_)

    def with_items(
        self, ids: Iterable[Any], table: ItemTable | None, limits: Sequence[Limit]
    ) -> "ServingState":
        """With further new items, and a table that may describe them."""
        now = self.catalogue
        more = Catalogue.of(now.log, table, (*now.new, *ids), area_km=now.area_km)
        return ServingState.of(self.recommender, self.people, more, limits)


def bound_to(
    limits: Sequence[Limit], catalogue: Catalogue, popular_share: float
) -> list[BoundLimit]:
    """The limits on the items of a catalogue; a new item is not popular."""
    bound = bind(limits, catalogue.counts, catalogue.attribute, elsewhere=NO_COLUMN)
    popular = _with_new(popular_group(catalogue.log.item_counts(), popular_share), catalogue)
    return [BoundLimit(one.limit, popular) if one.moves else one for one in bound]


def group_in(
    catalogue: Catalogue, limits: Sequence[Limit], popular_share: float
) -> NDArray[np.bool_]:
    """(n_items,) the group that a method is fitted for: of its own limit, else the popular."""
    own = own_limit(limits)
    group = group_of(own, bound_to([] if own is None else [own], catalogue, popular_share))
    if group is None:
        group = _with_new(popular_group(catalogue.log.item_counts(), popular_share), catalogue)
    return group


def in_order(log: Interactions, ties: Ties) -> Interactions:
    """The log with its ties in order; the fit has warned already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return with_ties(log, ties)


def _with_new(group: NDArray[np.bool_], catalogue: Catalogue) -> NDArray[np.bool_]:
    return np.append(group, np.zeros(len(catalogue.new), dtype=np.bool_))


def check_table(log: Interactions, table: ItemTable | None, limits: Sequence[Limit]) -> None:
    """Refuse a table without a row for some item of the log, where a limit needs its columns."""
    for limit in limits:
        if table is not None and not limit.group.reserved and limit.group.column in table.columns:
            table.attribute(limit.group.column, log.item_ids.tolist())
