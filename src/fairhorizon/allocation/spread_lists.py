"""Lists of some users who leave crowded items for others of nearly the same value."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.exact_sums import exact_sum
from fairhorizon.allocation.group_budget import (
    Candidates,
    Sides,
    best_sides,
    best_value_first,
    known,
)
from fairhorizon.allocation.placed_lists import Placed
from fairhorizon.ranking import some_at_a_time

DEPTH = 10  # candidates per side, in lengths of a list, that a Gini limit considers

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Moments:
    """Of the values of some users, as exact sums."""

    count: int
    total: int
    of_squares: int


class SpreadLists:
    """Lists in the order of value; items of both sides compete by what they add to a list."""

    def __init__(
        self, candidates: Candidates, sensitive: Tensor, weights: Tensor, columns: Tensor
    ) -> None:
        self.candidates, self.sensitive = candidates, sensitive
        self.weights, self.columns = weights, columns  # (b, n) of the candidates shown, or -1
        self.shown = candidates.items.gather(1, columns.clamp(min=0)).masked_fill(columns < 0, -1)
        self.sides = self._deep_sides()
        self.rows = slice(0)  # of those who choose at present
        self.offer = self.sides

    @property
    def depth(self) -> int:
        """The most candidates of a side that any of the users has."""
        return int(self.sides.n.max()) if len(self.shown) else 0

    def deepen(self, depth: int) -> None:
        """Keep so many candidates of a side, those of all users of all shards."""
        depth = max(len(self.weights), depth)
        self.sides = Sides(self.sides.columns[..., :depth], self.sides.values[..., :depth])
        # 32 bits: this and `sides` are as large as the candidates
        self.items = torch.stack(
            [self.candidates.items.gather(1, side.long()).int() for side in self.sides.columns]
        )  # (2, b, n)

    def moments(self, first: int, step: int) -> Moments:
        """Of the values of every `step`-th user."""
        sample = self.sides.values[:, first::step]
        values = sample[known(sample)].double().cpu().numpy()
        return Moments(len(values), exact_sum(values), exact_sum(values**2))

    def leave(self, rows: slice) -> Tensor:
        """The items that some users are shown no more; they choose next."""
        left = self.shown[rows][self.shown[rows] >= 0]
        self.rows, self.shown[rows] = rows, -1
        return left

    def offered(self, charges: Tensor) -> Sides:
        """The best of both sides for those who choose, by value less charges (n_items,)."""
        items = self.items[:, self.rows]
        net = self.sides.values[:, self.rows] - charges.to(self.sides.values)[items]
        values, places = net.topk(len(self.weights), dim=2)
        self.offer = Sides(places, values)
        return self.offer

    def take(self, of_group: Tensor) -> Tensor:
        """The items that they choose, if (b',) so many are of the group."""
        return self._show(self.offer.pick(self._columns(), of_group))

    def take_places(self, placed: Placed) -> Tensor:
        """The same, if it was decided place by place."""
        return self._show(placed.pick(self._columns()))

    def _columns(self) -> Tensor:
        return self.sides.columns[:, self.rows].gather(2, self.offer.columns)

    def _show(self, columns: Tensor) -> Tensor:
        columns, none = columns.long(), columns < 0
        items = self.candidates.items[self.rows].gather(1, columns.clamp(min=0))
        self.columns[self.rows], self.shown[self.rows] = columns, items.masked_fill(none, -1)
        return items[~none]

    def places_used(self) -> Counts:
        """(2, L) how many lists have an item at each place, and one of the group."""
        filled = self.shown >= 0
        of_group = filled & self.sensitive[self.shown.clamp(min=0)]
        return torch.stack([filled.sum(0), of_group.sum(0)]).cpu().numpy()

    def in_order(self) -> tuple[Tensor, int]:
        """(b, L) the lists, and the exact sum of w v."""
        values, lists = best_value_first(self.candidates, self.columns, len(self.weights))
        return lists, self._total(values, lists < 0)

    def _total(self, values: Tensor, none: Tensor) -> int:
        return exact_sum((values.double() * self.weights).masked_fill(none, 0.0).cpu().numpy())

    def _deep_sides(self) -> Sides:
        """The best candidates by what each adds to the present list of its user."""
        parts, most = [], DEPTH * len(self.weights)
        candidates = (self.candidates.items, self.candidates.values, self.columns)
        for items, values, columns in some_at_a_time(*candidates):
            some = Candidates(items, values)
            listed, _ = best_value_first(some, columns, len(self.weights))
            added = marginal_values(values.detach(), listed, self.weights)
            added = added.masked_fill(items < 0, -torch.inf)
            part = Sides.of(added, self.sensitive[items], most)
            parts.append(Sides(part.columns.int(), part.values))
        return Sides.join(parts)


class PlacedSpreadLists(SpreadLists):
    """Whole lists, place by place.

    An item is worth its value less the price of crowding at every place, so the price of crowding
    counts by the weight of the place, too. Afterwards the items of a list are put in the order of
    value, the group's among its own places.
    """

    def in_order(self) -> tuple[Tensor, int]:
        none = self.columns < 0
        columns = self.columns.clamp(min=0)
        values = self.candidates.values.detach().gather(1, columns)
        items = self.candidates.items.gather(1, columns)
        of_group = ~none & self.sensitive[items]
        sides = Sides.of(values.masked_fill(none, -torch.inf), of_group, len(self.weights))
        order = Placed(of_group, ~none).pick(sides.columns).clamp(min=0)
        lists = items.gather(1, order).masked_fill(none, -1)
        return lists, self._total(values.gather(1, order), none)

    def _deep_sides(self) -> Sides:
        """The best candidates by value."""
        parts = best_sides(self.candidates, self.sensitive, DEPTH * len(self.weights))
        return Sides.join([Sides(part.columns.int(), part.values) for part in parts])


def marginal_values(values: Tensor, listed: Tensor, weights: Tensor) -> Tensor:
    """(b, C) what items of these values add to lists of falling values (b, L), padded with -inf.

    Removing the item at place j moves all behind it up by one. So the part of a value that lies
    between those at places j and j + 1 counts w_j, and the part below all of them w_L.
    """
    filled, weights = known(listed), weights.to(values)
    last = listed.where(filled, torch.inf).amin(1, keepdim=True)
    last = last.where(last < torch.inf, 0.0)
    listed = listed.where(filled, last)  # the last one repeated: no gap, no weight
    gaps = (listed[:, :-1] - listed[:, 1:]) * weights[:-1]
    added = torch.cat([gaps, last * weights[-1]], dim=1).flip(1).cumsum(1).flip(1)  # (b, L)
    n = len(weights)
    above = n - torch.searchsorted(listed.flip(1).contiguous(), values.contiguous())  # 0..n
    next_below = above.clamp(max=n - 1)
    slope = weights[(above - 1).clamp(min=0)]
    return added.gather(1, next_below) + slope * (values - listed.gather(1, next_below))
