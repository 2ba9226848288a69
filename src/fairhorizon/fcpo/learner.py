"""What FCPO learns and how: lines 14-23 of Algorithm 1, for trajectories of any origin."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector

from fairhorizon.fcpo.config import FcpoConfig, attention_of
from fairhorizon.fcpo.cpo import TrustRegion, Update, constrained_step, fisher_product
from fairhorizon.fcpo.networks import Actor, Critic
from fairhorizon.fcpo.surrogates import (
    FisherMetric,
    GaussianSurrogate,
    ShownSurrogate,
    SoftmaxSurrogate,
    Surrogate,
)
from fairhorizon.fcpo.trajectories import ReplayBuffer, ShownRecord, Trajectories


# ---- Advantages over a finite horizon; rewards and costs alike -----------------------------------
def discounts(gamma: float, horizon: int) -> Tensor:
    """(T,) gamma^t."""
    return gamma ** torch.arange(horizon)


def remaining(gamma: float, horizon: int) -> Tensor:
    """(T + 1,) discounted steps still to come: sum_{j < T-t} gamma^j, zero at the end."""
    ahead = torch.cumsum(discounts(gamma, horizon), 0).flip(0)
    return torch.cat([ahead, ahead.new_zeros(1)])


def temporal_difference_targets(signal: Tensor, values: Tensor, gamma: float) -> Tensor:
    """y_t = r_t + gamma V(s_{t+1}), below equations 16 and 17.

    signal: (b, T); values: (b, T + 1).
    """
    return signal + gamma * values[:, 1:]


def generalized_advantages(signal: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    """A_t = sum_l (gamma lambda)^l (y_{t+l} - V(s_{t+l}))  (Schulman et al. 2016).  (b, T)."""
    errors = temporal_difference_targets(signal, values, gamma) - values[:, :-1]
    advantages = torch.empty_like(errors)
    running = errors.new_zeros(len(errors))
    for t in reversed(range(errors.shape[1])):
        running = errors[:, t] + gamma * lam * running
        advantages[:, t] = running
    return advantages


# ---- The policy update (lines 16-21) -------------------------------------------------------------
FISHER_STATES = 256  # drawn at random, that Fisher products are computed on


class FlatActor:
    """An actor as a function of one flat parameter vector theta."""

    def __init__(self, actor: nn.Module) -> None:
        self.actor = actor
        self.shapes = {name: value.shape for name, value in actor.named_parameters()}

    @property
    def theta(self) -> Tensor:
        return parameters_to_vector(self.actor.parameters()).detach()

    @torch.no_grad()
    def adopt(self, theta: Tensor) -> None:
        # Copied, not made views of theta: where numbers lie in memory decides how some kernels
        # round, and a resumed training is to round like one that was never interrupted.
        parameters = list(self.actor.parameters())
        pieces = theta.split([parameter.numel() for parameter in parameters])
        for parameter, piece in zip(parameters, pieces, strict=True):
            parameter.copy_(piece.view_as(parameter))

    def __call__(self, theta: Tensor, *states: Tensor) -> Tensor:
        pieces = theta.split([shape.numel() for shape in self.shapes.values()])
        named = zip(self.shapes.items(), pieces, strict=True)
        parameters = {name: piece.view(shape) for (name, shape), piece in named}
        outputs: Tensor = functional_call(self.actor, parameters, states)
        return outputs


def update_actor(
    actor: Actor,
    batch: Trajectories,
    reward_advantages: Tensor,
    cost_advantages: Tensor,  # (b, T, constraints)
    cost_gaps: Tensor,  # (constraints,)
    config: FcpoConfig,
    generator: torch.Generator,
) -> Update:
    """Lines 16-21 of Algorithm 1; surrogates and gaps are per trajectory, discounted."""
    users, queues = batch.state_users, batch.state_queues
    with torch.no_grad():
        outputs = actor(users, queues)
        surrogate = _surrogate(batch, outputs, reward_advantages, cost_advantages, config)
    region = TrustRegion(
        config.kl_limit, config.cg_iterations, config.line_search_ratio, config.line_search_attempts
    )
    metric = surrogate.sample(FISHER_STATES, generator)
    return take_step(
        actor, (users, queues), surrogate, metric, cost_gaps, region, config.cg_damping
    )


def take_step(
    actor: nn.Module,
    states: tuple[Tensor, ...],
    surrogate: Surrogate,
    metric: FisherMetric,
    cost_gaps: Tensor,
    region: TrustRegion,
    damping: float,
) -> Update:
    """A CPO step on an actor whose outputs are a function of the states of a batch."""
    policy = FlatActor(actor)
    theta = policy.theta
    sampled = tuple(part[metric.states] for part in states)
    fisher = fisher_product(
        lambda candidate: policy(candidate, *sampled),
        theta,
        metric.product,
        damping=damping,
    )
    update = constrained_step(
        theta,
        lambda candidate: surrogate.evaluate(policy(candidate, *states)),
        fisher,
        cost_gaps,
        region,
    )
    policy.adopt(update.theta)
    return update


def _surrogate(
    batch: Trajectories,
    outputs: Tensor,
    reward_advantages: Tensor,
    cost_advantages: Tensor,
    config: FcpoConfig,
) -> Surrogate:
    horizon = reward_advantages.shape[1]
    advantages = torch.cat([reward_advantages[None], cost_advantages.permute(2, 0, 1)])
    by_cost = discounts(config.gamma_c, horizon).expand(len(advantages) - 1, -1)
    scale = torch.cat([discounts(config.gamma_r, horizon)[None], by_cost])
    scale /= len(batch)
    scale = scale.to(advantages)
    if batch.menus is None:
        return GaussianSurrogate(batch, outputs, advantages, scale)
    if isinstance(batch.menus, ShownRecord):
        return ShownSurrogate(
            batch, batch.menus, outputs, advantages, scale, temperature=config.temperature
        )
    return SoftmaxSurrogate(
        batch,
        batch.menus,
        outputs,
        advantages,
        scale,
        temperature=config.temperature,
        attention=attention_of(config).to(advantages),
    )


# ---- Lines 14-23 ---------------------------------------------------------------------------------
CRITIC_ITERATIONS = 10  # of L-BFGS, of each critic in a round
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
                CRITIC_ITERATIONS,
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
