"""The Gymnasium shells: Gymnasium's checker, and agreement with the pure dynamics."""

import warnings
from dataclasses import replace
from itertools import combinations

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils import env_checker
from gymnasium.utils.passive_env_checker import data_shares_objects
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import batch_space

from fairhorizon.errors import ConfigError
from fairhorizon.histories import UserItems
from fairhorizon.simulation.dynamics import advance
from fairhorizon.simulation.feedback import Scenario
from fairhorizon.simulation.gym import RecommendationEnv, RecommendationVectorEnv
from fairhorizon.simulation.response import ResponseModel
from fairhorizon.simulation.simulated import SimulatedUsers, SimulationConfig

N_USERS, N_ITEMS, HISTORY, K, T = 6, 15, 4, 3, 5


def rows(rng: np.random.Generator, most: int) -> UserItems:
    sets = [rng.permutation(N_ITEMS)[: rng.integers(0, most)] for _ in range(N_USERS)]
    indptr = np.concatenate([[0], np.cumsum([len(items) for items in sets])])
    return UserItems(torch.from_numpy(indptr), torch.from_numpy(np.concatenate(sets)), N_ITEMS)


@pytest.fixture
def market():
    rng = np.random.default_rng(5)
    excluded = rows(rng, 4)
    scenario = Scenario(excluded.last(HISTORY), rows(rng, 12), excluded)
    return scenario, torch.from_numpy(rng.random(N_ITEMS) < 0.4)


def assert_same(left: dict, right: dict) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        np.testing.assert_array_equal(value, right[key], err_msg=key)
        assert np.asarray(value).dtype == np.asarray(right[key]).dtype


def test_gymnasium_finds_no_fault_with_the_single_environment(market):
    env = RecommendationEnv(*market, list_length=K, horizon=T)
    with (
        warnings.catch_warnings()
    ):  # it is not registered, so it cannot be made again for rendering
        warnings.filterwarnings("ignore", message=".*not having a spec.*")
        env_checker.check_env(env)


def test_gymnasium_finds_no_fault_with_the_vector_environment(market):
    """Gymnasium has no checker for vector environments: those of its checks that fit one."""
    envs = RecommendationVectorEnv(*market, list_length=K, horizon=T, num_envs=4)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.observation_space == batch_space(envs.single_observation_space, 4)
    assert envs.action_space == batch_space(envs.single_action_space, 4)
    assert envs.action_space.shape == (4, K)
    env_checker.check_reset_return_type(envs)
    env_checker.check_reset_seed_determinism(envs)
    env_checker.check_reset_options(envs)
    lists = envs.action_space.sample()
    calls = [envs.reset(seed=1), *(envs.step(lists)[::4] for _ in range(T + 1))]
    for (observation, info), (later, later_info) in combinations(calls, 2):
        assert not data_shares_objects(observation, later)
        assert not data_shares_objects(info, later_info)


def test_an_episode_equals_the_pure_dynamics(market):
    scenario, sensitive = market
    envs = RecommendationVectorEnv(scenario, sensitive, list_length=K, horizon=T)
    envs.action_space.seed(1)
    observation, info = envs.reset()
    state, feedback = scenario.begin(torch.arange(N_USERS))
    rewards = 0.0
    for step in range(1, T + 1):
        assert observation in envs.observation_space
        assert observation["user"].tolist() == list(range(N_USERS))
        assert observation["queue"].tolist() == state.queue.tolist()
        assert info["available"].tolist() == (~state.blocked).tolist()
        lists = envs.action_space.sample()
        observation, reward, terminated, truncated, info = envs.step(lists)
        outcome = advance(state, torch.from_numpy(lists), feedback, sensitive)
        state = outcome.state
        assert reward.tolist() == outcome.reward.tolist()
        assert info["cost"].tolist() == outcome.cost.tolist()
        assert info["cost"].tolist() == sensitive.numpy()[lists].sum(1).tolist()
        assert terminated.tolist() == [False] * N_USERS
        assert truncated.tolist() == [step == T] * N_USERS
        rewards += reward.sum()
    assert rewards > 5  # the random lists hit something, or nothing above was put to the test


def test_it_equals_gymnasiums_own_vectorisation_of_the_single_environment(market):
    ours = RecommendationVectorEnv(*market, list_length=K, horizon=T)
    # One user each, since every single environment goes round its own users.
    theirs = SyncVectorEnv(
        [
            lambda user=user: RecommendationEnv(*market, list_length=K, horizon=T, users=[user])
            for user in range(N_USERS)
        ]
    )
    ours.action_space.seed(2)
    for left, right in zip(ours.reset(), theirs.reset(), strict=True):
        assert_same(left, right)
    for _ in range(2 * T + 3):
        lists = ours.action_space.sample()
        mine, other = ours.step(lists), theirs.step(lists)
        assert_same(mine[0], other[0])
        for left, right in zip(mine[1:4], other[1:4], strict=True):
            np.testing.assert_array_equal(left, right)
        assert_same(mine[4], other[4])
    theirs.close()


def test_the_step_after_the_last_begins_new_episodes(market):
    envs = RecommendationVectorEnv(*market, list_length=K, horizon=2, users=[4, 0, 2], num_envs=2)
    first, _ = envs.reset()
    assert first["user"].tolist() == [4, 0]
    lists = np.tile(np.arange(K), (2, 1))
    envs.step(lists)
    *_, truncated, _ = envs.step(lists)
    assert truncated.tolist() == [True, True]
    observation, reward, _, truncated, info = envs.step(lists)
    assert observation["user"].tolist() == [2, 4]  # round and round
    assert reward.tolist() == [0, 0]
    assert info["cost"].tolist() == [0, 0]
    assert truncated.tolist() == [False, False]
    state, _ = market[0].begin(torch.tensor([2, 4]))
    assert observation["queue"].tolist() == state.queue.tolist()
    assert info["available"].tolist() == (~state.blocked).tolist()


def test_what_an_agent_does_to_its_observations_changes_nothing(market):
    envs = RecommendationVectorEnv(*market, list_length=K, horizon=T)
    twin = RecommendationVectorEnv(*market, list_length=K, horizon=T)
    (seen, info), _ = envs.reset(), twin.reset()
    for _ in range(3):
        lists = envs.action_space.sample()
        for array in (*seen.values(), *info.values()):
            array[:] = 0
        seen, *_, info = envs.step(lists)
        expected, *_, expected_info = twin.step(lists)
        assert_same(seen, expected)
        assert_same(info, expected_info)


def test_a_seed_shuffles_the_users(market):
    envs = RecommendationVectorEnv(*market, list_length=K, horizon=T)
    orders = [envs.reset(seed=seed)[0]["user"].tolist() for seed in (1, 2, 1)]
    assert orders[0] == orders[2] != orders[1]
    assert all(sorted(order) == list(range(N_USERS)) for order in orders)


def test_lists_of_available_items_never_repeat(market):
    env = RecommendationEnv(*market, list_length=1, horizon=T)
    _, info = env.reset(seed=3)
    shown = []
    for _ in range(T):
        item = int(np.flatnonzero(info["available"])[0])
        _, _, _, _, info = env.step(np.array([item]))
        assert not info["available"][item]
        shown.append(item)
    assert len(set(shown)) == T


@pytest.fixture
def simulated(market):
    generator = torch.Generator().manual_seed(6)
    response = ResponseModel(
        *(torch.randn(n, 2, generator=generator) for n in (N_USERS, N_ITEMS)),
        *(torch.randn(n, generator=generator) for n in (N_USERS, N_ITEMS)),
    )
    return SimulatedUsers(response, market[0], SimulationConfig(position_bias=0.5, drift=0.1))


def test_gymnasium_finds_no_fault_with_simulated_users(market, simulated):
    env = RecommendationEnv(simulated, market[1], list_length=K, horizon=T)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*not having a spec.*")
        env_checker.check_env(env)


def test_simulated_users_click_as_often_as_they_should(market, simulated):
    n = 20_000
    envs = RecommendationVectorEnv(
        simulated, market[1], list_length=K, horizon=T, users=[2, 4], num_envs=n
    )
    observation, info = envs.reset(seed=1)
    lists = np.tile([[9, 5, 12]], (n, 1))
    free = info["available"][:, [9, 5, 12]]
    _, reward, *_ = envs.step(lists)
    chance = simulated.response.probabilities(torch.arange(N_USERS)).numpy()[:, [9, 5, 12]]
    for user in (2, 4):
        rows = observation["user"] == user
        each = free[rows][0] * chance[user] / np.sqrt([1, 2, 3])
        error = np.sqrt((each * (1 - each)).sum() / rows.sum())
        assert rows.sum() == n / 2
        assert reward[rows].mean() == pytest.approx(each.sum(), abs=4 * error)
    envs.reset()
    assert (envs.step(lists)[1] != reward).any()  # another episode, other answers
    envs.reset(seed=1)
    np.testing.assert_array_equal(envs.step(lists)[1], reward)


def test_simulated_users_drift_from_step_to_step():
    """One half always clicks, the other never; new tastes are of either half."""
    n_items = 4
    nothing = UserItems(torch.zeros(3, dtype=torch.int64), torch.arange(0), n_items)
    response = ResponseModel(
        torch.tensor([[1.0], [-1.0]]),
        torch.full((n_items, 1), 1e4),
        torch.zeros(2),
        torch.zeros(n_items),
    )
    users = SimulatedUsers(response, Scenario(nothing.last(2), nothing, None))
    users = replace(users, config=SimulationConfig(drift=1.0))
    envs = RecommendationVectorEnv(
        users, np.zeros(n_items), list_length=1, horizon=2, users=[0], num_envs=4000
    )
    envs.reset(seed=0)
    first, second, third = (envs.step(np.full((4000, 1), item))[1].mean() for item in range(3))
    assert first == 1
    assert second == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(4000))
    assert third == 0  # begins the next episode
    assert envs.step(np.full((4000, 1), 3))[1].mean() == 1  # with the tastes of the first


def test_mistakes_are_named(market):
    scenario, sensitive = market
    with pytest.raises(gymnasium.error.ResetNeeded):
        RecommendationEnv(*market, list_length=K, horizon=T).step(np.zeros(K, dtype=np.int64))
    with pytest.raises(ConfigError, match="15 items"):
        RecommendationEnv(scenario, sensitive[:-1], list_length=K, horizon=T)
    with pytest.raises(ConfigError, match="horizon must be at least 1, not 0"):
        RecommendationEnv(*market, list_length=K, horizon=0)
    with pytest.raises(ConfigError, match="at least one user"):
        RecommendationVectorEnv(*market, list_length=K, horizon=T, users=[])
