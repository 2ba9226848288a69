"""CPO on problems with a known constrained optimum.

Two items for T steps: A earns 1 and is sensitive, B earns 0.3 and is not. Showing A with
probability p costs p a step, so under a limit of alpha' the optimum is to show A with exactly
p = alpha', and without a limit always. Three items, and a limit or a floor for some of them: the
optimum is a corner of the triangle of all shares. Expectations are exact, not sampled.
"""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from fairhorizon.fcpo.cpo import (
    Predicted,
    TrustRegion,
    constrained_step,
    fisher_product,
    gradients,
    keeps_limits,
)
from fairhorizon.fcpo.dual import Case
from fairhorizon.fcpo.policies import Proposal
from fairhorizon.simulation.dynamics import cost_limit

# torch 2.13 scripts functions of its own when it first takes a forward derivative.

REWARDS = torch.tensor([1.0, 0.3], dtype=torch.float64)
T, GAMMA = 5, 0.9
STEPS = sum(GAMMA**t for t in range(T))  # discounted
REGION = TrustRegion(delta=0.01, iterations=10, ratio=0.5, attempts=20)


class Softmax:
    """theta: one logit an item."""

    @staticmethod
    def start(p: float) -> Tensor:
        return torch.tensor([math.log(p), math.log(1 - p)], dtype=torch.float64)

    @staticmethod
    def p(theta: Tensor) -> float:
        return float(torch.softmax(theta, 0)[0])

    @staticmethod
    def problem(theta: Tensor):
        old = torch.softmax(theta, 0).detach()

        def surrogate(candidate: Tensor) -> Predicted:
            new = torch.softmax(candidate, 0)
            change = STEPS * (new - old)
            return Predicted(change @ REWARDS, change[:1], new @ (new / old).log())

        fisher = fisher_product(
            lambda candidate: torch.softmax(candidate, 0), theta, lambda u: u / old, damping=1e-6
        )
        return surrogate, fisher


class Gaussian:
    """theta: mean and log deviation of a number W; the item vectors are 1 and -1, so A is W > 0.

    The surrogates weigh sampled proposals by their probability, as FCPO does; the sample is a
    fine grid of quantiles.
    """

    @staticmethod
    def start(p: float) -> Tensor:
        return torch.tensor([float(Normal(0.0, 1.0).icdf(torch.tensor(p))), 0.0]).double()

    @staticmethod
    def p(theta: Tensor) -> float:
        return float(Normal(0.0, 1.0).cdf(theta[0] / theta[1].exp()))

    @staticmethod
    def problem(theta: Tensor):
        old = Proposal.from_outputs(theta[None])
        quantiles = (torch.arange(20000, dtype=torch.float64) + 0.5) / 20000
        sample = (old.mean + old.log_std.exp() * Normal(0.0, 1.0).icdf(quantiles)[:, None]).detach()
        shows_a = (sample[:, 0] > 0).double()
        log_prob = old.log_prob(sample)
        p = shows_a.mean()
        advantages = torch.stack([(REWARDS[0] - REWARDS[1]) * (shows_a - p), shows_a - p])

        def surrogate(candidate: Tensor) -> Predicted:
            new = Proposal.from_outputs(candidate[None])
            change = torch.expm1(new.log_prob(sample) - log_prob)
            reward, cost = STEPS * (advantages @ change) / len(sample)
            return Predicted(reward, cost[None], new.kl_from(old)[0])

        fisher = fisher_product(
            lambda candidate: candidate[None],
            theta,
            lambda u: old.fisher(torch.ones(1, dtype=torch.float64), u),
            damping=1e-6,
        )
        return surrogate, fisher


def train(policy, theta: Tensor, share: float, rounds: int, region: TrustRegion = REGION):
    """(p, case, fraction) of every round, p before it, and the last p."""
    limit, rows = cost_limit(share, 1, GAMMA, T), []
    for _ in range(rounds):
        gap = torch.tensor([STEPS * policy.p(theta) - limit], dtype=torch.float64)
        update = constrained_step(theta, *policy.problem(theta), gap, region)
        assert update.kl <= region.delta
        rows.append((policy.p(theta), update.case, update.fraction))
        theta = update.theta
    return rows, policy.p(theta)


@pytest.mark.parametrize("policy", [Softmax, Gaussian])
@pytest.mark.parametrize("share", [0.2, 0.4, 0.8])
def test_lands_on_the_constrained_optimum(policy, share):
    rows, p = train(policy, policy.start(0.1), share, rounds=60)
    assert p == pytest.approx(share, rel=0.01)
    assert max(before for before, _, _ in rows) <= share * 1.01  # and keeps to it on the way
    cases = [case for _, case, _ in rows]
    assert cases[0] in (Case.INSIDE, Case.INACTIVE)
    assert cases[-1] is Case.ACTIVE


@pytest.mark.parametrize("policy", [Softmax, Gaussian])
def test_without_a_limit_the_better_item_is_always_shown(policy):
    rows, p = train(policy, policy.start(0.1), 1.0, rounds=60)
    assert p > 0.99
    shares = [before for before, _, _ in rows]
    assert shares == sorted(shares)


@pytest.mark.parametrize("policy", [Softmax, Gaussian])
def test_started_above_the_limit_it_recovers_and_then_improves(policy):
    rows, p = train(policy, policy.start(0.9), 0.3, rounds=60)
    cases = [case for _, case, _ in rows]
    recovering = cases.index(Case.ACTIVE)
    assert recovering >= 5
    assert set(cases[:recovering]) == {Case.RECOVER}
    assert Case.RECOVER not in cases[recovering:]
    shares = [before for before, _, _ in rows[: recovering + 1]]
    assert shares == sorted(shares, reverse=True)  # the cost falls until the limit is in reach
    assert p == pytest.approx(0.3, rel=0.01)


@pytest.mark.parametrize("policy", [Softmax, Gaussian])
@pytest.mark.parametrize("start", [0.301, 0.31, 0.33])
def test_started_a_little_above_the_limit_it_gives_up_reward(policy, start):
    """The limit is within the trust region, and the only way there costs reward."""
    rows, p = train(policy, policy.start(start), 0.3, rounds=10)
    assert rows[0][1] is Case.ACTIVE
    assert rows[0][2] > 0
    assert p == pytest.approx(0.3, rel=0.01)


def test_a_failing_line_search_leaves_theta_as_it_was():
    theta = Softmax.start(0.4)
    before = theta.clone()
    surrogate, fisher = Softmax.problem(theta)

    def pessimist(candidate: Tensor) -> Predicted:
        predicted = surrogate(candidate)
        moved = (candidate.detach() != before).any()
        return predicted._replace(kl=predicted.kl + moved)  # everything else is out of the region

    gap = torch.tensor([-1.0], dtype=torch.float64)
    update = constrained_step(theta, pessimist, fisher, gap, REGION)
    assert update.fraction == 0
    assert (update.kl, update.reward_change, update.cost_changes) == (0, 0, (0,))
    assert update.theta.data_ptr() == theta.data_ptr()
    assert torch.equal(theta.view(torch.int64), before.view(torch.int64))


def test_conditions_are_put_to_the_surrogates_not_to_their_gradients():
    """Reward and cost both rise with x at first order; the curved cost shortens the step."""
    delta, gap = 0.5, -0.3

    def surrogate(candidate: Tensor) -> Predicted:
        x = candidate[0]
        return Predicted(x, (0.1 * x + x.square())[None], 0.5 * x.square())

    region = TrustRegion(delta=delta, iterations=5, ratio=0.5, attempts=10)
    theta = torch.zeros(1, dtype=torch.float64)
    update = constrained_step(theta, surrogate, lambda v: v, torch.tensor([gap]), region)
    assert update.case is Case.INSIDE  # 0.1 x <= 0.3 on all of |x| <= 1
    assert update.fraction == 0.5  # 0.1 + 1 > 0.3;  0.05 + 0.25 <= 0.3
    assert update.theta.tolist() == [0.5]
    assert update.cost_changes == pytest.approx((0.3,))


@pytest.mark.parametrize(("tolerance", "fraction"), [(0.0, 0.4096), (0.25, 0.64)])
def test_a_step_may_end_beyond_the_limit_by_the_tolerance(tolerance, fraction):
    """0.1 x + x² at x = 1, 0.8, 0.64, 0.512, 0.4096: 1.1, 0.72, 0.474, 0.313, 0.209."""

    def surrogate(candidate: Tensor) -> Predicted:
        x = candidate[0]
        return Predicted(x, (0.1 * x + x.square())[None], 0.5 * x.square())

    region = TrustRegion(0.5, 5, ratio=0.8, attempts=10, tolerance=torch.tensor([tolerance]))
    theta = torch.zeros(1, dtype=torch.float64)
    update = constrained_step(theta, surrogate, lambda v: v, torch.tensor([-0.3]), region)
    assert update.fraction == pytest.approx(fraction)


@pytest.mark.parametrize("gap", [-0.2, 0.0, 0.1])
@pytest.mark.parametrize("iterations", [1, 2, 30])
def test_a_step_ends_on_the_limit_however_early_conjugate_gradients_stop(iterations, gap):
    """Reward and cost are linear, so the line search has nothing to shorten."""
    generator = torch.Generator().manual_seed(iterations)
    g, b = torch.randn(2, 30, dtype=torch.float64, generator=generator)
    H = torch.logspace(-2, 1, 30, dtype=torch.float64)
    g = g + 2 * b  # what earns costs

    def surrogate(x: Tensor) -> Predicted:
        return Predicted(g @ x, (b @ x)[None], 0 * x.sum())

    region = TrustRegion(0.5, iterations, ratio=0.5, attempts=10, tolerance=1e-12)
    gaps = torch.tensor([gap], dtype=torch.float64)
    update = constrained_step(torch.zeros_like(g), surrogate, lambda v: H * v, gaps, region)
    assert update.case is Case.ACTIVE
    assert update.fraction == 1
    assert gap + update.cost_changes[0] == pytest.approx(0, abs=1e-12)


def test_gradients_by_hand():
    def surrogate(candidate: Tensor) -> Predicted:
        x, y = candidate
        return Predicted(x * x * y, torch.stack([x + 3 * y, x]), x * 0)

    g, b = gradients(surrogate, torch.tensor([2.0, 5.0]))
    assert g.tolist() == [20.0, 4.0]
    assert b.tolist() == [[1.0, 3.0], [1.0, 0.0]]


def test_a_gap_for_every_cost():
    theta = Softmax.start(0.5)
    with pytest.raises(ValueError, match="2 gaps were given for 1 surrogate costs"):
        constrained_step(theta, *Softmax.problem(theta), torch.zeros(2), REGION)


@pytest.mark.parametrize(
    ("changes", "gaps", "keeps"),
    [
        ([0.1], [-0.1], True),
        ([0.2], [-0.1], False),
        ([0.0], [0.0], True),
        ([-0.1], [0.3], True),
        ([0.1], [0.3], False),
        ([0.1, -0.5], [-0.2, 0.3], True),
        ([0.3, -0.5], [-0.2, 0.3], False),  # a kept limit is not to be broken for another
        ([0.1, -0.5], [0.5, 1.0], True),  # 1.2² + 0.5² <= 2
        ([0.4, -0.1], [0.5, 1.0], False),  # 1.8² + 0.9² > 2
        ([0.4, -9.0], [0.5, 1.0], False),  # 1.8² + 0 > 2: more than mended is not counted
    ],
)
def test_kept_limits_stay_kept_and_broken_ones_come_nearer(changes, gaps, keeps):
    assert keeps_limits(torch.tensor(changes), torch.tensor(gaps)) is keeps


THREE_REWARDS = torch.tensor([1.0, 0.6, 0.2], dtype=torch.float64)
AT_MOST = {item: torch.eye(3, dtype=torch.float64)[k] for k, item in enumerate("ABC")}
AT_LEAST = {item: -row for item, row in AT_MOST.items()}


def train_three(start: list[float], costs: list[Tensor], limits: list[float], rounds: int = 50):
    """(shares, case, fraction) of every round, the shares before it, and the last shares.

    One logit an item, one step a trajectory.
    """
    b, d = torch.stack(costs), torch.tensor(limits, dtype=torch.float64)
    theta, rows = torch.tensor(start, dtype=torch.float64).log(), []
    for _ in range(rounds):
        old = torch.softmax(theta, 0)

        def surrogate(candidate: Tensor, old: Tensor = old) -> Predicted:
            new = torch.softmax(candidate, 0)
            return Predicted((new - old) @ THREE_REWARDS, b @ (new - old), new @ (new / old).log())

        fisher = fisher_product(
            lambda candidate: torch.softmax(candidate, 0),
            theta,
            lambda u, old=old: u / old,
            damping=1e-6,
        )
        update = constrained_step(theta, surrogate, fisher, b @ old - d, REGION)
        rows.append((old, update.case, update.fraction))
        theta = update.theta
        assert update.kl <= REGION.delta
        changes = b @ (torch.softmax(theta, 0) - old)
        assert update.cost_changes == pytest.approx(changes.tolist(), abs=1e-12)
    return rows, torch.softmax(theta, 0).tolist()


@pytest.mark.parametrize(
    "start", [[0.2, 0.2, 0.6], [0.05, 0.05, 0.9], [0.55, 0.4, 0.05], [0.1, 0.8, 0.1]]
)
def test_two_limits_hold_together(start):
    """A at most 0.4, B at most 0.3: what is left goes to C, though it earns least."""
    rows, shares = train_three(start, [AT_MOST["A"], AT_MOST["B"]], [0.4, 0.3])
    assert shares == pytest.approx([0.4, 0.3, 0.3], abs=1e-3)
    assert rows[-1][1] is Case.ACTIVE
    for (before, _, _), (after, _, _) in pairwise(rows):
        for item, limit in ((0, 0.4), (1, 0.3)):  # a limit that is kept stays kept
            assert after[item] <= limit + 1e-9 or before[item] > limit


@pytest.mark.parametrize("start", [[0.3, 0.1, 0.6], [0.9, 0.05, 0.05], [0.1, 0.88, 0.02]])
def test_a_limit_and_a_floor_hold_together(start):
    """A at most 0.5, C at least 0.2."""
    _, shares = train_three(start, [AT_MOST["A"], AT_LEAST["C"]], [0.5, -0.2])
    assert shares == pytest.approx([0.5, 0.3, 0.2], abs=1e-3)


def test_three_limits_at_once():
    """Of the limit and the two floors, the limit and the floor of C are those that bind."""
    costs = [AT_MOST["A"], AT_LEAST["C"], AT_LEAST["B"]]
    rows, shares = train_three([0.9, 0.05, 0.05], costs, [0.3, -0.2, -0.4])
    assert shares == pytest.approx([0.3, 0.5, 0.2], abs=1e-3)
    assert rows[0][1] is Case.RECOVER


def test_a_slightly_broken_limit_does_not_block_the_way_back_of_another():
    """What A gives up goes to B at first, by the way the policy is built, and back from there."""
    rows, shares = train_three([0.6, 0.35, 0.05], [AT_MOST["A"], AT_MOST["B"]], [0.1, 0.3])
    assert shares == pytest.approx([0.1, 0.3, 0.6], abs=1e-3)
    assert rows[0][1] is Case.RECOVER
    assert min(fraction for _, _, fraction in rows) > 0


@pytest.mark.parametrize(("start", "end"), [(0.38, 0.3), (0.42, 0.5)])
def test_of_limits_that_contradict_each_other_the_nearer_is_kept(start, end):
    """A at most 0.3 and at least 0.5, and B, which nothing hinders, at most 0.05."""
    costs = [AT_MOST["A"], AT_LEAST["A"], AT_MOST["B"]]
    rows, shares = train_three([start, 0.9 - start, 0.1], costs, [0.3, -0.5, 0.05])
    assert {case for _, case, _ in rows} == {Case.RECOVER}
    assert shares == pytest.approx([end, 0.05, 0.95 - end], abs=1e-3)
