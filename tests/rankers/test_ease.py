"""EASE against a ridge regression for every item, and on a market of two worlds."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split, split
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.short_term import evaluate
from fairhorizon.histories import UserItems, longest_history, weighted_history
from fairhorizon.rankers import ease
from fairhorizon.rankers.ease import Ease, EaseConfig, RecentEase, RecentEaseConfig, co_counts
from fairhorizon.rankers.selection import frequent_part
from fairhorizon.recommenders.ranked.model import Ranked


def matrix(log: Interactions) -> NDArray[np.float64]:
    taken = np.zeros((log.n_users, log.n_items))
    taken[log.users, log.items] = 1
    return taken


@pytest.mark.parametrize("l2", [0.5, 20.0, 500.0])
@pytest.mark.parametrize("recent", [False, True])
def test_every_column_is_a_ridge_regression_on_the_other_items(
    market: Split, l2: float, recent: bool
) -> None:
    """Of the published method, and of the variant where all pairs count equally."""
    plain = Ease(EaseConfig(l2=l2)), RecentEase(RecentEaseConfig(l2=l2, training_half_life=None))
    model = plain[recent].fit(market)
    taken = matrix(market.train)
    for item in range(market.train.n_items):
        others = np.arange(market.train.n_items) != item
        x = taken[:, others]
        expected = np.linalg.solve(x.T @ x + l2 * np.eye(x.shape[1]), x.T @ taken[:, item])
        np.testing.assert_allclose(model.item_weights_[others, item], expected, atol=2e-5)
        assert model.item_weights_[item, item] == 0


def test_the_published_method_has_one_setting_and_no_recency(market: Split) -> None:
    """Scores are X B for X of zeros and ones, whatever the order of the items."""
    model = Ease().fit(market)
    assert EaseConfig().model_dump() == {"l2": 500.0}
    users, taken = torch.arange(market.train.n_users), matrix(market.train)
    history = ordered_history(market.train, model.queue_length)
    expected = taken @ model.item_weights_.double().numpy()
    np.testing.assert_allclose(model.scores(users, history), expected, atol=1e-5)
    backwards = model.scores(users, history.flip(1))
    np.testing.assert_allclose(backwards, expected, atol=1e-5)


def test_strengths_of_a_log_with_weights_stand_in_place_of_ones() -> None:
    """X^T X by hand: user 0 took items 0 and 1, user 1 items 1 and 2."""
    histories = UserItems(torch.tensor([0, 2, 4]), torch.tensor([0, 1, 1, 2]), 3)
    gram = Ease()._gram(histories, torch.tensor([2.0, 0.5, 1.0, 3.0]))
    assert gram.tolist() == [[4.0, 1.0, 0.0], [1.0, 1.25, 3.0], [0.0, 3.0, 9.0]]
    assert Ease()._gram(histories, None).tolist() == [[1, 1, 0], [1, 2, 1], [0, 1, 1]]


@pytest.mark.parametrize("half_life", [None, 0.7, 3.0])
def test_pairs_count_by_their_distance(market: Split, half_life: float | None) -> None:
    log = market.train
    expected = np.zeros((log.n_items, log.n_items))
    for user in range(log.n_users):
        items = log.items[log.users == user]
        for i, first in enumerate(items):
            for j, second in enumerate(items):
                expected[first, second] += 2 ** (-abs(i - j) / half_life) if half_life else 1
    counts = co_counts(UserItems.from_log(log), half_life, longest_history(market))
    np.testing.assert_allclose(counts, expected, atol=1e-5)
    assert np.linalg.eigvalsh(counts.double()).min() > -1e-4


def test_scores_are_the_weighted_history_times_the_weights(market: Split) -> None:
    model = RecentEase(RecentEaseConfig(l2=5.0, half_life=1.0)).fit(market)
    pad, weights = market.train.n_items, model.item_weights_
    scores = model.scores(torch.tensor([0, 1]), torch.tensor([[3, 9, 4], [pad, pad, 7]]))
    torch.testing.assert_close(scores[0], weights[4] + weights[9] / 2 + weights[3] / 4)
    torch.testing.assert_close(scores[1], weights[7])


def test_plain_ease_rebuilds_the_training_matrix_from_whole_histories(market: Split) -> None:
    model = RecentEase(RecentEaseConfig(l2=5.0, half_life=None)).fit(market)
    history = ordered_history(market.train, model.queue_length)
    scores = model.scores(torch.arange(market.train.n_users), history)
    expected = matrix(market.train) @ model.item_weights_.double().numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-5)


def ordered_history(log: Interactions, n: int) -> torch.Tensor:
    """Queues by a loop."""
    queue = np.full((log.n_users, n), log.n_items)
    for user in range(log.n_users):
        items = log.items[log.users == user]
        queue[user, n - len(items) :] = items
    return torch.from_numpy(queue)


def test_the_recent_taste_wins_over_the_old_one() -> None:
    """Items 0..9 are one world, 10..19 the other; most users live in one, the last one moved."""
    rng = np.random.default_rng(0)
    rows = [(user, item + 10 * (user % 2)) for user in range(40) for item in rng.permutation(10)]
    rows += [(40, item) for item in (0, 1, 2, 3, 4, 5, 10, 11)]
    users, items = np.array(rows).T
    parts = split(from_arrays(users, items))
    model = RecentEase(RecentEaseConfig(l2=20.0, half_life=0.5)).fit(parts)
    queue = torch.tensor([[0, 1, 2, 3, 4, 5, 10, 11]])
    recent = model.scores(torch.tensor([40]), queue)[0]
    assert recent[12:].min() > recent[6:10].max()
    plain = RecentEase(RecentEaseConfig(l2=20.0, half_life=None)).fit(parts)
    whole = plain.scores(torch.tensor([40]), queue)[0]
    assert whole[12:].max() < whole[6:10].min()


def test_finds_all_that_is_held_out_where_worlds_do_not_mix() -> None:
    """Even users take all even items, odd users all odd ones: the test items are all that is left.

    8 of 10 items are known before the test, so the first two of a list must be the other two.
    """
    rng = np.random.default_rng(2)
    rows = [(user, 2 * item + user % 2) for user in range(60) for item in rng.permutation(10)]
    users, items = np.array(rows).T
    parts = split(from_arrays(users, items))
    result = evaluate(Ranked(RecentEase(RecentEaseConfig(l2=20.0))).fit(parts), parts, ks=(2,))
    assert result.metrics["recall@2"] == result.metrics["ndcg@2"] == 1


def test_in_a_large_catalogue_only_frequent_items_are_weighed(
    market: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the log had no others, which score 0."""
    monkeypatch.setattr(ease, "MOST_ITEMS", 79)
    monkeypatch.setattr(ease, "FREQUENT", 30)
    config = RecentEaseConfig(popularity=0.2)
    model = RecentEase(config).fit(market)
    counts = market.train.item_counts()
    frequent = np.sort(np.argsort(-counts, kind="stable")[:30])
    assert model.item_weights_.shape == (30, 30)
    assert (model.numbers_ >= 0).nonzero().squeeze(1).tolist() == frequent.tolist()
    few = frequent_part(market, most_users=10**6, most_items=30, seed=0)
    alone = RecentEase(config).fit(few)
    np.testing.assert_allclose(model.item_weights_, alone.item_weights_, atol=1e-6)
    users, pad = torch.arange(3), market.train.n_items
    rare = int(np.argsort(counts, kind="stable")[0])
    queue = torch.tensor([[int(frequent[3]), int(frequent[5])], [rare, rare], [pad, pad]])
    scores = model.scores(users, queue)
    own = alone.scores(users[:1], torch.tensor([[3, 5]]))
    torch.testing.assert_close(scores[0, torch.from_numpy(frequent)], own[0])
    others = np.setdiff1d(np.arange(pad), frequent)
    assert not scores[0, torch.from_numpy(others)].any()
    assert not scores[1:].any()
    wanted = torch.tensor([rare, int(frequent[7])])
    added = model.contributions(queue[0], wanted)
    torch.testing.assert_close(added.sum(0), scores[0, wanted])
    again = RecentEase.from_parts(model.tensors(), model.description())
    assert torch.equal(again.scores(users, queue), scores)


def test_too_little_regularisation_is_said() -> None:
    """Two items that always go together make X^T X singular."""
    log = from_arrays(np.repeat(np.arange(9), 2), [0, 1] * 9)
    parts = Split(log, log.take([]), log.take([]))
    with pytest.raises(ConfigError, match=r"no solution \(set a larger l2"):
        RecentEase(RecentEaseConfig(l2=1e-12, training_half_life=None)).fit(parts)


def test_few_recent_items_are_looked_up_and_many_multiplied_to_the_same_scores():
    """The two ways to compute w B, with padding and an item that comes twice."""
    generator = torch.Generator().manual_seed(3)
    model = RecentEase(RecentEaseConfig(half_life=2.0))
    model.item_weights_, model.longest_ = torch.randn(400, 400, generator=generator), 500
    model.numbers_ = torch.arange(400)
    queue = torch.randint(400, (6, 45), generator=generator)
    queue[1, :43], queue[2], queue[3, 40] = 400, 400, queue[3, 44]
    weighted = weighted_history(queue[:, -40:], 400, 2.0)  # 20 half-lives
    assert model.queue_length == 40
    scores = model.scores(torch.arange(6), queue)
    assert torch.allclose(scores, weighted @ model.item_weights_, atol=1e-5)
    assert torch.equal(scores[2], torch.zeros(400))
    every = RecentEase(RecentEaseConfig(half_life=None))
    every.item_weights_, every.longest_ = model.item_weights_, 60
    every.numbers_ = model.numbers_
    dense = weighted_history(queue, 400, None) @ model.item_weights_
    assert torch.allclose(every.scores(torch.arange(6), queue), dense, atol=1e-5)
    assert torch.allclose(every.scores(torch.arange(6), queue[:, -45:]), dense, atol=1e-5)


def test_scores_are_divided_by_a_power_of_the_count(market: Split) -> None:
    plain = RecentEase(RecentEaseConfig(l2=5.0)).fit(market)
    counts = np.bincount(market.train.items, minlength=80)
    assert counts.min() < 1 < counts.max()  # an item that nobody took is divided by 1
    users, queue = torch.tensor([0, 1]), torch.tensor([[3, 9, 4], [80, 80, 7]])
    for exponent in (0.0, 0.4, 1.0):
        model = RecentEase(RecentEaseConfig(l2=5.0, popularity=exponent)).fit(market)
        scale = torch.tensor([max(1, count) ** exponent for count in counts])
        torch.testing.assert_close(
            model.scores(users, queue), plain.scores(users, queue) / scale, check_dtype=False
        )
