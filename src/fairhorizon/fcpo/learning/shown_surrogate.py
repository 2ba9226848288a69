"""The surrogate of CPO in the long run, where users answer only to what they are shown.

The policy is P_k = softmax((W_k . signals - charge) / temperature) over the menu of a step, the
charge being what the control takes off an item by its prices, which are part of the environment.

    change of a cost     sum_i (P_new - P)(i) c_i over the whole menu: labels, so costs, are known
    change of reward     w (P_new(a) / P(a) - 1) A for the item a that was shown,  w = P(a) / mu(a)

mu(a) is the recorded propensity. The second is unbiased where mu > 0 for every item; for an item
that nothing is known of, the advantage counts as 0. Without exploration mu = 1, w = P(a), and the
change of reward is (P_new - P)(a) A: the sum over the menu, cut down to the item that was shown.
"""

import torch
from torch import Tensor

from fairhorizon.fcpo.learning.cpo import Predicted
from fairhorizon.fcpo.learning.fisher_metric import FisherMetric, SoftmaxFisher
from fairhorizon.fcpo.learning.trajectories import ShownRecord, Trajectories
from fairhorizon.policy.softmax import ItemPolicy, allowed_by_slot, rows_of

LARGEST_WEIGHT = 10.0  # so that an item shown by a rare chance does not outweigh all others


class ShownSurrogate:
    """Exact in the costs of a step, estimated from shown items in rewards and in what comes later.

    Each slot of a list is a choice given the slots before it, as each step is given those before.
    """

    def __init__(
        self,
        batch: Trajectories,
        record: ShownRecord,
        outputs: Tensor,
        advantages: Tensor,
        scale: Tensor,
        *,
        temperature: float,
    ) -> None:
        """advantages: (1 + limits, b, T), the reward's first; scale: (same, T) discounts / b."""
        self.record, self.temperature = record, temperature
        self.steps = batch.state_index.flatten()
        self.chosen = record.chosen.flatten(0, 1)
        self.allowed = allowed_by_slot(record.open_items.flatten(0, 1), self.chosen)
        self.charges = record.charges[self.steps]
        self.costs = record.costs[self.steps].to(outputs)  # (b T, C, limits)
        self.present = self._policy(outputs)
        self.log_probs = self.present.log_prob_by_slot(self.chosen)
        propensities = record.propensities.flatten(0, 1).to(outputs)
        self.importance = (self.log_probs.exp() / propensities).clamp(max=LARGEST_WEIGHT)
        self.scale = scale.repeat(1, len(batch))  # (1 + limits, b T)
        rewards, costs = advantages.flatten(1).split([1, len(advantages) - 1])
        at_once = batch.costs.flatten(0, 1).T - self._by_menu(self.present.probs)
        self.weights = torch.cat([rewards, costs - at_once]) * self.scale

    def _policy(self, outputs: Tensor) -> ItemPolicy:
        logits = self.record.menus.logits(rows_of(outputs, self.allowed.shape[1]))
        logits = logits.index_select(0, self.steps) - self.charges.to(logits)
        return ItemPolicy.of(logits / self.temperature, self.allowed)

    def _by_menu(self, probs: Tensor) -> Tensor:
        """(limits, b T): costs of a list by the (differences of) probabilities (b T, K, C)."""
        return torch.einsum("bkc,bcl->lb", probs, self.costs)

    def evaluate(self, outputs: Tensor) -> Predicted:
        new = self._policy(outputs)
        ratios = torch.expm1(new.log_prob_by_slot(self.chosen) - self.log_probs)
        reward, *later = self.weights @ (self.importance * ratios).sum(1)
        at_once = (self.scale[1:] * self._by_menu(new.probs - self.present.probs)).sum(1)
        return Predicted(reward, torch.stack(later) + at_once, new.kl_from(self.present).mean())

    def sample(self, size: int, generator: torch.Generator) -> FisherMetric:
        some = torch.randperm(len(self.steps), generator=generator)[:size].to(self.steps)
        states = self.steps[some]
        menus, policy = self.record.menus.take(states), self.present.take(some)
        return SoftmaxFisher(states, menus, policy, self.temperature)
