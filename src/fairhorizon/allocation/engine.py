"""Lists for all users at once under limits on exposure.

    maximise  sum_u sum_k w_k v_u(item at place k)   subject to  use_j <= room_j  for every limit j

Prices take over the limits. A block of users answers two questions: `use(prices)`, and
`lists(prices, room)`, whole lists near these prices that use no more than the room. The coordinator
looks for prices and gives every block its part of the room. So limits are kept exactly over all
blocks, wherever these are; the value may be below that of one block by what one exchange of lists
per block is worth. With one block there is nothing to coordinate.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, TypeVar
from typing import Protocol as Interface

import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from fairhorizon.allocation.best_lists import BestLists, Lists
from fairhorizon.allocation.candidates import NEVER, Candidates
from fairhorizon.allocation.conflicts import Supply
from fairhorizon.allocation.limit_matrix import Counts, Flags, Floats, GroupRule, LimitMatrix
from fairhorizon.allocation.one_limit import Merge, OneLimit, Sides
from fairhorizon.allocation.one_list import Caps, Request
from fairhorizon.allocation.prices import all_lists, choose_alternatives, descend, lowest_dual
from fairhorizon.allocation.spreading import SpreadTrial, SpreadUsers, search_spread
from fairhorizon.errors import ConfigError
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.metrics.accuracy import discount
from fairhorizon.metrics.fairness import gini
from fairhorizon.metrics.shares import ROUNDING, rounded_up, whole_showings
from fairhorizon.vocabulary import Scope

SAMPLES = (128, 768)  # users on whom first prices are found
EXACT = 48  # users, up to which prices are those of the linear program
EXACTLY = 1e-7  # of a typical value
FIRST_REACH = 0.05  # of the search for prices, in units of a typical value in a list
CLOSE = 0.02  # of the largest value, for every limit: how near lists come to the best
REMEMBERED = 12  # of the lists that were tried on the way to the prices
# Of users, candidates and places: up to so many, one program of all lists is fast, or can be tried.
FEW_CELLS, MOST_CELLS = 600, 40_000
MOST_DOUBLINGS = 64  # of a price, by 16 each

R = TypeVar("R")


class Blocks(Interface):
    """Blocks of users, in this process or in others; the users of the first are the first users.

    A question is a function of a block and of some arguments, such as a method of its class.
    """

    def __len__(self) -> int:
        """How many there are."""

    def map(self, ask: Callable[..., R], /, *arguments: Any) -> list[R]:
        """The answers of all blocks to the same question, in order."""

    def map_each(self, ask: Callable[..., R], arguments: Sequence[tuple[Any, ...]], /) -> list[R]:
        """The answers of all blocks to a question in which each has arguments of its own."""

    def one(self, number: int, ask: Callable[..., R], /, *arguments: Any) -> R:
        """The answer of one of them."""


@dataclass(frozen=True)
class BlocksHere:
    """Blocks in this process."""

    blocks: Sequence[Any]

    def __len__(self) -> int:
        return len(self.blocks)

    def map(self, ask: Callable[..., R], /, *arguments: Any) -> list[R]:
        return [ask(block, *arguments) for block in self.blocks]

    def map_each(self, ask: Callable[..., R], arguments: Sequence[tuple[Any, ...]], /) -> list[R]:
        return [ask(block, *own) for block, own in zip(self.blocks, arguments, strict=True)]

    def one(self, number: int, ask: Callable[..., R], /, *arguments: Any) -> R:
        return ask(self.blocks[number], *arguments)


@dataclass(frozen=True, eq=False, kw_only=True)
class Totals:
    """What the lists of some users come to."""

    prices: Floats  # (m,) of a showing that counts 1, in value; 0 where a limit does not bind
    use: Floats  # (m,) of each limit
    value: float  # sum of w v
    bound: float  # no lists as long as these that keep the limits have a higher value
    places: int  # that are filled
    kept: bool  # whether all limits are
    rounded: bool = False  # limits are kept in showings rounded up, as few users have few showings


@dataclass(frozen=True, eq=False, kw_only=True)
class Allocation(Totals):
    """Lists of some users, and what they come to."""

    lists: Counts  # (b, L) item codes, -1 behind the end of a list


@dataclass(frozen=True)
class BlockSize:
    """What a block is like."""

    users: int
    best_values: float  # the sum of the best values of all users, as many as a list has places
    places: int  # that lists can fill
    showings: Floats  # (m,) what these count under each limit
    open_to: Counts  # (C,) places that each class of items could fill, where there are few users


class SeveralLimitsBlock:
    """Some users under several limits on all showings."""

    def __init__(self, candidates: Candidates, limits: LimitMatrix) -> None:
        self.candidates, self.limits = candidates, limits
        self.bonus = BestLists.bonus_above(candidates.largest, limits.length)
        self.best = BestLists(candidates, limits, self.bonus)
        self.samples: dict[int, BestLists] = {1: self.best}
        self.tried: list[Lists] = []  # at the last prices
        there = candidates.values > NEVER
        self.fillable = np.minimum(there.sum(1), limits.length)

    def size(self) -> BlockSize:
        values = self.candidates.values
        most = min(self.limits.length, values.shape[1])
        if not most or not len(values):
            none = np.zeros(self.limits.n_classes, dtype=np.int64)
            return BlockSize(len(values), 0.0, 0, np.zeros(len(self.limits)), none)
        top = np.partition(values, values.shape[1] - most, axis=1)[:, values.shape[1] - most :]
        total = float(np.where(top > NEVER, top, 0.0).sum(dtype=np.float64))
        counted = np.pad(self.limits.weights.cumsum(1), ((0, 0), (1, 0)))[:, self.fillable].sum(1)
        capacity = np.zeros(self.limits.n_classes, dtype=np.int64)
        if 1 < len(values) <= EXACT:  # of others, nobody asks for it
            capacity = Supply.from_candidates(self.candidates, self.limits).capacity
        return BlockSize(len(values), total, int(self.fillable.sum()), counted, capacity)

    def use(self, prices: Floats, reach: float, every: int) -> tuple[float, Floats]:
        """The value less charges, and the use (m,), of the best lists at the prices (m,) of every
        `every`-th user."""
        if every not in self.samples:
            rows = np.arange(0, self.candidates.n_users, every)
            self.samples[every] = self.best.of_users(rows)
        lists, merits = self.samples[every].at_prices(prices, reach)
        if every == 1:
            self.tried = [*self.tried[-REMEMBERED:], lists]
        filled = self.fillable[::every].sum()
        return float(merits.sum() - self.bonus * filled), lists.use.sum(0)

    def make(self, prices: Floats, room: Floats, unit: float) -> Totals:
        """Make whole lists near the prices that use no more than the room (m,).

        unit: a typical value in a list.
        """
        self.made = self.lists(prices, room, unit)
        return Totals(**{one.name: getattr(self.made, one.name) for one in fields(Totals)})

    def show_nothing(self) -> None:
        """Make empty lists."""
        self.made = self._made(
            np.full((self.candidates.n_users, self.limits.length), -1, np.int64),
            np.zeros(len(self.limits)),
            np.zeros(len(self.limits)),
            0.0,
        )

    def lists(self, prices: Floats, room: Floats, unit: float) -> Allocation:
        """The lists of `make`."""
        if not self.fillable.any():
            self.show_nothing()
            return self.made
        if self.candidates.n_users == 1:
            return self._one(room)
        gap = CLOSE * self.candidates.largest * len(room)
        if self.candidates.n_users > EXACT:
            near, merits = self.best.at_prices(prices, FIRST_REACH * unit / 50)
            at = self._settled([*self.tried, near], prices, room, gap, unit)
            if at is not None:
                return self._made(at, prices, room, float(merits.sum() + prices @ room))
        reach = FIRST_REACH * unit
        prices, tried = lowest_dual(self.best, room, prices, reach, min(gap, EXACTLY * unit))
        at = self._settled(tried, prices, room, gap, unit)
        _, merits = self.best.at_prices(prices, 0.0)
        bound = float(merits.sum() + prices @ room)
        if at is None:
            at = self._one_by_one(prices, room)
        return self._made(tried[-1].at if at is None else at, prices, room, bound)

    def _made(self, at: Counts, prices: Floats, room: Floats, bound: float) -> Allocation:
        made = self.best.lists(at)
        filled, use = self.bonus * float((at >= 0).sum()), made.use.sum(0)
        kept = bool((use <= room + ROUNDING).all())
        value = float(made.worth.sum()) - filled
        return Allocation(
            prices=prices,
            use=use,
            value=value,
            bound=bound - filled,
            places=int((at >= 0).sum()),
            kept=kept,
            lists=self.candidates.lists(at),
        )

    def _one(self, room: Floats) -> Allocation:
        """The list of one user: nothing has to be shared, so the caps are enough."""
        limits, prices = self.limits, np.zeros(len(room))
        request = Request(self.candidates.values[0], self.best.kinds[0], limits)
        found = request.within(limits.caps_of_one(room), prices)
        at = np.full((1, limits.length), -1, dtype=np.int64)
        at[0, : len(found)] = request.columns[found]
        free = request.best(prices, request.size)
        return self._made(at, prices, room, request.worth(free) + self.bonus * len(found))

    def _one_by_one(self, prices: Floats, room: Floats) -> Counts | None:
        """One user after the other within the caps that are left; None: not all limits are kept."""
        limits = self.limits
        at = np.full((self.candidates.n_users, limits.length), -1, dtype=np.int64)
        kinds = np.broadcast_to(self.best.kinds, self.candidates.values.shape)
        fullest = np.pad(limits.weights.cumsum(1), ((0, 0), (1, 0)))[:, self.fillable].sum(1)
        left = room + limits.shares * fullest
        for user, values in enumerate(self.candidates.values):
            request = Request(values, kinds[user], limits)
            found = request.within(_always(left), prices)
            at[user, : len(found)] = request.columns[found]
            left = left - request.counted(found)
        kept = (self.best.lists(at).use.sum(0) <= room + ROUNDING).all()
        return at if kept else None

    def _settled(
        self, tried: list[Lists], prices: Floats, room: Floats, gap: float, unit: float
    ) -> Counts | None:
        """(b, L) columns of lists that keep the limits, within the gap of the best; None: none."""
        base = tried[-1]
        use = base.use.sum(0)
        # Complementary slackness: lists that keep the limits and leave no priced room are best.
        if (use <= room + ROUNDING).all() and float(prices @ (room - use)) <= gap:
            return base.at
        n, columns = self.candidates.values.shape
        cells = n * columns * self.limits.length
        if cells <= FEW_CELLS:
            return all_lists(self.best, room)
        lists = list(tried)
        steps = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
        for step in steps:
            if step:
                beyond = use > room + ROUNDING
                move = step * max(1e-2 * unit, float(prices.max(initial=0.0)))
                for near in (prices + move * beyond, np.maximum(0.0, prices - move * beyond)):
                    lists.insert(0, self.best.at_prices(near, 0.0)[0])
            at = self._exchanged(lists, prices, room, gap)
            if at is not None:
                return at
        return all_lists(self.best, room) if cells <= MOST_CELLS else None

    def _exchanged(
        self, lists: list[Lists], prices: Floats, room: Floats, gap: float
    ) -> Counts | None:
        """The last of the lists, those of some users exchanged such that the limits are kept."""
        *others, base = lists
        merit = base.worth - base.use @ prices
        found: list[tuple[int, int]] = []  # user, and which of the others
        seen: set[tuple[int, bytes]] = set()
        for number, other in enumerate(others):
            for user in (other.at != base.at).any(1).nonzero()[0].tolist():
                key = (user, other.at[user].tobytes())
                if key not in seen:
                    seen.add(key)
                    found.append((user, number))
        users, numbers = np.array(found, dtype=np.int64).reshape(-1, 2).T
        worth, use = np.empty(len(found)), np.empty((len(found), len(prices)))
        for number in np.unique(numbers):
            some = numbers == number
            worth[some], use[some] = (
                others[number].worth[users[some]],
                others[number].use[users[some]],
            )
        losses = merit[users] - worth + use @ prices
        worth, use = worth - base.worth[users], use - base.use[users]
        order = np.lexsort((users, numbers, losses))
        left, most = room - base.use.sum(0), 200 + 60 * len(room)
        while True:
            few = order[:most]
            chosen = choose_alternatives(users[few], worth[few], use[few], left, gap)
            if chosen is not None:
                at = base.at.copy()
                for user, number in zip(users[few[chosen]], numbers[few[chosen]], strict=True):
                    at[user] = others[number].at[user]
                if (self.best.lists(at).use.sum(0) <= room + ROUNDING).all():
                    return at
            if most >= len(order):
                return None
            most *= 4


def allocate(candidates: Candidates, limits: LimitMatrix, room: Floats | None = None) -> Allocation:
    """The lists of the highest total value that keep several limits on all showings.

    room: (m,) what the lists may use of each limit beyond its share; None: nothing.
    """
    block = SeveralLimitsBlock(candidates, limits)
    made = allocate_over(BlocksHere([block]), limits, room)
    return replace(block.made, rounded=made.rounded)


def allocate_over(blocks: Blocks, limits: LimitMatrix, room: Floats | None = None) -> Totals:
    """The blocks (`SeveralLimitsBlock`) make lists that keep the limits together.

    Where few users have too few showings for a share of them to be one item, their lists would be
    short or empty: then the showings of a group are rounded up, and if that is not enough, one list
    more may be of it. `rounded` says so.
    """
    sizes = blocks.map(SeveralLimitsBlock.size)
    users, places = sum(one.users for one in sizes), sum(one.places for one in sizes)
    none = np.zeros(len(limits))
    room = none if room is None else room
    if not places:
        blocks.map(SeveralLimitsBlock.show_nothing)
        return Totals(prices=none, use=none, value=0.0, bound=0.0, places=0, kept=True)
    if users > EXACT:
        return _within(blocks, sizes, limits, room)
    shares = limits.shares * np.sum([one.showings for one in sizes], axis=0)
    up = np.maximum(0.0, np.array([rounded_up(share) for share in shares]) - shares)
    open_to = np.sum([one.open_to for one in sizes], axis=0)
    rooms = [room, room + up, room + up + limits.full_list]
    for number, more in enumerate(rooms):
        last = number == len(rooms) - 1
        # A search for lists that are not there takes long, so it is not begun.
        if not last and users > 1 and _most_showings(limits, shares + more, open_to) < places:
            continue
        made = _within(blocks, sizes, limits, more)
        if last or (made.kept and made.places == places):
            return replace(made, rounded=number > 0)
    raise AssertionError("the last room is always taken")


def _always(cap: Floats) -> Caps:
    """The same caps for lists of any length."""
    return lambda _: [cap]


def _most_showings(limits: LimitMatrix, caps: Floats, open_to: Counts) -> int:
    """How many showings all lists can have at most, by a linear program over classes.

    caps: (m,) on what the groups count.  open_to: (C,) how many places each class could fill.
    """
    if not limits.counts_alike:
        return int(open_to.sum())
    program = linprog(
        -np.ones(limits.n_classes),
        A_ub=sparse.csr_array(limits.members.astype(np.float64)),
        # showings are whole
        b_ub=np.maximum(0.0, np.floor(caps + ROUNDING)),
        bounds=np.stack([np.zeros(limits.n_classes), open_to], axis=1),
    )
    return whole_showings(-program.fun)


def _within(
    blocks: Blocks, sizes: Sequence[BlockSize], limits: LimitMatrix, room: Floats
) -> Totals:
    """Lists within the room (m,)."""
    block, users = SeveralLimitsBlock, sum(one.users for one in sizes)
    unit = abs(sum(one.best_values for one in sizes) / (users * limits.length)) or 1.0
    prices = np.zeros(len(room))
    if users > EXACT:
        reach = FIRST_REACH * unit
        for sample in SAMPLES:
            if users > 3 * sample:
                every = users // sample
                prices = _descended(blocks, room / every, prices, unit, reach, every)
                reach = FIRST_REACH * unit / 50
        prices = _descended(blocks, room, prices, unit, reach, 1)
    rooms = [room]
    if len(blocks) > 1:
        # Every block keeps about what it uses at these prices, so that few lists have to change.
        use = np.stack([own for _, own in blocks.map(block.use, prices, 0.0, 1)])
        portions = np.array([one.users for one in sizes]) / users
        rooms = list(use + portions[:, None] * (room - use.sum(0)))
    made = blocks.map_each(block.make, [(prices, own, unit) for own in rooms])
    for number, one in enumerate(made):
        if not one.kept and len(blocks) > 1:  # it gets what the others have left
            others = np.sum([m.use for m in made if m is not one], axis=0)
            made[number] = blocks.one(number, block.make, prices, room - others, unit)
    use = np.sum([one.use for one in made], axis=0)
    return Totals(
        prices=made[0].prices if len(made) == 1 else prices,
        use=use,
        value=sum(one.value for one in made),
        bound=sum(one.bound for one in made),
        places=sum(one.places for one in made),
        kept=bool((use <= room + ROUNDING).all()),
    )


def _descended(
    blocks: Blocks, room: Floats, start: Floats, unit: float, reach: float, every: int
) -> Floats:
    """Prices near the minimum of the dual, of every `every`-th user."""

    def evaluated(prices: Floats) -> tuple[float, Floats]:
        merits, uses = zip(*blocks.map(SeveralLimitsBlock.use, prices, reach, every), strict=True)
        return sum(merits), np.sum(uses, axis=0)

    return descend(evaluated, room, start, unit)


@dataclass(frozen=True)
class GroupTask:
    """Lists to be made under one limit on a group.

    rule: on the group.  length: of the lists, or of what is to be filled of them.
    table: which of the candidates of a block.
    weights: (length,) of the value at each place; None: the discount of DCG, 1 / log2(1 + k).
    """

    rule: PlaceRule
    length: int
    table: int = 0
    weights: tuple[float, ...] | None = None

    @property
    def cap(self) -> PlaceRule:
        """The rule as a cap: a floor is one on everything else."""
        return self.rule.mirrored() if self.rule.is_floor else self.rule

    @property
    def place_weights(self) -> Floats:
        if self.weights is not None:
            return np.array(self.weights, dtype=np.float64)
        return discount(np.arange(1, self.length + 1))


@dataclass(frozen=True, eq=False)
class _GroupProblem:
    """Lists of some users that are to be made under one cap on a group."""

    candidates: Candidates
    capped: Flags  # (n_items,)
    limit: OneLimit

    @cached_property
    def sides(self) -> Sides:
        return Sides.from_candidates(self.candidates, self.capped, len(self.limit.weights))

    @cached_property
    def gains(self) -> Floats:
        return self.limit.gains(self.sides)

    def of_one_user(self, room: float) -> tuple[Counts, float]:
        """(1, L) columns of the list that a request gets: there is nobody to share the room with.

        And the price, which is what the list gains by one showing more of the group.
        """
        rule, none = GroupRule(self.limit.rule, np.array([False, True])), np.zeros(1)
        limits = LimitMatrix.from_rules([rule], len(self.limit.weights))
        kinds = np.broadcast_to(self.capped[self.candidates.items], self.candidates.values.shape)
        classes = kinds[0].astype(np.int64)
        request = Request(self.candidates.values[0], classes, limits, self.limit.weights)
        at, more = (
            request.within(limits.caps_of_one(some), none)
            for some in (np.array([room]), room + limits.weights.max(1))
        )
        extra = float((request.counted(more) - request.counted(at))[0])
        price = max(0.0, request.worth(more) - request.worth(at)) / extra if extra > 0 else 0.0
        columns = np.full((1, limits.length), -1, dtype=np.int64)
        columns[0, : len(at)] = request.columns[at]
        return columns, price


class OneLimitBlock:
    """Some users under one limit on a group, in all showings or in every list.

    tables: candidates of the same users; a task says which are meant.
    group: (n_items,).  begun: (b, t) what the lists begin with, -1 for nothing.
    """

    def __init__(
        self, tables: Sequence[Candidates], group: Flags, begun: Counts | None = None
    ) -> None:
        self.tables, self.group = tables, group
        users = tables[0].n_users
        self.begun = np.zeros((users, 0), dtype=np.int64) if begun is None else begun

    def open(self, task: GroupTask) -> float:
        """Begin with other lists; what is used of the limit by what they begin with."""
        start, filled = self.begun.shape[1], self.begun >= 0
        capped = ~self.group if task.rule.is_floor else self.group
        in_group = filled & capped[self.begun.clip(0)]
        limit = OneLimit(task.cap, task.place_weights, start + task.length, in_group)
        self.problem = _GroupProblem(self.tables[task.table], capped, limit)
        counted = task.cap.place_weights(start + task.length)[:start]
        return float(((in_group - task.cap.share) * filled).sum(0) @ counted)

    def use(self, price: float) -> float:
        """Of the limit, by the best lists at a price; lists are full."""
        limit, sides = self.problem.limit, self.problem.sides
        if not limit.is_plain:
            return float(limit.use(Merge(sides, limit, sides.sizes).best(price)).sum())
        of_group = (sides.forced | (self.problem.gains > max(price, 0.0))).sum()
        return float(of_group - limit.rule.share * sides.sizes.sum())

    def place(self, room: float) -> tuple[float, int]:
        """Make the lists of the highest total value within the room; the price, and users."""
        problem, self.room = self.problem, room
        users = problem.candidates.n_users
        if users == 1 and not (problem.limit.in_every_list or self.begun.shape[1]):
            self.columns, price = problem.of_one_user(room)
        else:
            placed, price = problem.limit.place(problem.sides, room)
            self.columns = placed.columns(problem.sides)
        self.made = problem.candidates.lists(self.columns)
        return price, users

    def lists(self) -> Counts:
        """(b, length) the lists that were made last."""
        return self.made

    def counts(self) -> Counts:
        """(n_items,) how often they show each item."""
        return np.bincount(self.made[self.made >= 0], minlength=len(self.group))

    def start_spreading(self) -> tuple[float, int]:
        """Begin to spread the lists, within the same room; the deviation of values, and users."""
        problem = self.problem
        self.spreading = SpreadUsers(
            problem.candidates, problem.capped, problem.limit, self.columns, self.room
        )
        return self.spreading.deviation, problem.candidates.n_users

    def sweep(self, mu: float, unit: float, elsewhere: Counts) -> tuple[Counts, float]:
        """All users choose again: (n_items,) showings, and the price of the limit."""
        price = self.spreading.sweep(mu, unit, elsewhere)
        return self.spreading.counts, price

    def spread_total(self) -> float:
        return self.spreading.total()

    def keep_spread(self) -> None:
        """The lists of the last total are the best so far."""
        self.made = self.spreading.trial


def place_over(blocks: Blocks, task: GroupTask, room: float = 0.0) -> float:
    """The blocks (`OneLimitBlock`) make the lists of the highest total value; the price of the
    limit. room: what all lists may use beyond the share."""
    block = OneLimitBlock
    left = room - sum(blocks.map(block.open, task))
    if len(blocks) == 1 or task.rule.scope is not Scope.ALL:
        made = blocks.map(block.place, left)
        users = sum(n for _, n in made)
        return sum(price * n for price, n in made) / max(1, users)
    low, high = 0.0, 1.0
    at_low = at_high = np.array(blocks.map(block.use, low))
    if at_low.sum() > left + ROUNDING:
        for _ in range(MOST_DOUBLINGS):
            at_high = np.array(blocks.map(block.use, high))
            if at_high.sum() <= left + ROUNDING:
                break
            high *= 16
        while (middle := (low + high) / 2) not in (low, high):
            at_middle = np.array(blocks.map(block.use, middle))
            if at_middle.sum() <= left + ROUNDING:
                high, at_high = middle, at_middle
            else:
                low, at_low = middle, at_middle
    # Between the two prices are ties, which go to the first blocks while there is room.
    more, rest = at_low - at_high, max(0.0, left - at_high.sum())
    given = np.clip(rest - (more.cumsum() - more), 0.0, more)
    rooms = at_high + given
    if at_high.sum() > left + ROUNDING:
        # Not all lists can be full: blocks give up places by how much they use.
        using = np.maximum(at_high, 0.0)
        rooms = at_high - (at_high.sum() - left) * using / using.sum()
    blocks.map_each(block.place, [(own,) for own in rooms])
    return high if at_low.sum() > left + ROUNDING else 0.0


def gini_over(blocks: Blocks) -> float:
    """The Gini index of the lists that the blocks have made last."""
    return gini(np.sum(blocks.map(OneLimitBlock.counts), axis=0))


def spread_over(blocks: Blocks, limit: float, price: float) -> SpreadTrial:
    """The blocks spread their lists to a Gini index within the limit; the best of all trials.

    price: of the limit on the group, of the present lists.
    Blocks choose one after the other, given what the others are shown, or they would all leave the
    same items at once.
    """
    block = OneLimitBlock
    started = blocks.map(block.start_spreading)
    users = sum(n for _, n in started)
    unit = sum(deviation * n for deviation, n in started) / max(1, users) or 1.0
    counts = blocks.map(block.counts)

    def sweep(mu: float) -> float:
        prices = []
        for number in range(len(blocks)):
            elsewhere = np.sum(counts, axis=0) - counts[number]
            counts[number], own = blocks.one(number, block.sweep, mu, unit, elsewhere)
            prices.append(own)
        return float(np.mean(prices))

    return search_spread(
        limit,
        price,
        sweep,
        lambda: (gini(np.sum(counts, axis=0)), sum(blocks.map(block.spread_total))),
        lambda: blocks.map(block.keep_spread),
    )


@dataclass(frozen=True)
class GroupPrices:
    """The prices of lists under one limit on a group, and one on the Gini index."""

    price: float  # of a showing of the group that counts 1, in value; 0 if the limit does not bind
    spread_price: float = 0.0  # in standard deviations of value; 0 where no Gini limit binds


@dataclass(frozen=True, eq=False)
class GroupLists:
    """Lists of some users and their prices.

    Lists are ordered by value, best first; where the rule counts by place, within the group and
    within the rest. For a floor the price is that of a showing outside the group. If the scope is
    every list, it is the value that a list loses on average.
    """

    lists: Counts  # (b, length), -1 at the end where nothing is left
    prices: GroupPrices


def group_lists_over(
    blocks: Blocks,
    task: GroupTask,
    *,
    gini_limit: float | None = None,
    gini_aim: float | None = None,
    room: float = 0.0,
) -> GroupPrices:
    """The blocks (`OneLimitBlock`) make the lists that keep the rule and the Gini limit.

    gini_aim: how even they should be besides; that may be out of reach.
    """
    price = place_over(blocks, task, room)
    aims = [aim for aim in (gini_limit, gini_aim) if aim is not None]
    if not aims or gini_over(blocks) <= min(aims):
        return GroupPrices(price)
    best = spread_over(blocks, min(aims), price)
    if gini_limit is not None and best.gini > gini_limit:
        warnings.warn(
            f"no lists with a Gini index of at most {gini_limit:g} were found; these have"
            f" {best.gini:.4f} (raise the limit or give more candidates)",
            stacklevel=3,
        )
    return GroupPrices(best.price, best.mu)


def group_lists(
    candidates: Candidates,
    group: Flags,
    *,
    rule: PlaceRule,
    length: int,
    gini_limit: float | None = None,
    weights: Sequence[float] | None = None,
    begun: Counts | None = None,
    room: float = 0.0,
) -> GroupLists:
    """The lists of the highest total value that keep a rule on a group.

    group: (n_items,).  gini_limit: in 0..1, over the whole catalogue.
    weights: (length,) of the value at each place, which never rise; None: the discount of DCG.
    begun: (b, t) what the first t places of the lists hold already, -1 for nothing. `length` and
        `weights` are those of the places behind them; the rule holds for all places.
    room: what may be used of a rule on all showings beyond its share; below 0 what was used before.
    Lists are as long as candidates and rule allow: a user with too few items outside the group is
    the first to be shown some of it, and has a shorter list where that would break the rule.
    """
    if length < 1:
        raise ConfigError(f"length = {length} must be at least 1")
    if gini_limit is not None and not 0 <= gini_limit <= 1:
        raise ConfigError(
            f"gini_limit = {gini_limit} is not between 0 and 1 (give a fraction, not %)"
        )
    task = GroupTask(rule, length, weights=None if weights is None else _checked(weights, length))
    block = OneLimitBlock([candidates], group, begun)
    if not candidates.n_users or not candidates.values.shape[1]:
        none = np.full((candidates.n_users, length), -1, dtype=np.int64)
        return GroupLists(none, GroupPrices(0.0))
    prices = group_lists_over(BlocksHere([block]), task, gini_limit=gini_limit, room=room)
    return GroupLists(block.lists(), prices)


def _checked(weights: Sequence[float], length: int) -> tuple[float, ...]:
    given = np.asarray(weights, dtype=np.float64)
    if given.shape != (length,) or not np.isfinite(given).all():
        raise ConfigError(f"weights must be {length} finite numbers, one for each place")
    if (given < 0).any() or (np.diff(given) > 0).any():
        raise ConfigError(
            "weights must not rise or be negative (lists show the best value first, so the first"
            " place is the most seen)"
        )
    return tuple(given.tolist())
