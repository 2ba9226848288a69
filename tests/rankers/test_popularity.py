"""Popularity counts, and of equals takes the smaller id."""

import numpy as np
import torch

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split
from fairhorizon.limits.groups import popular_group
from fairhorizon.rankers.popularity import Popularity


def parts() -> Split:
    """Counts in training: 1 3 0 1 3; held-out items are the most popular ones otherwise."""
    items = [1, 4, 0, 1, 4, 3, 1, 4]
    train = Interactions(np.array([0, 0, 0, 1, 1, 1, 2, 2]), np.array(items), *ids())
    held_out = Interactions(np.array([0, 1, 2]), np.array([2, 2, 2]), *ids())
    return Split(train, held_out, held_out)


def ids() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(3), np.arange(5)


def test_the_order_by_training_count_with_ties_to_the_smaller_id() -> None:
    ranker = Popularity().fit(parts())
    scores = ranker.scores(torch.tensor([2, 0]), torch.empty(2, 0, dtype=torch.int64))
    assert scores.shape == (2, 5)
    assert scores.argsort(dim=1, descending=True).tolist() == [[1, 4, 0, 3, 2]] * 2


def test_its_best_items_are_the_popular_group() -> None:
    split = parts()
    scores = Popularity().fit(split).counts_
    popular = popular_group(split.train.item_counts(), share=0.4)
    assert sorted(scores.topk(2).indices.tolist()) == np.flatnonzero(popular).tolist() == [1, 4]
