"""Lists of one step of the long run that keep limits on exposure: scores in, lists out.

A step serves all users at once, slot after slot of their lists. At a slot,

1. every limit whose costs are -1, 0 or 1 has a budget: what all showings of the slot may cost;
2. each user is offered the best item of every class (`Offers`); a class is all items that cost the
   same under these limits, and limits on every list withdraw the offers of some classes;
3. each user is shown one of the offers, so that the budgets are kept and the total score is the
   highest possible (assignment.py); no item is shown more often than it has remaining.

A limit with other costs (Gini) has a price instead, which lowers the scores from the start and is
carried from step to step.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.assignment import Classes, Floats, assign_classes
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.exposure.counts import Counts, Exposure
from fairhorizon.exposure.step_limits import StepLimit
from fairhorizon.ranking import first_highest, rows_at_once, some_at_a_time
from fairhorizon.vocabulary import Scope

SPREAD_USERS = 64  # on whose scores the spread is estimated
LARGEST_MARGIN = 0.1  # of the showings of a step: more would not make contradictions go away
LOWERED = 0.9  # part of the last price that a step tries first
CLOSED = 1e4  # the price of an item that has nothing remaining: more than scores differ by
CELLS = 2**22  # scores looked at together

Bools = NDArray[np.bool_]
TakenOff = Callable[[Tensor], Tensor]  # from the prefix (b, k) of each list to (b, n_items)


class OnlineControl:
    """Keeps every limit at every step, under the labels that the limit counts by.

    Limits whose costs are -1, 0 or 1 (a limit or a floor of a group) are kept exactly in each step.
    For others (Gini) a price on the scores is carried from step to step: a step first tries a
    little less than the last price, and raises it until the limit holds after the step. Its unit is
    standard deviations of score per standard deviation of cost, so that logits and probabilities
    are treated alike.
    """

    def __init__(
        self, limits: Sequence[StepLimit], *, ascent: float = 0.1, trials: int = 5
    ) -> None:
        names = [limit.name for limit in limits]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"two limits are called {twice[0]!r}; give each its own name")
        self.limits = tuple(limits)
        self.ascent, self.trials = ascent, trials
        self._prices: Floats = np.zeros(len(names))
        self._charges: Floats = np.zeros((0, 0))
        # showings that the budgets leave unused, for items that enter a group
        self._safety_margin: Floats = np.zeros(len(names))

    @property
    def prices(self) -> dict[str, float]:
        """The prices of the last step, the mean over the slots of its lists."""
        names = (limit.name for limit in self.limits)
        return dict(zip(names, self._prices.tolist(), strict=True))

    @property
    def charges(self) -> Tensor:
        """(K, n_items) float64: what the prices of the last step took off the score of each item.

        Every slot has its own prices. At these, each user was shown the item with the highest score
        less its charge, but for the few users at the margin of a budget.
        """
        return torch.from_numpy(self._charges)

    def tensors(self) -> dict[str, Tensor]:
        """The state that later steps depend on."""
        parts = {"prices": self._prices, "safety_margin": self._safety_margin}
        return {name: torch.from_numpy(part.copy()) for name, part in parts.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from the tensors of another control with the same limits."""
        prices = tensors["prices"]
        if prices.shape != self._prices.shape:
            raise ModelError(
                f"prices of {len(prices)} limits cannot be restored into a control of"
                f" {len(self.limits)}; build it with the limits it was saved with"
            )
        self._prices = prices.cpu().numpy().copy()
        self._safety_margin = tensors["safety_margin"].cpu().numpy().copy()

    @torch.no_grad()
    def choose(
        self,
        scores: Sequence[Tensor] | Tensor,
        exposure: Exposure,
        taken_off: TakenOff | None = None,
    ) -> Tensor:
        """(b, K) the items that each user is shown, -1 where all scores are -inf.

        scores: (b, n_items) for each of the K slots of a list, -inf for what may not be shown.
        exposure: what was shown before.
        taken_off: for scores that depend on the list so far. It is given the prefix (b, k) of every
            list and returns (b, n_items), which is taken off the scores of the next slot.
        """
        slots = [slot.detach() for slot in ([scores] if isinstance(scores, Tensor) else scores)]
        # What one step had too much of is kept back from then on, so that the limit holds again.
        overshoot = [limit.overshoot(exposure) for limit in self.limits]
        self._safety_margin = np.maximum(self._safety_margin, overshoot)
        margin = np.minimum(self._safety_margin, LARGEST_MARGIN * len(slots) * len(slots[0]))
        step = _Step(self.limits, slots, exposure, margin, taken_off)
        prices = np.where(step.priced, LOWERED * self._prices, 0.0)
        prices[prices < self.ascent / 10] = 0.0  # too low to change much: try without a price
        best = trial = step.fill(prices)
        for raised in range(self.trials - 1):
            if not trial.excess.any():
                break
            prices = prices + np.where(trial.excess > 0, self.ascent * 2**raised, 0.0)
            trial = step.fill(prices)
            if trial.excess.sum() <= best.excess.sum():
                best = trial
        self._prices, self._charges = best.prices, best.charges
        return best.lists


@dataclass(frozen=True)
class _Trial:
    """The lists of a step at some prices."""

    lists: Tensor  # (b, K)
    prices: Floats  # (m,) carried ones as tried, exact ones as found
    excess: Floats  # (m,) over limits with a carried price; 0 where they hold
    charges: Floats  # (K, n_items) what all prices take off the scores


class _Step:
    """The problem of one step: who may be shown what, and what that costs."""

    def __init__(
        self,
        limits: Sequence[StepLimit],
        slots: Sequence[Tensor],
        exposure: Exposure,
        safety_margin: Floats,
        taken_off: TakenOff | None,
    ) -> None:
        self.limits, self.slots, self.exposure = limits, slots, exposure
        self.taken_off = taken_off
        self.costs: Floats = np.zeros((len(limits), exposure.n_items))
        for j, limit in enumerate(limits):
            self.costs[j] = limit.costs(exposure).cpu().numpy()
        self.cost_spread = self.costs.std(1)
        varied = np.ptp(self.costs, axis=1) > 0  # else the choice makes no difference
        whole = np.isin(self.costs, (-1, 0, 1)).all(1)
        exact, self.priced = varied & whole, varied & ~whole
        self.score_spread = _score_spread(slots[0]) if self.priced.any() else 0.0

        # From here on, m is the number of limits that are kept exactly.
        self.exact = exact.nonzero()[0]
        self.exact_limits = [limits[j] for j in self.exact]
        self.exact_costs = self.costs[self.exact]  # (m, n_items)
        self.safety_margin = safety_margin[self.exact]
        self.classes = ItemClasses.from_costs(self.exact_costs, slots[0].device)

        # Lists may have begun in earlier steps: the slots of this step come after their prefix.
        prefix = exposure.begun(len(slots[0])).numpy()  # (b, places)
        self.first_place = prefix.shape[1]
        places = self.first_place + len(slots)
        weights = np.zeros((len(self.exact), places))
        for j, limit in enumerate(self.exact_limits):
            weights[j] = limit.weights(places)
        self.weights = weights[:, self.first_place :]  # (m, K)
        self.group_counts = self._group_counts(prefix, weights > 0)
        length = exposure.list_length(len(slots))
        self.list_bounds = [limit.most_in_list(length) for limit in self.exact_limits]
        self.remaining = self._remaining()

    def _group_counts(self, prefix: Classes, counts: Bools) -> Counts:
        """(b, m) items of each group in the prefixes (b, k), at places that count (m, places)."""
        group_counts = np.zeros((len(prefix), len(self.exact)), dtype=np.int64)
        in_group = self.exact_costs != 0
        for k, items in enumerate(prefix.T):
            group_counts += (in_group[:, items] & (items >= 0) & counts[:, k, None]).T
        return group_counts

    def _remaining(self) -> Counts | None:
        """(n_items,) how often each item may be shown in the step; None: there is no bound."""
        showings = len(self.slots) * len(self.slots[0])
        rooms = [limit.room(self.exposure, showings) for limit in self.limits]
        bounds = [room for room in rooms if room is not None]
        return np.minimum.reduce(bounds) if bounds else None

    def fill(self, prices: Floats) -> _Trial:
        """Slot after slot, each with its part of what is left of the budgets."""
        n_users, n_slots, m = len(self.slots[0]), len(self.slots), len(self.exact)
        carried = self._carried_charges(prices)
        lists = torch.full((n_users, n_slots), -1, device=self.slots[0].device)
        found, charges = np.zeros((n_slots, m)), np.tile(carried, (n_slots, 1))
        spent, showings = np.zeros(m), np.zeros(n_slots, dtype=np.int64)
        group_counts, remaining = self.group_counts.copy(), self.remaining
        for k in range(n_slots):
            offers = self._offers(k, lists[:, :k], carried, remaining)
            offers.withdraw(self._barred(group_counts, self.first_place + k))
            rows = offers.rows_left()
            showings[k:] = len(rows)  # later slots are expected to have as many
            shown = offers.assign(rows, self._budgets(k, spent, showings))
            lists[rows, k] = torch.from_numpy(shown.items).to(lists)

            costs = self.classes.costs[:, shown.choice] * (self.weights[:, k, None] > 0)
            spent = spent + self.weights[:, k] * costs.sum(1)
            group_counts[rows] += costs.T != 0
            found[k] = shown.prices
            charges[k] += shown.prices @ self.exact_costs
            if remaining is not None:
                charges[k] += np.where(remaining > 0, shown.item_prices, CLOSED)
                used = np.bincount(shown.items, minlength=len(remaining))
                remaining = np.maximum(0, remaining - used)
        prices = prices.copy()
        prices[self.exact] = found.mean(0)
        return _Trial(lists, prices, self._excess(lists), charges)

    def _offers(self, k: int, taken: Tensor, carried: Floats, remaining: Counts | None) -> "Offers":
        scores = self.slots[k]
        charges = torch.from_numpy(carried).to(scores) if carried.any() else None
        if self.taken_off is not None:
            scores = scores - self.taken_off(taken)
        return Offers(scores, self.classes, taken=taken, charges=charges, remaining=remaining)

    def _barred(self, group_counts: Counts, place: int) -> Bools | None:
        """(b, C): classes that limits on every list do not allow next; None: all are allowed.

        group_counts: (b, m) items of each group that the lists have before this place.
        """
        barred = None
        for j, bounds in enumerate(self.list_bounds):
            if bounds is None:
                continue
            fewest, most = bounds
            in_group = self.classes.costs[j] != 0
            too_many = (group_counts[:, j] >= most[place])[:, None] & in_group
            too_few = (group_counts[:, j] < fewest[place])[:, None] & ~in_group
            barred = too_many | too_few if barred is None else barred | too_many | too_few
        return barred

    def _budgets(self, k: int, spent: Floats, showings: Counts) -> Floats:
        """(m,) showings of the slot that may cost: an equal part, by weight, of what is left."""
        free = float(showings[k])  # so many never bind
        by_place = np.pad(showings, (self.first_place, 0))
        budgets = np.full(len(self.exact), free)
        for j, limit in enumerate(self.exact_limits):
            weights = self.weights[j, k:]
            if weights[0] > 0 and limit.scope is Scope.ALL:
                left = limit.budget(self.exposure, by_place) - spent[j]
                left -= self.safety_margin[j]
                budgets[j] = min(free, left / weights.sum())
        return budgets

    def _carried_charges(self, prices: Floats) -> Floats:
        """(n_items,) what the carried prices take off the scores."""
        charges = np.zeros(self.exposure.n_items)
        for j in (prices > 0).nonzero()[0]:
            above_mean = self.costs[j] - self.costs[j].mean()
            charges += prices[j] * self.score_spread / self.cost_spread[j] * above_mean
        return charges

    def _excess(self, lists: Tensor) -> Floats:
        """(m,) what the step spends beyond its budget, or leaves for the next step to make up for.

        Of limits with a carried price. The second is exact where costs change with every showing.
        The unit of both is what a step saves if each showing costs a standard deviation less.
        """
        excess = np.zeros(len(self.limits))
        items = lists[lists >= 0].cpu().numpy()
        if not len(items) or not self.priced.any():
            return excess
        grouping = self.exposure.grouping  # may be of any size, and showing does not change it
        after = copy.deepcopy(self.exposure, {id(grouping): grouping})
        after.add(lists)
        for j in self.priced.nonzero()[0]:
            limit, n = self.limits[j], len(items)
            over = self.costs[j][items].sum() - limit.budget(self.exposure, n)
            short = max(over, -limit.budget(after, n))
            excess[j] = max(0.0, short) / (n * self.cost_spread[j])
        return excess


def _score_spread(scores: Tensor) -> float:
    """Standard deviation of the scores of evenly spaced users; 1 where all are the same."""
    some = scores[:: max(1, len(scores) // SPREAD_USERS)]
    known = some[some > -torch.inf].double()
    return float(known.std(correction=0)) or 1.0 if len(known) else 1.0


@dataclass(frozen=True)
class ItemClasses:
    """Classes of items; a class is all items with the same costs under every limit."""

    costs: Floats  # (m, C) of the classes
    of_item: Tensor  # (n_items,) the class of each item
    cheaper: Tensor  # (C, C) bool: the second is cheaper than the first under some limit

    @classmethod
    def from_costs(cls, costs: Floats, device: torch.device) -> "ItemClasses":
        """By costs (m, n_items) that are -1, 0 or 1."""
        # a number in base 3, because that sorts fast
        codes = 3 ** np.arange(len(costs)) @ (costs.astype(np.int64) + 1)
        _, examples, of_item = np.unique(codes, return_index=True, return_inverse=True)
        own: Floats = costs[:, examples]
        cheaper = (own[:, None, :] < own[:, :, None]).any(0)
        return cls(own, torch.from_numpy(of_item).to(device), torch.from_numpy(cheaper).to(device))


@dataclass(frozen=True)
class Assignment:
    """What each user is shown at a slot."""

    choice: Classes  # (b,) the class
    items: Classes  # (b,)
    prices: Floats  # (m,) of the budgets
    item_prices: Floats  # (n_items,) the largest loss of a user who was refused the item


class Offers:
    """Each user's best item of each class at one slot, and who is shown which of them.

    scores: (b, n_items), -inf for what may not be shown.
    taken: (b, k) items that the lists have already, -1 for none.
    charges: (n_items,) to be taken off the scores.
    remaining: (n_items,) how often each item may be shown; None: without a bound.

    A limit under retrospective labels lets an item be shown in a step only so often that it does
    not enter the group. Where more users choose an item than it has remaining, those keep it whose
    next best item is the furthest behind; the others choose again, among the items that are not
    full. So this ends after a few rounds. Where all items of a class are full, one of them is the
    last resort: it may enter the group, while an item of another class might break a budget at
    once.
    """

    def __init__(
        self,
        scores: Tensor,
        classes: ItemClasses,
        *,
        taken: Tensor | None = None,
        charges: Tensor | None = None,
        remaining: Counts | None = None,
    ) -> None:
        self.classes, self.remaining = classes, remaining
        if remaining is None:
            # A class that is nowhere cheaper than that of the best item is never needed.
            self._set(*best_of_classes(scores, classes, classes.cheaper, taken, charges))
            return
        # Users may be refused their best item: then any class may be next, and what follows the
        # best of a class is asked for, so the scores as they are now are kept.
        if charges is not None:
            scores = scores - charges
        if taken is not None and taken.shape[1]:
            scores = _without(scores, taken)
        self._scores = scores
        self._full = torch.from_numpy(remaining <= 0).to(scores.device)
        others = ~torch.eye(len(classes.cheaper), dtype=torch.bool, device=scores.device)
        self._set(*best_of_classes(scores.masked_fill(self._full, -torch.inf), classes, others))
        users, own = np.nonzero(self.values == -np.inf)
        self._is_last_resort = np.zeros(self.values.shape, dtype=np.bool_)
        self._replace(users, own, *self._last_resort(users, own), is_last_resort=True)

    def _set(self, values: Tensor, items: Tensor) -> None:
        self.values: Floats = values.double().cpu().numpy()  # (b, C), -inf for no offer
        self.items: Classes = items.cpu().numpy()  # (b, C)

    def withdraw(self, barred: Bools | None) -> None:
        """Take back the offers of some classes (b, C), but not all of a user's."""
        if barred is not None:
            left = np.where(barred, -np.inf, self.values)
            self.values = np.where(left.max(1, keepdims=True) > -np.inf, left, self.values)

    def rows_left(self) -> Classes:
        """The users who have something left to be shown."""
        rows: Classes = np.flatnonzero(self.values.max(1) > -np.inf)
        return rows

    def assign(self, rows: Classes, budgets: Floats) -> Assignment:
        """The offers that these users are shown, within the budgets (m,) and what is remaining."""
        costs = self.classes.costs
        item_prices: Floats = np.zeros(len(self.classes.of_item))
        while True:
            choice, prices = assign_classes(self.values[rows], costs, budgets)
            items = self.items[rows, choice]
            shown = Assignment(choice, items, prices, item_prices)
            if self.remaining is None:
                return shown
            counted = ~self._is_last_resort[rows, choice]
            crowded = np.bincount(items[counted], minlength=len(item_prices)) > self.remaining
            # whoever did not get one of these before is not offered it again
            self._full |= torch.from_numpy(crowded).to(self._full)
            some = np.flatnonzero(crowded[items] & counted)
            users, own = rows[some], choice[some]
            values, following, is_last_resort = self._next_best(users, own)
            loss = self._loss(users, own, values, prices @ costs)
            refused = _refused(items[some], loss, self.remaining)
            if not len(refused):
                return shown
            np.maximum.at(item_prices, items[some[refused]], loss[refused])
            self._replace(
                users[refused],
                own[refused],
                values[refused],
                following[refused],
                is_last_resort=is_last_resort[refused],
            )

    def _replace(
        self,
        users: Classes,
        own: Classes,
        values: Floats,
        items: Classes,
        *,
        is_last_resort: Bools | bool,
    ) -> None:
        """Offer other items of these classes to some users."""
        at = users, own
        self.values[at], self.items[at], self._is_last_resort[at] = values, items, is_last_resort

    def _loss(self, users: Classes, own: Classes, following: Floats, charges: Floats) -> Floats:
        """(b,) by how much the next best offer is behind, all less the charge of its class."""
        net, at = self.values[users] - charges, np.arange(len(users))
        present = net[at, own]
        net[at, own] = following - charges[own]
        loss: Floats = present - net.max(1, initial=-np.inf)
        return loss

    def _next_best(self, users: Classes, own: Classes) -> tuple[Floats, Classes, Bools]:
        """What comes after the best item of these classes, which is full; and if that is full."""
        values, items = self._best(users, own, self._full)
        none_left = values == -np.inf
        values[none_left], items[none_left] = self._last_resort(users[none_left], own[none_left])
        return values, items, none_left

    def _last_resort(self, users: Classes, own: Classes) -> tuple[Floats, Classes]:
        """The best item of these classes, full or not, far behind all others; -inf for nothing."""
        values, items = self._best(users, own, torch.zeros_like(self._full))
        return values - CLOSED, items

    def _best(self, users: Classes, own: Classes, closed: Tensor) -> tuple[Floats, Classes]:
        """Of one class each, some users' best item that is not closed (n_items,)."""
        scores, of_item = self._scores, self.classes.of_item
        values, items = np.zeros(len(users)), np.zeros(len(users), dtype=np.int64)
        for c in np.unique(own):
            of_class, bar = np.flatnonzero(own == c), scores.new_zeros(len(of_item))
            bar[closed | (of_item != c)] = -torch.inf
            size = rows_at_once(len(of_item), CELLS)
            for at in np.split(of_class, range(size, len(of_class), size)):
                rest = scores[torch.from_numpy(users[at]).to(bar.device)].add_(bar)
                best = first_highest(rest)
                values[at] = rest.gather(1, best[:, None])[:, 0].double().cpu().numpy()
                items[at] = best.cpu().numpy()
        return values, items


def _refused(items: Classes, loss: Floats, remaining: Counts) -> Classes:
    """Of the users of each item, all but the `remaining` with the largest loss."""
    order = np.lexsort((-loss, items))
    ordered = items[order]
    rank = np.arange(len(items)) - np.searchsorted(ordered, ordered)
    beyond = order[rank >= remaining[ordered]]
    refused: Classes = beyond[np.isfinite(loss[beyond])]
    return refused


def best_of_classes(
    scores: Tensor,
    classes: ItemClasses,
    needed: Tensor,
    taken: Tensor | None = None,
    charges: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(b, C) the highest score of each class of items, less its charge (n_items,), and its item.

    Only of the class of the best item of all and of those that are `needed` (C, C) where the best
    item is of the first; others are left at -inf. Items `taken` (b, k) are excluded.
    """
    of_item, n_classes = classes.of_item, len(needed)
    values = scores.new_full((len(scores), n_classes), -torch.inf)
    items = of_item.new_zeros(values.shape)
    others = of_item != torch.arange(n_classes).to(of_item)[:, None]  # (C, n_items)
    outside = scores.new_zeros(others.shape).masked_fill_(others, -torch.inf)
    taken = items[:, :0] if taken is None else taken
    for part, part_values, part_items, part_taken in some_at_a_time(scores, values, items, taken):
        if charges is not None:
            part = part - charges
        if taken.shape[1]:
            part = _without(part, part_taken)
        best = first_highest(part)[:, None]
        kind = of_item[best]
        part_values.scatter_(1, kind, part.gather(1, best))  # views: this fills `values`
        part_items.scatter_(1, kind, best)
        for c in range(n_classes):
            some = needed[kind[:, 0], c].nonzero().squeeze(1)
            if len(some):
                of_class = part.index_select(0, some).add_(outside[c])
                best = first_highest(of_class)[:, None]
                part_values[:, c].index_copy_(0, some, of_class.gather(1, best).squeeze(1))
                part_items[:, c].index_copy_(0, some, best.squeeze(1))
    if values.isnan().any():
        raise ModelError("a score is not a number: the model that scores has diverged")
    return values, items


def _without(scores: Tensor, taken: Tensor) -> Tensor:
    """-inf for the items `taken`, of which -1 is none."""
    ceiling = scores.new_full(taken.shape, torch.inf).masked_fill_(taken >= 0, -torch.inf)
    return scores.scatter_reduce(1, taken.clamp(min=0), ceiling, "amin")
