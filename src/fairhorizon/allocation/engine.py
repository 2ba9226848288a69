"""Lists for all users at once under limits on exposure.

    maximise  sum_u sum_k w_k v_u(item at place k)   subject to  use_j <= room_j  for every limit j

Prices take over the limits. A block of users answers two questions: `use(prices)`, and
`make(prices, room)`, whole lists near these prices that use no more than the room. The coordinator
looks for prices and gives every block its part of the room. So limits are kept exactly over all
blocks, wherever these are; the value may be below that of one block by what one exchange of lists
per block is worth. With one block there is nothing to coordinate.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar
from typing import Protocol as Interface

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp

from fairhorizon.allocation.best_lists import BestLists, Lists
from fairhorizon.allocation.candidates import NEVER, Candidates, Offer
from fairhorizon.allocation.conflicts import Supply
from fairhorizon.allocation.limit_matrix import Counts, Floats, LimitMatrix
from fairhorizon.allocation.one_limit import (
    cut,
    gains,
    in_order_of_value,
    loss_in_each_list,
    within_each_list,
)
from fairhorizon.allocation.one_list import ListAlone, Request, alone
from fairhorizon.allocation.prices import (
    EXACT,
    FIRST_REACH,
    descend,
    price_of_one,
    whole_lists,
)
from fairhorizon.allocation.spreading import SpreadUsers, search_spread
from fairhorizon.errors import ConfigError
from fairhorizon.metrics.fairness import gini
from fairhorizon.metrics.shares import ROUNDING, rounded_up, whole_showings

SAMPLES = (128, 768)  # users on whom first prices are found
REMEMBERED = 12  # of the lists that were tried on the way to the prices

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

    # (m,) of a showing that counts 1, in value; 0 where a limit does not bind. Of a floor it is the
    # price of a showing outside its group; of a limit on every list, what a list loses on average.
    prices: Floats
    use: Floats  # (m,) of each limit
    value: float  # sum of w v
    bound: float  # no lists as long as these that keep the limits have a higher value
    places: int  # that are filled
    users: int
    kept: bool  # whether all limits are
    rounded: bool = False  # limits are kept in showings rounded up, as few users have few showings
    spread_price: float = 0.0  # of a Gini limit, in standard deviations of value; 0: does not bind


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


class Block:
    """Some users, whose lists are made under limits.

    tables: candidates of these users; lists are made from one of the tables at a time.
    before: (b,) of a limit on every list, how many of its group the lists begin with; None: none.
    `lists` and `columns` (b, L) are those that were made last: item codes, and where they stand
    among the candidates, -1 behind the end.
    """

    def __init__(
        self,
        tables: Sequence[Candidates],
        limits: LimitMatrix,
        before: Counts | None = None,
    ) -> None:
        self.tables, self.before = tables, before
        self.begin(limits)

    def begin(self, limits: LimitMatrix, table: int = 0) -> None:
        """Turn to lists under other limits, or from another table."""
        self.limits, self.candidates = limits, self.tables[table]
        self.best = BestLists(self.candidates, limits)
        self.samples = {1: self.best}
        self.tried: list[Lists] = []  # at the last prices, where limits are several
        self.__dict__.pop("gains", None)
        self.columns = np.full((self.candidates.n_users, limits.length), -1, dtype=np.int64)
        self.lists = self.columns

    @cached_property
    def gains(self) -> Floats:
        """(b, L) of one limit, what each user gains by one place more for the group."""
        return gains(self.best.sides, self.limits.discounts)

    def size(self) -> BlockSize:
        limits, values = self.limits, self.candidates.values
        most = min(limits.length, values.shape[1])
        if not most or not len(values):
            none = np.zeros(limits.n_classes, dtype=np.int64)
            return BlockSize(len(values), 0.0, 0, np.zeros(len(limits)), none)
        top = np.partition(values, values.shape[1] - most, axis=1)[:, values.shape[1] - most :]
        total = float(np.where(top > NEVER, top, 0.0).sum(dtype=np.float64))
        counted = np.pad(limits.weights.cumsum(1), ((0, 0), (1, 0)))[:, self.best.sizes].sum(1)
        capacity = np.zeros(limits.n_classes, dtype=np.int64)
        if 1 < len(values) <= EXACT:  # of others, nobody asks for it
            capacity = Supply.from_candidates(self.candidates, limits).capacity
        return BlockSize(len(values), total, int(self.best.sizes.sum()), counted, capacity)

    def use(self, prices: Floats, reach: float = 0.0, every: int = 1) -> tuple[float, Floats]:
        """The value less charges, and the use (m,), of the best lists at the prices (m,) of every
        `every`-th user.

        reach: how far from these the prices of the next calls probably are.
        """
        if self.limits.is_one_plain:
            # Only differences of values matter, so those of lists without the group are left out.
            shown = self.best.sides.forced | (self.gains > prices[0])
            use = float(shown.sum() - self.limits.shares[0] * self.best.sides.sizes.sum())
            value = float(self.gains[shown].sum())
            return value - prices[0] * use, np.array([use])
        if every not in self.samples:
            rows = np.arange(0, self.candidates.n_users, every)
            self.samples[every] = self.best.of_users(rows)
        best = self.samples[every]
        lists, merits = best.at_prices(prices, reach)
        if every == 1:
            self.tried = [*self.tried[-REMEMBERED:], lists]
        return float(merits.sum() - best.bonus * best.sizes.sum()), lists.use.sum(0)

    def make(self, prices: Floats, room: Floats, unit: float) -> Totals:
        """Make whole lists near the prices that use no more than the room (m,).

        unit: a typical value in a list.
        """
        best, limits, bound = self.best, self.limits, np.inf
        made: ListAlone | None = None
        self.room = room
        if not self.candidates.values.size:
            return self._nothing()
        if limits.in_every_list:
            at = within_each_list(best.sides, limits, self.before)
            prices = np.array([loss_in_each_list(best.sides, limits, self.before)])
        elif self.candidates.n_users == 1:
            at, made, bound = self._one(room)
            prices = made.prices
        elif limits.is_one_plain:
            counts, price = cut(self.gains, best.sides, float(limits.shares[0]), float(room[0]))
            at, prices = in_order_of_value(best.sides, counts), np.array([price])
        else:
            at, prices, bound = whole_lists(best, prices, room, unit, self.tried)
        self.columns, self.lists = at, self.candidates.lists(at)
        places, use = int((at >= 0).sum()), best.use(at).sum(0)
        return Totals(
            prices=prices,
            use=use,
            value=float(best.values(at).sum()),
            bound=bound - best.bonus * places if bound < np.inf else bound,
            places=places,
            users=self.candidates.n_users,
            kept=limits.in_every_list
            or (bool((use <= room + ROUNDING).all()) if made is None else made.kept),
            rounded=made is not None and made.rounded,
        )

    def _nothing(self) -> Totals:
        """The lists stay empty."""
        none = np.zeros(len(self.limits))
        users = self.candidates.n_users
        return Totals(prices=none, use=none, value=0.0, bound=0.0, places=0, users=users, kept=True)

    def _one(self, room: Floats) -> tuple[Counts, ListAlone, float]:
        """(1, L) the list of one user, and a bound on what lists as long can be worth."""
        (values,), limits = self.candidates.values, self.limits
        request = Request(Offer(values), limits, self.best.kinds[0])
        made = alone(request, room)
        at = np.full((1, limits.length), -1, dtype=np.int64)
        at[0, : len(made.at)] = request.columns[made.at]
        free = request.best(np.zeros(len(room)), request.size)
        return at, made, request.worth(free) + self.best.bonus * len(made.at)

    def counts(self) -> Counts:
        """(n_items,) how often the lists show each item."""
        shown = self.lists[self.lists >= 0]
        return np.bincount(shown, minlength=len(self.limits.of_item))

    # ---- Spreading the lists, under one limit ----
    def start_spreading(self) -> tuple[float, int]:
        """Begin to spread the lists, within the same room; the deviation of values, and users."""
        self.spreading = SpreadUsers(
            self.candidates, self.limits, self.columns, float(self.room[0])
        )
        return self.spreading.deviation, self.candidates.n_users

    def sweep(self, mu: float, unit: float, elsewhere: Counts) -> tuple[Counts, float]:
        """All users choose again: (n_items,) showings, and the price of the limit."""
        price = self.spreading.sweep(mu, unit, elsewhere)
        return self.spreading.counts, price

    def spread_total(self) -> float:
        return self.spreading.total()

    def keep_spread(self) -> None:
        """The lists of the last total are the best so far."""
        self.lists = self.spreading.trial


def allocate(
    candidates: Candidates,
    limits: LimitMatrix,
    room: Floats | None = None,
    *,
    gini_limit: float | None = None,
    prefix: Counts | None = None,
) -> Allocation:
    """The lists of the highest total value that keep the limits.

    room: (m,) what may be used of limits on all showings beyond their share; below 0 what was used
        before; None: nothing.
    gini_limit: in 0..1, over the whole catalogue; beside one limit.
    prefix: (b, t) the items at the first t = `limits.start` places, -1 for nothing. Lists are made
        for the places behind them; the limits hold for all places.

    Lists are as long as candidates and limits allow: a user with too few items outside a group is
    the first to be shown some of it, and has a shorter list where that would break the limit.
    Under one limit they are ordered by value, best first; where places count by weight, within the
    group and within the rest.
    """
    if gini_limit is not None and not 0 <= gini_limit <= 1:
        raise ConfigError(
            f"gini_limit = {gini_limit} is not between 0 and 1 (give a fraction, not %)"
        )
    room, before = np.zeros(len(limits)) if room is None else room, None
    if prefix is not None:
        used, in_group = limits.used_before(prefix)
        room, before = room - used, in_group
    block = Block([candidates], limits, before)
    made = allocate_over(BlocksHere([block]), limits, room, gini_limit=gini_limit)
    return Allocation(**vars(made), lists=block.lists)


def allocate_over(
    blocks: Blocks,
    limits: LimitMatrix,
    room: Floats | None = None,
    *,
    gini_limit: float | None = None,
    gini_aim: float | None = None,
) -> Totals:
    """The blocks (`Block`), which have begun with these limits, make lists that keep them together.

    gini_limit, gini_aim: of the lists under one limit. The aim may be out of reach.
    """
    room = np.zeros(len(limits)) if room is None else room
    if len(limits) > 1:
        return _under_several(blocks, limits, room)
    made = _under_one(blocks, limits, room)
    aims = [aim for aim in (gini_limit, gini_aim) if aim is not None]
    if not aims or not made.places or gini_over(blocks) <= min(aims):
        return made
    return _spread_over(blocks, made, min(aims), gini_limit)


def gini_over(blocks: Blocks) -> float:
    """The Gini index of the lists that the blocks have made last."""
    return gini(np.sum(blocks.map(Block.counts), axis=0))


def _summed(made: Sequence[Totals], prices: Floats, room: Floats) -> Totals:
    use = np.sum([one.use for one in made], axis=0)
    return Totals(
        prices=prices,
        use=use,
        value=sum(one.value for one in made),
        bound=sum(one.bound for one in made),
        places=sum(one.places for one in made),
        users=sum(one.users for one in made),
        kept=bool((use <= room + ROUNDING).all()),
    )


# ---- One limit -----------------------------------------------------------------------------------
def _under_one(blocks: Blocks, limits: LimitMatrix, room: Floats) -> Totals:
    """Lists under one limit within the room (1,)."""
    if len(blocks) == 1:
        return blocks.one(0, Block.make, np.zeros(1), room, 1.0)
    if limits.in_every_list:
        made = blocks.map(Block.make, np.zeros(1), room, 1.0)
        losses = np.sum([one.prices * one.users for one in made], axis=0)
        total = _summed(made, losses / max(1, sum(one.users for one in made)), room)
        return replace(total, kept=True)
    uses: dict[float, Floats] = {}  # of the blocks, by price

    def evaluate(prices: Floats) -> tuple[float, Floats]:
        merits, use = zip(*blocks.map(Block.use, prices), strict=True)
        uses[float(prices[0])] = np.concatenate(use)
        return sum(merits), np.sum(use, axis=0)

    price, (low, high) = price_of_one(evaluate, float(room[0]), 1.0)
    at_low, at_high = uses[low], uses[high]
    # Between the two prices are ties, which go to the first blocks while there is room.
    more, rest = at_low - at_high, max(0.0, float(room[0]) - at_high.sum())
    rooms = at_high + np.clip(rest - (more.cumsum() - more), 0.0, more)
    if (excess := at_high.sum() - float(room[0])) > ROUNDING:
        # Not all lists can be full: blocks give up places by how much they use.
        using = np.maximum(at_high, 0.0)
        rooms = at_high - excess * using / using.sum()
    prices = np.array([price])
    made = blocks.map_each(Block.make, [(prices, np.array([own]), 1.0) for own in rooms])
    return _summed(made, prices, room)


def _spread_over(blocks: Blocks, made: Totals, aim: float, gini_limit: float | None) -> Totals:
    """The blocks spread the lists they have made to a Gini index; the best of all trials.

    Blocks choose one after the other, given what the others are shown, or they would all leave the
    same items at once.
    """
    started = blocks.map(Block.start_spreading)
    unit = sum(deviation * n for deviation, n in started) / max(1, made.users) or 1.0
    counts = blocks.map(Block.counts)

    def sweep(mu: float) -> float:
        prices = []
        for number in range(len(blocks)):
            elsewhere = np.sum(counts, axis=0) - counts[number]
            counts[number], own = blocks.one(number, Block.sweep, mu, unit, elsewhere)
            prices.append(own)
        return float(np.mean(prices))

    best = search_spread(
        aim,
        float(made.prices[0]),
        sweep,
        lambda: (gini(np.sum(counts, axis=0)), sum(blocks.map(Block.spread_total))),
        lambda: blocks.map(Block.keep_spread),
    )
    if gini_limit is not None and best.gini > gini_limit:
        warnings.warn(
            f"no lists with a Gini index of at most {gini_limit:g} were found; these have"
            f" {best.gini:.4f} (raise the limit or give more candidates)",
            stacklevel=4,
        )
    return replace(made, prices=np.array([best.price]), value=best.total, spread_price=best.mu)


# ---- Several limits ------------------------------------------------------------------------------
def _under_several(blocks: Blocks, limits: LimitMatrix, room: Floats) -> Totals:
    """Lists under several limits within the room (m,).

    Where few users have too few showings for a share of them to be one item, their lists would be
    short or empty: then the showings of a group are rounded up, and if that is not enough, one list
    more may be of it. `rounded` says so.
    """
    sizes = blocks.map(Block.size)
    users, places = sum(one.users for one in sizes), sum(one.places for one in sizes)
    if users == 1:
        made = blocks.map(Block.make, np.zeros(len(room)), room, 1.0)
        kept, rounded = all(one.kept for one in made), any(one.rounded for one in made)
        return replace(_summed(made, np.zeros(len(room)), room), kept=kept, rounded=rounded)
    if users > EXACT or not places:
        return _within(blocks, sizes, limits, room)
    shares = limits.shares * np.sum([one.showings for one in sizes], axis=0)
    up = np.maximum(0.0, np.array([rounded_up(share) for share in shares]) - shares)
    open_to = np.sum([one.open_to for one in sizes], axis=0)
    rooms = [room, room + up, room + up + limits.full_list]
    for number, more in enumerate(rooms):
        last = number == len(rooms) - 1
        # A search for lists that are not there takes long, so it is not begun.
        if not last and _most_showings(limits, shares + more, open_to) < places:
            continue
        total = _within(blocks, sizes, limits, more)
        if last or (total.kept and total.places == places):
            return replace(total, rounded=number > 0)
    raise AssertionError("the last room is always taken")


def _most_showings(limits: LimitMatrix, caps: Floats, open_to: Counts) -> int:
    """How many showings all lists can have at most, by a linear program over classes.

    caps: (m,) on what the groups count.  open_to: (C,) how many places each class could fill.
    """
    if not limits.counts_alike:
        return int(open_to.sum())
    program = milp(  # no integers, but scipy prepares it in half the time of `linprog`
        -np.ones(limits.n_classes),
        # showings are whole
        constraints=LinearConstraint(
            sparse.csr_array(limits.members.astype(np.float64)),
            ub=np.maximum(0.0, np.floor(caps + ROUNDING)),
        ),
        bounds=Bounds(np.zeros(limits.n_classes), open_to),
    )
    return whole_showings(-program.fun)


def _within(
    blocks: Blocks, sizes: Sequence[BlockSize], limits: LimitMatrix, room: Floats
) -> Totals:
    """Lists within the room (m,)."""
    users = sum(one.users for one in sizes)
    unit = abs(sum(one.best_values for one in sizes) / max(1, users * limits.length)) or 1.0
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
        use = np.stack([own for _, own in blocks.map(Block.use, prices)])
        portions = np.array([one.users for one in sizes]) / max(1, users)
        rooms = list(use + portions[:, None] * (room - use.sum(0)))
    made = blocks.map_each(Block.make, [(prices, own, unit) for own in rooms])
    for number, one in enumerate(made):
        if not one.kept and len(blocks) > 1:  # it gets what the others have left
            others = np.sum([m.use for m in made if m is not one], axis=0)
            made[number] = blocks.one(number, Block.make, prices, room - others, unit)
    return _summed(made, made[0].prices if len(made) == 1 else prices, room)


def _descended(
    blocks: Blocks, room: Floats, start: Floats, unit: float, reach: float, every: int
) -> Floats:
    """Prices near the minimum of the dual, of every `every`-th user."""

    def evaluated(prices: Floats) -> tuple[float, Floats]:
        merits, uses = zip(*blocks.map(Block.use, prices, reach, every), strict=True)
        return sum(merits), np.sum(uses, axis=0)

    return descend(evaluated, room, start, unit)
