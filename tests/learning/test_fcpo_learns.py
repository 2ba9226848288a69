"""FCPO on a synthetic market: it earns more, and it keeps its limit."""

import numpy as np
import pytest

from fairhorizon.data.splits import Split, split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.rankers.mf import MfConfig

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def large_market() -> Split:
    return split(synthetic(250, 150, 40, seed=1).interactions)


def settings(alpha_prime: float) -> FcpoConfig:
    return FcpoConfig.preset(
        "paper",
        alpha_prime=alpha_prime,
        pmf=MfConfig(dim=16),
        gru_hidden=16,
        actor_hidden=(32, 32),
        critic_hidden=(16, 16),
        rounds=30,
        patience=100,
        kl_limit=0.1,
    )


def test_without_a_limit_the_reward_grows_and_popular_items_take_over(
    large_market: Split,
) -> None:
    reports = Fcpo(settings(1.0), seed=0).fit(large_market).history_
    rewards, costs = ([getattr(r, name) for r in reports] for name in ("reward", "cost"))
    assert np.mean(rewards[-10:]) > 1.5 * rewards[0]  # the first round is a random policy's
    assert np.mean(costs[-10:]) > 5.0  # of 10, where the limited policy may have 3


def test_with_a_limit_the_cost_stays_within_five_percent_of_it(
    large_market: Split,
) -> None:
    reports = Fcpo(settings(0.3), seed=0).fit(large_market).history_
    assert np.mean([report.cost for report in reports[-10:]]) <= 3.0 * 1.05
