"""What FCPO learns and how: lines 14-23 of Algorithm 1, for trajectories of any origin."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.learning.advantages import (
    discounts,
    generalized_advantages,
    remaining,
    temporal_difference_targets,
)
from fairhorizon.fcpo.learning.cpo import Update
from fairhorizon.fcpo.learning.replay import ReplayBuffer
from fairhorizon.fcpo.learning.trajectories import Trajectories
from fairhorizon.fcpo.learning.update import update_actor
from fairhorizon.policy.actor import Actor
from fairhorizon.policy.critics import Critic

REWARD, COST = "reward", "cost"  # names of the critics; further constraints: cost1, cost2 ...


@dataclass(frozen=True)
class LearningResult:
    """The result of learning from a batch of fresh trajectories."""

    update: Update
    reward: float  # mean of the fresh trajectories, not discounted
    costs: Tensor  # (constraints,) mean discounted cost of the fresh trajectories


class Learner:
    """The actor, a critic for the reward and one for each cost, and the replay buffer."""

    def __init__(self, actor: Actor, config: FcpoConfig, constraints: int = 1) -> None:
        self.actor, self.config = actor, config
        self.costs = [COST, *(f"{COST}{number}" for number in range(1, constraints))]
        size = actor.encoder.output_size
        self.critics = nn.ModuleDict(
            {name: Critic(size, config.critic_hidden) for name in (REWARD, *self.costs)}
        ).to(actor.encoder.item_vectors)
        self.buffer = ReplayBuffer(config.buffer_rounds)

    def learn(
        self, fresh: Trajectories, limits: Tensor, generator: torch.Generator
    ) -> LearningResult:
        """Lines 14-23, under a limit on the discounted cost of a trajectory per constraint."""
        config = self.config
        self.buffer.add(fresh)
        batch = self.buffer.sample(config.minibatch, generator)  # line 14
        with torch.no_grad():
            states = self.actor.encoder(batch.state_users, batch.state_queues)
        # Line 15: A and A_c, and the targets of the critics.
        signals = [(batch.rewards, config.gamma_r)]
        signals += [(costs, config.gamma_c) for costs in batch.costs.unbind(2)]
        estimates = [
            self.estimate(name, states, batch.state_index, signal, gamma)
            for name, (signal, gamma) in zip((REWARD, *self.costs), signals, strict=True)
        ]
        centred = [
            # A constant per step changes no expectation of the gradient, only its variance.
            estimate.advantages - estimate.advantages.sum(0) / len(batch)
            for estimate in estimates
        ]
        weights = discounts(config.gamma_c, fresh.costs.shape[1]).to(fresh.costs)
        costs = torch.einsum("btm,t->bm", fresh.costs, weights).sum(0) / len(fresh)
        update = update_actor(  # lines 16-21
            self.actor,
            batch,
            centred[0],
            torch.stack(centred[1:], dim=2),
            costs - limits.to(costs),  # c = J_C - d
            config,
            generator,
        )
        for estimate in estimates:  # lines 22-23
            estimate.critic.fit(
                states,
                batch.state_index,
                estimate.targets,
                estimate.ahead,
                config.critic_iterations,
            )
        reward = float(fresh.rewards.sum(1).sum() / len(fresh))
        return LearningResult(update, reward, costs)

    @torch.no_grad()
    def estimate(
        self, name: str, states: Tensor, index: Tensor, signal: Tensor, gamma: float
    ) -> "Estimate":
        """Advantages and critic targets of a signal (b, T), estimated by its critic."""
        critic = self.critics[name]
        assert isinstance(critic, Critic)
        ahead = remaining(gamma, signal.shape[1]).to(signal)
        per_step = critic(states)[index]
        values = torch.cat([per_step, per_step.new_zeros(len(signal), 1)], dim=1) * ahead
        advantages = generalized_advantages(signal, values, gamma, self.config.gae_lambda)
        return Estimate(
            critic,
            advantages,
            temporal_difference_targets(signal, values, gamma),
            ahead[:-1],
        )


@dataclass(frozen=True)
class Estimate:
    """A critic and what it estimates for a batch."""

    critic: Critic
    advantages: Tensor  # (b, T)
    targets: Tensor  # (b, T)
    ahead: Tensor  # (T,)
