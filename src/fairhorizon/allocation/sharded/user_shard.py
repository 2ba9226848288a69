"""What a shard of users does for joint lists: its methods are the calls of the coordinator."""

from collections.abc import Sequence
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
    offers,
    plain_gains,
)
from fairhorizon.allocation.merges import Flags, Merges
from fairhorizon.allocation.place_budget import largest
from fairhorizon.allocation.placed_lists import Placed, Places, each_by_itself, merges_of
from fairhorizon.allocation.sharded.bids import Bids, Counts, Keys, Offered
from fairhorizon.allocation.sharded.showings import Change, counted
from fairhorizon.allocation.spread_lists import Moments, PlacedSpreadLists, SpreadLists
from fairhorizon.exposure.place_rule import Floats, PlaceRule


@dataclass(frozen=True)
class ListTask:
    """The lists to be made."""

    table: int  # which of the candidates
    rule: PlaceRule  # a limit, no floor (`PlaceRule.mirrored`)
    mirrored: bool  # the limit is one on all items outside the group
    weights: Floats  # of the value at the places to be filled

    def places(self, width: int, begun: Flags) -> Places:
        """For candidates of this width, and lists that begin with items of the group (b, t)."""
        whole = begun.shape[1] + len(self.weights)
        return Places(self.rule, whole, self.weights[:width], begun)


@dataclass(frozen=True)
class Opened:
    """The size of a shard, and what its lists begin with."""

    users: int
    width: int  # of the lists
    begun: Counts  # (2, t) items at each place that is filled already, and those of the group


class UserShard:
    """Candidates of some users, and the lists that are made of them.

    tables: candidates of the same users, of one width in all shards; `open` says which.
    sensitive: (n_items,) bool, the group.  begun: (b, t) what the lists begin with; -1 for nothing.
    """

    def __init__(
        self, tables: Sequence[Candidates], sensitive: Tensor, begun: Tensor | None = None
    ) -> None:
        self.tables, self.group = tables, sensitive
        items = tables[0].items
        self.begun = items.new_empty((len(items), 0)) if begun is None else begun.to(items)
        self.spreading: SpreadLists | None = None
        self.lists = self.trial = items[:, :0]  # (b, width) made last, and on trial
        self.counts = self.change = np.zeros(len(sensitive), dtype=np.int64)  # of items shown

    def open(self, task: ListTask) -> Opened:
        """Begin with other lists."""
        self.candidates, self.spreading = self.tables[task.table], None
        items = self.candidates.items
        self.sensitive = ~self.group if task.mirrored else self.group
        filled = self.begun >= 0
        of_group = filled & self.sensitive[self.begun.clamp(min=0)]
        width = min(len(task.weights), items.shape[1])
        self.places = task.places(width, of_group.cpu().numpy())
        self.weights = torch.from_numpy(self.places.weights).to(items.device)
        self.lists = items.new_full((len(items), width), -1)
        begun = torch.stack([filled.sum(0), of_group.sum(0)]).cpu().numpy()
        return Opened(len(items), width, begun)

    # showings that count alike

    def offer(self) -> Offered:
        """Bids for places of the group."""
        self.sides, gains = offers(self.candidates, self.sensitive, self.weights)
        self.bids = Bids(self.sides, gains)
        return self.bids.offered()

    def histogram(self, least: int, width: int, of_forced: bool) -> Counts:
        return self.bids.histogram(least, width, of_forced=of_forced)

    def between(self, least: int, most: int, of_forced: bool) -> Keys:
        return self.bids.between(least, most, of_forced=of_forced)

    def grant(self, cut: int | None, ties: int, of_forced: bool) -> None:
        """Lists with the places that are granted."""
        of_group = self.bids.granted(cut, ties, of_forced=of_forced)
        if self.spreading is not None:
            self.change += counted(self.spreading.take(of_group), len(self.sensitive))
            return
        self.columns = self.sides.pick(self.sides.columns, of_group)
        _, self.lists = best_value_first(self.candidates, self.columns, len(self.weights))

    # rules that count by place, or in every list

    def look(self) -> float:
        """The best of both sides; the largest value at any place."""
        if self.spreading is None:
            sides = best_sides(self.candidates, self.sensitive, len(self.weights))
            self.sides = Sides.join(list(sides))
        else:
            self.sides = self.spreading.offer
        return largest(self._merges())

    def place_alone(self, largest: float) -> tuple[int, int]:
        """Lists that each keep the rule; the exact sum of what they lose, and their number."""
        shown, losses = each_by_itself(self._merges(), largest)
        self._show(Placed.of(shown.of_group.T, shown.sizes, self.sensitive.device))
        return exact_sum(losses), len(losses)

    def values_by_place(self) -> NDArray[np.float32]:
        """(2, b, L) all that decides which places the group has."""
        return self.sides.values.cpu().numpy()

    def place(self, of_group: NDArray[np.uint8], sizes: Counts) -> None:
        """Lists with these places for the group: bits of (b, L), and lengths (b,)."""
        shape = len(sizes), len(self.weights)
        bits = np.unpackbits(of_group, count=shape[0] * shape[1]).reshape(shape)
        self._show(Placed.of(bits.astype(np.bool_), sizes, self.sensitive.device))

    def _merges(self) -> Merges:
        rows = slice(None) if self.spreading is None else self.spreading.rows
        return merges_of(self.sides.values, self.places.of(rows))

    def _show(self, placed: Placed) -> None:
        if self.spreading is not None:
            self.change += counted(self.spreading.take_places(placed), len(self.sensitive))
            return
        items, self.columns = self.candidates.items, placed.pick(self.sides.columns)
        none = self.columns < 0
        self.lists = items.gather(1, self.columns.clamp(min=0)).masked_fill(none, -1)

    # lists that are spread over the catalogue

    def showings(self) -> Change:
        """Of all items in the lists."""
        return Change.of(counted(self.lists[self.lists >= 0], len(self.sensitive)))

    def spread(self, first: int) -> int:
        """Begin to spread the lists; `first` is the number of the first user among all.

        The answer is the most candidates of a side that any user has.
        """
        alike = self.places.rule.is_plain(self.places.length)
        kind = SpreadLists if alike else PlacedSpreadLists
        self.spreading = kind(self.candidates, self.sensitive, self.weights, self.columns)
        self.first, self.counts = first, np.zeros_like(self.counts)
        self.change = counted(self.lists[self.lists >= 0], len(self.sensitive))
        return self.spreading.depth

    def deepen(self, depth: int, step: int) -> Moments:
        """Consider so many candidates of a side; the moments of the values of some users."""
        self._spreading.deepen(depth)
        return self._spreading.moments(-self.first % step, step)

    def leave(self, part: int, parts: int) -> Change:
        """One of the parts of all users is shown nothing; what has changed since the last time."""
        rows = slice((part - self.first) % parts, None, parts)
        self.change -= counted(self._spreading.leave(rows), len(self.sensitive))
        return self._changed()

    def bid(self, change: Change, rate: float) -> Offered:
        """Those who left bid for places of the group, at a price of crowding.

        change: of the showings of all users since the last time.
        """
        offer = self._offer(change, rate)
        self.bids = Bids(offer, plain_gains(offer))
        return self.bids.offered()

    def charge(self, change: Change, rate: float) -> Counts:
        """The same under a rule by place: (2, L) what places the others have, and the group."""
        self._offer(change, rate)
        return self._spreading.places_used()

    def _offer(self, change: Change, rate: float) -> Sides:
        change.add_to(self.counts)
        crowding = rate * torch.from_numpy(self.counts).double().log1p()
        return self._spreading.offered(crowding.to(self.weights.device))

    def standing(self) -> tuple[Change, int]:
        """What has changed, and the exact sum of w v in the present lists."""
        self.trial, total = self._spreading.in_order()
        return self._changed(), total

    def keep(self) -> None:
        """The lists of the last standing are the best so far."""
        self.lists = self.trial

    @property
    def _spreading(self) -> SpreadLists:
        assert self.spreading is not None
        return self.spreading

    def _changed(self) -> Change:
        change = Change.of(self.change)
        self.change[:] = 0
        return change
