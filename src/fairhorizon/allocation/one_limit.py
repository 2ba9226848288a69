"""Lists under one limit on a group of items: which places of each list go to the group.

v: value of showing an item to a user;  w: weights of the places, which never rise
c: how many items of the group a user is shown;  f_u(c): the best total of u's list at that c

Within the group, and within the rest, a user's items are shown in the order of value. So a list is
a merge of two sorted lists: all that has to be found is which places the group has.

- All showings count alike: f_u is concave, f_u(c) = sum_j (w_j - w_(j+1)) T_j(c), where T_j(c), the
  sum of the j best values in the list, is the maximum of a concave function over an interval that
  slides with c. So it is exact to give places to the highest gains f_u(c) - f_u(c - 1) of all users
  until the room is used up; the price is the first gain that is refused (`gains`, `cut`).
- Places count by weight: the best merge at a price, by dynamic programming (`best_merges`). The
  price is found like those of several limits (prices.py).
- In every list or prefix: place after place the better of the two next items, if the group may
  have it (`within_each_list`). An exchange argument shows that this is the best list, and the
  longest.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.allocation.candidates import NEVER, Candidates, best_columns
from fairhorizon.allocation.limit_matrix import Counts, Flags, Floats, LimitMatrix
from fairhorizon.metrics.shares import whole_showings

USERS_AT_ONCE = 2048  # so that the states of one place stay in the cache


@dataclass(frozen=True)
class GroupAndRest:
    """Each user's best candidates of the group (first) and of the rest, best first."""

    columns: Counts  # (2, b, n) where they stand among the candidates
    values: Floats  # (2, b, n); -inf where there is none

    @classmethod
    def from_candidates(cls, candidates: Candidates, in_group: Flags, most: int) -> "GroupAndRest":
        """The best `most` of either; in_group: (b, n), or (1, n) where all users have the same."""
        columns, values = [], []
        for side in (in_group, ~in_group):
            if len(side) == 1:
                (own,) = side[0].nonzero()
                at = own[best_columns(candidates.values[:, own], most)]
                found = np.take_along_axis(candidates.values, at, axis=1).astype(np.float64)
            else:
                shown = np.where(side, candidates.values, candidates.values.dtype.type(NEVER))
                at = best_columns(shown, most)
                found = np.take_along_axis(shown, at, axis=1).astype(np.float64)
            found[found <= NEVER] = -np.inf
            missing = most - at.shape[1]
            columns.append(np.pad(at, ((0, 0), (0, missing))))
            values.append(np.pad(found, ((0, 0), (0, missing)), constant_values=-np.inf))
        return cls(np.stack(columns), np.stack(values))

    @property
    def n_users(self) -> int:
        return len(self.values[0])

    def of_users(self, rows: Counts | slice) -> "GroupAndRest":
        return GroupAndRest(self.columns[:, rows], self.values[:, rows])

    @cached_property
    def available(self) -> Counts:
        """(2, b) how many there are."""
        there: Counts = (self.values > -np.inf).sum(2)
        return there

    @cached_property
    def sizes(self) -> Counts:
        """(b,) the lengths of lists of at most n items without a limit."""
        longest: Counts = np.minimum(self.available.sum(0), self.values.shape[2])
        return longest

    @cached_property
    def forced(self) -> Flags:
        """(b, n) the first so many places for the group, without which a list would be shorter."""
        fewest = self.sizes - self.available[1]
        places: Flags = np.arange(self.values.shape[2]) < fewest[:, None]
        return places

    @cached_property
    def by_rank(self) -> Floats:
        """(2, n, b) the values."""
        return np.ascontiguousarray(self.values.transpose(0, 2, 1))

    @cached_property
    def fill_all_places(self) -> bool:
        """Whether every user has n items, and no value is below 0."""
        known = np.where(self.values > -np.inf, self.values, 0.0)
        return bool((self.sizes == self.values.shape[2]).all() and (known >= 0).all())

    def merged(self, of_group: Flags, sizes: Counts) -> Counts:
        """(b, n) the lists, as columns of the candidates; -1 behind the end.

        of_group: (b, n) the places that hold the group.  sizes: (b,) of the lists.
        """
        filled = np.arange(of_group.shape[1]) < sizes[:, None]
        return np.where(filled, next_of_each(self.columns, of_group), -1)


def next_of_each(table: NDArray[Any], of_group: Flags) -> NDArray[Any]:
    """(b, n) of tables (2, b, n) of the group and the rest: at every place the next of its side."""
    number = of_group.cumsum(1)
    places = np.arange(of_group.shape[1])
    rank = np.where(of_group, number - 1, places - number)
    side = np.where(of_group, 0, 1)
    return table[side, np.arange(len(rank))[:, None], rank]


# ---- All showings count alike --------------------------------------------------------------------
def gains(sides: GroupAndRest, weights: Floats) -> Floats:
    """(b, L) f_u(c) - f_u(c - 1) for c = 1, ..., L; -inf where there is no such list.

    weights: (L,) w.
    """
    parts = [
        _gains(sides.of_users(slice(first, first + USERS_AT_ONCE)), weights)
        for first in range(0, sides.n_users, USERS_AT_ONCE)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, len(weights)))


def _gains(sides: GroupAndRest, weights: Floats) -> Floats:
    group, rest = sides.values
    before_group = (rest[:, None, :] >= group[:, :, None]).sum(2)  # (b, L) of the rest
    before_rest = (group[:, None, :] > rest[:, :, None]).sum(2)
    group, rest = (np.where(side > -np.inf, side, 0.0) for side in (group, rest))
    length = len(weights)
    places = np.arange(length)
    totals = np.empty((length + 1, len(group)))
    for c in range(length + 1):
        of_rest = np.minimum(sides.available[1], sides.sizes - c).clip(0)[:, None]
        at = places[:c] + np.minimum(before_group[:, :c], of_rest)
        total = (weights[at] * group[:, :c]).sum(1)
        at = np.minimum(places + np.minimum(before_rest, c), length - 1)
        totals[c] = total + np.where(places < of_rest, weights[at] * rest, 0.0).sum(1)
    found = np.diff(totals, axis=0).T
    # They fall, but for rounding and but for items of negative value in lists that the limit cuts
    # short; and the c-th place can only come after those before it.
    falling = np.minimum.accumulate(np.where(sides.forced, np.inf, found), axis=1)
    falling = np.where(sides.forced, np.minimum.accumulate(found, axis=1), falling)
    return np.where(places >= sides.available[0][:, None], -np.inf, falling)


def exchange_gains(sides: GroupAndRest) -> Floats:
    """The same as `gains` where all places weigh 1, or a list has one place.

    The c-th best of the group replaces the (size - c + 1)-th best other, the last of them to stay.
    """
    group, rest = sides.values
    replaced = sides.sizes[:, None] - 1 - np.arange(group.shape[1])
    others = np.take_along_axis(rest, replaced.clip(0), axis=1)
    possible = (group > -np.inf) & (replaced >= 0) & ~sides.forced
    found: Floats = np.where(sides.forced, group, -np.inf)
    np.subtract(group, others, out=found, where=possible)
    return found


def cut(offered: Floats, sides: GroupAndRest, share: float, room: float) -> tuple[Counts, float]:
    """(b,) how many places of each list go to the group, and the price of a place.

    offered: (b, L) gains.  share, room: showings of the group <= share * showings + room.
    Places that fill a list come first. Where even they are too many, those with the lowest gains
    stay empty.
    """
    forced, shown = sides.forced, int(sides.sizes.sum())
    needed = int(forced.sum())
    places = whole_showings(share * shown + room) - needed
    bids, certain = ~forced & (offered > 0), forced.sum(1)
    if places < 0:
        bids, certain = forced, np.zeros(len(offered), dtype=np.int64)
        places = _most_forced(share, room, shown - needed, needed)
    users, _ = bids.nonzero()
    bid = offered[bids]
    if len(bid) <= places:
        return certain + bids.sum(1), 0.0
    price = np.partition(bid, len(bid) - places - 1)[len(bid) - places - 1]
    taken = bid > price
    # Ties go to the first.
    taken[np.flatnonzero(bid == price)[: places - int(taken.sum())]] = True
    return certain + np.bincount(users[taken], minlength=len(offered)), max(0.0, float(price))


def _most_forced(share: float, room: float, of_rest: int, needed: int) -> int:
    """The most places for the group within the limit where each makes a list longer; < needed."""
    fits, too_many = 0, needed
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        within = middle <= whole_showings(share * (of_rest + middle) + room)
        fits, too_many = (middle, too_many) if within else (fits, middle)
    return fits


def in_order_of_value(sides: GroupAndRest, of_group: Counts) -> Counts:
    """(b, n) columns of the best (b,) so many of the group and of the best of the rest, best value
    first; -1 behind the end."""
    sizes = of_group + np.minimum(sides.available[1], sides.sizes - of_group)
    ranks = np.arange(sides.values.shape[2])
    group, rest = (
        np.where(ranks < count[:, None], side, -np.inf)
        for side, count in zip(sides.values, (of_group, sizes - of_group), strict=True)
    )
    both = np.concatenate([group, rest], axis=1)
    order = np.argsort(-both, axis=1, kind="stable")[:, : len(ranks)]
    return sides.merged((order < len(ranks)) & (ranks < sizes[:, None]), sizes)


# ---- In every list, or in every prefix -----------------------------------------------------------
def within_each_list(sides: GroupAndRest, limits: LimitMatrix, before: Counts | None) -> Counts:
    """(b, L) columns of the best lists under a limit on every list.

    before: (b,) how many of the group are at the places before these; None: none.
    """
    return sides.merged(*_better_of_two(sides, limits.most_in_list, before))


def loss_in_each_list(sides: GroupAndRest, limits: LimitMatrix, before: Counts | None) -> float:
    """What a list loses by the limit on average."""
    free = np.full(limits.length, limits.start + limits.length + 1)
    without, within = (
        np.where(
            np.arange(limits.length) < sizes[:, None], next_of_each(sides.values, of_group), 0.0
        )
        @ limits.discounts
        for of_group, sizes in (
            _better_of_two(sides, free, None),
            _better_of_two(sides, limits.most_in_list, before),
        )
    )
    return max(0.0, float(without.sum() - within.sum())) / max(1, sides.n_users)


def _better_of_two(
    sides: GroupAndRest, most: Counts, before: Counts | None
) -> tuple[Flags, Counts]:
    """Place after place the better of the two next items; (b, L) which are of the group, and the
    sizes of the lists.

    most: (L,) how many of the group a list may have up to each place.
    """
    b, length = sides.n_users, len(most)
    group, rest = (np.pad(s, ((0, 0), (0, 1)), constant_values=-np.inf) for s in sides.values)
    users, taken, of_rest = np.arange(b), np.zeros(b, np.int64), np.zeros(b, np.int64)
    had = np.zeros(b, np.int64) if before is None else before
    of_group = np.zeros((b, length), dtype=np.bool_)
    going = np.ones(b, dtype=np.bool_)
    for k in range(length):
        first = np.where(had + taken < most[k], group[users, taken], -np.inf)
        second = rest[users, of_rest]
        going &= np.maximum(first, second) > -np.inf
        of_group[:, k] = going & (first > second)
        taken += of_group[:, k]
        of_rest += going & ~of_group[:, k]
    return of_group, taken + of_rest


# ---- Places count by weight ----------------------------------------------------------------------
def best_merges(
    sides: GroupAndRest, weights: Floats, charges: Floats, sizes: Counts | None = None
) -> Counts:
    """(b, L) columns of each user's list of the highest value less charges; of equal ones, that
    with less of the group.

    charges: (2, L) of showing the group, and the rest, at every place.
    sizes: (b,) of the lists; None: what is worth the most.
    With c of the group among the first k places, both counted from 0, what is behind them comes to

        B[k, c] = max(0, w_k v(group, c)    - charge(group, k) + B[k + 1, c + 1],
                         w_k v(rest, k - c) - charge(rest, k)  + B[k + 1, c])

    for all users together, with a loop over places only.
    """
    # Lists end early only where nothing is left, or what is left costs more than it is worth.
    may_end = sizes is None and (charges.max() > 0 or not sides.fill_all_places)
    found = np.empty((sides.n_users, len(weights)), dtype=np.int64)
    for first in range(0, sides.n_users, USERS_AT_ONCE):
        rows = slice(first, first + USERS_AT_ONCE)
        ends = None if sizes is None else sizes[rows]
        merge = _best_merges(sides.by_rank[:, :, rows], weights, charges, ends, may_end=may_end)
        found[rows] = sides.of_users(rows).merged(*merge)
    return found


def _best_merges(
    values: Floats, weights: Floats, charges: Floats, ends: Counts | None, *, may_end: bool
) -> tuple[Flags, Counts]:
    """(b, L) which places are of the group, and the sizes of the lists, from values (2, L, b)."""
    group, rest = values
    length, b = group.shape
    best = np.zeros((length + 1, b))
    takes, stops = [], []
    for k in reversed(range(length)):
        taken = _weighed(weights[k], group[: k + 1]) - charges[0, k] + best[1 : k + 2]
        left = _weighed(weights[k], rest[: k + 1])[::-1] - charges[1, k] + best[: k + 1]
        takes.append(taken > left)
        best = np.maximum(taken, left)
        if may_end:
            stops.append(best < 0)
            best = np.maximum(best, 0.0)
        if ends is not None:
            best[:, ends <= k] = 0.0
    users, c = np.arange(b), np.zeros(b, dtype=np.int64)
    of_group, sizes = np.zeros((b, length), dtype=np.bool_), np.zeros(b, dtype=np.int64)
    going = np.ones(b, dtype=np.bool_)
    for k in range(length):
        if may_end:
            going &= ~stops[length - 1 - k][c, users]
        if ends is not None:
            going &= ends > k
        of_group[:, k] = takes[length - 1 - k][c, users] & going
        c += of_group[:, k]
        sizes += going
    return of_group, sizes


def _weighed(weight: float, values: Floats) -> Floats:
    if weight > 0:
        return weight * values
    # 0 times -inf is no number: a place without weight cannot show what is not there.
    return np.where(values > -np.inf, 0.0, -np.inf)
