"""Validation against plain loops, and training that stops and goes back to its best."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairhorizon import ranking
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.rankers import training
from fairhorizon.rankers.training import Validation, train_until_stale
from fairhorizon.vocabulary import Protocol

N_USERS, N_ITEMS = 4, 30


def log_of(rows: list[tuple[int, int]]) -> Interactions:
    table = np.array(rows, dtype=np.int64).reshape(-1, 2)
    return Interactions(table[:, 0], table[:, 1], np.arange(N_USERS), np.arange(N_ITEMS))


def split_of(train: list[list[int]], validation: list[list[int]]) -> Split:
    """Items per user."""
    both = [
        log_of([(user, item) for user, items in enumerate(part) for item in items])
        for part in (train, validation)
    ]
    return Split(*both, test=log_of([]))


def ndcg_by_loop(scores: Tensor, excluded: list[list[int]], validation: list[list[int]]) -> float:
    """A held-out item at rank r (from 0) earns 1 / log2(r + 2) among the first twenty."""
    gains = []
    for user, held_out in enumerate(validation):
        for wanted in held_out:
            rank = 0.0
            for item in range(N_ITEMS):
                if item == wanted or item in excluded[user]:
                    continue
                if scores[user, item] > scores[user, wanted]:
                    rank += 1
                elif scores[user, item] == scores[user, wanted]:
                    rank += 0.5
            gains.append(1 / math.log2(rank + 2) if rank < 20 else 0.0)
    return sum(gains) / len(gains)


@st.composite
def markets(draw: st.DrawFn) -> tuple[list[list[int]], list[list[int]], Tensor]:
    """Users with any number of training and validation items, scores with many ties."""
    train, validation = [], []
    for _ in range(N_USERS):
        items = draw(st.permutations(range(N_ITEMS)))
        known = draw(st.integers(0, 15))
        train.append(items[:known])
        validation.append(items[known : known + draw(st.integers(0, 2))])
    validation[0] = validation[0] or [next(i for i in range(N_ITEMS) if i not in train[0])]
    levels = draw(st.integers(1, 40))
    seed = draw(st.integers(0, 1000))
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(levels, (N_USERS, N_ITEMS), generator=generator).float()
    return train, validation, scores


@settings(deadline=None, max_examples=30)  # a first call may be slow
@given(markets(), st.sampled_from([1, 2 * N_ITEMS, 2**25]), st.sampled_from(Protocol))
def test_ndcg_is_that_of_a_plain_loop(market, scores_at_once, protocol):
    train, validation, scores = market
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "SCORES_AT_ONCE", scores_at_once)
        measure = Validation(split_of(train, validation), 3, protocol)
        measured = measure.ndcg(lambda users, _: scores[users])
    excluded = train if protocol is Protocol.STANDARD else [[]] * N_USERS
    assert measured == pytest.approx(ndcg_by_loop(scores, excluded, validation), abs=1e-6)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_worth_nothing(wrong: float) -> None:
    measure = Validation(split_of([[5, 6], [], [], []], [[7], [], [], []]), 1)
    scores = torch.zeros(N_USERS, N_ITEMS)
    scores[0, 7] = wrong
    assert math.isnan(measure.ndcg(lambda users, _: scores[users]))


def test_the_queue_is_the_end_of_the_training_items() -> None:
    train = [[5, 6, 7], [8], [], [1, 2]]
    validation = Validation(split_of(train, [[9], [9], [9], []]), 2)
    asked: dict[int, list[int]] = {}

    def scores(users: Tensor, queue: Tensor) -> Tensor:
        asked.update(zip(users.tolist(), queue.tolist(), strict=True))
        return torch.zeros(len(users), N_ITEMS)

    validation.ndcg(scores)
    assert asked == {0: [6, 7], 1: [N_ITEMS, 8], 2: [N_ITEMS, N_ITEMS]}


def test_without_validation_items_the_last_training_item_stands_in() -> None:
    train = [[5, 6, 7], [8], [], [1, 2]]
    stand_in = Validation(split_of(train, [[], [], [], []]), 3)
    proper = Validation(split_of([[5, 6], [], [], [1]], [[7], [8], [], [2]]), 3)
    assert torch.equal(stand_in.queue, proper.queue)
    scores = torch.rand(N_USERS, N_ITEMS, generator=torch.Generator().manual_seed(0))
    ndcg = [validation.ndcg(lambda users, _: scores[users]) for validation in (stand_in, proper)]
    assert ndcg[0] == ndcg[1] > 0


def test_of_too_many_users_a_fixed_sample_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 users with an item each; 60 scores are those of two users."""
    train, validation = [[5], [6], [7], [8]], [[1], [2], [3], [4]]
    everyone = Validation(split_of(train, validation), 2)
    assert everyone.users.tolist() == [0, 1, 2, 3]
    monkeypatch.setattr(training, "SCORES_IN_ALL", 2 * N_ITEMS)
    assert len(Validation(split_of(train, validation), 2).users) == 4  # never so few
    monkeypatch.setattr(training, "FEWEST_USERS", 1)
    some, again = (Validation(split_of(train, validation), 2) for _ in range(2))
    assert len(some.users) == 2
    assert some.users[0] < some.users[1]
    assert torch.equal(some.users, again.users)
    assert torch.equal(some.items, some.users + 1)  # each with the item that is the user's own
    scores = torch.rand(N_USERS, N_ITEMS, generator=torch.Generator().manual_seed(1))
    ranks = [
        sum(float(scores[u, i] > scores[u, u + 1]) for i in range(N_ITEMS) if i != u + 5)
        for u in some.users.tolist()
    ]
    expected = sum(1 / math.log2(rank + 2) if rank < 20 else 0.0 for rank in ranks) / 2
    assert some.ndcg(lambda users, _: scores[users]) == pytest.approx(expected)


def train(values: list[float], *, patience: int, max_epochs: int = 100) -> tuple[float, list[int]]:
    """The parameter, which counts epochs, at the end, and the epochs that were run."""
    epoch = torch.zeros(1)
    reported: list[int] = []
    best = train_until_stale(
        {"epoch": epoch},
        lambda: epoch.add_(1),
        lambda: values[int(epoch) - 1],
        max_epochs=max_epochs,
        patience=patience,
        on_epoch=lambda number, value: (
            reported.append(number) if value == values[number - 1] else 0
        ),
    )
    return float(best["epoch"]), reported


def test_stops_after_patience_epochs_and_goes_back_to_the_best() -> None:
    assert train([1, 3, 2, 2, 9], patience=2) == (2, [1, 2, 3, 4])
    assert train([1, 3, 2, 2, 9, 0, 0, 0], patience=3) == (5, [*range(1, 9)])


def test_as_good_as_before_is_not_better() -> None:
    assert train([2, 2, 2, 5], patience=2) == (1, [1, 2, 3])


def test_ends_with_the_last_epoch_at_the_latest() -> None:
    assert train([1, 2, 3, 4], patience=1, max_epochs=3) == (3, [1, 2, 3])


def test_a_diverged_training_is_said() -> None:
    with pytest.raises(ConfigError, match=r"diverged .*learning_rate"):
        train([math.nan] * 5, patience=2)
    broken = {"weights": torch.tensor([math.inf])}
    with pytest.raises(ConfigError, match="diverged"):
        train_until_stale(broken, lambda: None, lambda: 1.0, max_epochs=1, patience=1)
