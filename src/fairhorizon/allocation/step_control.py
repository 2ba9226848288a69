"""Lists of one step of the long run that keep limits on exposure: scores in, lists out.

One step serves all users at once. Their showings together may cost no more than the budget of
every constraint; of all lists within the budgets, those with the highest sum of scores are shown
(class_program.py). No item is shown more often than a constraint has room for (class_offers.py).
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.class_offers import CLOSED, ClassOffers
from fairhorizon.allocation.class_program import Floats
from fairhorizon.allocation.item_classes import ItemClasses
from fairhorizon.allocation.list_rules import ListRules
from fairhorizon.allocation.slot_scores import SlotScores, TableScores
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.exposure.counts import Counts, Exposure
from fairhorizon.exposure.step_limits import StepLimit
from fairhorizon.vocabulary import Scope

SPREAD_USERS = 64  # on whose scores the spread is estimated
KEPT_BACK = 0.1  # of the showings of a step, at most: more would not make contradictions go away
LOWERED = 0.9  # part of the last price that a step tries first


class OnlineControl:
    """Keeps every constraint at every step, under the labels that it counts by.

    Constraints whose costs are -1, 0 or 1 (a limit or a floor of a group) are kept exactly in each
    step. For others (Gini) a price on the scores is carried from step to step: a step first tries a
    little less than the last price, and raises it until the limit holds after the step. Its unit is
    standard deviations of score per standard deviation of cost, so that logits and probabilities
    are treated alike.
    """

    def __init__(
        self, constraints: Sequence[StepLimit], *, ascent: float = 0.1, trials: int = 5
    ) -> None:
        names = [constraint.name for constraint in constraints]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(f"two constraints are called {twice[0]!r}; give each its own name")
        self.constraints = tuple(constraints)
        self.ascent, self.trials = ascent, trials
        self._prices = np.zeros(len(names))
        self._charges: Floats = np.zeros((0, 0))
        self._reserves = np.zeros(len(names))  # of the budgets, for items that enter a group

    @property
    def prices(self) -> dict[str, float]:
        """The prices of the last step, the mean over the slots of its lists."""
        names = (constraint.name for constraint in self.constraints)
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
        parts = {"prices": self._prices, "reserves": self._reserves}
        return {name: torch.from_numpy(part.copy()) for name, part in parts.items()}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from the tensors of another control with the same constraints."""
        prices = tensors["prices"]
        if prices.shape != self._prices.shape:
            raise ModelError(
                f"prices of {len(prices)} constraints cannot be restored into a control of"
                f" {len(self.constraints)}; build it with the constraints it was saved with"
            )
        self._prices = prices.cpu().numpy().copy()
        self._reserves = tensors["reserves"].cpu().numpy().copy()

    @torch.no_grad()
    def choose(
        self, scores: Sequence[Tensor] | Sequence[SlotScores] | Tensor, exposure: Exposure
    ) -> Tensor:
        """(b, K) items for K slots of scores (b, n_items) each; -1 where all scores are -inf."""
        given = [scores] if isinstance(scores, Tensor) else scores
        slots = [TableScores(slot) if isinstance(slot, Tensor) else slot for slot in given]
        # what one step had too much of is kept back from then on, so that the limit holds again
        beyond = [constraint.overshoot(exposure) for constraint in self.constraints]
        self._reserves = np.maximum(self._reserves, beyond)
        most = KEPT_BACK * len(slots) * len(slots[0])
        step = _Step(self.constraints, slots, exposure, np.minimum(self._reserves, most))
        prices = np.where(step.priced, LOWERED * self._prices, 0.0)
        prices[prices < self.ascent / 10] = 0.0  # too low to change much: try without a price
        best = trial = step.fill(prices)
        for raised in range(self.trials - 1):
            if not trial.debts.any():
                break
            prices = prices + np.where(trial.debts > 0, self.ascent * 2**raised, 0.0)
            trial = step.fill(prices)
            if trial.debts.sum() <= best.debts.sum():
                best = trial
        self._prices, self._charges = best.prices, best.charges
        return best.lists


@dataclass(frozen=True)
class _StepTrial:
    """The lists of a step at some prices."""

    lists: Tensor  # (b, K)
    prices: Floats  # (m,) carried ones as tried, exact ones as found
    debts: Floats  # (m,) excess over constraints with a carried price; 0 where they hold
    charges: Floats  # (K, n_items) what all prices take off the scores


class _Step:
    """The problem of one step: who may be shown what, and what that costs."""

    def __init__(
        self,
        constraints: Sequence[StepLimit],
        slots: Sequence[SlotScores],
        exposure: Exposure,
        reserves: Floats,
    ) -> None:
        self.constraints, self.slots, self.exposure = constraints, slots, exposure
        self.costs = np.zeros((len(constraints), exposure.n_items))
        for j, constraint in enumerate(constraints):
            self.costs[j] = constraint.costs(exposure).cpu().numpy()
        self.spread = self.costs.std(1)
        varied = np.ptp(self.costs, axis=1) > 0  # else the choice makes no difference
        whole = np.isin(self.costs, (-1, 0, 1)).all(1)
        self.exact, self.priced = varied & whole, varied & ~whole
        self.kept = [constraints[j] for j in self.exact.nonzero()[0]]
        self.reserves = reserves[self.exact]
        self.classes = ItemClasses.of(self.costs[self.exact], slots[0].empty.device)
        self.begun = exposure.begun(len(slots[0])).numpy()  # (b, k) of lists that grow by steps
        places = self.begun.shape[1] + len(slots)
        weights = np.zeros((len(self.kept), places))  # under each limit
        for j, constraint in enumerate(self.kept):
            weights[j] = constraint.weights(places)
        self.weights = weights[:, self.begun.shape[1] :]
        self.inside = self._inside(weights > 0)
        length = exposure.list_length(len(slots))
        self.rules = ListRules(self.kept, self.classes.patterns, length)
        self.room = self._room()
        self.score_spread = _spread(slots[0]) if self.priced.any() else 0.0

    def _inside(self, counts: NDArray[np.bool_]) -> Counts:
        """(b, m) items of each group in the lists that are begun, at places that count (m, K)."""
        inside = np.zeros((len(self.begun), len(self.kept)), dtype=np.int64)
        in_group = self.costs[self.exact] != 0
        for k, items in enumerate(self.begun.T):
            inside += (in_group[:, items] & (items >= 0) & counts[:, k, None]).T
        return inside

    def _room(self) -> Counts | None:
        """(n_items,) how often each item may be shown in the step; None: there is no bound."""
        showings = len(self.slots) * len(self.slots[0])
        rooms = [constraint.room(self.exposure, showings) for constraint in self.constraints]
        bounds = [room for room in rooms if room is not None]
        return np.minimum.reduce(bounds) if bounds else None

    def fill(self, prices: Floats) -> _StepTrial:
        """Slot after slot, each with its part of what is left of the budgets."""
        carried, n, slots = self._handicap(prices), len(self.slots[0]), len(self.slots)
        lists = torch.full((n, slots), -1, device=self.slots[0].empty.device)
        found, charges = np.zeros((slots, len(self.kept))), np.tile(carried, (slots, 1))
        spent, shown = np.zeros(len(self.kept)), np.zeros(slots, dtype=np.int64)
        inside, room, begun = self.inside.copy(), self.room, self.begun.shape[1]
        for k in range(slots):
            offers = self._offers(k, carried, room, lists[:, :k])
            offers.bar(self.rules.barred(inside, begun + k))
            rows = offers.rows_left()
            shown[k:] = len(rows)
            budgets = self._budgets(k, spent, shown)
            fit = offers.allocate(rows, self.classes.patterns, budgets, room)
            lists[rows, k] = torch.from_numpy(fit.items).to(lists)
            costs = self.classes.patterns[:, fit.choice] * (self.weights[:, k, None] > 0)
            spent = spent + self.weights[:, k] * costs.sum(1)
            inside[rows] += costs.T != 0
            found[k] = fit.prices
            charges[k] += fit.prices @ self.costs[self.exact]
            if room is not None:
                charges[k] += np.where(room > 0, fit.item_prices, CLOSED)
                room = np.maximum(0, room - np.bincount(fit.items, minlength=len(room)))
        prices = prices.copy()
        prices[self.exact] = found.mean(0)
        return _StepTrial(lists, prices, self._debts(lists), charges)

    def _offers(self, k: int, carried: Floats, room: Counts | None, taken: Tensor) -> ClassOffers:
        handicap = torch.from_numpy(carried).to(self.slots[k].empty)
        if room is None:
            return ClassOffers.of(self.slots[k], handicap, self.classes, taken)
        return ClassOffers.with_room(self.slots[k], handicap, self.classes, taken, room)

    def _budgets(self, k: int, spent: Floats, shown: Counts) -> Floats:
        """(m,) showings of the slot that may cost: an equal part, by weight, of what is left."""
        free = float(shown[k])  # so many never bind
        showings = np.pad(shown, (self.begun.shape[1], 0))
        budgets = np.full(len(self.kept), free)
        for j, constraint in enumerate(self.kept):
            weights = self.weights[j, k:]
            if weights[0] > 0 and constraint.scope is Scope.ALL:
                left = constraint.budget(self.exposure, showings) - spent[j]
                left -= self.reserves[j]
                budgets[j] = min(free, left / weights.sum())
        return budgets

    def _handicap(self, prices: Floats) -> Floats:
        """(n_items,) what the carried prices take off the scores."""
        handicap = np.zeros(self.exposure.n_items)
        for j in (prices > 0).nonzero()[0]:
            above_mean = self.costs[j] - self.costs[j].mean()
            handicap += prices[j] * self.score_spread / self.spread[j] * above_mean
        return handicap

    def _debts(self, lists: Tensor) -> Floats:
        """What the step spends beyond its budget, or leaves for the next step to make up for.

        The second is exact where costs change with every showing. The unit of both is what a step
        saves if each showing costs a standard deviation less.
        """
        debts = np.zeros(len(self.constraints))
        items = lists[lists >= 0].cpu().numpy()
        if not len(items) or not self.priced.any():
            return debts
        grouping = self.exposure.grouping  # may be of any size, and showing does not change it
        after = copy.deepcopy(self.exposure, {id(grouping): grouping})
        after.add(lists)
        for j in self.priced.nonzero()[0]:
            constraint, n = self.constraints[j], len(items)
            over = self.costs[j][items].sum() - constraint.budget(self.exposure, n)
            short = max(over, -constraint.budget(after, n))
            debts[j] = max(0.0, short) / (n * self.spread[j])
        return debts


def _spread(scores: SlotScores) -> float:
    """Standard deviation of the scores of evenly spaced users; 1 where all are the same."""
    some = scores.rows(torch.arange(0, len(scores), max(1, len(scores) // SPREAD_USERS)))
    known = some[some > -torch.inf].double()
    return float(known.std(correction=0)) or 1.0 if len(known) else 1.0
