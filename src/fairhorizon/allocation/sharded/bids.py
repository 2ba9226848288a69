"""Places for the group go to the highest bids of all shards: their cut by histograms.

A float has an image among the whole numbers of 64 bits that keeps the order, its key. Shards count
their bids in bins of keys; the bin that holds the first bid to be refused is counted again in finer
bins, until it holds one key only, or so few bids that they can be sent. So the cut is exact:

    calls <= 64 / log2(BINS) + 1,      answers of BINS * 8 bytes from every shard and call
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.group_budget import Budget, Sides, Spent
from fairhorizon.allocation.sharded.calls import UserShards

BINS = 4096  # of a histogram; so many bids may be sent instead

Keys = NDArray[np.uint64]
Counts = NDArray[np.int64]

SIGN = np.uint64(2**63)


@dataclass(frozen=True)
class KeyRange:
    """How many bids there are, and between which keys."""

    count: int
    least: int = 2**64 - 1
    most: int = 0

    @classmethod
    def of(cls, keys: Keys) -> "KeyRange":
        return cls(len(keys), int(keys.min()), int(keys.max())) if len(keys) else cls(0)

    @classmethod
    def join(cls, parts: "Sequence[KeyRange]") -> "KeyRange":
        least, most = min(part.least for part in parts), max(part.most for part in parts)
        return cls(sum(part.count for part in parts), least, most)


@dataclass(frozen=True)
class Offered:
    """What a shard offers: showings, and the bids for places of the group."""

    shown: int
    forced: KeyRange  # the places that fill lists
    free: KeyRange  # other places with a gain above 0


@dataclass(frozen=True)
class Bids:
    """The bids of the users of one shard; `of_forced` says whether forced places bid or others."""

    sides: Sides
    gains: Tensor  # (b, L)

    def offered(self) -> Offered:
        shown = int(self.sides.sizes.sum())
        return Offered(shown, KeyRange.of(self._forced_keys), KeyRange.of(self._free_keys))

    def histogram(self, least: int, width: int, *, of_forced: bool) -> Counts:
        """(BINS,) how many keys are in each bin; the first begins at `least`."""
        keys = self._keys(of_forced)
        bins = (keys[keys >= np.uint64(least)] - np.uint64(least)) // np.uint64(width)
        return np.bincount(bins[bins < BINS].astype(np.int64), minlength=BINS)

    def between(self, least: int, most: int, *, of_forced: bool) -> Keys:
        """Those of the keys, in the order of users."""
        keys = self._keys(of_forced)
        return keys[(keys >= np.uint64(least)) & (keys <= np.uint64(most))]

    def granted(self, cut: int | None, ties: int, *, of_forced: bool) -> Tensor:
        """(b,) places for the group if bids above the cut are granted, and the first ties with it.

        None: all bids are.
        """
        wanted = self.sides.forced if of_forced else self._free
        certain = torch.zeros_like(self.sides.sizes) if of_forced else self.sides.forced.sum(1)
        if cut is None:
            return certain + wanted.sum(1)
        keys = self._keys(of_forced)
        taken = keys > np.uint64(cut)
        taken[np.flatnonzero(keys == np.uint64(cut))[:ties]] = True
        users = wanted.nonzero()[:, 0].cpu().numpy()[taken]
        return certain + certain.new_tensor(np.bincount(users, minlength=len(wanted)))

    def _keys(self, of_forced: bool) -> Keys:
        return self._forced_keys if of_forced else self._free_keys

    @cached_property
    def _free(self) -> Tensor:
        """(b, L) bool: places that are not forced, with a gain above 0."""
        return ~self.sides.forced & (self.gains > 0)

    @cached_property
    def _forced_keys(self) -> Keys:
        return keys_of(self.gains[self.sides.forced])

    @cached_property
    def _free_keys(self) -> Keys:
        return keys_of(self.gains[self._free])


def keys_of(values: Tensor) -> Keys:
    """Whole numbers in the order of the values, which are no NaN; equal values have one number."""
    bits = (values.double() + 0.0).cpu().numpy().view(np.uint64)  # -0.0 + 0.0 = 0.0
    keys: Keys = np.where(bits >= SIGN, ~bits, bits | SIGN)
    return keys


def value_of(key: int) -> float:
    """The value with this key."""
    number = np.uint64(key)
    bits = number ^ SIGN if number >= SIGN else ~number
    return float(np.array(bits, dtype=np.uint64).view(np.float64))


def grant_places(
    shards: UserShards, offered: Sequence[Offered], share: float, others: Spent
) -> float:
    """The price of a place, as of `allot`; the bids of the shards are granted."""
    forced = KeyRange.join([one.forced for one in offered])
    shown = sum(one.shown for one in offered)
    budget = Budget.of(share, others, shown=shown, forced=forced.count)
    span = forced if budget.of_forced else KeyRange.join([one.free for one in offered])
    if span.count <= budget.places:
        shards.ask("grant", None, 0, budget.of_forced)
        return 0.0
    cut, ties = find_cut(shards, span, budget)
    shards.tell("grant", [(cut, some, budget.of_forced) for some in ties])
    return max(0.0, value_of(cut))


def find_cut(shards: UserShards, span: KeyRange, budget: Budget) -> tuple[int, list[int]]:
    """The key of the first bid to be refused, and how many ties with it each shard is granted."""
    least, most, inside = span.least, span.most, span.count
    left = budget.places  # after those above `most`
    at_cut: Counts | None = None  # of each shard, once they are counted
    while inside > BINS and (least < most or at_cut is None):
        width = (most - least) // BINS + 1
        counts = np.stack(shards.ask("histogram", least, width, budget.of_forced))
        from_top = counts.sum(0)[::-1].cumsum()
        number = BINS - 1 - int(np.searchsorted(from_top, left, side="right"))
        inside = int(counts[:, number].sum())
        left -= int(from_top[BINS - 1 - number]) - inside
        least += number * width
        most = min(most, least + width - 1)
        at_cut = counts[:, number]
    if least < most or at_cut is None:
        keys: list[Keys] = shards.ask("between", least, most, budget.of_forced)
        falling = np.sort(np.concatenate(keys))[::-1]
        least = int(falling[left])
        left -= int((falling > np.uint64(least)).sum())
        at_cut = np.array([(some == np.uint64(least)).sum() for some in keys])
    before = np.cumsum(at_cut) - at_cut
    return least, np.clip(left - before, 0, at_cut).tolist()
