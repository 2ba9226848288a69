"""Exposure spread over the catalogue under a rule that says which places the group may have."""

import torch
from torch import Tensor

from fairhorizon.allocation.gini_price import DEPTH, Spreading, SpreadTrial, gini_of, showings
from fairhorizon.allocation.group_budget import Candidates, Sides, Spent, best_sides
from fairhorizon.allocation.placed_lists import Placed, Places, place


class PlacedSpreading(Spreading):
    """As `Spreading`, but each part of the users chooses whole lists, place by place.

    An item is worth its value less the price of crowding at every place, so the price of crowding
    counts by the weight of the place, too. Each part keeps the rule given what the others are
    shown. Afterwards the items of a list are put in the order of value, the group's among its own
    places.
    """

    def __init__(
        self,
        candidates: Candidates,
        sensitive: Tensor,
        places: Places,
        columns: Tensor,
        spent: Spent,
    ) -> None:
        weights = torch.from_numpy(places.weights).to(candidates.items.device)
        super().__init__(candidates, sensitive, places.rule.share, weights, columns, spent)
        self.places = places
        self.counted = torch.from_numpy(places.counted).to(weights)

    def _deep_sides(self) -> Sides:
        """The best candidates by value."""
        parts = best_sides(self.candidates, self.sensitive, DEPTH * len(self.weights))
        sides = Sides.join([Sides(part.columns.int(), part.values) for part in parts])
        depth = max(len(self.weights), int(sides.n.max()))
        return Sides(sides.columns[..., :depth], sides.values[..., :depth])

    def _choose(self, rows: slice, mu: float) -> float:
        self.counts -= showings(self.shown[rows], len(self.counts))
        self.shown[rows] = -1
        filled = self.shown >= 0
        of_group = filled & self.sensitive[self.shown.clamp(min=0)]
        others = Spent(
            self.settled.shown + float((filled * self.counted).sum()),
            self.settled.of_group + float((of_group * self.counted).sum()),
        )
        crowding = (mu * self.unit * self.counts.double().log1p()).to(self.sides.values)
        items = self.items[:, rows]
        net = self.sides.values[:, rows] - crowding[items]
        values, best = net.topk(len(self.weights), dim=2)
        placed = place(Sides(best, values), self.places.of(rows), others, exact=False)
        columns = self.sides.columns[:, rows].gather(2, best)
        self.columns[rows] = placed.pick(columns).long()
        self.shown[rows] = placed.pick(items.gather(2, best)).long()
        self.counts += showings(self.shown[rows], len(self.counts))
        return placed.price

    def _trial(self, mu: float, price: float) -> SpreadTrial:
        filled = self.columns >= 0
        columns = self.columns.clamp(min=0)
        values = self.candidates.values.detach().gather(1, columns)
        items = self.candidates.items.gather(1, columns)
        of_group = filled & self.sensitive[items]
        sides = Sides.of(values.masked_fill(~filled, -torch.inf), of_group, len(self.weights))
        order = Placed(of_group, filled, price).pick(sides.columns).clamp(min=0)
        lists = items.gather(1, order).masked_fill(~filled, -1)
        total = values.double().gather(1, order).masked_fill(~filled, 0.0) @ self.weights
        return SpreadTrial(lists, price, mu, gini_of(self.counts), float(total.sum()))
