"""The step of CPO in closed form, under one linear cost constraint and under several.

g, b: gradients of reward and cost;  c: cost gap J_C - d, in the units of b;  H: Fisher matrix.
Everything the answer needs is  q = g.H⁻¹g,  r = g.H⁻¹b,  s = b.H⁻¹b  (Achiam, Held, Tamar & Abbeel
2017, theorem 2).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from itertools import chain, combinations
from typing import NamedTuple

import torch
from torch import Tensor

# ---- One constraint ------------------------------------------------------------------------------
#     maximise g.x   subject to   c + b.x <= 0   and   x.Hx / 2 <= delta    (the paper's equation 4)


class Case(Enum):
    """How the cost constraint and the trust region intersect."""

    INSIDE = "inside"  # every step of the trust region keeps the limit
    INACTIVE = "inactive"  # the limit cuts the trust region, but the best step keeps it anyway
    ACTIVE = "active"  # the best step lies on the limit
    # No step of the trust region reaches the limit: lower the cost, nothing else.
    RECOVER = "recover"


@dataclass(frozen=True)
class Step:
    """The step x = reward_weight H⁻¹g + sum_i cost_weights_i H⁻¹b_i.

    With multipliers lambda (trust region) and nu_i (costs), x = H⁻¹(g - sum_i nu_i b_i) / lambda,
    so reward_weight = 1/lambda and cost_weights_i = -nu_i/lambda.
    """

    case: Case
    reward_weight: float
    cost_weights: tuple[float, ...]


def solve_dual(q: float, r: float, s: float, c: float, delta: float) -> Step:
    """The step under one constraint, exact in every case, degenerate ones included.

    q, r, s: as above.  c: cost gap, positive where the limit is broken.  delta: largest KL
    divergence of the step, x.Hx / 2.
    """
    if delta <= 0:
        raise ValueError(f"the trust region needs delta > 0, not {delta}")
    if s <= 0:  # no cost gradient: no step changes the cost
        if c > 0:
            return Step(Case.RECOVER, 0.0, (0.0,))
        return Step(Case.INSIDE, _longest(q, delta), (0.0,))

    # B of theorem 2; below 0: the limit does not cut the trust region.
    slack = 2 * delta - c * c / s
    if slack < 0:
        if c > 0:
            return Step(Case.RECOVER, 0.0, (-_longest(s, delta),))
        return Step(Case.INSIDE, _longest(q, delta), (0.0,))

    unconstrained = _longest(q, delta)
    if c + unconstrained * r <= 0:
        return Step(Case.INACTIVE, unconstrained, (0.0,))

    across = q - r * r / s  # A of theorem 2: the part of g along the limit
    # A = 0, g parallel to b: no gain along the limit, take the shortest way to it.
    reward_weight = math.sqrt(slack / across) if across > 1e-12 * q else 0.0
    # The step ends on the limit, c + b.x = 0.
    return Step(Case.ACTIVE, reward_weight, (-(c + reward_weight * r) / s,))


def _longest(squared_length: float, delta: float) -> float:
    """The factor that brings a direction of squared H-length to the edge of the trust region."""
    return math.sqrt(2 * delta / squared_length) if squared_length > 0 else 0.0


# ---- Several constraints -------------------------------------------------------------------------
#     maximise g.x   subject to   c_i + b_i.x <= 0 for every i   and   x.Hx / 2 <= delta
#
# Everything the answer needs is  q = g.H⁻¹g,  r_i = g.H⁻¹b_i,  S_ij = b_i.H⁻¹b_j.  Lengths are
# measured by H, in units of the trust region's radius: then the region is the unit ball, g a
# direction, and every limit a plane, a_i + n_i.z = 0 with |n_i| = 1, a_i = c_i / sqrt(2 delta
# S_ii).
#
# The best point of the ball touches some of the planes. For a given subset of them it is known in
# closed form (theorem 2 of CPO, once for every subset), and the constraints are few: all subsets
# are tried, and the one whose point meets the conditions of Karush, Kuhn and Tucker is the answer.
#
# Where no point of the ball keeps all limits, a broken limit counts by the share of its gap that a
# step leaves, max(0, 1 + b_i.x / c_i). The step minimises the sum of the squared shares within the
# ball and the limits that are kept at present, and then raises the reward without increasing any
# share. So a limit with a small gradient has little influence on the others, and a slightly broken
# limit is repaired first; of limits that contradict each other, the nearest prevails over the
# steps. A limit without a gradient cannot be changed: the rest is solved without it. With one
# constraint all of this is `solve_dual`.

TOLERANCE = 1e-5  # of the ball's radius: a limit broken by less is kept
ROUNDING = 1e-12  # conditions met to this accuracy count as met
PARALLEL = 1e-12  # squared sine: below it g lies in the span of the normals, as in `solve_dual`
DEPENDENT = 1e-5  # sine: accuracy of the part of a normal outside the span of the others


class _Point(NamedTuple):
    """A point of the ball, z = along * reward + weights @ normals."""

    z: Tensor
    along: float
    weights: Tensor
    touches: bool  # whether it touches any plane
    error: float  # largest breach of the conditions of optimality


def solve_several(q: float, r: Tensor, S: Tensor, c: Tensor, delta: float) -> Step:
    """The step under a few constraints, degenerate cases included; the work grows as 2^m.

    q: g.H⁻¹g.  r: (m,) g.H⁻¹b_i.  S: (m, m) b_i.H⁻¹b_j.  c: (m,) cost gaps, positive where a limit
    is broken.  delta: largest KL divergence of the step, x.Hx / 2.
    """
    if delta <= 0:
        raise ValueError(f"the trust region needs delta > 0, not {delta}")
    r, S, c = (x.detach().to("cpu", torch.float64) for x in (r, S, c))
    radius, weights = math.sqrt(2 * delta), torch.zeros_like(c)
    # A limit without a gradient cannot be moved; the others are solved without it.
    movable = S.diagonal() > 0
    stuck = bool((c[~movable] > 0).any())  # broken, and without a gradient
    if not movable.any():  # no step changes a cost: as in `solve_dual`
        reach = radius / math.sqrt(q) if q > 0 and not stuck else 0.0
        return Step(Case.RECOVER if stuck else Case.INSIDE, reach, tuple(weights.tolist()))

    # Into the units of the unit ball, and back at the end.
    scale = 1 / S.diagonal()[movable].sqrt()
    reward, normals = _directions(q, r[movable], S[movable][:, movable])
    a = c[movable] * scale / radius
    point = _best(reward, normals, a)
    out_of_reach = point.error > TOLERANCE
    if out_of_reach:
        point = _recover(reward, normals, a)

    if stuck or out_of_reach:
        case = Case.RECOVER
    elif point.touches:
        case = Case.ACTIVE
    else:
        case = Case.INSIDE if (a < -1).all() else Case.INACTIVE
    weights[movable] = radius * scale * point.weights
    reward_weight = radius * point.along / math.sqrt(q) if q > 0 else 0.0
    return Step(case, reward_weight, tuple(weights.tolist()))


def _directions(q: float, r: Tensor, S: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vectors with the angles of H⁻¹g and H⁻¹b_i; without a reward gradient the first is 0."""
    # Only angles and lengths matter: any vectors with this Gram matrix do, such as its square root.
    gram = torch.cat([torch.cat([r.new_tensor([q]), r])[None], torch.cat([r[:, None], S], 1)])
    lengths = gram.diagonal().clamp(min=0).sqrt()
    inverse = torch.where(lengths > 0, 1 / lengths, 0.0)
    cosines = inverse[:, None] * (gram + gram.T) / 2 * inverse
    values, vectors = torch.linalg.eigh(cosines)
    root = vectors * torch.where(values > 1e-15, values, 0.0).sqrt()  # 1e-15: rounding
    norms = root.norm(dim=1, keepdim=True)
    unit = root / torch.where(norms > 0, norms, 1.0)
    return unit[0], unit[1:]


def _best(
    reward: Tensor,
    normals: Tensor,
    a: Tensor,
    *,
    radius: float = 1.0,
    dependent: float = DEPENDENT,
) -> _Point:
    """The z that maximises reward.z subject to a + normals @ z <= 0 and |z| <= radius.

    Without a reward the shortest such z. All subsets of the planes at once: the foot is their
    nearest point, and from there the step follows the projection of the reward on them to the edge
    of the ball. The first subset, in order of size, that meets all conditions is taken, or the one
    with the smallest violation: `error` is that violation.
    """
    chosen = _subsets(len(a))  # (subsets, m)
    # The pseudo-inverse lets dependent planes share their weight. (subsets, d, m)
    inverse = torch.linalg.pinv(chosen[:, :, None] * normals, rtol=dependent)
    foot = -inverse @ a
    across = reward - inverse @ (normals @ reward)  # (subsets, d)
    left = across.square().sum(1)
    slack = radius**2 - foot.square().sum(1)  # B of theorem 2, and `left` is its A
    slack = torch.where(slack.abs() < 1e-15, 0.0, slack)  # the planes touch the ball in one point
    in_span = left <= PARALLEL  # no gain along these planes: take the foot
    along = torch.where(in_span, 0.0, (slack.clamp(min=0) / left).sqrt())
    z = foot + along[:, None] * across
    weights = ((z - along[:, None] * reward)[:, None] @ inverse)[:, 0]

    # Multipliers of the planes: of the reward if there is any, else of the squared length.
    # Scaled so that the reward lost by a negative one is at most twice its size.
    pulls = -weights / along.clamp(min=1)[:, None]
    if reward.any():
        pulls = torch.where(in_span[:, None], (reward @ inverse), pulls)
    breach = torch.cat([a + z @ normals.T, -pulls], dim=1).amax(1).clamp(min=0)
    breach = torch.where(slack >= 0, breach, torch.inf)  # the planes do not meet in the ball
    # The smallest subset that is as good as the best, up to rounding.
    good = max(float(breach.min()), ROUNDING * max(1.0, float(a.abs().max())))
    pick = int((breach <= good).nonzero()[0])
    touches = bool(chosen[pick].any())
    return _Point(z[pick], float(along[pick]), weights[pick], touches, float(breach[pick]))


def _subsets(m: int) -> Tensor:
    """(2^m, m) every subset of m elements as a row of ones and zeros, the small ones first."""
    rows = torch.zeros(2**m, m, dtype=torch.float64)
    every = chain.from_iterable(combinations(range(m), size) for size in range(m + 1))
    for row, members in zip(rows, every, strict=True):
        row[list(members)] = 1
    return rows


def _recover(reward: Tensor, normals: Tensor, a: Tensor) -> _Point:
    """The point of the ball with the smallest gaps of broken limits; then the best reward."""
    U, sizes, V = torch.linalg.svd(normals, full_matrices=False)
    known = sizes > DEPENDENT * sizes[0]  # rounding must not separate dependent planes
    z = _least_broken(U[:, known] * sizes[known], a) @ V[known]
    weights = z @ torch.linalg.pinv(normals, rtol=DEPENDENT)
    point = _Point(z, 0.0, weights, touches=True, error=0.0)
    if float(z.norm()) >= 1 - 1e-9:  # on the edge of the ball the point is unique
        return point
    reached = torch.where(a > 0, a.minimum(-normals @ z), a)
    better = _best(reward, normals, reached)
    return better if better.error <= TOLERANCE else point


def _least_broken(normals: Tensor, a: Tensor) -> Tensor:
    """The shortest of the z in the ball with the least sum of left_i², a_i left_i = what is broken.

    The sum is over a_i > 0; the other limits stay kept. With mu, the multiplier of the ball, that
    is the shortest vector (z, left / sqrt(mu)) with a_i + normals_i.z <= a_i left_i: planes again,
    in more dimensions. The smaller mu, the longer z, up to the radius of the ball.
    """
    a = torch.where((a > 0) & (a < TOLERANCE), 0.0, a)  # within tolerance
    broken = a[a > 0]
    if len(broken) == 0:
        return torch.zeros_like(normals[0])

    def softened(mu: float) -> Tensor:
        planes = torch.cat([normals, -math.sqrt(mu) * torch.diag(a.clamp(min=0))], dim=1)
        lengths = planes.norm(dim=1)
        nothing, unit = torch.zeros_like(planes[0]), planes / lengths[:, None]
        # Opposite planes differ by their soft parts alone, which may be small.
        point = _best(nothing, unit, a / lengths, radius=math.inf, dependent=1e-10)
        return point.z[: normals.shape[1]]

    nearly_0 = 1e-8 / float(broken.min())  # below it, rounding would exceed the pull of the planes
    z = softened(nearly_0)
    if float(z.norm()) <= 1:
        return z
    # mu |z|² is at most the sum of left² at z = 0, and that is their number.
    return _of_length_1(softened, nearly_0, float(len(broken)))


def _of_length_1(vector: Callable[[float], Tensor], low: float, high: float) -> Tensor:
    """The vector of the mu between low and high that has length 1; the length falls with mu.

    By false position on 1 / length, nearly a straight line in mu (for one plane it is one); an end
    that stays counts half (the Illinois rule), so that both ends close in.
    """

    def at(mu: float) -> tuple[Tensor, float]:
        z = vector(mu)
        return z, 1 / float(z.norm()) - 1

    (_, below), (z, above) = at(low), at(high)
    previous = 0.0
    for _ in range(100):
        mu = low - below * (high - low) / (above - below)
        z, value = at(mu)
        if abs(value) <= ROUNDING:
            break
        if value > 0:
            high, above = mu, value
            below /= 2 if previous > 0 else 1
        else:
            low, below = mu, value
            above /= 2 if previous < 0 else 1
        previous = value
    unit: Tensor = z / z.norm()
    return unit
