"""One update of the policy by Constrained Policy Optimization: lines 16-21 of Algorithm 1.

    maximise g.x   subject to   c + b.x <= 0   and   x.Hx / 2 <= delta    (equation 4)

g and b are the gradients of reward and cost, H is the Fisher matrix, known by its products.
Conjugate gradients give H⁻¹g and H⁻¹b, the dual (dual.py) the step x from them, and a line search
shortens it until the surrogates themselves allow it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector

from fairhorizon.fcpo.dual import Case, Step, solve_dual, solve_several


# ---- Conjugate gradients -------------------------------------------------------------------------
def conjugate_gradient(
    matvec: Callable[[Tensor], Tensor], b: Tensor, *, iterations: int, tolerance: float = 1e-10
) -> Tensor:
    """x with |Hx - b|² <= tolerance |b|², or the best after `iterations` products.

    Hestenes & Stiefel 1952.
    """
    x = b.new_zeros(b.shape)
    residual = b.clone()
    direction = residual
    squared = residual @ residual
    target = tolerance * float(squared)
    for _ in range(iterations):
        if float(squared) <= target:
            break
        # The only product with H of an iteration, and by far its largest cost.
        product = matvec(direction)
        length = squared / (direction @ product)
        x = x + length * direction
        residual = residual - length * product
        previous, squared = squared, residual @ residual
        direction = residual + (squared / previous) * direction
    return x


# ---- Products with the Fisher matrix, without ever forming it ------------------------------------
def fisher_product(
    outputs: Callable[[Tensor], Tensor],
    theta: Tensor,
    metric: Callable[[Tensor], Tensor],
    *,
    damping: float,
) -> Callable[[Tensor], Tensor]:
    """The function v -> (Jᵀ M J + damping I) v at theta.

    `outputs` maps the flat parameters to those of the distributions, J is its Jacobian, `metric`
    multiplies by M, the Fisher matrix of the distributions in their own parameters. For a Gaussian
    that is diag(1/sigma², 2) in (mean, log sigma).

    u -> Jᵀu is linear, and its transpose is v -> Jv: both graphs are built once and reused by
    every product, so that no product computes the outputs again (forward mode would).
    """
    leaf = theta.detach().requires_grad_()
    z = outputs(leaf)
    # Any value will do: only the derivative by u is used.
    u = torch.zeros_like(z, requires_grad=True)
    (pulled,) = torch.autograd.grad(z, leaf, u, create_graph=True)  # Jᵀu, as a function of u

    def product(v: Tensor) -> Tensor:
        (pushed,) = torch.autograd.grad(pulled, u, v, retain_graph=True)  # Jv
        (back,) = torch.autograd.grad(z, leaf, metric(pushed), retain_graph=True)
        return back + damping * v

    return product


# ---- Line search ---------------------------------------------------------------------------------
def backtrack(
    theta: Tensor,
    step: Tensor,
    acceptable: Callable[[Tensor], bool],
    *,
    ratio: float,
    attempts: int,
) -> tuple[Tensor, float]:
    """Try theta + ratio^j step for j = 0, 1, ... (the repeat loop of the paper's Algorithm 1).

    Returns the first acceptable parameters and the fraction of the step that they take; theta
    itself and 0 where nothing was acceptable.
    """
    fraction = 1.0
    for _ in range(attempts):
        candidate = theta + fraction * step
        if acceptable(candidate):
            return candidate, fraction
        # The step itself is shortened, from its full length on each time.
        fraction *= ratio
    return theta, 0.0


# ---- What an update is made of -------------------------------------------------------------------
class Predicted(NamedTuple):
    """Changes that a candidate policy is predicted to make, by trajectories of the present one."""

    reward: Tensor  # () change of the expected return
    costs: Tensor  # (constraints,) change of each expected cost, in the units of its gap
    kl: Tensor  # () mean KL divergence from the present policy


class Fisher(NamedTuple):
    """M, the Fisher matrix of the policy's distributions in their own parameters."""

    states: Tensor  # (s,) which of the batch's distinct states it is sampled in
    product: Callable[[Tensor], Tensor]  # M v, for v of the shape of the outputs in these states


class Surrogate(NamedTuple):
    """The surrogates of equation 3 on a batch of trajectories of the present policy.

    evaluate: what a policy with these outputs in the states of the batch is predicted to change.
    sample: the Fisher matrix on a random sample of at most so many states.
    """

    evaluate: Callable[[Tensor], Predicted]
    sample: Callable[[int, torch.Generator], Fisher]


@dataclass(frozen=True)
class TrustRegion:
    """How far an update may go, and how hard it tries."""

    delta: float  # largest mean KL divergence of one step
    iterations: int  # of conjugate gradients
    ratio: float  # beta of the line search
    attempts: int  # of the line search
    # (constraints,) excess over a limit that a step may end with, in the units of its gap
    tolerance: Tensor | float = 0.0


@dataclass(frozen=True)
class Update:
    """The new parameters and how they were found."""

    theta: Tensor
    step: Step  # as proposed, before the line search
    fraction: float  # of the proposed step that was taken; 0: none was acceptable
    kl: float
    reward_change: float
    cost_changes: tuple[float, ...]  # of every constraint
    # The numbers behind the step, for whoever wants to look at it.
    q: float  # g.H⁻¹g
    r: tuple[float, ...]  # g.H⁻¹b of every constraint
    s: tuple[float, ...]  # b.H⁻¹b of every constraint
    attempts: int  # of the line search

    @property
    def case(self) -> Case:
        return self.step.case

    @property
    def trust_multiplier(self) -> float | None:
        """lambda = 1 / reward_weight; None where the reward has no part in the step."""
        weight = self.step.reward_weight
        return 1 / weight if weight else None

    @property
    def cost_multipliers(self) -> tuple[float, ...]:
        """nu = -cost_weight / reward_weight of every constraint; 0 where there is no lambda."""
        weight = self.step.reward_weight
        return tuple(-cost / weight if weight else 0.0 for cost in self.step.cost_weights)


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
        # The same order as `parameters_to_vector` puts them in.
        pieces = theta.split([shape.numel() for shape in self.shapes.values()])
        named = zip(self.shapes.items(), pieces, strict=True)
        parameters = {name: piece.view(shape) for (name, shape), piece in named}
        outputs: Tensor = functional_call(self.actor, parameters, states)
        return outputs


# ---- The update ----------------------------------------------------------------------------------
def update_policy(
    actor: nn.Module,
    states: tuple[Tensor, ...],
    surrogate: Surrogate,
    fisher: Fisher,
    gaps: Tensor,
    region: TrustRegion,
    damping: float,
) -> Update:
    """A CPO step on an actor, whose parameters it changes.

    states: the inputs of the actor, a row for each distinct state of the batch.
    gaps: (constraints,) c = J_C - d, in the units of the surrogate costs.
    """
    policy = FlatActor(actor)
    theta = policy.theta
    sampled = tuple(part[fisher.states] for part in states)
    product = fisher_product(
        lambda candidate: policy(candidate, *sampled), theta, fisher.product, damping=damping
    )
    update = constrained_step(
        theta,
        lambda candidate: surrogate.evaluate(policy(candidate, *states)),
        product,
        gaps,
        region,
    )
    policy.adopt(update.theta)
    return update


def constrained_step(
    theta: Tensor,
    surrogate: Callable[[Tensor], Predicted],
    fisher: Callable[[Tensor], Tensor],
    gaps: Tensor,
    region: TrustRegion,
) -> Update:
    """Improve the reward without breaking a cost limit, within the trust region.

    theta: (parameters,) where the step begins.
    surrogate: predicted changes of a candidate theta.
    fisher: v -> Hv at theta.
    gaps: (constraints,) c = J_C - d of equation 4, in the units of the surrogate costs.
    """
    g, b = gradients(surrogate, theta)
    if len(gaps) != len(b):
        raise ValueError(f"{len(gaps)} gaps were given for {len(b)} surrogate costs")
    Hg = conjugate_gradient(fisher, g, iterations=region.iterations)  # H⁻¹g
    Hb = [conjugate_gradient(fisher, row, iterations=region.iterations) for row in b]  # H⁻¹b_i

    # q = g.H⁻¹g, r_i = b_i.H⁻¹g, S_ij = b_i.H⁻¹b_j  (CPO, theorem 2)
    q = float(g @ Hg)
    # r is taken from H⁻¹g. Conjugate gradients that stop early are not symmetric, and then g.H⁻¹b
    # is another number, by which the step would miss the limit that it is to end on.
    r = b @ Hg
    S = torch.stack([torch.stack([row @ direction for direction in Hb]) for row in b])
    if len(gaps) == 1:
        proposed = solve_dual(q, float(r[0]), float(S[0, 0]), float(gaps[0]), region.delta)
    else:
        proposed = solve_several(q, r, S, gaps, region.delta)
    step = proposed.reward_weight * Hg
    for weight, direction in zip(proposed.cost_weights, Hb, strict=True):
        step = step + weight * direction

    # Lines 17-20: the step is right for the linear and quadratic model of the surrogates; it is
    # shortened until the surrogates themselves are within the region and the limits.
    predictions: list[Predicted] = []

    def acceptable(candidate: Tensor) -> bool:
        """In the trust region & the loss improves & cost <= d, each on the surrogate itself.

        While a limit is broken, a step may lose reward.
        """
        with torch.no_grad():
            predicted = surrogate(candidate)
        predictions.append(predicted)
        in_region = float(predicted.kl) <= region.delta
        improves = bool((gaps > 0).any()) or float(predicted.reward) >= 0
        return in_region and improves and keeps_limits(predicted.costs, gaps, region.tolerance)

    theta, fraction = backtrack(
        theta, step, acceptable, ratio=region.ratio, attempts=region.attempts
    )
    taken = predictions[-1] if fraction else None
    return Update(
        theta,
        proposed,
        fraction,
        kl=float(taken.kl) if taken else 0.0,
        reward_change=float(taken.reward) if taken else 0.0,
        cost_changes=tuple(taken.costs.tolist()) if taken else (0.0,) * len(gaps),
        q=q,
        r=tuple(r.tolist()),
        s=tuple(S.diagonal().tolist()),
        attempts=len(predictions),
    )


def keeps_limits(changes: Tensor, gaps: Tensor, tolerance: Tensor | float = 0.0) -> bool:
    """Whether kept limits stay kept, and broken limits taken together get no worse.

    changes: (constraints,) predicted.  gaps: (constraints,) before the step.  tolerance: the excess
    that counts as kept. The best step mostly ends on a limit, and the curvature of the surrogate
    then takes it a little to one side or to the other.

    A broken limit counts by the share of its gap that is left, squared, as in `solve_several`. So
    a single broken limit must not get worse; one of several may, if others gain more by it.
    """
    changes, gaps = changes.double(), gaps.double()
    kept = gaps + changes <= tolerance
    broken = (gaps > tolerance) & ~kept
    # The share of each broken gap that the step leaves; 1 each before the step, so that their
    # squares add up to the number of broken limits.
    left = (1 + changes[gaps > 0] / gaps[gaps > 0]).clamp(min=0)
    return bool(kept.all()) or (
        bool((kept | broken).all()) and float(left.square().sum()) <= len(left)
    )


def gradients(surrogate: Callable[[Tensor], Predicted], theta: Tensor) -> tuple[Tensor, Tensor]:
    """g and b (constraints, parameters), the gradients of reward and costs, in one forward pass."""
    leaf = theta.detach().requires_grad_()
    predicted = surrogate(leaf)
    # The graph is kept until the last cost has been differentiated.
    g, *b = [
        torch.autograd.grad(value, leaf, retain_graph=True)[0]
        for value in (predicted.reward, *predicted.costs)
    ]
    return g, torch.stack(b)
