"""The example of Stable-Baselines3, with a short training."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

PATH = Path(__file__).parents[2] / "examples" / "train_with_stable_baselines3.py"


@pytest.fixture(scope="module")
def example():
    spec = importlib.util.spec_from_file_location("train_with_stable_baselines3", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_reward_is_likes_less_what_is_beyond_the_budgets(example) -> None:
    env = example.make()
    observation, info = env.reset(seed=1)
    assert observation.shape == env.observation_space.shape == (20 + 2 * 40,)
    np.testing.assert_array_equal(observation[-40:], info["available"])
    env.multipliers = np.array([2.0, 0.5])
    _, reward, *_, info = env.step(np.flatnonzero(info["available"])[:1])
    beyond = info["costs"] - [0.3, 0.8]
    assert reward == pytest.approx(info["likes"] - 2 * beyond[0] - 0.5 * beyond[1])


def test_a_multiplier_rises_while_its_limit_is_broken(example) -> None:
    env = example.make()
    moving = example.Multipliers([env])
    moving.costs = [np.array([1.0, 0.0])] * 3 + [np.array([0.0, 1.0])]
    moving._on_rollout_end()
    # shares 75 and 25 %, budgets 30 and 80 %
    assert env.multipliers.tolist() == pytest.approx([0.5 * 0.45, 0])


def test_ppo_trains_and_is_measured(example) -> None:
    model = example.trained(showings=1024, seed=0)
    assert model.num_timesteps == 1024
    likes, costs = example.played(example.at_random(0), seed=0, episodes=20)
    assert 0 < likes < 10
    # each showing is inside of the group or not
    assert costs.sum() == pytest.approx(1)
