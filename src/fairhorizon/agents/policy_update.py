"""The policy update on a batch of trajectories: from advantages to a CPO step on the actor."""

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from fairhorizon.agents.advantages import discounts
from fairhorizon.agents.config import FcpoConfig
from fairhorizon.agents.cpo import Surrogate, TrustRegion, Update, constrained_step
from fairhorizon.agents.rollout import Trajectories
from fairhorizon.optim import fisher_product
from fairhorizon.policy import GaussianActor, Proposal


class FlatActor:
    """The actor as a function of one flat parameter vector theta."""

    def __init__(self, actor: GaussianActor) -> None:
        self.actor = actor
        self.shapes = {name: value.shape for name, value in actor.named_parameters()}

    @property
    def theta(self) -> Tensor:
        return parameters_to_vector(self.actor.parameters()).detach()

    def adopt(self, theta: Tensor) -> None:
        vector_to_parameters(theta, self.actor.parameters())

    def __call__(self, theta: Tensor, users: Tensor, queues: Tensor) -> Tensor:
        pieces = theta.split([shape.numel() for shape in self.shapes.values()])
        named = zip(self.shapes.items(), pieces, strict=True)
        parameters = {name: piece.view(shape) for (name, shape), piece in named}
        outputs: Tensor = functional_call(self.actor, parameters, (users, queues))
        return outputs


def update_actor(
    actor: GaussianActor,
    batch: Trajectories,
    reward_advantages: Tensor,
    cost_advantages: Tensor,  # (b, T, constraints)
    cost_gaps: Tensor,  # (constraints,)
    config: FcpoConfig,
    generator: torch.Generator,
) -> Update:
    """Lines 16-21 of Algorithm 1; surrogates and gaps are per trajectory, discounted."""
    policy = FlatActor(actor)
    theta = policy.theta
    users, queues = batch.state_users, batch.state_queues
    with torch.no_grad():
        present = Proposal.of(actor(users, queues))

    steps = batch.state_index.flatten()
    proposals = batch.proposals.flatten(0, 1)
    with torch.no_grad():
        log_probs = present.log_prob(proposals, steps)
        # Trajectories of an earlier policy count by their importance, truncated at 1.
        importance = torch.exp(log_probs - batch.log_probs.flatten()).clamp(max=1) / len(batch)

    def weigh(advantages: Tensor, gamma: float) -> Tensor:
        discounted = advantages * discounts(gamma, advantages.shape[1]).to(advantages)
        return discounted.flatten() * importance

    reward_weights = weigh(reward_advantages, config.gamma_r)
    cost_weights = [weigh(costs, config.gamma_c) for costs in cost_advantages.unbind(2)]
    weights = torch.stack([reward_weights, *cost_weights])
    visits = torch.bincount(steps, minlength=len(users)).to(present.mean)

    def surrogate(candidate: Tensor) -> Surrogate:
        new = Proposal.of(policy(candidate, users, queues))
        change = torch.expm1(new.log_prob(proposals, steps) - log_probs)
        reward, *costs = weights @ change
        return Surrogate(reward, torch.stack(costs), new.kl_from(present) @ visits / len(steps))

    sample = torch.randperm(len(users), generator=generator)[: config.fisher_states].to(
        users.device
    )
    metric = present[sample]
    shares = visits[sample] / visits[sample].sum()
    fisher = fisher_product(
        lambda candidate: policy(candidate, users[sample], queues[sample]),
        theta,
        lambda tangent: metric.fisher(shares, tangent),
        damping=config.cg_damping,
    )
    region = TrustRegion(
        config.kl_limit, config.cg_iterations, config.line_search_ratio, config.line_search_attempts
    )
    update = constrained_step(theta, surrogate, fisher, cost_gaps, region)
    policy.adopt(update.theta)
    return update
