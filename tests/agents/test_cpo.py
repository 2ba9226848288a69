"""CPO on problems whose constrained optimum is known.

Two items for T steps: A earns 1 and is sensitive, B earns 0.3 and is not. Showing A with
probability p costs p a step, so under a limit of alpha' the optimum is to show A with exactly
p = alpha', and without a limit always. Expectations are exact, not sampled.
"""

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from fairhorizon.agents.cpo import Surrogate, TrustRegion, constrained_step, gradients
from fairhorizon.environment import cost_limit
from fairhorizon.optim import Case, fisher_product
from fairhorizon.policy import Proposal

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

        def surrogate(candidate: Tensor) -> Surrogate:
            new = torch.softmax(candidate, 0)
            change = STEPS * (new - old)
            return Surrogate(change @ REWARDS, change[:1], new @ (new / old).log())

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
        old = Proposal.of(theta[None])
        quantiles = (torch.arange(20000, dtype=torch.float64) + 0.5) / 20000
        sample = (old.mean + old.log_std.exp() * Normal(0.0, 1.0).icdf(quantiles)[:, None]).detach()
        shows_a = (sample[:, 0] > 0).double()
        log_prob = old.log_prob(sample)
        p = shows_a.mean()
        advantages = torch.stack([(REWARDS[0] - REWARDS[1]) * (shows_a - p), shows_a - p])

        def surrogate(candidate: Tensor) -> Surrogate:
            new = Proposal.of(candidate[None])
            change = torch.expm1(new.log_prob(sample) - log_prob)
            reward, cost = STEPS * (advantages @ change) / len(sample)
            return Surrogate(reward, cost[None], new.kl_from(old)[0])

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

    def pessimist(candidate: Tensor) -> Surrogate:
        promise = surrogate(candidate)
        moved = (candidate.detach() != before).any()
        return promise._replace(kl=promise.kl + moved)  # everything else is out of the region

    gap = torch.tensor([-1.0], dtype=torch.float64)
    update = constrained_step(theta, pessimist, fisher, gap, REGION)
    assert update.fraction == 0
    assert (update.kl, update.reward_change, update.cost_change) == pytest.approx((0, 0, 0))
    assert update.theta.data_ptr() == theta.data_ptr()
    assert torch.equal(theta.view(torch.int64), before.view(torch.int64))


def test_conditions_are_put_to_the_surrogates_not_to_their_gradients():
    """Reward and cost both rise with x at first order; the curved cost shortens the step."""
    delta, gap = 0.5, -0.3

    def surrogate(candidate: Tensor) -> Surrogate:
        x = candidate[0]
        return Surrogate(x, (0.1 * x + x.square())[None], 0.5 * x.square())

    region = TrustRegion(delta=delta, iterations=5, ratio=0.5, attempts=10)
    theta = torch.zeros(1, dtype=torch.float64)
    update = constrained_step(theta, surrogate, lambda v: v, torch.tensor([gap]), region)
    assert update.case is Case.INSIDE  # 0.1 x <= 0.3 on all of |x| <= 1
    assert update.fraction == 0.5  # 0.1 + 1 > 0.3;  0.05 + 0.25 <= 0.3
    assert update.theta.tolist() == [0.5]
    assert update.cost_change == pytest.approx(0.3)


def test_gradients_by_hand():
    def surrogate(candidate: Tensor) -> Surrogate:
        x, y = candidate
        return Surrogate(x * x * y, torch.stack([x + 3 * y, x]), x * 0)

    g, b = gradients(surrogate, torch.tensor([2.0, 5.0]))
    assert g.tolist() == [20.0, 4.0]
    assert b.tolist() == [1.0, 3.0]


def test_the_analytic_dual_takes_one_constraint():
    theta = Softmax.start(0.5)
    with pytest.raises(ValueError, match="one constraint, not 2"):
        constrained_step(theta, *Softmax.problem(theta), torch.zeros(2), REGION)
