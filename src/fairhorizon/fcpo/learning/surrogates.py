"""The surrogates of CPO: predicted changes of return and cost on a batch of trajectories.

One for each kind of policy. Both take advantages per step, discounted and divided by the number of
trajectories, and predict changes of the expected return per trajectory.
"""

from dataclasses import dataclass
from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.fcpo.learning.cpo import Predicted
from fairhorizon.fcpo.learning.fisher_metric import FisherMetric, SoftmaxFisher
from fairhorizon.fcpo.learning.trajectories import MenuRecord, Trajectories
from fairhorizon.policy.actor import Proposal
from fairhorizon.policy.softmax import allowed_by_slot, policy_at


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
