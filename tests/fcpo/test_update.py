"""The CPO step on the actor: it predicts what importance sampling does, in the right units."""

import pytest
import torch
from torch.distributions import Independent, Normal

from fairhorizon.data.splits import Split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.cpo import FlatActor, Update
from fairhorizon.fcpo.dual import Case, Step
from fairhorizon.fcpo.learner import update_actor
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.rollouts import Trajectories
from fairhorizon.fcpo.training import Training
from fairhorizon.recommenders.base import FitTask


def advantages(batch: Trajectories, seed: int) -> torch.Tensor:
    return torch.randn(batch.rewards.shape, generator=torch.Generator().manual_seed(seed))


def updated(training: Training, gap: float) -> tuple[Trajectories, Normal, Update]:
    """A batch, the policy that made it, and an update with made-up advantages."""
    batch = training.episodes.generate(training.generator)
    with torch.no_grad():
        old = distribution(training, batch)
    update = update_actor(
        training.actor,
        batch,
        torch.stack([advantages(batch, 1), advantages(batch, 2)]),
        torch.tensor([gap]),
        training.config,
        training.generator,
    )
    return batch, old, update


def distribution(training: Training, batch: Trajectories) -> Normal:
    mean, log_std = training.actor(batch.state_users, batch.state_queues).chunk(2, dim=1)
    return Normal(mean, log_std.exp())


@pytest.mark.parametrize("gap", [-100.0, -0.2, 0.2, 100.0])
def test_predictions_equal_importance_sampling_by_torch(
    market: Split, small: FcpoConfig, gap: float
) -> None:
    config = small.model_copy(update={"gamma_r": 0.9, "gamma_c": 0.5})
    training = Fcpo(config, seed=1).training(FitTask.from_split(market))
    batch, old, update = updated(training, gap)
    with torch.no_grad():
        new = distribution(training, batch)
        ratios = torch.empty_like(batch.rewards)
        for t in range(config.horizon):
            rows = batch.state_index[:, t]
            log_probs = [
                Independent(Normal(d.mean[rows], d.stddev[rows]), 1).log_prob(batch.proposals[:, t])
                for d in (new, old)
            ]
            ratios[:, t] = torch.exp(log_probs[0] - log_probs[1])
        divergence = torch.distributions.kl_divergence(new, old).sum(1)[batch.state_index].mean()
    steps = torch.arange(config.horizon)
    reward = ((ratios - 1) * advantages(batch, 1) * 0.9**steps).sum(1).mean()
    cost = ((ratios - 1) * advantages(batch, 2) * 0.5**steps).sum(1).mean()
    assert update.fraction > 0
    assert update.reward_change == pytest.approx(float(reward), abs=1e-4)
    assert update.cost_changes[0] == pytest.approx(float(cost), abs=1e-4)
    assert update.kl == pytest.approx(float(divergence), rel=1e-3)
    assert update.kl <= config.kl_limit


def test_the_gap_decides_the_case_and_the_cost_follows(market: Split, small: FcpoConfig) -> None:
    updates = {
        gap: updated(Fcpo(small, seed=1).training(FitTask.from_split(market)), gap)[2]
        for gap in (-100.0, 0.0, 100.0)
    }
    assert updates[-100.0].case is Case.INSIDE
    assert updates[-100.0].reward_change > 0
    assert updates[0.0].case in (Case.ACTIVE, Case.INACTIVE)
    assert updates[0.0].cost_changes[0] <= 0
    assert updates[100.0].case is Case.RECOVER
    assert updates[100.0].cost_changes[0] < updates[0.0].cost_changes[0]


def test_nothing_acceptable_leaves_the_actor_as_it_was(market: Split, small: FcpoConfig) -> None:
    # One attempt at a full step, where the true KL divergence exceeds its quadratic model.
    config = small.model_copy(update={"kl_limit": 50.0, "line_search_attempts": 1})
    training = Fcpo(config, seed=1).training(FitTask.from_split(market))
    before = FlatActor(training.actor).theta
    _, _, update = updated(training, -1e6)
    assert update.fraction == 0
    assert torch.equal(FlatActor(training.actor).theta, before)


def test_multipliers_of_a_step() -> None:
    """By hand: x = 0.5 H⁻¹g - 0.2 H⁻¹b has lambda = 1 / 0.5 and nu = 0.2 / 0.5."""
    about = {"theta": torch.zeros(1), "fraction": 1.0, "kl": 0.0, "reward_change": 0.0}
    rest = {"cost_changes": (0.0, 0.0), "q": 1.0, "r": (0.0,), "s": (0.0,), "attempts": 1}
    update = Update(step=Step(Case.ACTIVE, 0.5, (-0.2, 0.0)), **about, **rest)
    assert update.trust_multiplier == pytest.approx(2.0)
    assert update.cost_multipliers == pytest.approx((0.4, 0.0))
    recovering = Update(step=Step(Case.RECOVER, 0.0, (-0.2, 0.0)), **about, **rest)
    assert recovering.trust_multiplier is None
    assert recovering.cost_multipliers == (0.0, 0.0)
