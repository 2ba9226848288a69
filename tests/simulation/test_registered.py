"""The environments by an id of Gymnasium: costs of several limits, by hand."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils import env_checker
from gymnasium.vector import AutoresetMode

from fairhorizon.data.splits import split
from fairhorizon.data.synthetic import synthetic_market
from fairhorizon.errors import ConfigError
from fairhorizon.limits.groups import popular_group

MARKET = "synthetic:users=20,items=30,interactions_per_user=8"
NAME = "fairhorizon.simulation.registered:FairHorizon/Recommendation-v0"
LIMITS = ["popular<=0.4", "popular>=0.1"]


def popular() -> np.ndarray:
    parts = split(synthetic_market(MARKET).interactions)
    return popular_group(parts.train.item_counts())


def test_gymnasium_finds_no_fault() -> None:
    env = gymnasium.make(NAME, data=MARKET, limits=LIMITS, list_length=2, horizon=4)
    env_checker.check_env(env.unwrapped)


def test_a_showing_costs_1_of_a_limit_and_of_a_floor_what_is_not_in_its_group() -> None:
    env = gymnasium.make(NAME, data=MARKET, limits=LIMITS, list_length=3, horizon=4)
    names = [(one.name, one.budget) for one in env.unwrapped.limits]
    assert names == [("popular<=0.4", 0.4), ("popular>=0.1", pytest.approx(0.9))]
    _, info = env.reset(seed=2)
    assert info["costs"].tolist() == [0, 0]
    inside, outside = np.flatnonzero(popular()), np.flatnonzero(~popular())
    *_, info = env.step(np.array([inside[0], outside[0], outside[1]]))
    assert info["costs"].tolist() == [1, 2]
    assert info["cost"] == 1  # equation 9, of the popular group
    *_, info = env.step(inside[1:4])
    assert info["costs"].tolist() == [3, 0]


def test_several_users_at_once_and_who_has_left_costs_nothing() -> None:
    envs = gymnasium.make_vec(
        NAME, num_envs=20, data=MARKET, limits=LIMITS, horizon=30, patience=2.0
    )
    assert envs.metadata["autoreset_mode"] is AutoresetMode.DISABLED
    _, info = envs.reset(seed=3)
    group, gone = popular(), np.zeros(20, dtype=bool)
    for _ in range(29):
        # the first item that may be shown
        actions = info["available"].argmax(1)
        _, _, left, _, info = envs.step(actions[:, None])
        inside = group[actions]
        assert info["costs"].tolist() == [
            [0, 0] if away else [float(one), float(not one)]
            for one, away in zip(inside.tolist(), gone.tolist(), strict=True)
        ]
        gone = left
    assert 0 < gone.sum() <= 20


def test_users_of_a_log_like_their_test_items(tmp_path) -> None:
    file = tmp_path / "log.csv"
    rows = [f"{user},{(user + n) % 12},{n}" for user in range(6) for n in range(10)]
    file.write_text("\n".join(["user,item,time", *rows]) + "\n")
    env = gymnasium.make(NAME, data=str(file), limits=["popular<=0.5"], horizon=2)
    observation, _ = env.reset(seed=0)
    user = int(observation["user"])
    _, reward, *_ = env.step(np.array([(user + 9) % 12]))  # the last of the user's ten
    assert reward == 1.0
    with pytest.raises(ConfigError, match="never leave"):
        gymnasium.make(NAME, data=str(file), patience=3.0)


def test_a_limit_that_is_no_share_of_all_showings_is_refused() -> None:
    with pytest.raises(ConfigError, match="counts all showings alike"):
        gymnasium.make(NAME, data=MARKET, limits=["popular<=0.4@5"])
