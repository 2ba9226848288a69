"""The closed-form dual against an independent method, on problems of every case.

Whitening by the Cholesky factor of H turns the trust region into a disc, and only the plane that
g and b span matters. The optimum over a disc cut by a half-plane is at the tip of g, where the line
crosses the circle, or at the foot of the line's normal: all of them are tried.
"""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from scipy.optimize import minimize

from fairhorizon.fcpo.dual import Case, solve_dual


def random_problem(rng, angle=None):
    """H (n, n), g, b, c and delta; the gap c anywhere from deep inside to far outside the limit.

    With an angle, b points about that far from g or from -g.
    """
    n = int(rng.integers(2, 7))
    root = rng.normal(size=(n, n))
    H = root @ root.T + 0.1 * np.eye(n)
    g, b = rng.normal(size=(2, n)) * 10.0 ** rng.uniform(-2, 2, size=(2, 1))
    if angle is not None:
        b = np.linalg.norm(b) * rng.choice([-1, 1]) * g / np.linalg.norm(g) + angle * b
    delta = 10.0 ** rng.uniform(-3, 0)
    reach = math.sqrt(2 * delta * (b @ np.linalg.solve(H, b)))  # most that b.x can be
    return H, g, b, rng.uniform(-1.8, 1.5) * reach, delta


def products(H, g, b):
    x, y = np.linalg.solve(H, g), np.linalg.solve(H, b)
    return float(g @ x), float(g @ y), float(b @ y)


def step_of(direction, H, g, b):
    return direction.reward_weight * np.linalg.solve(H, g) + direction.cost_weights[
        0
    ] * np.linalg.solve(H, b)


def best_in_plane(H, g, b, c, delta):
    """max g.x over the feasible set; None where there is none. Independent of q, r and s."""
    L = np.linalg.cholesky(H)
    g, b = np.linalg.solve(L, g), np.linalg.solve(L, b)  # x = L⁻ᵀ z: the region is |z| <= radius
    radius = math.sqrt(2 * delta)
    normal = b / np.linalg.norm(b)
    foot = -c / np.linalg.norm(b) * normal  # of the line c + b.z = 0
    if np.linalg.norm(foot) > radius and c > 0:
        return None
    along = g - (g @ normal) * normal
    along = along / np.linalg.norm(along)
    half = math.sqrt(max(radius**2 - foot @ foot, 0.0))
    candidates = [radius * g / np.linalg.norm(g), foot, foot + half * along, foot - half * along]
    tolerance = 1e-9 * (abs(c) + np.linalg.norm(b) * radius)
    return max(
        g @ z
        for z in candidates
        if c + b @ z <= tolerance and np.linalg.norm(z) <= radius * (1 + 1e-9)
    )


def test_a_thousand_random_problems_of_every_case():
    rng, seen = np.random.default_rng(0), Counter()
    for number in range(1000):
        H, g, b, c, delta = random_problem(rng, angle=None if number % 4 else 0.01)
        q, r, s = products(H, g, b)
        direction = solve_dual(q, r, s, c, delta)
        x = step_of(direction, H, g, b)
        seen[direction.case] += 1
        scale = math.sqrt(2 * delta * q)  # the most that g.x can be
        reach = math.sqrt(2 * delta * s)
        assert x @ H @ x / 2 <= delta * (1 + 1e-6)
        best = best_in_plane(H, g, b, c, delta)
        if best is None:
            assert direction.case is Case.RECOVER
            assert b @ x == pytest.approx(-reach, rel=1e-6)  # the cost falls as far as it can
            continue
        assert c + b @ x <= 1e-6 * reach
        assert g @ x == pytest.approx(best, rel=0, abs=1e-6 * scale)
        touches_limit = abs(c + b @ x) <= 1e-6 * reach
        cut = abs(c) < reach
        expected = Case.ACTIVE if touches_limit else Case.INACTIVE if cut else Case.INSIDE
        assert direction.case is expected
    assert set(seen) == set(Case)
    assert min(seen.values()) >= 80, seen


@pytest.mark.parametrize("exponent", range(-12, 0))
def test_nearly_parallel_gradients(exponent):
    """What g has across b is lost in rounding at last: it must not make the step longer then."""
    rng = np.random.default_rng(50 - exponent)
    for _ in range(30):
        H, g, b, c, delta = random_problem(rng, angle=10.0**exponent)
        q, r, s = products(H, g, b)
        direction = solve_dual(q, r, s, c, delta)
        x = step_of(direction, H, g, b)
        assert x @ H @ x / 2 <= delta * 1.002
        best = best_in_plane(H, g, b, c, delta)
        if best is not None:
            assert g @ x == pytest.approx(best, rel=0, abs=1e-5 * math.sqrt(2 * delta * q))
            assert c + b @ x <= 1e-5 * math.sqrt(2 * delta * s)


@pytest.mark.parametrize("seed", range(20))
def test_a_general_solver_finds_nothing_better(seed):
    rng = np.random.default_rng(1000 + seed)
    H, g, b, c, delta = random_problem(rng)
    g, b, c = g / np.linalg.norm(g), b / np.linalg.norm(b), c / np.linalg.norm(b)
    direction = solve_dual(*products(H, g, b), c, delta)
    ours = step_of(direction, H, g, b)
    if direction.case is Case.RECOVER:
        g, c = -b, -math.inf  # then the problem is to lower the cost, without a limit
    limits = [{"type": "ineq", "fun": lambda x: delta - x @ H @ x / 2, "jac": lambda x: -H @ x}]
    if c > -math.inf:
        limits.append({"type": "ineq", "fun": lambda x: -c - b @ x, "jac": lambda _: -b})
    answers = [
        minimize(
            lambda x: -g @ x,
            0.1 * rng.normal(size=len(g)),
            jac=lambda _: -g,
            constraints=limits,
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 500},
        )
        for _ in range(4)
    ]
    theirs = max(-answer.fun for answer in answers if answer.success)
    scale = math.sqrt(2 * delta * (g @ np.linalg.solve(H, g)))
    assert g @ ours == pytest.approx(theirs, rel=0, abs=1e-6 * scale)


DELTA = 0.5  # the trust region is then the unit disc for H = I


@pytest.mark.parametrize(
    ("q", "r", "s", "c", "case", "weights"),
    [
        # no cost gradient: nothing to be done about the cost
        (4.0, 0.0, 0.0, -1.0, Case.INSIDE, (0.5, 0.0)),
        (4.0, 0.0, 0.0, 0.0, Case.INSIDE, (0.5, 0.0)),
        (4.0, 0.0, 0.0, 1.0, Case.RECOVER, (0.0, 0.0)),
        # no reward gradient: stay, or go to the limit the shortest way
        (0.0, 0.0, 1.0, -0.5, Case.INACTIVE, (0.0, 0.0)),
        (0.0, 0.0, 1.0, -2.0, Case.INSIDE, (0.0, 0.0)),
        (0.0, 0.0, 1.0, 0.5, Case.ACTIVE, (0.0, -0.5)),
        (0.0, 0.0, 4.0, 3.0, Case.RECOVER, (0.0, -0.5)),
        # g = 2 b: up to the limit and no further
        (4.0, 2.0, 1.0, -0.5, Case.ACTIVE, (0.0, 0.5)),
        (4.0, 2.0, 1.0, 0.5, Case.ACTIVE, (0.0, -0.5)),
        (4.0, 2.0, 1.0, 0.0, Case.ACTIVE, (0.0, 0.0)),
        # g = -2 b: the reward's way is away from the limit
        (4.0, -2.0, 1.0, -0.5, Case.INACTIVE, (0.5, 0.0)),
        (4.0, -2.0, 1.0, 0.5, Case.INACTIVE, (0.5, 0.0)),
        # on the limit, g at right angles to b: along it
        (4.0, 0.0, 1.0, 0.0, Case.INACTIVE, (0.5, 0.0)),
        # on the limit, g = (1, 1), b = (1, 0): only the second coordinate may move
        (2.0, 1.0, 1.0, 0.0, Case.ACTIVE, (1.0, -1.0)),
        # the limit touches the disc from outside: one point is left, -b
        (2.0, 1.0, 1.0, 1.0, Case.ACTIVE, (0.0, -1.0)),
        # the limit touches it from inside: the best point is the tip of g
        (2.0, 1.0, 1.0, -1.0, Case.INACTIVE, (math.sqrt(0.5), 0.0)),
    ],
)
def test_degenerate_problems(q, r, s, c, case, weights):
    direction = solve_dual(q, r, s, c, DELTA)
    assert direction.case is case
    assert (direction.reward_weight, direction.cost_weights[0]) == pytest.approx(weights, abs=1e-12)


@pytest.mark.parametrize("c", [-3.0, -0.3, 0.0, 0.3, 3.0])
def test_gradients_that_are_parallel_up_to_rounding(c):
    rng = np.random.default_rng(7)
    for factor, _ in product((3.0, -3.0), range(20)):
        root = rng.normal(size=(4, 4))
        H = root @ root.T + np.eye(4)
        g = rng.normal(size=4)
        b = factor * g / math.sqrt(g @ np.linalg.solve(H, g)) / 3  # s = 1
        direction = solve_dual(*products(H, g, b), c, DELTA)
        x = step_of(direction, H, g, b)
        assert np.isfinite(x).all()
        assert x @ H @ x / 2 <= DELTA * (1 + 1e-9)
        if abs(c) < 1:
            assert c + b @ x <= 1e-9
            wanted = -c if factor > 0 else -1.0  # to the limit, or as far from it as can be
            assert b @ x == pytest.approx(wanted, abs=1e-5)


def test_a_trust_region_needs_a_size():
    for delta in (0.0, -1.0):
        with pytest.raises(ValueError, match="delta > 0"):
            solve_dual(1.0, 0.0, 1.0, 0.0, delta)
