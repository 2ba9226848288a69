"""The prices of several limits, and whole lists at the margin.

Prices are the multipliers of the linear program over all lists:

    minimise over prices >= 0    g(prices) = sum_u merit_u(prices) + prices . room

merit_u is the merit of user u's best list (best_lists.py), so g is convex, and never below the
value of any lists that keep the limits. Of many users, g is nearly smooth, and a quasi-Newton
method descends to its minimum in a few evaluations. Of few users, it has edges: every evaluation
gives a plane below each merit_u, and a small linear program finds the prices where the planes are
lowest, not too far from the best prices so far (the box step method, Marsten, Hogan and
Blankenship 1975).

At the right prices, nearly every user has one best list. A few are indifferent between some; which
of these each of them is shown decides whether every limit is kept, and how much of its room is
used. Integer programs settle that. Each has a bound on its time: the answer is then the best lists
found so far.
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, milp, minimize

from fairhorizon.allocation.best_lists import BestLists, Lists
from fairhorizon.allocation.candidates import Offer, best_of_each_class
from fairhorizon.allocation.limit_matrix import Counts, Floats
from fairhorizon.allocation.one_list import Caps, Request
from fairhorizon.metrics.shares import ROUNDING

PARTS = 48  # of the users, each with planes of its own
MOST_STEPS = 120
# Of all small linear programs of one search (1 to 2 s): after so many, the best prices so far
# have to do. Counted and not timed, so that prices are the same on every machine.
MOST_CELLS = 2_500_000
NODES = 200  # of a search for whole numbers, if it has found any lists
PROGRAM_SECONDS = 5.0  # that an integer program may take
MOST_DESCENTS = 60
SMALL = 1e-9  # relative
SAME = 1e-12  # relative: a difference that is rounding
MOST_TIMES_16 = 64  # that a price of one limit is raised
AROUND = (0.002, 0.01, 0.03, 0.1, 0.3)  # relative distances of prices that have the nearest lists

EXACT = 48  # users, up to which prices are those of the linear program
EXACTLY = 1e-7  # of a typical value
FIRST_REACH = 0.05  # of the search for prices, in units of a typical value in a list
CLOSE = 0.02  # of the largest value, for every limit: how near lists come to the best
CLOSE_OF_ONE = 1e-3  # the same under one limit
# Of users, candidates and places: up to so many, one program of all lists is fast, or can be tried.
FEW_CELLS, MOST_CELLS_OF_ALL = 600, 40_000

# From prices to the sum of merits and the use (m,) of the best lists.
Evaluate = Callable[[Floats], tuple[float, Floats]]


def descend(evaluate: Evaluate, room: Floats, start: Floats, unit: float) -> Floats:
    """Prices near the minimum of g, for many users: by a quasi-Newton method.

    unit: of prices, a typical value, so that the method sees numbers near 1.
    """
    best = [np.inf]
    found = [start]

    def scaled(prices: Floats) -> tuple[float, Floats]:
        merit, use = evaluate(prices * unit)
        value = merit / unit + float(prices @ room)
        if value < best[0]:
            best[0], found[0] = value, prices * unit
        return value, room - use

    minimize(
        scaled,
        start / unit,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * len(room),
        options={"maxfun": MOST_DESCENTS, "ftol": 1e-7},
    )
    return found[0]


def price_of_one(
    evaluate: Evaluate, room: float, first: float
) -> tuple[float, tuple[float, float]]:
    """The price of one limit at which g has its minimum; and the two prices that were tried last,
    one at which the best lists use too much, and one at which they keep to the room.

    first: a price that is probably sufficient.
    g is convex and piecewise linear: the lines of two prices, one too low and one sufficient, meet
    below the next price to try, until nothing is below where they meet.
    """
    merit, use = evaluate(np.zeros(1))
    low = (0.0, merit, float(use[0]))  # price, value, use
    if low[2] <= room + ROUNDING:
        return 0.0, (0.0, 0.0)
    price = first
    for _ in range(MOST_TIMES_16):
        merit, use = evaluate(np.array([price]))
        if use[0] <= room + ROUNDING:
            break
        price *= 16
    high = (price, merit + price * float(use[0]), float(use[0]))
    for _ in range(MOST_STEPS):
        if low[2] - high[2] <= SAME:
            break
        price = (low[1] - high[1]) / (low[2] - high[2])
        merit, use = evaluate(np.array([price]))
        tried = (price, merit + price * float(use[0]), float(use[0]))
        on_the_lines = high[1] - price * high[2]
        if tried[2] <= room + ROUNDING:
            high = tried
        else:
            low = tried
        if merit - on_the_lines <= SAME * (abs(tried[1]) + abs(price * tried[2])):
            break
    return price, (low[0], high[0])


def lowest_dual(
    best: BestLists, room: Floats, start: Floats, reach: float, tolerance: float
) -> tuple[Floats, list[Lists]]:
    """Prices of several limits at which g is within the tolerance of its minimum, for few users,
    and the lists that were best on the way, those of these prices last.

    reach: how far to go at first.
    """
    planes = _Planes(best, room)
    lists, merits = best.at_prices(start, reach)
    planes.add(lists)
    prices, bound, tried = start, float(merits.sum() + start @ room), [lists]
    cells = 0
    for _ in range(MOST_STEPS):
        cells += planes.cells
        if cells > MOST_CELLS:
            break
        next_prices, lowest = planes.lowest(prices, reach)
        promised = bound - lowest
        inside = np.abs(next_prices - prices).max(initial=0.0) < reach * (1 - 1e-6)
        if promised <= tolerance:
            if inside:
                break
            reach *= 4
            if promised <= SMALL * tolerance and reach > best.bonus:
                break
            continue
        lists, merits = best.at_prices(next_prices, reach)
        value = float(merits.sum() + next_prices @ room)
        planes.add(lists)
        if bound - value > 0.1 * promised:
            prices, bound = next_prices, value
            tried.append(lists)
            if not inside:
                reach *= 2
        else:
            tried.insert(-1, lists)
            if bound < value:
                reach /= 2
    return prices, tried


class _Planes:
    """Planes below the merits of each part of the users: worth - prices . use."""

    def __init__(self, best: BestLists, room: Floats) -> None:
        self.room = room
        parts = np.array_split(np.arange(best.n_users), min(PARTS, best.n_users))
        self.starts = np.cumsum([0, *(len(part) for part in parts[:-1])])
        self.worth: list[Floats] = []  # each (parts,)
        self.use: list[Floats] = []  # each (parts, m)

    @property
    def cells(self) -> int:
        """Of the matrix of the linear program, where all limits are in it."""
        return len(self.worth) * len(self.starts) * (len(self.room) + len(self.starts))

    def add(self, lists: Lists) -> None:
        self.worth.append(np.add.reduceat(lists.worth, self.starts))
        self.use.append(np.add.reduceat(lists.use, self.starts, axis=0))

    def lowest(self, around: Floats, reach: float) -> tuple[Floats, float]:
        """The prices within reach where the planes are lowest, and how low that is."""
        n, low = len(self.starts), np.maximum(0.0, around - reach)
        base = self.worth[0]  # of the worth, to keep the numbers of the program small
        worth = np.concatenate(self.worth) - np.tile(base, len(self.worth))
        # A limit that no lists so far could exceed keeps its price of 0: its room is not all used,
        # whichever planes are lowest. So of many limits, only a few are in the program.
        able = np.max(self.use, axis=0).sum(0) > self.room
        priced = (able | (low > 0)).nonzero()[0]
        m = len(priced)
        part_of = np.tile(np.eye(n), (len(self.worth), 1))
        # As a program of integers, none of which has to be one: scipy prepares it in half the time.
        program = milp(
            np.concatenate([self.room[priced], np.ones(n)]),
            bounds=Bounds(
                np.concatenate([low[priced], np.full(n, -np.inf)]),
                np.concatenate([around[priced] + reach, np.full(n, np.inf)]),
            ),
            constraints=LinearConstraint(
                np.hstack([np.concatenate(self.use)[:, priced], part_of]), lb=worth
            ),
        )
        if program.x is None:
            return around, -np.inf
        prices = np.zeros(len(self.room))
        prices[priced] = np.maximum(0.0, program.x[:m])
        return prices, float(program.fun + base.sum())


# ---- Whole lists near the prices -----------------------------------------------------------------
def whole_lists(
    best: BestLists, prices: Floats, room: Floats, unit: float, tried: Sequence[Lists] = ()
) -> tuple[Counts, Floats, float]:
    """(b, L) columns of lists that use no more than the room (m,); their prices, and a bound on
    what lists as long as these can be worth.

    prices: near which these are probably found.  unit: a typical value in a list.
    tried: lists at prices on the way to these.
    """
    if len(room) == 1:
        return _under_one_limit(best, float(room[0]), unit)
    gap = CLOSE * best.candidates.largest * len(room)
    if best.n_users > EXACT:
        near, merits = best.at_prices(prices, FIRST_REACH * unit / 50)
        at = settled(best, [*tried, near], prices, room, gap, unit)
        if at is not None:
            return at, prices, float(merits.sum() + prices @ room)
    reach = FIRST_REACH * unit
    prices, on_the_way = lowest_dual(best, room, prices, reach, min(gap, EXACTLY * unit))
    at = settled(best, on_the_way, prices, room, gap, unit)
    _, merits = best.at_prices(prices, 0.0)
    if at is None:
        at = _one_by_one(best, prices, room)
    at = on_the_way[-1].at if at is None else at
    return at, prices, float(merits.sum() + prices @ room)


def _under_one_limit(best: BestLists, room: float, unit: float) -> tuple[Counts, Floats, float]:
    """`whole_lists` of one limit."""
    prices, tried = lists_at_margin(best, room)
    base = tried[-1]
    left = room - float(base.use.sum())
    bound = float((base.worth - base.use @ prices).sum() + prices[0] * room)
    gap = CLOSE_OF_ONE * best.candidates.largest
    if prices[0] <= 0 or prices[0] * left <= gap:
        return base.at, prices, bound
    lists = [*_around(best, prices), *tried]
    at = settled(best, lists, prices, np.array([room]), gap, unit)
    at = base.at if at is None else at
    if (at >= 0).sum() < best.sizes.sum():
        exchanged = _exchanged(best, lists, prices, np.array([room]), gap)
        some = [_worth_more(best, one, room, gap) for one in (at, exchanged) if one is not None]
        at = max(some, key=lambda one: float(best.lists(one).worth.sum()))
    return at, prices, bound


def _around(best: BestLists, prices: Floats) -> list[Lists]:
    """The best lists near the price (1,) of one limit."""
    near = [prices * (1 + sign * distance) for distance in AROUND for sign in (-1, 1)]
    return [best.at_prices(price, 0.0)[0] for price in near]


def _worth_more(best: BestLists, at: Counts, room: float, gap: float) -> Counts:
    """(b, L) lists as long as these, of the highest value within the room; or these.

    Where not all lists can be full, prices are about how long they are, not about what is shown.
    """
    again = BestLists(
        best.candidates,
        best.limits,
        bonus=best.bonus,
        sides=best.sides,
        sizes=(at >= 0).sum(1),
    )
    prices, tried = lists_at_margin(again, room)
    lists = [*_around(again, prices), *tried]
    found = _exchanged(again, lists, prices, np.array([room]), gap)
    better = found is not None and best.values(found).sum() > best.values(at).sum()
    return found if found is not None and better else at


def lists_at_margin(best: BestLists, room: float) -> tuple[Floats, list[Lists]]:
    """The price (1,) of one limit, and lists tried on the way: last those that keep to the room, if
    any do."""
    tried: dict[float, Lists] = {}

    def evaluate(prices: Floats) -> tuple[float, Floats]:
        lists, merits = best.at_prices(prices, 0.0)
        tried[float(prices[0])] = lists
        return float(merits.sum() - best.bonus * best.sizes.sum()), lists.use.sum(0)

    first = 2 * best.candidates.largest / max(ROUNDING, float(best.limits.weights.max()))
    price, (_, within) = price_of_one(evaluate, room, first or 1.0)
    return np.array([price]), [*(one for at, one in tried.items() if at != within), tried[within]]


def settled(
    best: BestLists,
    tried: Sequence[Lists],
    prices: Floats,
    room: Floats,
    gap: float,
    unit: float,
) -> Counts | None:
    """(b, L) columns of lists that keep the limits, within the gap of the best; None: none.

    tried: lists that may be exchanged for those at the prices, which are the last.
    """
    base = tried[-1]
    use = base.use.sum(0)
    # Complementary slackness: lists that keep the limits and leave no priced room are best.
    if (use <= room + ROUNDING).all() and float(prices @ (room - use)) <= gap:
        return base.at
    n, columns = best.candidates.values.shape
    cells = n * columns * best.limits.length
    if cells <= FEW_CELLS:
        return all_lists(best, room)
    lists = list(tried)
    steps = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
    for step in steps:
        if step:
            beyond = use > room + ROUNDING
            move = step * max(1e-2 * unit, float(prices.max(initial=0.0)))
            for near in (prices + move * beyond, np.maximum(0.0, prices - move * beyond)):
                lists.insert(0, best.at_prices(near, 0.0)[0])
        at = _exchanged(best, lists, prices, room, gap)
        if at is not None:
            return at
    return all_lists(best, room) if cells <= MOST_CELLS_OF_ALL else None


def _exchanged(
    best: BestLists, lists: Sequence[Lists], prices: Floats, room: Floats, gap: float
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

    def exchanged(chosen: Counts) -> Counts | None:
        at = base.at.copy()
        for user, number in zip(users[chosen], numbers[chosen], strict=True):
            at[user] = others[number].at[user]
        return at if (best.lists(at).use.sum(0) <= room + ROUNDING).all() else None

    if best.n_users > EXACT:
        # Of many users some can nearly always be exchanged one by one, in a fraction of the time.
        few = order[: 4 * most]
        chosen = exchanged_in_turn(users[few], losses[few], use[few], left)
        # What is lost against the bound of these prices: by exchanges, and by room that is left.
        if chosen is not None:
            rest = left - use[few[chosen]].sum(0)
            if losses[few[chosen]].sum() + prices @ rest <= gap:
                at = exchanged(few[chosen])
                if at is not None:
                    return at
    while True:
        few = order[:most]
        chosen = choose_alternatives(users[few], worth[few], use[few], left, gap)
        if chosen is not None:
            at = exchanged(few[chosen])
            if at is not None:
                return at
        if most >= len(order):
            return None
        most *= 4


def exchanged_in_turn(users: Counts, losses: Floats, use: Floats, left: Floats) -> Counts | None:
    """Which alternatives to take, at most one a user, so that nothing is exceeded; None: none do.

    One after the other, by what is lost for what they take off the excess.
    users, losses: (n,), use: (n, m) more than the list that each replaces.  left: (m,) of the room.
    """
    some = np.maximum(use, 0.0).sum(0) > left  # the others hold whatever is taken
    use, excess = use[:, some], -left[some]
    chosen: list[int] = []
    taken: set[int] = set()
    while (beyond := float(np.maximum(excess, 0.0).sum())) > ROUNDING:
        gained = beyond - np.maximum(excess + use, 0.0).sum(1)
        (helpful,) = (gained > ROUNDING).nonzero()
        before = len(chosen)
        for number in helpful[
            np.argsort(losses[helpful] / gained[helpful], kind="stable")
        ].tolist():
            after = excess + use[number]
            exceeded = float(np.maximum(after, 0.0).sum())
            if exceeded < beyond - ROUNDING and users[number] not in taken:
                excess, beyond = after, exceeded
                chosen.append(number)
                taken.add(int(users[number]))
                if beyond <= ROUNDING:
                    break
        if len(chosen) == before:
            return None
    return np.array(chosen, dtype=np.int64)


def _one_by_one(best: BestLists, prices: Floats, room: Floats) -> Counts | None:
    """One user after the other within the caps that are left; None: not all limits are kept."""
    limits = best.limits
    at = np.full((best.n_users, limits.length), -1, dtype=np.int64)
    kinds = np.broadcast_to(best.kinds, best.candidates.values.shape)
    fullest = np.pad(limits.weights.cumsum(1), ((0, 0), (1, 0)))[:, best.sizes].sum(1)
    left = room + limits.shares * fullest
    for user, values in enumerate(best.candidates.values):
        request = Request(Offer(values), limits, kinds[user])
        found = request.within(_always(left), prices)
        at[user, : len(found)] = request.columns[found]
        left = left - request.counted(found)
    kept = (best.lists(at).use.sum(0) <= room + ROUNDING).all()
    return at if kept else None


def _always(cap: Floats) -> Caps:
    """The same caps for lists of any length."""
    return lambda _: [cap]


def choose_alternatives(
    users: Counts,
    worth: Floats,
    use: Floats,
    left: Floats,
    gap: float,
    *,
    seconds: float = PROGRAM_SECONDS,
) -> Counts | None:
    """Which alternatives to take, at most one a user, for the highest worth within what is left.

    users: (n,) whose list each would replace.  worth: (n,), use: (n, m) more than that list.
    left: (m,) of the room; below 0 where it is exceeded.  gap: of worth, that may be given away.
    None: no choice keeps all limits.
    """
    n = len(users)
    if not n:
        return np.zeros(0, np.int64) if (left >= -ROUNDING).all() else None
    _, row = np.unique(users, return_inverse=True)
    one_each = sparse.csc_array((np.ones(n), (row, np.arange(n))))
    whole = np.abs(use - use.round()).max(0) < ROUNDING  # then what is left is whole as well
    bounds = np.where(whole, np.floor(left + ROUNDING), left)
    use = np.where(whole, use.round(), use)
    binding = np.maximum(use, 0.0).sum(0) > bounds  # the others hold whatever is taken
    # A constant beside the objective makes the relative gap of the solver an absolute one.
    total = 1 + float(np.abs(worth).sum())
    result = milp(
        np.append(-worth, -total),
        integrality=np.append(np.ones(n), 0),
        bounds=(np.append(np.zeros(n), 1), np.ones(n + 1)),
        constraints=[
            LinearConstraint(sparse.hstack([one_each, np.zeros((one_each.shape[0], 1))]), ub=1),
            LinearConstraint(
                sparse.csr_array(np.pad(use[:, binding].T, ((0, 0), (0, 1)))), ub=bounds[binding]
            ),
        ],
        options={"mip_rel_gap": gap / total, "node_limit": NODES, "time_limit": seconds},
    )
    return None if result.x is None else (result.x[:-1] > 0.5).nonzero()[0]


def all_lists(best: BestLists, room: Floats) -> Counts | None:
    """(b, L) columns of the best lists within the room, by one program over every candidate at
    every place: for small problems. None: none were found."""
    limits, length = best.limits, best.limits.length
    values = best.candidates.values
    kinds, needed = np.broadcast_to(best.kinds, values.shape), np.zeros(values.shape, np.bool_)
    for user, own in enumerate(values):
        needed[user, best_of_each_class(own, kinds[user], limits)] = True
    users, items = needed.nonzero()
    n, b = len(users), best.n_users
    if not n:
        return np.full((b, length), -1, dtype=np.int64)
    of_user, item = np.tile(users, length), np.tile(items, length)
    place = np.repeat(np.arange(length), n)
    worth = limits.discounts[place] * values[of_user, item] + best.bonus
    kind = kinds[of_user, item]
    use = limits.excess[:, kind] * limits.weights[:, place]
    columns, ones = np.arange(len(worth)), np.ones(len(worth))
    filled = sparse.csr_array(
        (ones, (of_user * length + place, columns)), shape=(b * length, len(worth))
    )
    once = sparse.csr_array((ones, (np.tile(np.arange(n), length), columns)))
    later = np.arange(b * length).reshape(b, length)[:, 1:].ravel()
    constraints = [
        LinearConstraint(filled, ub=1),
        LinearConstraint(once, ub=1),
        LinearConstraint(sparse.csr_array(use), ub=room + ROUNDING),
    ]
    if len(later):  # no empty place before a filled one
        constraints.append(LinearConstraint(filled[later] - filled[later - 1], ub=0))
    result = milp(
        -worth,
        integrality=ones,
        bounds=(0, 1),
        constraints=constraints,
        options={"mip_rel_gap": 1e-6, "node_limit": 10 * NODES, "time_limit": PROGRAM_SECONDS},
    )
    if result.x is None:
        return None
    at = np.full((b, length), -1, dtype=np.int64)
    taken = result.x > 0.5
    at[of_user[taken], place[taken]] = item[taken]
    return at
