"""Standing, probabilities and the value of an item: by hand, and by known truths."""

import pytest
import torch

from fairhorizon.fcpo.config import RetentionConfig
from fairhorizon.fcpo.retention.critics import has_both_offers, spent
from fairhorizon.fcpo.retention.model import RetentionModel
from fairhorizon.recommenders.responses import (
    CHURN_FEATURES,
    LAST,
    LEAST_SLOPE,
    USER_FEATURES,
    LikeProbabilities,
    ResponseHistory,
    Shown,
)


def test_standing_by_hand() -> None:
    responses = ResponseHistory(torch.tensor([0, 6]))
    for items, liked in (([3, 4], [True, False]), ([5, -1], [False, False]), ([6, 7], [False, 1])):
        responses.see(torch.tensor(items)[:, None], torch.tensor(liked)[:, None].bool())
    assert responses.answers[:, LAST - 3 :].tolist() == [[1, -1, -1], [0, -1, 1]]
    assert responses.since.tolist() == [2, 0]
    assert responses.stay.tolist() == [3, 2]
    assert responses.likes.tolist() == [1, 1]
    assert responses.faded[0].tolist() == pytest.approx([0.64, 0.81, 0.9216])
    assert responses.faded[1].tolist() == [1, 1, 1]
    assert responses.rates[0].tolist() == pytest.approx([1.15 / 4, (1 + 0.15 * 6) / 9])
    assert responses.churn().shape == (2, CHURN_FEATURES)
    assert responses.of_users()[1, :2].tolist() == pytest.approx(
        [1, torch.tensor(7.0).log().item()]
    )


def shown_by(weights: list[float], n: int = 60_000, seed: int = 0) -> Shown:
    """Answers drawn from a logistic model."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, len(weights), generator=generator)
    x[:, 0] = 1.0
    chance = torch.sigmoid(x @ torch.tensor(weights))
    liked = torch.rand(n, generator=generator) < chance
    return Shown(x[:, :USER_FEATURES], x[:, USER_FEATURES:], liked)


def test_chances_are_those_that_answers_were_drawn_by() -> None:
    truth = [-1.5, 0.4, 0.8, 0.0, -0.2, 0.6, 0.5, -0.3, 0.2, 0.0]
    probabilities = LikeProbabilities()
    probabilities.fit(shown_by(truth))
    assert (probabilities.weights - torch.tensor(truth)).abs().max() < 0.05
    users, score = torch.ones(1, USER_FEATURES), torch.tensor([[2.0, -torch.inf]])
    found = probabilities.predict(users, score, torch.tensor([1.0, 0.0]), torch.zeros(1, 1))
    weights = probabilities.weights
    logit = weights[:USER_FEATURES].sum() + 2 * weights[USER_FEATURES] + weights[USER_FEATURES + 1]
    assert found[0].tolist() == pytest.approx([torch.sigmoid(logit).item(), 0.0], rel=1e-5)


def test_an_item_that_is_preferred_is_never_less_likely() -> None:
    probabilities = LikeProbabilities()
    probabilities.fit(shown_by([-1.0, 0.3, 0.0, 0.0, 0.0, -0.7, 0.2, 0.0, 0.1, 0.0], n=5000))
    assert probabilities.weights[USER_FEATURES] == pytest.approx(LEAST_SLOPE)
    assert probabilities.weights[0] == pytest.approx(-1.0, abs=0.2)


def retention_of(
    answers: list[list[int]], gamma: float, settings: RetentionConfig | None = None
) -> RetentionModel:
    """A user a row, a step a column: 1 a like, 0 none, -1 gone before, -2 none and gone over it."""
    retention = RetentionModel(gamma, settings=settings, seed=0)
    table = torch.tensor(answers)
    retention.begin(torch.zeros(len(table)))
    for column in table.T:
        scores = torch.zeros(len(table), 1).masked_fill((column == -1)[:, None], -torch.inf)
        items = retention.valued(scores, torch.tensor([False]))
        lists = torch.where(column == -1, -1, 0)[:, None]
        retention.note(items, lists, (column == 1)[:, None], column >= 0)
    return retention


def test_a_value_is_the_chance_times_what_a_like_is_worth() -> None:
    retention = retention_of([[1, 0, 1, 0], [0, 0, -2, -1], [1, 1, 0, 1]] * 20, gamma=0.9)
    scores = torch.tensor([[0.5, -torch.inf], [1.0, 2.0], [-torch.inf, -torch.inf]] * 20)
    group = torch.tensor([True, False])
    assert torch.equal(retention.valued(scores, group).values, scores)  # nothing is learned yet
    retention.learn()
    with torch.no_grad():
        retention.actor.body[-1].weight.fill_(0.5)
    items = retention.valued(scores, group)
    values = items.values
    probabilities = retention.probabilities.predict(
        retention.responses.of_users(), scores, group.float(), torch.zeros(1, 1)
    )
    open_items = scores > -torch.inf
    worth = retention.worth(items)
    assert torch.allclose(values[open_items], (probabilities * worth[:, None])[open_items])
    assert (values[~open_items] == -torch.inf).all()
    here = retention.here
    assert float(worth[here].mean()) == pytest.approx(1, rel=1e-5)
    assert 0 < here.sum() < len(here)
    assert worth.max() > 1.05 * worth.min()
    states = retention.states(items)
    none, like = sum(critics(states) / 2 for critics in retention.likes).unbind(1)
    assert torch.allclose(retention.gains(items), 0.9 * (like - none).clamp(min=0))
    retention.gamma = 0.0
    assert torch.allclose(
        retention.valued(scores, group).values[open_items], probabilities[open_items]
    )


def test_offers_are_the_best_of_both_sides_after_charges() -> None:
    retention = retention_of([[1, 0, 1], [0, 1, 1]] * 10, gamma=0.9)
    retention.learn()
    scores, group = torch.tensor([[2.0, 1.0, 0.0, 1.5]] * 20), torch.tensor([1, 1, 0, 0])
    items = retention.valued(scores, group.bool())
    charges = torch.tensor([50.0, 0.25, 0.0, 0.0])  # of the first item nothing is left
    lists, here = torch.full((20, 1), 3), torch.ones(20, dtype=torch.bool)
    retention.note(items, lists, torch.zeros(20, 1, dtype=torch.bool), here, charges)
    step = retention.runs[-1][-1]
    assert step.offers[0].tolist() == [[1.0, 1.0, 0, 0, 0], [1.5, 0.0, 0, 0, 0]]
    assert has_both_offers(step).all()
    first = retention.runs[-1][0]  # there was one item alone
    assert not has_both_offers(first).any()
    assert spent(step, 0.3).tolist() == pytest.approx([-0.3] * 20)


@pytest.mark.slow
def test_what_was_learned_is_the_same_after_a_file() -> None:
    retention = retention_of([[1, 0, 1, 0], [0, 0, -2, -1], [1, 1, 0, 1]] * 10, gamma=0.9)
    retention.learn()
    other = RetentionModel(0.9, seed=0)
    other.restore({name: value.clone() for name, value in retention.tensors().items()})
    scores, group = torch.randn(30, 7), torch.zeros(7)
    assert torch.equal(retention.valued(scores, group).values, other.valued(scores, group).values)
    retention.learn()
    other.learn()
    assert torch.equal(retention.valued(scores, group).values, other.valued(scores, group).values)


def test_it_learns_again_when_a_hundredth_of_the_answers_is_new() -> None:
    retention = retention_of([[1, 0]] * 49 + [[1, 1]], gamma=0.0)
    assert retention.has_news  # nothing was learned from the 100 answers
    retention.learn()
    assert retention.learned_from == 100
    lists = torch.where(torch.arange(50) < 1, 0, -1)[:, None]  # a showing to one user
    for _ in range(2):  # 1 of 101 answers is too little, 2 of 102 are enough
        assert not retention.has_news
        items = retention.valued(torch.zeros(50, 1), torch.tensor([False]))
        retention.note(items, lists, torch.zeros(50, 1, dtype=torch.bool), retention.here)
    assert retention.has_news
    other = RetentionModel(0.0, seed=0)
    other.restore(retention.tensors())
    assert (other.learned_from, other.has_news) == (100, True)
