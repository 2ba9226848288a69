"""PPO among users who quit: its vector environment, worked by hand and against the long run."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.buffers import RolloutBuffer

from fairhorizon.data.splits import split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.limits.counts import Exposure
from fairhorizon.rankers.ease import Ease
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.rankers.popularity import Popularity
from fairhorizon.simulation.churn import ChurnConfig, QuitRule
from fairhorizon.simulation.simulated import SimulatedUsers, SimulationConfig
from fairhorizon.vocabulary import Protocol
from quit_ppo import (
    FORGETTING,
    LAST,
    SCALES,
    PpoSettings,
    PresentRollouts,
    StaysVecEnv,
    View,
    WeightsServer,
    group_features,
    trained,
)

USERS, ITEMS, KINDS, STEPS = 30, 24, 4, 8
MARKET = synthetic(USERS, ITEMS, 6, seed=2)
PARTS = split(MARKET.interactions)
COUNTS = PARTS.train.item_counts()
OF_KIND = torch.eye(KINDS)[torch.arange(ITEMS) % KINDS]
ENSEMBLE = Ensemble((Ease().fit(PARTS), Popularity().fit(PARTS)), (0.7, 0.3))
BORED = ChurnConfig(quits=QuitRule(most=1, of=3))


def users_of(churn: ChurnConfig) -> SimulatedUsers:
    own = SimulationConfig(churn=churn)
    history = ENSEMBLE.queue_length
    return SimulatedUsers.from_split(MARKET, PARTS, history, Protocol.STANDARD, own, 1, OF_KIND)


def environment(churn: ChurnConfig = BORED, limit: float = 0.5) -> StaysVecEnv:
    return StaysVecEnv(users_of(churn), COUNTS, View(ENSEMBLE, OF_KIND, limit, STEPS), seed=4)


def standing_still(env: StaysVecEnv) -> np.ndarray:
    return np.zeros((env.num_envs, env.view.n_weights), dtype=np.float32)


def test_the_item_with_the_highest_weighted_sum_is_shown() -> None:
    """Sums made anew from the rankers' own scores, user by user."""
    env, rng = environment(ChurnConfig(quits=QuitRule(most=7, of=8))), np.random.default_rng(0)
    env.reset()
    lately = torch.zeros(USERS, KINDS)
    for _ in range(4):
        state, group = env.gym._state, env.exposure.sensitive.clone()
        counts, open_items = env.exposure.counts.copy(), (~state.blocked).numpy()
        actions = rng.normal(size=(USERS, 5)).astype(np.float32)
        before = env.exposure.shown.copy()
        raw = [ranker.scores(state.users, state.queue).double() for ranker in ENSEMBLE.rankers]
        z = [(s - s.mean(1, keepdim=True)) / s.std(1, correction=0, keepdim=True) for s in raw]
        expected = []
        least = counts[group.numpy()].min()
        for user in range(USERS):
            a = actions[user].astype(float)
            sums = (0.7 + a[0]) * z[0][user] + (0.3 + a[1]) * z[1][user]
            for item in range(ITEMS):
                sums[item] += SCALES[0] * a[2] * float(group[item])
                sums[item] += SCALES[1] * a[3] * min(1.0, counts[item] / least)
                sums[item] += SCALES[2] * a[4] * float(lately[user, item % KINDS])
            sums[~open_items[user]] = -np.inf
            expected.append(int(sums.argmax()))
        env.step(actions)
        shown = env.exposure.shown - before
        assert shown.tolist() == np.bincount(expected, minlength=ITEMS).tolist()
        lately = FORGETTING * lately + OF_KIND[expected]
        assert torch.allclose(env.view.lately, lately)


def test_rewards_are_likes_less_what_the_limit_takes() -> None:
    """The same run twice: a multiplier of 2 at a limit of 50 % takes 1, or gives 1, a showing."""
    plain, priced = environment(), environment()
    priced.penalty = 2.0
    plain.reset()
    priced.reset()
    for _ in range(3):
        here = plain.view.here.clone()
        group = plain.exposure.sensitive.clone()
        actions = standing_still(plain)
        seen = plain.gym._state.blocked_sets.mask().clone()
        _, likes, done, _ = plain.step(actions)
        _, rewards, _, _ = priced.step(actions)
        if done.all():
            break
        new = plain.gym._state.blocked_sets.mask() & ~seen
        popular = (new & group).any(1).numpy()
        assert set(likes.tolist()) <= {0.0, 1.0}
        expected = likes - np.where(here.numpy(), np.where(popular, 1.0, -1.0), 0.0)
        assert rewards.tolist() == expected.tolist()
        assert not likes[~here.numpy()].any()


def test_who_leaves_is_done_and_waits_until_all_begin_anew() -> None:
    env = environment()
    first = env.reset()
    assert (first[:, 0] == 1).all()
    gone, ended, showings, left = np.zeros(USERS, dtype=bool), 0, 0, set()
    for step in range(STEPS):
        showings += int((~gone).sum())
        known, rewards, done, infos = env.step(standing_still(env))
        assert done[gone].all()
        assert not rewards[gone].any()
        new = done & ~gone
        assert [row for row, info in enumerate(infos) if "terminal_observation" in info] == list(
            np.flatnonzero(new)
        )
        ended += int(new.sum())
        left |= {step} if new.any() else set()
        gone |= done
        if gone.all():
            break
        assert (known[:, 0] == ~gone).all()
        assert not known[gone].any()
    assert 1 < len(left) <= STEPS  # some leave before the others
    assert ended == USERS
    assert env.showings == showings
    assert (known[:, 0] == 1).all()  # all begin anew
    assert known[:, : 1 + LAST].tolist() == first[:, : 1 + LAST].tolist()
    assert env.exposure.n_shown == 0


def test_a_run_that_begins_anew_has_the_scores_of_the_first() -> None:
    """Likes change histories and scores; a new run begins with those before."""
    env = environment(ChurnConfig(quits=QuitRule(most=7, of=8)))
    env.reset()
    tables = [values.clone() for values in env.view._features.values]
    liked = sum(float(env.step(standing_still(env))[1].sum()) for _ in range(STEPS))
    assert liked > 0
    now = env.view._features.values
    assert all(torch.equal(one, other) for one, other in zip(now, tables, strict=True))
    assert torch.allclose(env.view._table, 0.7 * tables[0] + 0.3 * tables[1])


def test_observations_say_nothing_of_patience() -> None:
    """Users with other patience who give the same answers look the same while all are there."""
    rule, some = QuitRule(most=7, of=8), (None, 2.0, 40.0)
    environments = [
        environment(ChurnConfig(quits=rule, patience=mean, like_adds=2)) for mean in some
    ]
    seen = [env.reset() for env in environments]
    for _ in range(4):
        assert seen[0].tolist() == seen[1].tolist() == seen[2].tolist()
        left = [env.gym._audience.churn.patience.left for env in environments]
        assert all((left[2] > other).all() for other in left[:2])
        seen = [env.step(standing_still(env))[0] for env in environments]
    assert (seen[1][:, 0] == 0).any()  # some of them have lost their patience by now
    assert (seen[2][:, 0] == 1).all()


def test_the_learner_sees_who_was_there_once_an_epoch() -> None:
    env = environment()
    buffer = PresentRollouts(3, env.observation_space, env.action_space, "cpu", n_envs=USERS)
    known, starts = env.reset(), np.ones(USERS)
    expected = []
    for _ in range(3):
        expected += [row.tolist() for row in known if row[0] == 1]
        later, rewards, done, _ = env.step(standing_still(env))
        zeros = torch.zeros(USERS)
        buffer.add(known, standing_still(env), rewards, starts, zeros, zeros)
        known, starts = later, done
    buffer.compute_returns_and_advantage(torch.zeros(USERS), done)
    batches = list(buffer.get(10))
    found = [row.tolist() for batch in batches for row in batch.observations]
    assert sorted(found) == sorted(expected)
    assert isinstance(buffer, RolloutBuffer)
    assert len(batches) == round(len(expected) / 10)


def test_in_a_long_run_action_0_is_the_ensemble() -> None:
    """Likes, showings and shares of the server are those of the environment without answers."""
    view = View(ENSEMBLE, OF_KIND, 0.5, STEPS)
    settings = LongRunSettings(steps=2, alpha_prime=0.5, warm_up=0)
    run = LongRun(WeightsServer(view), users_of(BORED), Exposure(COUNTS), settings)
    first = run.step()
    env = environment()
    env.reset()
    env.step(standing_still(env))
    assert first["showings"] == 1
    assert run.exposure.shown.tolist() == env.exposure.shown.tolist()
    expected = env.exposure.rate(settings.labels)
    assert first["limited_rate"] == pytest.approx(expected)


def test_near_the_group_by_hand() -> None:
    exposure = Exposure(np.array([9, 1, 4, 2, 0]))
    assert exposure.sensitive.tolist() == [True, False, False, False, False]
    expected = [[1, 0, 0, 0, 0], [1, 1 / 9, 4 / 9, 2 / 9, 0]]
    assert torch.allclose(group_features(exposure), torch.tensor(expected))


@pytest.mark.slow
def test_ppo_learns_to_keep_users() -> None:
    """Users stay longer than with the weights that it begins with; the same for the same seed."""
    settings = replace(PpoSettings(), steps=STEPS, learning_rate=1e-3)

    def showings(policy: PPO | None) -> float:
        view = View(ENSEMBLE, OF_KIND, 0.5, STEPS)
        own = LongRunSettings(steps=STEPS, alpha_prime=0.5, warm_up=0)
        run = LongRun(WeightsServer(view, policy), users_of(BORED), Exposure(COUNTS), own)
        while not run.finished:
            row = run.step()
        return float(row["showings"])

    after = showings(trained(environment(), settings, 1000, seed=0))
    assert after > 1.3 * showings(None)
    short = [trained(environment(), settings, 100, seed=0) for _ in range(2)]
    one, other = (policy.policy.state_dict() for policy in short)
    assert all(torch.equal(one[name], other[name]) for name in one)
