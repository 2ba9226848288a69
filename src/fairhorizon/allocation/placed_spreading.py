"""Exposure spread over the catalogue under a rule that says which places the group may have."""

import numpy as np

from fairhorizon.allocation.gini_price import Spreading
from fairhorizon.allocation.group_budget import Spent
from fairhorizon.allocation.placed_lists import Places
from fairhorizon.allocation.sharded.calls import UserShards
from fairhorizon.allocation.sharded.places import place_over


class PlacedSpreading(Spreading):
    """Each part of the users chooses whole lists, place by place, given what others are shown."""

    def __init__(
        self, shards: UserShards, users: list[int], n_items: int, places: Places, settled: Spent
    ) -> None:
        super().__init__(shards, users, n_items)
        self.places, self.settled = places, settled

    def _choose(self, part: int, parts: int, rate: float) -> float:
        change = self._leave(part, parts)
        used = np.sum(self.shards.ask("charge", change, rate), axis=0)  # (2, L)
        shown, of_group = (used @ self.places.counted).tolist()
        others = Spent(self.settled.shown + shown, self.settled.of_group + of_group)
        return place_over(self.shards, self.places, others, exact=False)
