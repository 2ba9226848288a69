"""The policy update on a batch of trajectories: from advantages to a CPO step on the actor."""

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fairhorizon.fcpo.config import FcpoConfig, attention_of
from fairhorizon.fcpo.learning.advantages import discounts
from fairhorizon.fcpo.learning.cpo import TrustRegion, Update, constrained_step
from fairhorizon.fcpo.learning.fisher_metric import FisherMetric
from fairhorizon.fcpo.learning.shown_surrogate import ShownSurrogate
from fairhorizon.fcpo.learning.surrogates import (
    GaussianSurrogate,
    SoftmaxSurrogate,
    Surrogate,
)
from fairhorizon.fcpo.learning.trajectories import ShownRecord, Trajectories
from fairhorizon.optim.fisher import fisher_product
from fairhorizon.policy.actor import Actor


class FlatActor:
    """An actor as a function of one flat parameter vector theta."""

    def __init__(self, actor: nn.Module) -> None:
        self.actor = actor
        self.shapes = {name: value.shape for name, value in actor.named_parameters()}

    @property
    def theta(self) -> Tensor:
        return parameters_to_vector(self.actor.parameters()).detach()

    def adopt(self, theta: Tensor) -> None:
        vector_to_parameters(theta, self.actor.parameters())

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
    metric = surrogate.sample(config.fisher_states, generator)
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
