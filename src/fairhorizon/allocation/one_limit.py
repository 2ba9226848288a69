"""Lists under one limit on a group of items: which places of each list go to the group.

v: value of showing an item to a user;  w: weights of the places, which never rise
c: how many items of the group a user is shown;  f_u(c): the best total of u's list at that c

Within the group, and within the rest, a user's items are shown in the order of value. So a list is
a merge of two sorted lists: all that has to be found is which places the group has.

- All showings count alike: f_u is concave, f_u(c) = sum_j (w_j - w_(j+1)) T_j(c), where T_j(c), the
  sum of the j best values in the list, is the maximum of a concave function over an interval that
  slides with c. So it is exact to give places to the highest gains f_u(c) - f_u(c - 1) of all users
  until the room is used up; the price is the first gain that is refused.
- Places count by weight: a price on what a place counts, found where the dual has its minimum.
- In every list or prefix: place after place the better of the two next items, if the group may
  have it. An exchange argument shows that this is the best list, and the longest.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.allocation.best_lists import BestLists
from fairhorizon.allocation.candidates import NEVER, Candidates, best_columns
from fairhorizon.allocation.limit_matrix import Counts, Flags, Floats, LimitMatrix
from fairhorizon.allocation.prices import all_lists, choose_alternatives
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.metrics.shares import ROUNDING, whole_showings
from fairhorizon.vocabulary import Scope

SAME = 1e-12  # relative: a gain that is rounding
MOST_TRIALS = 200  # of prices; some 15 are needed
AROUND = (0.002, 0.01, 0.03, 0.1, 0.3)  # relative distances of prices that have the nearest lists
MOST_ALTERNATIVES = 400
FEW_CELLS = 2000  # users x candidates x places: one program over all lists is fast
USERS_AT_ONCE = 2048  # so that the states of one place stay in the cache


@dataclass(frozen=True)
class Sides:
    """Each user's best candidates of the group (first) and of the rest, best first."""

    columns: Counts  # (2, b, n) where they stand among the candidates
    values: Floats  # (2, b, n); -inf where there is none

    @classmethod
    def from_candidates(cls, candidates: Candidates, group: Flags, most: int) -> "Sides":
        """The best `most` of either side; group: (n_items,)."""
        return cls.from_flags(candidates, group[candidates.items], most)

    @classmethod
    def from_flags(cls, candidates: Candidates, in_group: Flags, most: int) -> "Sides":
        """The same, from which of the candidates are of the group: (b, n), or (1, n) for all."""
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
            short = most - at.shape[1]
            columns.append(np.pad(at, ((0, 0), (0, short))))
            values.append(np.pad(found, ((0, 0), (0, short)), constant_values=-np.inf))
        return cls(np.stack(columns), np.stack(values))

    def of_users(self, rows: Counts | slice) -> "Sides":
        return Sides(self.columns[:, rows], self.values[:, rows])

    @property
    def n_users(self) -> int:
        return len(self.values[0])

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

    @property
    def largest(self) -> float:
        known = self.values[self.values > -np.inf]
        return float(np.abs(known).max(initial=0.0)) or 1.0


@dataclass
class Placed:
    """A list of each user: which of its places hold items of the group."""

    of_group: Flags  # (b, L)
    sizes: Counts  # (b,)

    def take(self, rows: Counts) -> "Placed":
        return Placed(self.of_group[rows], self.sizes[rows])

    def put(self, rows: Counts, other: "Placed") -> None:
        """The lists of the other for these users, in place."""
        self.of_group[rows], self.sizes[rows] = other.of_group, other.sizes

    @property
    def filled(self) -> Flags:
        there: Flags = np.arange(self.of_group.shape[1]) < self.sizes[:, None]
        return there

    def pick(self, table: NDArray[Any]) -> NDArray[Any]:
        """(b, L) of a table (2, b, n): the next of the group or of the rest at every place."""
        number = self.of_group.cumsum(1)
        places = np.arange(self.of_group.shape[1])
        rank = np.where(self.of_group, number - 1, places - number)
        side = np.where(self.of_group, 0, 1)
        return table[side, np.arange(len(rank))[:, None], rank]

    def columns(self, sides: Sides) -> Counts:
        """(b, L) columns of the candidates, -1 behind the end of a list."""
        return np.where(self.filled, self.pick(sides.columns), -1)

    def values(self, sides: Sides) -> Floats:
        """(b, L) of the items shown, 0 behind the end of a list."""
        return np.where(self.filled, self.pick(sides.values), 0.0)

    def use(self, share: float, counted: Floats) -> Floats:
        """(b,) of the limit, where place k counts counted[k]."""
        used: Floats = np.where(self.filled, self.of_group - share, 0.0) @ counted
        return used


@dataclass(frozen=True)
class OneLimit:
    """A cap on the group in places that are to be filled; a floor is a cap on the rest.

    rule: the cap.  weights: (L,) w, of the value at the places to be filled.
    length: of whole lists, of which these may be the last places.
    begun: (b, t) the places before these that hold an item of the group.
    """

    rule: PlaceRule
    weights: Floats
    length: int
    begun: Flags

    def of_users(self, rows: Counts | slice) -> "OneLimit":
        return replace(self, begun=self.begun[rows])

    @property
    def is_plain(self) -> bool:
        return self.rule.is_plain(self.length)

    @property
    def in_every_list(self) -> bool:
        return self.rule.scope is not Scope.ALL

    @property
    def counted(self) -> Floats:
        """(L,) what a showing at each of these places counts."""
        start = self.begun.shape[1]
        return self.rule.place_weights(self.length)[start : start + len(self.weights)]

    def use(self, placed: Placed) -> Floats:
        return placed.use(self.rule.share, self.counted)

    def worth(self, placed: Placed, sides: Sides) -> Floats:
        """(b,) sum of w v."""
        return placed.values(sides) @ self.weights

    def place(self, sides: Sides, room: float, *, exact: bool = True) -> tuple[Placed, float]:
        """The lists of the highest total value within the room, and the price of the limit.

        room: what all these lists together may use.  A limit on every list has no room, and its
        price is what a list loses by it on average.
        exact: settle the last part of the room by an integer program.
        """
        if self.in_every_list:
            return self._each_by_itself(sides)
        if self.is_plain:
            gains = self.gains(sides)
            counts, price = cut(gains, sides, self.rule.share, room)
            return in_order_of_value(sides, counts), price
        return self._by_weight(sides, room, exact=exact)

    def gains(self, sides: Sides) -> Floats:
        """(b, L) f_u(c) - f_u(c - 1) for c = 1, ..., L; -inf where there is no such list."""
        parts = [
            _gains(sides.of_users(slice(first, first + USERS_AT_ONCE)), self.weights)
            for first in range(0, sides.n_users, USERS_AT_ONCE)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, len(self.weights)))

    def _each_by_itself(self, sides: Sides) -> tuple[Placed, float]:
        start, width = self.begun.shape[1], len(self.weights)
        most = self.rule.most(self.length)[start + 1 : start + width + 1]
        shown = _merged(sides, most, self.begun.sum(1))
        free = _merged(sides, np.full(width, self.length + 1), np.zeros(len(self.begun), np.int64))
        loss = self.worth(free, sides).sum() - self.worth(shown, sides).sum()
        return shown, max(0.0, float(loss)) / max(1, sides.n_users)

    def _by_weight(self, sides: Sides, room: float, *, exact: bool) -> tuple[Placed, float]:
        """At the price where the dual has its minimum, then whole lists at the margin."""
        merge = Merge(sides, self, sides.sizes)
        if merge.least_use() <= room + ROUNDING:
            shown, price = merge.within(room, exact=exact)
        else:
            # Not all lists can be full: as many showings as possible, then as much value.
            bonus = 1 + 2 * sides.largest * len(self.weights) * sides.n_users
            shorter = Merge(sides, self, sides.sizes, bonus=bonus, may_end=True)
            room = max(room, shorter.least_use())
            shown, price = shorter.within(room, exact=exact)
            if exact:  # what is left of the room, given the sizes of the lists
                again, _ = Merge(sides, self, shown.sizes).within(room, exact=True)
                shown = max(shown, again, key=lambda placed: self.worth(placed, sides).sum())
        if exact and sides.n_users * 2 * len(self.weights) ** 2 <= FEW_CELLS:
            shown = self._by_program(sides, room, shown)
        return shown, price

    def _by_program(self, sides: Sides, room: float, known: Placed) -> Placed:
        """The best lists of few users, by one integer program; or the known ones."""
        length = len(self.weights)
        members = np.array([[True, False]])
        limits = LimitMatrix(
            (),
            length,
            np.repeat([0, 1], length),
            members,
            np.array([self.rule.share]),
            self.counted[None],
        )
        values = np.concatenate([np.maximum(side, NEVER) for side in sides.values], axis=1)
        candidates = Candidates(np.arange(2 * length)[None], values)
        bonus = 1 + 4 * sides.largest * float(self.weights.sum())
        best = BestLists(candidates, limits, bonus)
        best.weights = self.weights
        at = all_lists(best, np.array([room]))
        if at is None:
            return known
        found = Placed((at >= 0) & (at < length), (at >= 0).sum(1))
        if self.use(found).sum() > room + ROUNDING:
            return known
        total = [(p.sizes.sum(), self.worth(p, sides).sum()) for p in (known, found)]
        return found if total[1] > total[0] else known


def _gains(sides: Sides, weights: Floats) -> Floats:
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
    gains = np.diff(totals, axis=0).T
    # They fall, but for rounding and but for items of negative value in lists that the limit cuts
    # short; and the c-th place can only come after those before it.
    falling = np.minimum.accumulate(np.where(sides.forced, np.inf, gains), axis=1)
    falling = np.where(sides.forced, np.minimum.accumulate(gains, axis=1), falling)
    return np.where(places >= sides.available[0][:, None], -np.inf, falling)


def exchange_gains(sides: Sides) -> Floats:
    """The same as `OneLimit.gains` where all places weigh 1, or a list has one place.

    The c-th best of the group replaces the (size - c + 1)-th best other, the last of them to stay.
    """
    group, rest = sides.values
    replaced = sides.sizes[:, None] - 1 - np.arange(group.shape[1])
    others = np.take_along_axis(rest, replaced.clip(0), axis=1)
    possible = (group > -np.inf) & (replaced >= 0) & ~sides.forced
    gains: Floats = np.where(sides.forced, group, -np.inf)
    np.subtract(group, others, out=gains, where=possible)
    return gains


def cut(gains: Floats, sides: Sides, share: float, room: float) -> tuple[Counts, float]:
    """(b,) how many places of each list go to the group, and the price of a place.

    Places that fill a list come first. Where even they are too many, those with the lowest gains
    stay empty.
    """
    forced, shown = sides.forced, int(sides.sizes.sum())
    needed = int(forced.sum())
    places = whole_showings(share * shown + room) - needed
    bids, certain = ~forced & (gains > 0), forced.sum(1)
    if places < 0:
        bids, certain = forced, np.zeros(len(gains), dtype=np.int64)
        places = _most_forced(share, room, shown - needed, needed)
    users, _ = bids.nonzero()
    offered = gains[bids]
    if len(offered) <= places:
        return certain + bids.sum(1), 0.0
    price = np.partition(offered, len(offered) - places - 1)[len(offered) - places - 1]
    taken = offered > price
    # Ties go to the first.
    taken[np.flatnonzero(offered == price)[: places - int(taken.sum())]] = True
    return certain + np.bincount(users[taken], minlength=len(gains)), max(0.0, float(price))


def _most_forced(share: float, room: float, of_rest: int, needed: int) -> int:
    """The most places for the group within the limit where each makes a list longer; < needed."""
    fits, too_many = 0, needed
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        within = middle <= whole_showings(share * (of_rest + middle) + room)
        fits, too_many = (middle, too_many) if within else (fits, middle)
    return fits


def in_order_of_value(sides: Sides, of_group: Counts) -> Placed:
    """Lists with the best (b,) so many of the group and the best of the rest, best value first."""
    sizes = of_group + np.minimum(sides.available[1], sides.sizes - of_group)
    ranks = np.arange(sides.values.shape[2])
    group, rest = (
        np.where(ranks < count[:, None], side, -np.inf)
        for side, count in zip(sides.values, (of_group, sizes - of_group), strict=True)
    )
    both = np.concatenate([group, rest], axis=1)
    order = np.argsort(-both, axis=1, kind="stable")[:, : len(ranks)]
    placed = (order < len(ranks)) & (ranks < sizes[:, None])
    return Placed(placed, sizes)


def _merged(sides: Sides, most: Counts, begun: Counts) -> Placed:
    """Place after place the better of the next of the group and of the rest.

    most: (L,) how many of the group the list may have up to each place, with (b,) `begun` of them.
    """
    b, length = sides.n_users, len(most)
    group, rest = (np.pad(s, ((0, 0), (0, 1)), constant_values=-np.inf) for s in sides.values)
    users, taken, of_rest = np.arange(b), np.zeros(b, np.int64), np.zeros(b, np.int64)
    of_group = np.zeros((b, length), dtype=np.bool_)
    going = np.ones(b, dtype=np.bool_)
    for k in range(length):
        first = np.where(begun + taken < most[k], group[users, taken], -np.inf)
        second = rest[users, of_rest]
        going &= np.maximum(first, second) > -np.inf
        of_group[:, k] = going & (first > second)
        taken += of_group[:, k]
        of_rest += going & ~of_group[:, k]
    return Placed(of_group, taken + of_rest)


class Merge:
    """Each user's best list at a price, if a place counts for the limit by where it is.

    With c of the group among the first k places, and both counted from 0,

        B[k, c] = max(w_k v(group, c) - p g_k (1 - share) + B[k + 1, c + 1],
                      w_k v(rest, k - c) + p g_k share    + B[k + 1, c])

    for all users together, with a loop over places only.
    sizes: (b,) how long lists are.  may_end: they may be shorter.
    bonus: added to the value of every showing.
    """

    def __init__(
        self,
        sides: Sides,
        limit: OneLimit,
        sizes: Counts,
        *,
        bonus: float = 0.0,
        may_end: bool = False,
    ) -> None:
        self.sides, self.limit, self.sizes = sides, limit, sizes
        self.bonus, self.may_end = bonus, may_end
        share, counted = limit.rule.share, limit.counted
        self.costs = np.stack([counted * (1 - share), -share * counted])  # (2, L)

    def of_users(self, rows: Counts) -> "Merge":
        return Merge(
            self.sides.of_users(rows),
            self.limit.of_users(rows),
            self.sizes[rows],
            bonus=self.bonus,
            may_end=self.may_end,
        )

    def total(self, placed: Placed) -> Floats:
        """(b,) what is maximised: the value of a list with the bonus of its showings."""
        return self.limit.worth(placed, self.sides) + self.bonus * placed.sizes

    def best(self, price: float) -> Placed:
        """Each user's list of the highest value less price; of equal ones, that with less use."""
        b, length = self.sides.n_users, len(self.limit.weights)
        placed = Placed(np.zeros((b, length), dtype=np.bool_), np.zeros(b, dtype=np.int64))
        for first in range(0, b, USERS_AT_ONCE):
            rows = np.arange(first, min(b, first + USERS_AT_ONCE))
            values = self.sides.values[:, rows].transpose(0, 2, 1)  # (2, L, b')
            placed.put(rows, self._followed(values, self.sizes[rows], price))
        return placed

    def least_use(self) -> float:
        """Of the limit, by lists of any value."""
        worthless = np.where(self.sides.values > -np.inf, 0.0, -np.inf)
        any_value = Sides(self.sides.columns, worthless)
        plain = Merge(any_value, self.limit, self.sizes, may_end=self.may_end)
        return float(self.limit.use(plain.best(1.0)).sum())

    def _followed(self, values: Floats, sizes: Counts, price: float) -> Placed:
        (group, rest), weights = values, self.limit.weights
        length, b = group.shape
        best = np.zeros((length + 1, b))
        takes, stops = [], []
        for k in reversed(range(length)):
            charges = self.bonus - price * self.costs[:, k]
            taken = _weighed(weights[k], group[: k + 1]) + charges[0] + best[1 : k + 2]
            left = _weighed(weights[k], rest[: k + 1])[::-1] + charges[1] + best[: k + 1]
            takes.append(taken > left)
            best = np.maximum(taken, left)
            if self.may_end:
                stops.append(best < 0)
                best = np.maximum(best, 0.0)
            best[:, sizes <= k] = 0.0
        users, c = np.arange(b), np.zeros(b, dtype=np.int64)
        of_group, ends = np.zeros((b, length), dtype=np.bool_), np.zeros(b, dtype=np.int64)
        going = best[0] > -np.inf
        for k in range(length):
            going &= sizes > k
            if self.may_end:
                going &= ~stops[length - 1 - k][c, users]
            of_group[:, k] = takes[length - 1 - k][c, users] & going
            c += of_group[:, k]
            ends += going
        return Placed(of_group, ends)

    def within(self, room: float, *, exact: bool) -> tuple[Placed, float]:
        """The lists of the highest total within the room, which some lists keep; and the price.

        The dual is convex and piecewise linear in the price. Its minimum is found by intersecting
        the lines of two prices, one too low and one sufficient. Users with the same list at both
        have it at every price in between, so each trial has fewer users than the one before.
        """
        over, limit = self.best(0.0), self.limit
        if limit.use(over).sum() <= room + ROUNDING:
            return over, 0.0
        high = self._sufficient(room)
        active, price = np.arange(self.sides.n_users), 0.0
        used = float(limit.use(high).sum())
        for _ in range(MOST_TRIALS):
            some = self.of_users(active)
            low_some, high_some = over.take(active), high.take(active)
            use_low, use_high = some.limit.use(low_some), some.limit.use(high_some)
            total_low, total_high = some.total(low_some), some.total(high_some)
            differ = np.abs(use_low - use_high) + np.abs(total_low - total_high) > SAME
            extra = float((use_low - use_high)[differ].sum())
            if extra <= 0:
                break
            active, some = active[differ], some.of_users(differ.nonzero()[0])
            price = float((total_low - total_high)[differ].sum()) / extra
            trial = some.best(price)
            total, use = some.total(trial).sum(), float(some.limit.use(trial).sum())
            gained = (total - price * use) - (
                total_high[differ].sum() - price * use_high[differ].sum()
            )
            if gained <= SAME * (abs(total) + price * abs(extra)):
                break
            if used + use - use_high[differ].sum() <= room + ROUNDING:
                used += use - float(use_high[differ].sum())
                high.put(active, trial)
            else:
                over.put(active, trial)
        shown = self._filled(high, over, active, room)
        return (self._settled(shown, price, room) if exact else shown), price

    def _sufficient(self, room: float) -> Placed:
        """Lists within the room, at a high price."""
        price = 2 * (self.sides.largest + self.bonus) / float(np.ptp(self.costs))
        while self.limit.use(shown := self.best(price)).sum() > room + ROUNDING:
            price *= 16
        return shown

    def _filled(self, within: Placed, over: Placed, active: Counts, room: float) -> Placed:
        """At the critical price: some users get the lists that use more, while there is room."""
        limit = self.limit.of_users(active)
        left = room + ROUNDING - float(self.limit.use(within).sum())
        more = limit.use(over.take(active)) - limit.use(within.take(active))
        for user, use in zip(active.tolist(), more.tolist(), strict=True):
            if 0 < use <= left:
                row = np.array([user])
                within.put(row, over.take(row))
                left -= use
        return within

    def _settled(self, shown: Placed, price: float, room: float) -> Placed:
        """What is left of the room goes to lists that are nearly the best at the price."""
        left = room - float(self.limit.use(shown).sum())
        if left <= ROUNDING or price <= 0:
            return shown
        use, total = self.limit.use(shown), self.total(shown)
        lists, users, losses = [], [], []
        seen = {
            (u, row.tobytes(), int(n))
            for u, (row, n) in enumerate(zip(shown.of_group, shown.sizes, strict=True))
        }
        for distance in AROUND:
            for near in (price * (1 - distance), price * (1 + distance)):
                other = self.best(near)
                changed = (other.of_group != shown.of_group).any(1) | (other.sizes != shown.sizes)
                for user in changed.nonzero()[0].tolist():
                    key = (user, other.of_group[user].tobytes(), int(other.sizes[user]))
                    if key not in seen:
                        seen.add(key)
                        users.append(user)
                        lists.append((other.of_group[user], other.sizes[user]))
        if not users:
            return shown
        rows = np.array(users)
        options = Placed(np.stack([row for row, _ in lists]), np.array([n for _, n in lists]))
        some = self.of_users(rows)
        more, gain = some.limit.use(options) - use[rows], some.total(options) - total[rows]
        losses = price * more - gain
        few = np.argsort(losses, kind="stable")[:MOST_ALTERNATIVES]
        gap = max(0.05 * price * left, 1e-3 * self.sides.largest)
        chosen = choose_alternatives(
            rows[few], gain[few], more[few, None], np.array([left]), gap, seconds=0.5
        )
        if chosen is not None and gain[few][chosen].sum() > 0:
            shown.put(rows[few][chosen], options.take(few[chosen]))
        return shown


def _weighed(weight: float, values: Floats) -> Floats:
    if weight > 0:
        return weight * values
    return np.where(values > -np.inf, 0.0, -np.inf)
