"""Lists of one step of the long run that keep limits on exposure: scores in, lists out.

One step serves all users at once. Their showings together may cost no more than the budget of
every constraint; of all lists within the budgets, those with the highest sum of scores are shown
(class_program.py).
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairhorizon.allocation.class_program import Floats, allocate
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.exposure.counts import Exposure
from fairhorizon.exposure.step_limits import StepLimit
from fairhorizon.ranking import first_highest, some_at_a_time

SPREAD_USERS = 64  # on whose scores the spread is estimated
LOWERED = 0.9  # part of the last price that a step tries first


class OnlineControl:
    """Keeps every constraint at every step, under the labels of the moment.

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
        return {"prices": torch.from_numpy(self._prices.copy())}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Continue from the tensors of another control with the same constraints."""
        prices = tensors["prices"]
        if prices.shape != self._prices.shape:
            raise ModelError(
                f"prices of {len(prices)} constraints cannot be restored into a control of"
                f" {len(self.constraints)}; build it with the constraints it was saved with"
            )
        self._prices = prices.cpu().numpy().copy()

    @torch.no_grad()
    def choose(self, scores: Sequence[Tensor] | Tensor, exposure: Exposure) -> Tensor:
        """(b, K) items for K slots of scores (b, n_items) each; -1 where all scores are -inf."""
        slots = [scores] if isinstance(scores, Tensor) else list(scores)
        step = _Step(self.constraints, slots, exposure)
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
        self, constraints: Sequence[StepLimit], slots: Sequence[Tensor], exposure: Exposure
    ) -> None:
        self.constraints, self.slots, self.exposure = constraints, slots, exposure
        self.costs = np.zeros((len(constraints), exposure.n_items))
        for j, constraint in enumerate(constraints):
            self.costs[j] = constraint.costs(exposure).cpu().numpy()
        self.spread = self.costs.std(1)
        varied = np.ptp(self.costs, axis=1) > 0  # else the choice makes no difference
        whole = np.isin(self.costs, (-1, 0, 1)).all(1)
        self.exact, self.priced = varied & whole, varied & ~whole
        # classes of items that cost the same: as a number in base 3, because that sorts fast
        kept = self.costs[self.exact]
        codes = 3 ** np.arange(len(kept)) @ (kept.astype(np.int64) + 1)
        _, examples, of_item = np.unique(codes, return_index=True, return_inverse=True)
        self.patterns: Floats = kept[:, examples]  # a: (number of exact constraints, C)
        cheaper = (self.patterns[:, None, :] < self.patterns[:, :, None]).any(0)
        self.device = slots[0].device
        self.of_item = torch.from_numpy(of_item).to(self.device)
        self.cheaper = torch.from_numpy(cheaper).to(self.device)
        self.score_spread = _spread(slots[0]) if self.priced.any() else 0.0

    def fill(self, prices: Floats) -> _StepTrial:
        """Slot after slot, each with an equal part of what is left of the budgets."""
        carried = self._handicap(prices)
        handicap = torch.from_numpy(carried).to(self.slots[0])
        kept = [self.constraints[j] for j in self.exact.nonzero()[0]]
        lists = torch.full((len(self.slots[0]), len(self.slots)), -1, device=self.device)
        found, spent, shown = np.zeros((len(self.slots), len(kept))), np.zeros(len(kept)), 0
        for k, slot in enumerate(self.slots):
            values, items = best_of_classes(
                slot, handicap, self.of_item, self.cheaper, taken=lists[:, :k]
            )
            rows = (values.amax(1) > -torch.inf).nonzero().squeeze(1)  # who has something left
            left = len(self.slots) - k
            ends = np.array([c.budget(self.exposure, shown + left * len(rows)) for c in kept])
            table = values[rows].double().cpu().numpy()
            choice, found[k] = allocate(table, self.patterns, (ends - spent) / left)
            picked = items[rows].gather(1, torch.from_numpy(choice).to(rows)[:, None])
            lists[:, k].index_copy_(0, rows, picked.squeeze(1))
            spent, shown = spent + self.patterns[:, choice].sum(1), shown + len(rows)
        prices = prices.copy()
        prices[self.exact] = found.mean(0)
        charges = carried + found @ self.costs[self.exact]
        return _StepTrial(lists, prices, self._debts(lists), charges)

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


def best_of_classes(
    scores: Tensor, handicap: Tensor, of_item: Tensor, cheaper: Tensor, taken: Tensor
) -> tuple[Tensor, Tensor]:
    """(b, C) the highest score of each class of items, less the handicap (n_items,), and its item.

    A class that is not `cheaper` (C, C) in any way than that of the best item of all is left at
    -inf: it is never better. Items `taken` (b, k) are excluded.
    """
    values = scores.new_full((len(scores), len(cheaper)), -torch.inf)
    items = of_item.new_zeros(values.shape)
    others = of_item != torch.arange(len(cheaper)).to(of_item)[:, None]  # (C, n_items)
    outside = scores.new_zeros(others.shape).masked_fill_(others, -torch.inf)
    handicapped = bool(handicap.any())
    for part, part_values, part_items, part_taken in some_at_a_time(
        scores.detach(), values, items, taken
    ):
        if handicapped:
            part = part - handicap
        if taken.shape[1]:
            part = _without(part, part_taken)
        best = first_highest(part)[:, None]
        kind = of_item[best]
        part_values.scatter_(1, kind, part.gather(1, best))  # views: this fills `values`
        part_items.scatter_(1, kind, best)
        for c in range(len(cheaper)):
            some = cheaper[kind[:, 0], c].nonzero().squeeze(1)
            if len(some):
                room = part.index_select(0, some).add_(outside[c])
                best = first_highest(room)[:, None]
                part_values[:, c].index_copy_(0, some, room.gather(1, best).squeeze(1))
                part_items[:, c].index_copy_(0, some, best.squeeze(1))
    if values.isnan().any():
        raise ModelError("a score is not a number: the model that scores has diverged")
    return values, items


def _without(scores: Tensor, taken: Tensor) -> Tensor:
    """-inf for the items `taken`, of which -1 is none."""
    ceiling = scores.new_full(taken.shape, torch.inf).masked_fill_(taken >= 0, -torch.inf)
    return scores.scatter_reduce(1, taken.clamp(min=0), ceiling, "amin")


def _spread(scores: Tensor) -> float:
    """Standard deviation of the scores of evenly spaced users; 1 where all are the same."""
    some = scores[:: max(1, len(scores) // SPREAD_USERS)]
    known = some[some > -torch.inf].double()
    return float(known.std(correction=0)) or 1.0 if len(known) else 1.0
