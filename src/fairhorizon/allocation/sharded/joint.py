"""The lists of all users under a limit, made by shards of them: what the coordinator does.

It sees sums over the shards only, or where that is not enough what decides between users (bids.py,
places.py). Sums of floats are exact, and ties are broken in the order of users. So lists and prices
are the same to the bit, however the users are divided.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fairhorizon.allocation.gini_price import PlainSpreading, Spreading
from fairhorizon.allocation.group_budget import Spent
from fairhorizon.allocation.placed_lists import Places
from fairhorizon.allocation.placed_spreading import PlacedSpreading
from fairhorizon.allocation.sharded.bids import grant_places
from fairhorizon.allocation.sharded.calls import UserShards
from fairhorizon.allocation.sharded.places import place_over
from fairhorizon.allocation.sharded.showings import Change, together
from fairhorizon.allocation.sharded.user_shard import ListTask, Opened
from fairhorizon.exposure.place_rule import Floats, PlaceRule
from fairhorizon.metrics.accuracy import discount
from fairhorizon.metrics.fairness import gini

NOTHING = Spent(0, 0)


@dataclass(frozen=True)
class JointPrices:
    """The prices of lists that shards have made, as of `JointLists`."""

    price: float
    spread_price: float


class JointOver:
    """Joint lists of the users of all shards (`UserShard`).

    sensitive: (n_items,) bool, the group.
    """

    def __init__(self, shards: UserShards, sensitive: Tensor) -> None:
        self.shards, self.sensitive = shards, sensitive.cpu()

    def make(
        self,
        rule: PlaceRule,
        length: int,
        *,
        table: int = 0,
        gini_limit: float | None = None,
        position_weights: Floats | None = None,
        settled: Spent = NOTHING,
    ) -> JointPrices:
        """The shards make lists of the highest total value; parameters as of `joint_lists`.

        table: which candidates of the shards.
        """
        if position_weights is None:
            position_weights = discount(np.arange(1, length + 1))
        group = self.sensitive
        if rule.is_floor:
            group, settled = ~group, Spent(settled.shown, settled.shown - settled.of_group)
        task = ListTask(
            table, rule.mirrored() if rule.is_floor else rule, rule.is_floor, position_weights
        )
        opened: list[Opened] = self.shards.ask("open", task)
        users, width = [one.users for one in opened], opened[0].width
        if 0 in (sum(users), width, len(group)):
            return JointPrices(0.0, 0.0)
        begun = np.sum([one.begun for one in opened], axis=0)  # (2, t)
        places = task.places(width, np.zeros((0, begun.shape[1]), dtype=np.bool_))
        shown, of_group = begun @ task.rule.place_weights(places.length)[: begun.shape[1]]
        spent = Spent(settled.shown + float(shown), settled.of_group + float(of_group))
        price = self._under(places, spent)
        if gini_limit is None or self.gini() <= gini_limit:
            return JointPrices(price, 0.0)
        best = self._spreading(places, users, group, spent).within(gini_limit, price)
        if best.gini > gini_limit:
            warnings.warn(
                f"no lists with a Gini index of at most {gini_limit:g} were found; these have"
                f" {best.gini:.4f} (raise the limit or give more candidates)",
                stacklevel=3,
            )
        return JointPrices(best.price, best.mu)

    def gini(self) -> float:
        """Of the lists that the shards have made last."""
        changes: list[Change] = self.shards.ask("showings")
        return gini(together(changes, len(self.sensitive)))

    def _under(self, places: Places, spent: Spent) -> float:
        """Lists under the rule alone; its price."""
        if places.rule.is_plain(places.length):
            return grant_places(self.shards, self.shards.ask("offer"), places.rule.share, spent)
        return place_over(self.shards, places, spent)

    def _spreading(
        self, places: Places, users: list[int], group: Tensor, spent: Spent
    ) -> Spreading:
        """The same lists, to be spread."""
        if places.rule.is_plain(places.length):
            return PlainSpreading(self.shards, users, group, places.rule.share, spent)
        return PlacedSpreading(self.shards, users, len(group), places, spent)
