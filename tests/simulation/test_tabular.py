"""The tabular market: its optimum by dynamic programming, and how much of it can be learned."""

import numpy as np
import pytest

from fairhorizon.fcpo.config import RetentionConfig
from fairhorizon.simulation.tabular import (
    SeeingAnswers,
    TabularMarket,
    myopic,
    play,
    seeing_patience,
)
from leaving import RetentionPlayer

SEEDS = (100, 101)


def likes(market: TabularMarket, policy: object) -> float:
    """The mean over seeds of a policy that is made anew for each."""
    found = []
    for seed in SEEDS:
        made = policy(market)  # type: ignore[operator]
        values, tell = made if isinstance(made, tuple) else (made, lambda *_: None)
        found.append(play(market, values, seed, tell)[0])
    return float(np.mean(found))


def answers_only(market: TabularMarket) -> object:
    made = SeeingAnswers(market)
    return made.values, made.tell


def test_one_step_by_hand() -> None:
    """Without a step after it, a like is worth itself, and the optimum is the myopic one."""
    market = TabularMarket(users=3000, steps=1, most=(3,), share=0.5)
    worth = market.solution.worth[3]
    assert worth[:, 0, 1:].min() == worth.max() == 1.0
    assert market.solution.share == pytest.approx(0.5, abs=0.01)
    assert likes(market, lambda _: myopic) == likes(market, seeing_patience)


def test_two_steps_by_hand() -> None:
    """Only at patience 1 does the answer decide whether there is another step."""
    market = TabularMarket(steps=2, most=(4,), share=1.0)  # all popular: the price is 0
    assert market.solution.price < 1e-4
    worth = market.solution.worth[4]
    assert worth[:, 1].max() == 1.0
    assert np.allclose(worth[:, 0, 2:], 1.0)
    assert np.allclose(np.diff(worth[:, 0, 1]) > 0, True)  # who likes more has more to come
    assert 1.1 < worth[0, 0, 1] < worth[-1, 0, 1] < 2.0


@pytest.mark.slow
def test_the_optimum_is_what_was_found_for_the_prototype() -> None:
    """Findings for M = 3 and 4 at a share of 0.2: 18.0 and 14.5 % above the myopic allocation."""
    for most, gain in ((3, 0.180), (4, 0.145)):
        market = TabularMarket(most=(most,), share=0.2)
        base, best = likes(market, lambda _: myopic), likes(market, seeing_patience)
        assert best / base - 1 == pytest.approx(gain, abs=0.02)
        assert market.solution.share == pytest.approx(0.2, abs=5e-3)
        assert best <= 1.02 * market.solution.likes  # which keeps the limit in expectation only


@pytest.mark.slow
def test_who_sees_answers_is_between() -> None:
    one = TabularMarket(users=1500, steps=30, most=(3,), share=0.2)
    assert likes(one, answers_only) == likes(one, seeing_patience)
    mixed = TabularMarket(steps=40, most=(3, 4, 6), share=0.2)
    policies = (lambda _: myopic, answers_only, seeing_patience)
    base, answers, best = (likes(mixed, policy) for policy in policies)
    assert 1.08 * base < answers < best


@pytest.mark.slow
def test_most_of_the_gain_is_learned_from_answers() -> None:
    """In a market where half of the users leave within a few steps; docs/leaving.md has more."""
    market = TabularMarket(users=1500, steps=40, most=(4,), share=0.2)
    quick = RetentionConfig(presence=0.0)  # benchmarks/leaving.py has settings that learn more
    learner = RetentionPlayer(market, 0.99, quick)
    for seed in range(2):
        learner.play(seed)
        learner.retention.learn()
    learned = float(np.mean([learner.play(seed) for seed in SEEDS]))
    base, best = likes(market, lambda _: myopic), likes(market, seeing_patience)
    assert learned - base > 0.5 * (best - base)
    learner.retention.gamma = 0.0  # chances alone are the myopic allocation
    assert float(np.mean([learner.play(seed) for seed in SEEDS])) == pytest.approx(base, rel=0.02)
