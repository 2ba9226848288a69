"""The dual for several constraints against `solve_dual`, SLSQP, and conditions of optimality.

Problems are given in whitened coordinates, where H = I: x = L⁻ᵀz with the Cholesky factor L of H
leaves q, r and S as they are, so nothing is lost by it. The trust region is |z|² <= 2 delta.
"""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize, nnls

from fairhorizon.fcpo.dual import Case, solve_dual, solve_several

DELTA = 0.5  # the trust region is then the unit ball


def solve(g, b, c, delta=DELTA):
    """The combination and its step."""
    g, b, c = (np.asarray(x, dtype=float) for x in (g, b, c))
    answer = solve_several(float(g @ g), *(torch.tensor(x) for x in (b @ g, b @ b.T, c)), delta)
    return answer, answer.reward_weight * g + np.array(answer.cost_weights) @ b


def random_problem(rng, m):
    """g, b (m, n), c, delta; some limits kept with room, some cutting the region, some broken."""
    n = int(rng.integers(2, 7))
    g = rng.normal(size=n) * 10.0 ** rng.uniform(-2, 2)
    b = rng.normal(size=(m, n)) * 10.0 ** rng.uniform(-2, 2, size=(m, 1))
    delta = 10.0 ** rng.uniform(-3, 0)
    reach = math.sqrt(2 * delta) * np.linalg.norm(b, axis=1)  # most that b.x can be
    return g, b, rng.uniform(-1.6, 1.3, size=m) * reach, delta


def in_unit_ball(g, b, c, delta):
    """The same problem in units of the region's radius, normals and reward of length 1."""
    lengths, radius = np.linalg.norm(b, axis=1), math.sqrt(2 * delta)
    return g / np.linalg.norm(g), b / lengths[:, None], c / lengths / radius, radius


def slsqp(rng, fun, jac, normals, a):
    """The lowest value in the unit ball with a + normals @ z <= 0, from several starts."""
    limits = [{"type": "ineq", "fun": lambda z: 1 - z @ z, "jac": lambda z: -2 * z}]
    if len(a):
        limits.append(
            {"type": "ineq", "fun": lambda z: -a - normals @ z, "jac": lambda _: -normals}
        )
    answers = [
        minimize(
            fun,
            0.3 * rng.normal(size=normals.shape[1]),
            jac=jac,
            constraints=limits,
            method="SLSQP",
            options={"ftol": 1e-13, "maxiter": 300},
        )
        for _ in range(3)
    ]
    kept = [
        answer.fun
        for answer in answers
        if answer.x @ answer.x <= 1 + 1e-7 and (a + normals @ answer.x <= 1e-7).all()
    ]
    assert kept
    return min(kept)


def gap_left(normals, a, z):
    """The sum of the squared shares of their gaps that broken limits are left with."""
    broken = a > 0
    return np.square(np.maximum(0, 1 + normals[broken] @ z / a[broken])).sum()


def least_gap_left(rng, normals, a):
    broken, kept = a > 0, a <= 0
    slopes = normals[broken] / a[broken, None]

    def jac(z):
        return 2 * np.maximum(0, 1 + slopes @ z) @ slopes

    return slsqp(rng, lambda z: gap_left(normals, a, z), jac, normals[kept], a[kept])


@pytest.mark.slow
@pytest.mark.parametrize("m", [2, 3, 4])
def test_a_general_solver_finds_nothing_better(m):
    rng, seen = np.random.default_rng(m), Counter()
    for _ in range(100):
        g, b, c, delta = random_problem(rng, m)
        answer, x = solve(g, b, c, delta)
        g, normals, a, radius = in_unit_ball(g, b, c, delta)
        z = x / radius
        seen[answer.case] += 1
        assert z @ z <= 1 + 1e-9
        if answer.case is Case.RECOVER:
            assert (a + normals @ z)[a <= 0].max(initial=0.0) <= 1e-9
            least = least_gap_left(rng, normals, a)
            assert least > 1e-9  # there is indeed no step that keeps all limits
            assert gap_left(normals, a, z) == pytest.approx(least, rel=0, abs=1e-6)
            continue
        assert (a + normals @ z).max() <= 1e-9
        best = -slsqp(rng, lambda z, g=g: -g @ z, lambda _, g=g: -g, normals, a)
        assert g @ z == pytest.approx(best, rel=0, abs=1e-6)
        touches = (abs(a + normals @ z) <= 1e-9).any()
        expected = Case.ACTIVE if touches else Case.INSIDE if max(a) < -1 else Case.INACTIVE
        assert answer.case is expected
    assert min(seen[case] for case in (Case.INACTIVE, Case.ACTIVE, Case.RECOVER)) >= 10, seen


def test_one_constraint_is_the_analytic_dual():
    rng, seen = np.random.default_rng(1), Counter()
    for number in range(300):
        g, b, c, delta = random_problem(rng, 1)
        if number % 5 == 0:  # b nearly along g or against it
            b = (-1) ** number * g[None] * np.linalg.norm(b) / np.linalg.norm(g) + 0.01 * b
        q, r, s = g @ g, float(b[0] @ g), float(b[0] @ b[0])
        analytic = solve_dual(q, r, s, float(c[0]), delta)
        answer, x = solve(g, b, c, delta)
        assert answer.case is analytic.case
        wanted = analytic.reward_weight * g + analytic.cost_weights[0] * b[0]
        assert x == pytest.approx(wanted, rel=0, abs=1e-9 * math.sqrt(2 * delta))
        assert answer.reward_weight == pytest.approx(analytic.reward_weight, rel=1e-7)
        seen[analytic.case] += 1
    assert min(seen.values()) >= 20, seen
    assert set(seen) == set(Case)


@pytest.mark.parametrize("q", [0.0, 4.0])
@pytest.mark.parametrize("s", [0.0, 1.0])
def test_one_constraint_is_the_analytic_dual_in_degenerate_problems(q, s):
    for angle, c in product([-1, 0, 0.5, 1], [-3, -1, -0.5, 0, 0.5, 1, 3, 1e9]):
        r = angle * math.sqrt(q * s)
        analytic = solve_dual(q, r, s, c, DELTA)
        answer = solve_several(q, *map(torch.tensor, ([r], [[s]], [float(c)])), DELTA)
        assert answer.case is analytic.case
        assert answer.reward_weight == pytest.approx(analytic.reward_weight, abs=1e-12)
        assert answer.cost_weights == pytest.approx((analytic.cost_weights[0],), abs=1e-12)


@pytest.mark.parametrize(
    ("g", "b", "c", "case", "step"),
    [
        # two limits and room along both: the third coordinate takes what they leave
        ([1, 1, 1], [[1, 0, 0], [0, 1, 0]], [-0.5, -0.5], Case.ACTIVE, (0.5, 0.5, math.sqrt(0.5))),
        # g = b_1 + b_2: into the corner and no further
        ([1, 1], [[1, 0], [0, 1]], [-0.5, -0.5], Case.ACTIVE, (0.5, 0.5)),
        # the same limit twice, the second time in other units, or a little wider
        ([1, 1], [[1, 0], [7, 0]], [0, 0], Case.ACTIVE, (0, 1)),
        ([1, 1], [[1, 0], [1, 0]], [-0.6, -0.7], Case.ACTIVE, (0.6, 0.8)),
        # three limits in the plane, all through one point
        ([1, 1], [[1, 0], [0, 1], [1, 1]], [-0.5, -0.5, -1], Case.ACTIVE, (0.5, 0.5)),
        # a strip as thin as a line: the limits x <= 0.6 and x >= 0.6
        ([0, 1], [[1, 0], [-1, 0]], [-0.6, 0.6], Case.ACTIVE, (0.6, 0.8)),
        # limits all around that keep to themselves
        ([3, 4], [[1, 0], [0, 1]], [-2, -3], Case.INSIDE, (0.6, 0.8)),
        ([3, 4], [[1, 0], [0, 1]], [-2, -0.9], Case.INACTIVE, (0.6, 0.8)),
        # no reward gradient: stay, or go where the limits hold the shortest way
        ([0, 0], [[1, 0], [0, 1]], [-0.5, -2], Case.INACTIVE, (0, 0)),
        ([0, 0], [[1, 0], [0, 1]], [0.3, -0.5], Case.ACTIVE, (-0.3, 0)),
        ([0, 0], [[1, 0], [0, 1]], [0.3, 0.4], Case.ACTIVE, (-0.3, -0.4)),
        # a limit without a gradient that holds is no limit
        ([1, 0], [[0, 0], [1, 0]], [-1, -0.5], Case.ACTIVE, (0.5, 0)),
        # broken and without a gradient, it does not stand in the others' way
        ([1, 0], [[0, 0], [1, 0]], [1, -0.5], Case.RECOVER, (0.5, 0)),
        ([0, 1], [[0, 0], [1, 0]], [1, 0.6], Case.RECOVER, (-0.6, 0.8)),
        ([0, 1], [[0, 0], [1, 0]], [1, 2], Case.RECOVER, (-1, 0)),
        ([0, 1], [[0, 0], [0, 0]], [1, -1], Case.RECOVER, (0, 0)),
        ([0, 1], [[0, 0], [0, 0]], [0, -1], Case.INSIDE, (0, 1)),
        # each in reach, but not both: half way to each, in the units of either
        ([0, 1], [[1, 0], [0, 1]], [1, 1], Case.RECOVER, (-math.sqrt(0.5), -math.sqrt(0.5))),
        ([0, 1], [[7, 0], [0, 2]], [7, 2], Case.RECOVER, (-math.sqrt(0.5), -math.sqrt(0.5))),
        # y <= -2 is out of reach, and y >= -0.8 is kept on the way
        ([0, 0, 1], [[0, 1, 0], [0, -5, 0]], [2, -4], Case.RECOVER, (0, -0.8, 0.6)),
        # x <= -0.5 and x >= 0.5: equally far from both, and the reward is free to grow
        ([1, 1], [[1, 0], [-1, 0]], [0.5, 0.5], Case.RECOVER, (0, 1)),
        # x <= -1/2 and x >= 1: (1 + 2x)² + (1 - x)² is least at x = -1/5
        ([0, 1], [[1, 0], [-1, 0]], [0.5, 1], Case.RECOVER, (-0.2, math.sqrt(0.96))),
        # a third limit, that the contradiction of two does not touch, is mended all the same
        (
            [0, 0, 1],
            [[1, 0, 0], [-1, 0, 0], [0, 1, 0]],
            [0.5, 0.5, 0.6],
            Case.RECOVER,
            (0, -0.6, 0.8),
        ),
    ],
)
def test_problems_by_hand(g, b, c, case, step):
    answer, x = solve(g, b, c)
    assert answer.case is case
    assert x == pytest.approx(step, abs=1e-7)


@pytest.mark.parametrize("exponent", range(-12, 0))
def test_nearly_dependent_gradients(exponent):
    """Weights that cancel each other must not make the step longer, nor hide a limit."""
    rng, solved = np.random.default_rng(70 - exponent), 0
    for number in range(16):
        n, m = int(rng.integers(3, 7)), int(rng.integers(2, 5))
        base, *others = rng.normal(size=(m + 2, n))
        turned = [rng.choice([-1, 1]) * base + 10.0**exponent * other for other in others]
        g, b = turned[0] if number % 2 else others[0], np.array(turned[1:])
        b[-1] = others[-1]
        a = -(b @ base) / (base @ base) * rng.uniform(-1.5, 1.5) + 10.0**exponent * rng.normal(m)
        g, normals, a, _ = in_unit_ball(g, b, a, DELTA)
        answer, z = solve(g, normals, a)
        assert z @ z <= 1.002
        must_hold = a <= 0 if answer.case is Case.RECOVER else np.full(m, True)
        assert (a + normals @ z)[must_hold].max(initial=0.0) <= 1e-5
        shortest = shortest_that_keeps(normals, a)
        assert answer.case is not Case.RECOVER or shortest > 1 - 1e-5
        if shortest < 0.999:
            best = -slsqp(rng, lambda z, g=g: -g @ z, lambda _, g=g: -g, normals, a)
            assert g @ z >= best - 1e-5
            solved += 1
    assert solved >= 4


def shortest_that_keeps(b, c):
    """The length of the shortest x with c + b @ x <= 0, infinite if there is none.

    Lawson & Hanson 1974, chapter 23: least distance programming by non-negative least squares.
    """
    target = np.append(np.zeros(b.shape[1]), 1.0)
    y, residual = nnls(np.vstack([-b.T, c]), target)
    if residual < 1e-7:
        return math.inf
    rest = np.vstack([-b.T, c]) @ y - target
    return np.linalg.norm(rest[:-1] / rest[-1])


def in_cone(vector, *generators):
    """Whether the vector is a sum of the generators with weights >= 0."""
    generators = [v / np.linalg.norm(v) for v in generators if np.linalg.norm(v) > 0]
    if not generators:
        return np.linalg.norm(vector) <= 1e-6
    return nnls(np.column_stack(generators), vector)[1] <= 1e-6


small = st.integers(-3, 3)


@st.composite
def problems(draw):
    """Small whole numbers: parallel, opposite, dependent and missing gradients are common."""
    n, m = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    g = draw(st.lists(small, min_size=n, max_size=n))
    b = draw(st.lists(st.lists(small, min_size=n, max_size=n), min_size=m, max_size=m))
    c = draw(st.lists(st.integers(-8, 8), min_size=m, max_size=m))
    return np.array(g, float), np.array(b, float), np.array(c, float) / 4


@settings(max_examples=150, deadline=None)
@given(problems())
@example((np.array([1.0, 2.0]), np.array([[1.0, 0.0], [-1.0, 0.0]]), np.array([0.5, 0.5])))
@example((np.array([1.0, 2.0]), np.array([[1.0, 0.0], [0.0, 0.0]]), np.array([0.5, 0.5])))
def test_conditions_of_optimality(problem):
    g, b, c = problem
    answer, x = solve(g, b, c)
    movable = b.any(axis=1)
    shortest = shortest_that_keeps(b[movable], c[movable]) if movable.any() else 0.0
    stuck = (c[~movable] > 0).any()
    assert x @ x <= 1 + 1e-9
    if abs(shortest - 1) > 1e-6:
        assert (answer.case is Case.RECOVER) == (shortest > 1 or stuck)
    touched = abs(c + b @ x) <= 1e-6
    edge = [x] if x @ x >= 1 - 1e-6 else []
    if answer.case is not Case.RECOVER:
        assert (c + b @ x <= 1e-6).all()
        if shortest < 1 - 1e-6:  # else the step has no choice, and the reward none either
            assert in_cone(g, *b[touched], *edge)
    elif shortest > 1:
        assert ((c + b @ x)[c <= 0] <= 1e-6).all()
        broken = movable & (c > 0)
        left = np.maximum(0, 1 + b[broken] @ x / c[broken])
        downhill = -(left / c[broken]) @ b[broken]  # the way to leave less
        held = b[touched & (c <= 0)]
        assert in_cone(downhill, *held, *edge)
        if in_cone(downhill, *held):  # not for want of room: what room there is, the reward has
            assert in_cone(g, *b[touched], *b[broken][left > 0], *edge)
