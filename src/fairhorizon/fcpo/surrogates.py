"""The surrogates of CPO (equation 3): predicted changes of return and cost on a batch.

One for each kind of policy, and one for the long run. All take advantages per step, discounted and
divided by the number of trajectories, and predict changes of the expected return per trajectory.
"""

from dataclasses import dataclass
from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.fcpo.cpo import Predicted
from fairhorizon.fcpo.policies import ItemPolicy, Proposal, allowed_by_slot, policy_at, rows_of
from fairhorizon.fcpo.trajectories import MenuRecord, ShownRecord, Trajectories
from fairhorizon.rankers.candidates import CandidateSet


# ---- The Fisher matrix on a sample of states: what CPO measures steps by -------------------------
class FisherMetric(Interface):
    """The sampled states of a Fisher product, and the Fisher matrix M of their outputs."""

    @property
    def states(self) -> Tensor:
        """(s,) rows of the batch's distinct states."""

    def product(self, tangent: Tensor) -> Tensor:
        """M v for v, of the shape of the outputs in these states."""


@dataclass(frozen=True)
class SoftmaxFisher:
    """(diag P - P P') / temperature² in the logits of sampled steps."""

    states: Tensor
    menus: CandidateSet
    policy: ItemPolicy
    temperature: float

    def product(self, tangent: Tensor) -> Tensor:
        rows = rows_of(tangent, self.policy.log_probs.shape[1])
        by_logits = self.policy.fisher(self.menus.logits(rows) / self.temperature)
        return self.menus.pull(by_logits).flatten(1) / (self.temperature * len(tangent))


# ---- Training: the policy samples W, or items from menus -----------------------------------------
class Surrogate(Interface):
    """The present policy on a batch, as the baseline of candidate policies."""

    def evaluate(self, outputs: Tensor) -> Predicted:
        """For an actor with these outputs in the states of the batch."""

    def sample(self, size: int, generator: torch.Generator) -> "FisherMetric":
        """The Fisher matrix on a sample of at most `size` states."""


class GaussianSurrogate:
    """W was sampled: a step is weighted by the probability ratio of its W."""

    def __init__(
        self, batch: Trajectories, outputs: Tensor, advantages: Tensor, scale: Tensor
    ) -> None:
        """advantages: (signals of reward and costs, b, T); scale: (same, T) discounts / b."""
        self.present = Proposal.of(outputs)
        self.steps = batch.state_index.flatten()
        self.proposals = batch.proposals.flatten(0, 1)
        self.log_probs = self.present.log_prob(self.proposals, self.steps)
        # Trajectories of an earlier policy are weighted by importance, truncated at 1.
        importance = torch.exp(self.log_probs - batch.log_probs.flatten()).clamp(max=1)
        self.weights = (advantages * scale[:, None]).flatten(1) * importance
        self.visits = torch.bincount(self.steps, minlength=len(outputs)).to(outputs)

    def evaluate(self, outputs: Tensor) -> Predicted:
        new = Proposal.of(outputs)
        change = torch.expm1(new.log_prob(self.proposals, self.steps) - self.log_probs)
        reward, *costs = self.weights @ change
        kl = new.kl_from(self.present) @ self.visits / len(self.steps)
        return Predicted(reward, torch.stack(costs), kl)

    def sample(self, size: int, generator: torch.Generator) -> "FisherMetric":
        states = torch.randperm(len(self.visits), generator=generator)[:size].to(self.steps)
        visits = self.visits[states]
        return _GaussianFisher(states, self.present[states], visits / visits.sum())


@dataclass(frozen=True)
class _GaussianFisher:
    states: Tensor
    present: Proposal
    shares: Tensor

    def product(self, tangent: Tensor) -> Tensor:
        return self.present.fisher(self.shares, tangent)


class SoftmaxSurrogate:
    """Items were sampled from menus; immediate reward and cost are known for all their items.

    So the immediate part is the exact expectation over the menu, slot by slot, and only later
    rewards and costs are estimated from the sample.
    """

    def __init__(
        self,
        batch: Trajectories,
        record: MenuRecord,
        outputs: Tensor,
        advantages: Tensor,
        scale: Tensor,
        *,
        temperature: float,
        attention: Tensor,
    ) -> None:
        self.record, self.temperature = record, temperature
        self.steps = batch.state_index.flatten()
        self.chosen = record.chosen.flatten(0, 1)
        self.allowed = allowed_by_slot(record.open_items.flatten(0, 1), self.chosen)
        self.present = policy_at(record.menus, outputs, self.steps, self.allowed, temperature)
        self.log_probs = self.present.log_prob(self.chosen)
        self.scale = scale.repeat(1, len(batch))  # (signals, b T), steps of a trajectory together
        # immediate gain of each item by slot; it is removed from the sampled part
        gains = torch.stack([record.liked, record.sensitive]).float()[:, self.steps]
        self.gains = gains[:, :, None, :] * attention[:, None]  # (2, b T, K, C)
        expected = (self.present.probs * self.gains).sum((2, 3))
        signals = torch.stack([batch.rewards, batch.costs[:, :, 0]]).flatten(1)
        self.weights = (advantages.flatten(1) - (signals - expected)) * self.scale

    def evaluate(self, outputs: Tensor) -> Predicted:
        new = policy_at(self.record.menus, outputs, self.steps, self.allowed, self.temperature)
        change = torch.expm1(new.log_prob(self.chosen) - self.log_probs)
        at_once = torch.einsum("bkc,sbkc->sb", new.probs - self.present.probs, self.gains)
        reward, *costs = self.weights @ change + (self.scale * at_once).sum(1)
        return Predicted(reward, torch.stack(costs), new.kl_from(self.present).mean())

    def sample(self, size: int, generator: torch.Generator) -> "FisherMetric":
        some = torch.randperm(len(self.steps), generator=generator)[:size].to(self.steps)
        states = self.steps[some]
        policy = self.present.take(some)
        return SoftmaxFisher(states, self.record.menus.take(states), policy, self.temperature)


# ---- The long run: users answer only to what they are shown --------------------------------------
# The policy is P_k = softmax((W_k . signals - charge) / temperature) over the menu of a step, the
# charge being what the control takes off an item by its prices, which are part of the environment.
#
#     change of a cost     sum_i (P_new - P)(i) c_i over the whole menu: labels, so costs, are known
#     change of reward     w (P_new(a) / P(a) - 1) A for the item a shown,  w = P(a) / mu(a)
#
# mu(a) is the recorded propensity. The second is unbiased where mu > 0 for every item; for an item
# that nothing is known of, the advantage counts as 0. Without exploration mu = 1, w = P(a), and the
# change of reward is (P_new - P)(a) A: the sum over the menu, cut down to the item that was shown.

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
