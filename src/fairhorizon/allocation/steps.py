"""Lists of one step of the long run that keep limits on exposure: scores in, lists out.

A step serves all users at once, slot after slot of their lists. At a slot,

1. every limit whose costs are -1, 0 or 1 has a budget: what all showings of the slot may cost;
2. each user is offered the best item of every class, which is all items that cost the same under
   these limits; limits on every list withdraw the offers of some classes;
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
from torch import Tensor

from fairhorizon.allocation.assignment import (
    CLOSED,
    Bools,
    Classes,
    Floats,
    ItemClasses,
    SlotOffers,
)
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.limits.counts import Counts, Exposure
from fairhorizon.limits.step_limits import StepLimit
from fairhorizon.vocabulary import Scope

SPREAD_USERS = 64  # on whose scores the spread is estimated
LARGEST_MARGIN = 0.1  # of the showings of a step: more would not make contradictions go away
LOWERED = 0.9  # part of the last price that a step tries first

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
class _StepTrial:
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
        prefix = exposure.list_prefix(len(slots[0])).numpy()  # (b, places)
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

    def fill(self, prices: Floats) -> _StepTrial:
        """Slot after slot, each with its part of what is left of the budgets."""
        n_users, n_slots, m = len(self.slots[0]), len(self.slots), len(self.exact)
        carried = self._carried_charges(prices)
        lists = torch.full((n_users, n_slots), -1, device=self.slots[0].device)
        found, charges = np.zeros((n_slots, m)), np.tile(carried, (n_slots, 1))
        spent, showings = np.zeros(m), np.zeros(n_slots, dtype=np.int64)
        group_counts, remaining = self.group_counts.copy(), self.remaining
        for k in range(n_slots):
            offers = self._offers(k, lists[:, :k], carried, remaining)
            offers.withdraw(self._excluded(group_counts, self.first_place + k))
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
        return _StepTrial(lists, prices, self._excess(lists), charges)

    def _offers(
        self, k: int, taken: Tensor, carried: Floats, remaining: Counts | None
    ) -> SlotOffers:
        scores = self.slots[k]
        charges = torch.from_numpy(carried).to(scores) if carried.any() else None
        if self.taken_off is not None:
            scores = scores - self.taken_off(taken)
        return SlotOffers(scores, self.classes, taken=taken, charges=charges, remaining=remaining)

    def _excluded(self, group_counts: Counts, place: int) -> Bools | None:
        """(b, C): classes that limits on every list do not allow next; None: all are allowed.

        group_counts: (b, m) items of each group that the lists have before this place.
        """
        excluded = None
        for j, bounds in enumerate(self.list_bounds):
            if bounds is None:
                continue
            fewest, most = bounds
            in_group = self.classes.costs[j] != 0
            too_many = (group_counts[:, j] >= most[place])[:, None] & in_group
            too_few = (group_counts[:, j] < fewest[place])[:, None] & ~in_group
            excluded = too_many | too_few if excluded is None else excluded | too_many | too_few
        return excluded

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
