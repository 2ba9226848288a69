"""Item-kNN against plain loops."""

import math

import numpy as np
import pytest
import torch

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split
from fairhorizon.rankers import itemknn
from fairhorizon.rankers.itemknn import ItemKnn, ItemKnnConfig, RecentItemKnn, RecentItemKnnConfig


def similarity_by_loop(log: Interactions, shrinkage: float) -> np.ndarray:
    takers = [set(log.users[log.items == item].tolist()) for item in range(log.n_items)]
    table = np.zeros((log.n_items, log.n_items))
    for i, first in enumerate(takers):
        for j, second in enumerate(takers):
            if i != j and first & second:
                scale = math.sqrt(len(first) * len(second)) + shrinkage
                table[i, j] = len(first & second) / scale
    return table


@pytest.mark.parametrize("shrinkage", [0.0, 3.0])
@pytest.mark.parametrize("cells", [1, 7 * 80, 2**24])
def test_neighbours_and_scores_are_those_of_loops(
    market: Split, shrinkage: float, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(itemknn, "CELLS", cells)
    config = RecentItemKnnConfig(neighbours=7, shrinkage=shrinkage, half_life=1.0)
    model = RecentItemKnn(config).fit(market)
    table = similarity_by_loop(market.train, shrinkage)
    best = -np.sort(-table, axis=1)[:, :7]
    np.testing.assert_allclose(model.similarities_, best, atol=1e-6)
    chosen = np.take_along_axis(table, model.neighbours_.numpy(), axis=1)
    np.testing.assert_allclose(chosen, best, atol=1e-6)

    queue = [[80, 5, 11, 60], [80, 80, 80, 80]]
    scores = model.scores(torch.tensor([0, 1]), torch.tensor(queue))
    for item in range(80):
        expected = sum(
            weight * table[item, taken]
            for taken, weight in ((5, 1 / 4), (11, 1 / 2), (60, 1))
            if taken in model.neighbours_[item]
        )
        assert float(scores[0, item]) == pytest.approx(expected, abs=1e-6)
    assert not scores[1].any()


@pytest.mark.parametrize("recent", [False, True])
def test_cosines_by_hand(recent: bool) -> None:
    """Item 0 is taken by users 0 1 2 3, item 1 by 0 1 2, item 2 by 3, item 3 by none."""
    users, items = np.array([0, 1, 2, 3, 0, 1, 2, 3]), np.array([0, 0, 0, 0, 1, 1, 1, 2])
    log = Interactions(users, items, np.arange(4), np.arange(4))
    parts = Split(log, log.take([]), log.take([]))
    plain = RecentItemKnnConfig(neighbours=10, shrinkage=0.0, half_life=None)
    published = ItemKnn(ItemKnnConfig(neighbours=10))
    model = (RecentItemKnn(plain) if recent else published).fit(parts)
    assert model.neighbours_.shape == (4, 4)  # there are no more
    scores = model.scores(torch.tensor([0, 1]), torch.tensor([[4, 0], [1, 2]]))
    common = 3 / math.sqrt(4 * 3)
    expected = [[0, common, 1 / 2, 0], [common + 1 / 2, 0, 0, 0]]
    torch.testing.assert_close(scores, torch.tensor(expected))


def test_a_large_catalogue_is_scored_from_the_history_to_the_same_sums(
    market: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Padding, an item that comes twice and an empty queue; a second fit forgets the first."""
    model = RecentItemKnn(RecentItemKnnConfig(neighbours=9, half_life=1.5))
    queue = torch.randint(80, (7, 30), generator=torch.Generator().manual_seed(5))
    queue[1, :27], queue[2], queue[3, 10] = 80, 80, queue[3, 29]
    smaller = Split(market.train.take(range(300)), market.validation, market.test)
    for parts in (smaller, market):
        model.fit(parts)
        dense = model.scores(torch.arange(7), queue)
        with monkeypatch.context() as patch:
            patch.setattr(itemknn, "DENSE_AT_MOST", 79)
            sparse = model.scores(torch.arange(7), queue)
        assert sparse.shape == (7, 80)
        assert sparse.dtype == torch.float32
        torch.testing.assert_close(sparse, dense)
        assert dense[0].any()
        assert not sparse[2].any()


@pytest.mark.parametrize("dense", [True, False])
def test_scores_are_divided_by_a_power_of_the_count(
    dense: bool, market: Split, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(itemknn, "DENSE_AT_MOST", 80 if dense else 79)
    plain = RecentItemKnn().fit(market)
    counts = np.bincount(market.train.items, minlength=80)
    users, queue = torch.tensor([0, 1]), torch.tensor([[3, 9, 4], [80, 80, 7]])
    for exponent in (0.0, 0.4, 1.0):
        model = RecentItemKnn(RecentItemKnnConfig(popularity=exponent)).fit(market)
        scale = torch.tensor([max(1, count) ** exponent for count in counts])
        torch.testing.assert_close(
            model.scores(users, queue), plain.scores(users, queue) / scale, check_dtype=False
        )
