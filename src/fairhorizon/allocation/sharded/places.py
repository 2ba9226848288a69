"""Which places the group has, under a rule that counts by place or in every list, over shards.

A rule on every list is kept by each list alone. Under a rule on all showings a place uses the
budget by its weight. The search for the best lists within the budget (place_budget.py) compares the
lists of all users in many ways, so it is made by the coordinator: shards send the best values of
both sides, which decide everything, and are told which places the group has.

    bytes = 2 L * 4 from every user, L / 8 + 8 to every user
"""

import numpy as np
import torch

from fairhorizon.allocation.exact_sums import rounded
from fairhorizon.allocation.group_budget import Spent
from fairhorizon.allocation.placed_lists import Places, merges_of, together
from fairhorizon.allocation.sharded.calls import UserShards
from fairhorizon.vocabulary import Scope


def place_over(shards: UserShards, places: Places, spent: Spent, *, exact: bool = True) -> float:
    """The lists of the highest value that keep the rule, made by the shards; its price.

    Of a rule on every list, the price is what a list loses on average.
    exact: as in `within_budget`.
    """
    largest = max(shards.ask("look")) or 1.0
    if places.rule.scope is not Scope.ALL:
        losses, users = zip(*shards.ask("place_alone", largest), strict=True)
        return max(0.0, rounded(sum(losses), sum(users)))
    values = [torch.from_numpy(some) for some in shards.ask("values_by_place")]
    merges = merges_of(torch.cat(values, dim=1), places)
    merged, price = together(merges, places.rule.share, spent, exact=exact)
    ends = np.cumsum([some.shape[1] for some in values])[:-1]
    parts = zip(
        *(np.split(table, ends) for table in (merged.of_group.T, merged.sizes)), strict=True
    )
    shards.tell("place", [(np.packbits(of_group), sizes) for of_group, sizes in parts])
    return price
