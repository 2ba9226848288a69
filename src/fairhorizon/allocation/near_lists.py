"""The last part of a budget: which of the lists that are nearly the best at its price are shown.

At a price p, the loss of a list is how much V - p U is below the best of its user. For any lists,

    total value = dual bound - sum of losses - p * (unused budget)

so lists that are better than known ones have a sum of losses below the gap, which is the dual bound
less the total of the known ones. All lists of a smaller loss are enumerated, user by user, and
combined. Combinations that another one with no more use beats are dropped. That is exact unless
there are too many.
"""

from dataclasses import dataclass, replace

import numpy as np

from fairhorizon.allocation.merges import Counts, Flags, Floats, Merged, Merges
from fairhorizon.metrics.shares import ROUNDING

MOST_PARTIAL = 2**16  # lists in the making, of all users of a block
MOST_STATES, FIRST_STATES = 2**14, 2**9  # combinations; before the gap is narrow
MOST_USERS = 48  # in doubt: those with the smallest losses
FEW = 32  # users, for whom all lists within the gap are combined at once
NARROW, WIDER = 1 / 4096, 16.0  # the first part of the gap otherwise, and how it grows
SAME = 1e-9  # of the gap: a gain that is rounding
EXACT = 1e-12  # relative: a difference that is rounding
CLOSED = 1e-11  # a gap that is rounding, relative to the total


@dataclass(frozen=True)
class NearLists:
    """Lists of a small loss, those of a user one after the other."""

    users: Counts  # (n,)
    of_group: Flags  # (n, L)
    sizes: Counts  # (n,)
    worth: Floats  # (n,) value with the bonus of the showings
    use: Floats  # (n,)
    losses: Floats  # (n,)

    def at(self, rows: Counts | Flags) -> "NearLists":
        return NearLists(*(part[rows] for part in vars(self).values()))

    @classmethod
    def join(cls, parts: "list[NearLists]") -> "NearLists":
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(np.concatenate(column) for column in columns))


def settled_exactly(merges: Merges, known: Merged, price: float, budget: float) -> Merged:
    """Lists within the budget that are at least as good as the known ones, which are within it.

    The known ones have a loss of 0 at the price. Where there are many users, lists of a tiny loss
    are combined first: they mostly close the gap, so that few lists are left within it.
    """
    left = budget - float(known.use.sum())
    gap = price * left
    nothing = CLOSED * (abs(merges.total(known)) + price)
    radius = gap if merges.n_users <= FEW else gap * NARROW
    while gap > nothing:
        options = near_lists(merges, price, min(radius, gap))
        if options is None:
            return known
        all_of_them = radius >= gap
        states = MOST_STATES if all_of_them else FIRST_STATES
        changes = _changes(options, known, merges.bonus)
        rows = changes.best(left + ROUNDING, price, gap, states)
        gap -= float(changes.worth[rows].sum())
        left -= float(changes.use[rows].sum())
        _apply(known, options.at(changes.rows[rows]), merges.bonus)
        if all_of_them:
            return known
        radius *= WIDER
    return known


def _apply(known: Merged, chosen: NearLists, bonus: float) -> None:
    users = chosen.users
    known.of_group[:, users], known.sizes[users] = chosen.of_group.T, chosen.sizes
    known.values[users], known.use[users] = chosen.worth - bonus * chosen.sizes, chosen.use


def near_lists(merges: Merges, price: float, radius: float) -> NearLists | None:
    """All lists with a loss of at most the radius, but dominated ones; None if too many."""
    parts, offset = [], 0
    for block in merges.blocks():
        found = _enumerated(block, block.tails(price).best, price, radius)
        if found is None:
            return None
        parts.append(replace(found, users=found.users + offset))
        offset += block.n_users
    return NearLists.join(parts)


def _enumerated(block: Merges, best: list[Floats], price: float, gap: float) -> NearLists | None:
    """Place by place; None if there are too many. `best` is what the rest of a list is worth."""
    places, root = len(block.weights), best[0][0]
    least = root - gap - EXACT * (1 + np.abs(root))
    users = (root > -np.inf).nonzero()[0]
    nothing = np.zeros(len(users))
    partial = NearLists(
        users,
        np.zeros((len(users), places), dtype=np.bool_),
        np.zeros(len(users), dtype=np.int64),
        *(nothing, nothing, nothing),
    )
    complete = []
    for k in range(places + 1):
        ends = block.sizes[partial.users] == k
        net = partial.worth - price * partial.use
        ends_here = ends | (block.may_end & (net >= least[partial.users]))
        complete.append(partial.at(ends_here))
        if ends.all():
            break
        partial = _undominated(_extended(block, partial.at(~ends), k, best[k + 1], price, least))
        if len(partial.users) > MOST_PARTIAL:
            return None
    found = NearLists.join(complete)
    losses = np.maximum(0.0, root[found.users] - found.worth + price * found.use)
    return _undominated(replace(found, losses=losses), by_count=False)


def _extended(
    block: Merges, partial: NearLists, k: int, after: Floats, price: float, least: Floats
) -> NearLists:
    """The partial lists with one more item of either side, if they can still become near ones."""
    u, c = partial.users, partial.of_group.sum(1)
    parts = []
    for side, (table, row, then) in enumerate(((block.group, c, c + 1), (block.rest, k - c, c))):
        value = table[row, u]
        worth = partial.worth + block.bonus
        if block.weights[k] > 0:
            worth = worth + block.weights[k] * value
        use = partial.use + block.use[side, k]
        near = worth - price * use + after[then, u] >= least[u]
        near &= value > -np.inf
        more = replace(partial, worth=worth, use=use, sizes=partial.sizes + 1).at(near)
        more.of_group[:, k] = side == 0
        parts.append(more)
    return NearLists.join(parts)


def _undominated(lists: NearLists, *, by_count: bool = True) -> NearLists:
    """Without those that another one of the same user, with no more use, is worth as much as.

    by_count: among lists with the same number of items of the group.
    """
    kind = lists.users
    if by_count:
        kind = kind * (lists.of_group.shape[1] + 1) + lists.of_group.sum(1)
    lists = lists.at(np.lexsort((-lists.worth, lists.use, kind)))
    kind = np.sort(kind)
    # the highest worth so far, within every kind: kinds are lifted above all before them
    _, number = np.unique(kind, return_inverse=True)
    _, rank = np.unique(lists.worth, return_inverse=True)
    lifted = number * (len(rank) + 1) + rank
    before = np.concatenate([[-1], np.maximum.accumulate(lifted)[:-1]])
    return lists.at(lifted > before)


@dataclass(frozen=True)
class _Changes:
    """Lists for users in doubt, those of a user together, compared with the known ones."""

    rows: Counts  # (n,) where they are among the near lists
    users: Counts  # (n,)
    use: Floats  # (n,) more than the known list
    worth: Floats  # (n,)
    losses: Floats  # (n,)

    def best(self, left: float, price: float, gap: float, most_states: int) -> Counts:
        """The rows of the best combination within what is left; none if nothing is better."""
        if not len(self.users):
            return np.zeros(0, dtype=np.int64)
        starts = np.flatnonzero(np.diff(self.users, prepend=-1))
        least, most = (f.reduceat(self.use, starts) for f in (np.minimum, np.maximum))
        # what users who are still undecided can save or add
        least, most = (np.append(side[::-1].cumsum()[::-1], 0.0) for side in (least, most))
        use, worth, losses = np.zeros(1), np.zeros(1), np.zeros(1)
        history: list[tuple[Counts, Counts]] = []
        found: tuple[float, int, int] = (0.0, 0, 0)  # gain, after how many users, state
        ends = [*starts[1:].tolist(), len(self.users)]
        for number, (start, end) in enumerate(zip(starts.tolist(), ends, strict=True), 1):
            own = slice(start, end)
            use = np.add.outer(use, self.use[own]).ravel()
            worth = np.add.outer(worth, self.worth[own]).ravel()
            losses = np.add.outer(losses, self.losses[own]).ravel()
            bound = losses + price * np.maximum(0.0, left - use - most[number])
            keep = np.flatnonzero((use + least[number] <= left) & (bound < gap - found[0]))
            keep = keep[_pareto(use[keep], worth[keep])]
            if len(keep) > most_states:
                keep = keep[np.argsort(bound[keep], kind="stable")[:most_states]]
            history.append((keep // (end - start), start + keep % (end - start)))
            use, worth, losses = use[keep], worth[keep], losses[keep]
            allowed = np.where(use <= left, worth, -np.inf)
            if len(keep) and allowed.max() > found[0] + SAME * gap:
                found = (float(allowed.max()), number, int(allowed.argmax()))
        return _traced(history, found[1], found[2])


def _changes(options: NearLists, known: Merged, bonus: float) -> _Changes:
    """Of users who could be shown another list; those come first who would lose the least by it."""
    users = options.users
    use = options.use - known.use[users]
    worth = options.worth - (known.values + bonus * known.sizes)[users]
    other = np.abs(use) + np.abs(worth) > EXACT
    least = np.full(len(known.use), np.inf)
    np.minimum.at(least, users[other], options.losses[other])
    chosen = np.argsort(least, kind="stable")[:MOST_USERS]
    place = np.full(len(known.use), MOST_USERS)
    place[chosen[least[chosen] < np.inf]] = np.arange((least[chosen] < np.inf).sum())
    rows = np.argsort(place[users], kind="stable")
    rows = rows[place[users[rows]] < MOST_USERS]
    return _Changes(rows, users[rows], use[rows], worth[rows], options.losses[rows])


def _pareto(use: Floats, worth: Floats) -> Counts:
    """The rows with more worth than any row with no more use."""
    order: Counts = np.lexsort((-worth, use))
    highest = np.maximum.accumulate(worth[order])
    rises = np.append(True, highest[1:] > highest[:-1])
    rows: Counts = order[rises[: len(order)]]
    return rows


def _traced(history: list[tuple[Counts, Counts]], users: int, state: int) -> Counts:
    rows = []
    for parents, options in reversed(history[:users]):
        rows.append(int(options[state]))
        state = int(parents[state])
    return np.array(rows, dtype=np.int64)
