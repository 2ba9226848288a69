"""One step of Constrained Policy Optimization (Achiam et al. 2017): lines 16-21 of Algorithm 1."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from fairhorizon.optim import Case, backtrack, conjugate_gradient, solve_dual


class Surrogate(NamedTuple):
    """What a candidate policy promises against the present one, by the latter's trajectories."""

    reward: Tensor  # () change of the expected return
    costs: Tensor  # (constraints,) change of each expected cost, in the units of its gap
    kl: Tensor  # () mean KL divergence from the present policy


@dataclass(frozen=True)
class TrustRegion:
    delta: float  # largest mean KL divergence of one step
    iterations: int  # of conjugate gradients
    ratio: float  # beta of the line search
    attempts: int


@dataclass(frozen=True)
class Update:
    """The new parameters and how they came about."""

    theta: Tensor
    case: Case
    fraction: float  # of the proposed step that was taken; 0: none was acceptable
    kl: float
    reward_change: float
    cost_change: float


def constrained_step(
    theta: Tensor,
    surrogate: Callable[[Tensor], Surrogate],
    fisher: Callable[[Tensor], Tensor],
    gaps: Tensor,
    region: TrustRegion,
) -> Update:
    """Improve the reward without breaking the cost limit, within the trust region.

    `gaps` holds c = J_C - d of every constraint (equation 4), in the units of the surrogate costs.
    """
    if len(gaps) != 1:
        raise ValueError(f"the analytic dual takes one constraint, not {len(gaps)}")
    gap = float(gaps[0])
    g, b = gradients(surrogate, theta)

    # q = g.H⁻¹g, r = g.H⁻¹b, s = b.H⁻¹b  (CPO, theorem 2)
    reward_direction = conjugate_gradient(fisher, g, iterations=region.iterations)
    cost_direction = conjugate_gradient(fisher, b, iterations=region.iterations)
    q, r, s = (float(x) for x in (g @ reward_direction, g @ cost_direction, b @ cost_direction))
    direction = solve_dual(q, r, s, gap, region.delta)
    step = direction.reward_weight * reward_direction + direction.cost_weight * cost_direction

    promises: list[Surrogate] = []

    def acceptable(candidate: Tensor) -> bool:
        """In the trust region & the loss improves & cost <= d, each on the surrogate itself.

        Above the limit the way back may cost reward; then the cost must not grow, that is all.
        """
        with torch.no_grad():
            promise = surrogate(candidate)
        promises.append(promise)
        in_region = float(promise.kl) <= region.delta
        improves = gap > 0 or float(promise.reward) >= 0
        keeps_limit = float(promise.costs[0]) <= max(-gap, 0.0)
        return in_region and improves and keeps_limit

    search = backtrack(theta, step, acceptable, ratio=region.ratio, attempts=region.attempts)
    if search.fraction == 0:
        return Update(theta, direction.case, 0.0, kl=0.0, reward_change=0.0, cost_change=0.0)
    taken = promises[-1]
    return Update(
        search.theta,
        direction.case,
        search.fraction,
        *(float(x) for x in (taken.kl, taken.reward, taken.costs[0])),
    )


def gradients(surrogate: Callable[[Tensor], Surrogate], theta: Tensor) -> tuple[Tensor, Tensor]:
    """g and b at theta, the gradients of reward and first cost, from one forward pass."""
    leaf = theta.detach().requires_grad_()
    promise = surrogate(leaf)
    (g,) = torch.autograd.grad(promise.reward, leaf, retain_graph=True)
    (b,) = torch.autograd.grad(promise.costs[0], leaf)
    return g, b
