"""The step of CPO under one linear cost constraint, in closed form.

    maximise g.x   subject to   c + b.x <= 0   and   x.Hx / 2 <= delta    (the paper's equation 4)

g, b: gradients of reward and cost;  c: cost gap J_C - d, in the units of b;  H: Fisher matrix.
Everything the answer needs is  q = g.H⁻¹g,  r = g.H⁻¹b,  s = b.H⁻¹b  (CPO, theorem 2:
Achiam, Held, Tamar & Abbeel 2017).
"""

import math
from dataclasses import dataclass
from enum import Enum


class Case(Enum):
    """How the cost constraint and the trust region intersect."""

    INSIDE = "inside"  # every step of the trust region keeps the limit
    INACTIVE = "inactive"  # the limit cuts the trust region, but the best step keeps it anyway
    ACTIVE = "active"  # the best step lies on the limit
    RECOVER = (
        "recover"  # no step of the trust region reaches the limit: lower the cost, nothing else
    )


@dataclass(frozen=True)
class Direction:
    """The step x = reward_weight H⁻¹g + cost_weight H⁻¹b."""

    case: Case
    reward_weight: float
    cost_weight: float


def solve_dual(q: float, r: float, s: float, c: float, delta: float) -> Direction:
    """The exact solution in every case, degenerate ones included.

    With multipliers lambda (trust region) and nu (cost) the step is x = H⁻¹(g - nu b) / lambda,
    so reward_weight = 1/lambda and cost_weight = -nu/lambda.
    """
    if delta <= 0:
        raise ValueError(f"the trust region needs delta > 0, not {delta}")
    if s <= 0:  # no cost gradient: no step changes the cost
        if c > 0:
            return Direction(Case.RECOVER, 0.0, 0.0)
        return Direction(Case.INSIDE, _longest(q, delta), 0.0)

    slack = (
        2 * delta - c * c / s
    )  # B of theorem 2; below 0: the limit does not cut the trust region
    if slack < 0:
        if c > 0:
            return Direction(Case.RECOVER, 0.0, -_longest(s, delta))
        return Direction(Case.INSIDE, _longest(q, delta), 0.0)

    unconstrained = _longest(q, delta)
    if c + unconstrained * r <= 0:
        return Direction(Case.INACTIVE, unconstrained, 0.0)

    across = q - r * r / s  # A of theorem 2: the part of g along the limit
    # A = 0, g parallel to b: no gain along the limit, take the shortest way to it.
    reward_weight = math.sqrt(slack / across) if across > 1e-12 * q else 0.0
    return Direction(Case.ACTIVE, reward_weight, -(c + reward_weight * r) / s)


def _longest(squared_length: float, delta: float) -> float:
    """The factor that brings a direction of squared H-length to the edge of the trust region."""
    return math.sqrt(2 * delta / squared_length) if squared_length > 0 else 0.0
