"""Where episodes begin, what they are made of, and the validation by a direct computation."""

import math

import numpy as np
import pytest
import torch

from fairhorizon.data.splits import Split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.policies import rows_of
from fairhorizon.fcpo.serving import VALIDATION_LENGTH
from fairhorizon.fcpo.training import (
    GaussianEpisodes,
    SoftmaxEpisodes,
    Training,
    where_episodes_begin,
    where_unseen_begins,
)
from fairhorizon.histories import UserItems
from fairhorizon.rankers.candidates import ScoredCandidates
from fairhorizon.recommenders.base import FitTask
from fairhorizon.simulation.feedback import training_scenario


@pytest.fixture(scope="module")
def training(market: Split, small_strong: FcpoConfig) -> Training:
    config = small_strong.model_copy(update={"training_limit": 1.0, "list_length": 2})
    return Fcpo(config, seed=3).training(FitTask.from_split(market))


@pytest.fixture(scope="module")
def episodes(training: Training) -> SoftmaxEpisodes:
    assert isinstance(training.episodes, SoftmaxEpisodes)
    return training.episodes


def log_of(market: Split, user: int) -> list[int]:
    """Items of the training log in time order."""
    return market.train.items[market.train.users == user].tolist()


@pytest.mark.parametrize("starts", ["first", "unseen", "anywhere"])
def test_episodes_begin_where_the_settings_say(
    market: Split, small_strong: FcpoConfig, starts: str
):
    config = small_strong.model_copy(update={"starts": starts, "history": 4})
    items = UserItems.from_log(market.train)
    cuts = where_episodes_begin(items, config, torch.Generator().manual_seed(0))
    scenario = training_scenario(items, 6, config.protocol, cuts)
    begins = where_unseen_begins(items).tolist()
    for user in range(60):
        log = log_of(market, user)
        cut = int(scenario.excluded.counts(torch.tensor([user]))[0])
        if starts == "first":
            assert cut == min(4, len(log))
        elif starts == "anywhere":
            assert min(4, len(log) - 1) <= cut < len(log)
        else:
            assert cut == begins[user]
        assert scenario.queue[user].tolist()[-min(cut, 6) :] == log[:cut][-6:]
        liked = scenario.positive.mask(torch.tensor([user]))[0].nonzero().flatten().tolist()
        assert liked == sorted(log[cut:])


def test_what_is_liked_of_the_first_candidates(episodes: SoftmaxEpisodes, market: Split):
    initial, liked = episodes.initial, episodes.liked()
    begins = where_unseen_begins(UserItems.from_log(market.train)).tolist()
    for row, user in enumerate(initial.users.tolist()):
        later, past = log_of(market, user)[begins[user] :], log_of(market, user)[: begins[user]]
        items = initial.candidate_set.items[row].tolist()
        assert liked[row].tolist() == [item in later for item in items]
        assert not set(items) & set(past)
    assert liked.sum() > 60  # enough to distinguish rankers


def test_episodes_of_a_round(market: Split, training: Training, episodes: SoftmaxEpisodes):
    episodes.config = training.config.model_copy(
        update={"users_per_round": 7, "episodes_per_user": 2, "horizon": 3, "attention": "log"}
    )
    try:
        batch = episodes.generate(torch.Generator().manual_seed(5))
    finally:
        episodes.config = training.config
    assert batch.lists.shape == (14, 3, 2)
    begins = where_unseen_begins(UserItems.from_log(market.train)).tolist()
    for row in range(14):
        user = int(batch.state_users[batch.state_index[row, 0]])
        log = log_of(market, user)
        past, later = log[: begins[user]], set(log[begins[user] :])
        queue = [
            item for item in batch.state_queues[batch.state_index[row, 0]].tolist() if item < 80
        ]
        assert queue == past[-10:]
        for t in range(3):
            hits = [item in later for item in batch.lists[row, t].tolist()]
            reward = hits[0] + hits[1] / math.log2(3)
            assert float(batch.rewards[row, t]) == pytest.approx(reward)
    users = batch.state_users[batch.state_index[:, 0]]
    assert len(users[:7].unique()) == len(users[7:].unique()) == 7


def test_the_validation_equals_a_direct_computation(market: Split, training: Training):
    """Without a limit the likeliest items come first, by the mean of the rows without the price."""
    changed = Fcpo(training.config, seed=3).training(FitTask.from_split(market))
    actor, episodes, generator = changed.actor, changed.episodes, torch.Generator().manual_seed(0)
    assert isinstance(episodes, SoftmaxEpisodes)
    scenario = episodes.validation
    with torch.no_grad():
        for parameter in actor.parameters():  # a policy that distinguishes states
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
    users = torch.arange(60)
    state, _ = scenario.begin(users)
    candidate_set = actor.items.candidate_set(users, state.queue, state.blocked, episodes.sensitive)
    assert isinstance(candidate_set, ScoredCandidates)
    with torch.no_grad():
        weights = rows_of(actor(users, state.queue[:, -10:]), 2).mean(1)
    totals = []
    for user in range(60):
        items, features = candidate_set.items[user].tolist(), candidate_set.features[user].tolist()
        w = weights[user].tolist()[:-1]
        scores = {
            item: sum(a * b for a, b in zip(w, numbers, strict=False))
            for item, numbers in zip(items, features, strict=True)
            if item >= 0
        }
        best = sorted(scores, key=scores.__getitem__, reverse=True)[:VALIDATION_LENGTH]
        (wanted,) = market.validation.items[market.validation.users == user].tolist()
        totals.append(1 / math.log2(best.index(wanted) + 2) if wanted in best else 0.0)
    assert episodes.validate() == pytest.approx(np.mean(totals))
    assert np.mean(totals) > 0.05


def test_a_validation_under_a_limit_is_of_lists_that_keep_it(
    market: Split, small_strong: FcpoConfig
):
    config = small_strong.model_copy(update={"training_limit": 0.2, "candidates": 40})
    episodes = Fcpo(config, seed=3).training(FitTask.from_split(market)).episodes
    assert isinstance(episodes, SoftmaxEpisodes)
    users, queue = episodes.at_validation.users, episodes.validation.queue
    with torch.no_grad():
        candidate_set, length = episodes.at_validation.candidate_set, VALIDATION_LENGTH
        lists = episodes.lists.from_candidates(candidate_set, users, queue[users], length)
    assert (lists >= 0).all()
    assert int(episodes.sensitive[lists].sum()) == 0.2 * 60 * length
    wanted = torch.from_numpy(market.validation.items[np.argsort(market.validation.users)])
    places = (lists == wanted[users, None]).nonzero()[:, 1].tolist()
    ndcg = sum(1 / math.log2(place + 2) for place in places) / 60
    assert episodes.validate() == pytest.approx(ndcg)


def test_who_likes_nothing_has_no_episode(market: Split, small_strong: FcpoConfig):
    """Users whose whole log is one item like nothing later on."""
    rows = np.ones(len(market.train), dtype=bool)
    for user in (3, 8):
        rows[np.flatnonzero(market.train.users == user)[1:]] = False
    shorter = Split(market.train.take(rows), market.validation, market.test)
    episodes = Fcpo(small_strong, seed=3).training(FitTask.from_split(shorter)).episodes
    assert isinstance(episodes, SoftmaxEpisodes)
    assert sorted(set(range(60)) - set(episodes.initial.users.tolist())) == [3, 8]
    assert len(episodes.at_validation.users) == 60


def test_users_are_known_by_what_they_took_before_their_episode(market: Split):
    """Else their vectors, fitted to the log, would say what is rewarded."""
    settings = {"dim": 4, "max_epochs": 2, "alpha": 2.0, "l2": 3.0}
    config = FcpoConfig.preset("tuned", als_embeddings=settings, rounds=1, evaluate_every=1)
    training = Training.begin(
        FitTask.from_split(market), config, torch.zeros(market.train.n_items, dtype=torch.bool), 0
    )
    encoder, episodes = training.actor.encoder, training.episodes
    assert isinstance(episodes, GaussianEpisodes)
    of_log = encoder.user_vectors.clone()
    episodes.generate(torch.Generator().manual_seed(5))
    found = encoder.user_vectors.clone()

    # The same cuts, and every user's ridge regression solved directly.
    items = UserItems.from_log(market.train)
    cuts = where_episodes_begin(items, config, torch.Generator().manual_seed(5)).tolist()
    V = encoder.item_vectors[:-1].double().numpy()

    def solved(taken: list[int]) -> np.ndarray:
        own = V[taken]
        return np.linalg.solve(V.T @ V + 2.0 * own.T @ own + 3.0 * np.eye(4), 3.0 * own.sum(0))

    whole = np.stack([solved(log_of(market, user)) for user in range(60)])
    before = np.stack([solved(log_of(market, user)[: cuts[user]]) for user in range(60)])
    scale = np.sqrt((whole**2).mean())
    np.testing.assert_allclose(of_log.numpy(), whole / scale, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(found.numpy(), before / scale, rtol=1e-3, atol=1e-4)
    assert np.abs(before - whole).max() > 0.1 * scale

    # A round ends with what the policy serves by.
    training.round()
    torch.testing.assert_close(encoder.user_vectors, of_log)
