"""What FCPO learns and how: lines 14-23 of Algorithm 1, for trajectories of any origin."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fairhorizon.fcpo.config import FcpoConfig, attention_of
from fairhorizon.fcpo.cpo import Surrogate, TrustRegion, Update, update_policy
from fairhorizon.fcpo.networks import Actor, Critic
from fairhorizon.fcpo.rollouts import ReplayBuffer, Trajectories
from fairhorizon.fcpo.surrogates import gaussian_surrogate, shown_surrogate, softmax_surrogate


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
    # Backwards in time: A_t = error_t + gamma lambda A_{t+1}.
    running = errors.new_zeros(len(errors))
    for t in reversed(range(errors.shape[1])):
        running = errors[:, t] + gamma * lam * running
        advantages[:, t] = running
    return advantages


# ---- The policy update (lines 16-21) -------------------------------------------------------------
FISHER_STATES = 256  # drawn at random, that Fisher products are computed on


def update_actor(
    actor: Actor,
    batch: Trajectories,
    advantages: Tensor,
    cost_gaps: Tensor,
    config: FcpoConfig,
    generator: torch.Generator,
    tolerance: Tensor | float = 0.0,
) -> Update:
    """Lines 16-21 of Algorithm 1; surrogates and gaps are per trajectory, discounted.

    advantages: (1 + constraints, b, T), the reward's first.
    cost_gaps: (constraints,) J_C - d.  tolerance: (constraints,) excess over d that counts as kept.
    """
    states = batch.state_users, batch.state_queues
    with torch.no_grad():
        surrogate = surrogate_of(batch, actor(*states), advantages, config)
    region = TrustRegion(
        config.kl_limit,
        config.cg_iterations,
        config.line_search_ratio,
        config.line_search_attempts,
        tolerance,
    )
    fisher = surrogate.sample(FISHER_STATES, generator)
    return update_policy(actor, states, surrogate, fisher, cost_gaps, region, config.cg_damping)


def surrogate_of(
    batch: Trajectories, outputs: Tensor, advantages: Tensor, config: FcpoConfig
) -> Surrogate:
    """The surrogate for how the batch came about.

    outputs: of the present actor in the states of the batch.
    """
    horizon = advantages.shape[2]
    # Discounted, and the mean over trajectories: the units of J and J_C, and so of the gaps.
    by_cost = discounts(config.gamma_c, horizon).expand(len(advantages) - 1, -1)
    scale = torch.cat([discounts(config.gamma_r, horizon)[None], by_cost])
    scale /= len(batch)
    scale = scale.to(advantages)
    choices, temperature = batch.choices, config.temperature
    if choices is None:
        return gaussian_surrogate(batch, outputs, advantages, scale)
    if choices.liked is None:
        return shown_surrogate(batch, choices, outputs, advantages, scale, temperature=temperature)
    return softmax_surrogate(
        batch,
        choices,
        outputs,
        advantages,
        scale,
        temperature=temperature,
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
        costs = [COST, *(f"{COST}{number}" for number in range(1, constraints))]
        size = actor.encoder.output_size
        self.critics = nn.ModuleDict(
            {name: Critic(size, config.critic_hidden) for name in (REWARD, *costs)}
        ).to(actor.encoder.item_vectors)
        self.buffer = ReplayBuffer(config.buffer_rounds)

    def learn(
        self, fresh: Trajectories, limits: Tensor, generator: torch.Generator
    ) -> LearningResult:
        """Lines 14-23: one update of the actor and of its critics.

        limits: (constraints,) d, on the discounted cost of a trajectory.
        """
        config = self.config
        self.buffer.add(fresh)
        batch = self.buffer.sample(config.minibatch, generator)  # line 14
        with torch.no_grad():
            states = self.actor.encoder(batch.state_users, batch.state_queues)

        # Line 15: A and A_c, and the targets of the critics.
        signals = [(batch.rewards, config.gamma_r)]
        signals += [(costs, config.gamma_c) for costs in batch.costs.unbind(2)]
        advantages, fits = [], []
        for critic, (signal, gamma) in zip(self.critics.values(), signals, strict=True):
            assert isinstance(critic, Critic)
            # Critics predict a mean per remaining step: times the discounted number of them it is
            # V(s_t).
            ahead = remaining(gamma, signal.shape[1]).to(signal)
            with torch.no_grad():
                per_step = critic(states)[batch.state_index]  # (b, T)
                values = torch.cat([per_step, per_step.new_zeros(len(signal), 1)], dim=1) * ahead
                found = generalized_advantages(signal, values, gamma, config.gae_lambda)
                targets = temporal_difference_targets(signal, values, gamma)
            # A constant per step changes no expectation of the gradient, only its variance.
            advantages.append(found - found.sum(0) / len(batch))
            # Fitted after the update, which uses advantages by the critics of before it.
            fits.append((critic, targets, ahead[:-1]))

        weights = discounts(config.gamma_c, fresh.costs.shape[1]).to(fresh.costs)
        costs = torch.einsum("btm,t->bm", fresh.costs, weights).sum(0) / len(fresh)
        limits = limits.to(costs)
        gaps = costs - limits  # c = J_C - d
        tolerance = config.cost_tolerance * limits.abs()
        update = update_actor(  # lines 16-21
            self.actor, batch, torch.stack(advantages), gaps, config, generator, tolerance
        )
        for critic, targets, ahead in fits:  # lines 22-23
            critic.fit(states, batch.state_index, targets, ahead, CRITIC_ITERATIONS)
        reward = float(fresh.rewards.sum(1).sum() / len(fresh))
        return LearningResult(update, reward, costs)
