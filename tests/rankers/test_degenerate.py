"""Tiny and unusual logs: a ranker gives every item a finite score, or names what is missing."""

from typing import Any

import numpy as np
import pytest
import torch

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split, split
from fairhorizon.errors import DataError
from fairhorizon.histories import UserItems
from fairhorizon.rankers import RANKERS

SMALL = {"dim": 4, "max_epochs": 2, "hidden": 4, "layers": 1, "history": 5, "neighbours": 3}


def one_user() -> Interactions:
    return from_arrays([0] * 6, range(6), timestamps=range(6))


def equal_times() -> Interactions:
    rng = np.random.default_rng(0)
    items = np.concatenate([rng.permutation(30)[:8] for _ in range(20)])
    return from_arrays(np.repeat(np.arange(20), 8), items, timestamps=np.zeros(160))


def mostly_one_or_two_items() -> Interactions:
    """Users 0-29 have one item, 30-49 two, user 50 four; items 20-29 are never trained on."""
    users = np.r_[np.arange(30), np.arange(30, 50).repeat(2), np.repeat(50, 4)]
    items = np.r_[np.arange(30), np.tile([3, 7], 20), [1, 2, 3, 4]]
    return from_arrays(users, items, timestamps=np.zeros(len(users)))


def two_items() -> Interactions:
    return from_arrays(np.repeat(np.arange(8), 2), [0, 1] * 8, timestamps=range(16))


def fit(method: str, parts: Split) -> Any:
    known = RANKERS[method].config_class.model_fields
    config = {name: value for name, value in SMALL.items() if name in known}
    return RANKERS[method](RANKERS[method].config_class.model_validate(config)).fit(parts)


@pytest.mark.parametrize("log", [one_user, equal_times, mostly_one_or_two_items, two_items])
@pytest.mark.parametrize("method", RANKERS)
def test_it_fits_and_scores_or_says_what_is_missing(method, log) -> None:
    parts = split(log())
    if log is two_items and method in ("gru4rec", "sasrec"):  # a user's second is for validation
        with pytest.raises(DataError, match=r"no user has two training items.*\(use a ranker"):
            fit(method, parts)
        return
    ranker = fit(method, parts)
    queue = UserItems.from_log(parts.train, parts.validation).last(max(1, ranker.queue_length))
    scores = ranker.scores(torch.arange(parts.train.n_users), queue)
    assert scores.shape == (parts.train.n_users, parts.train.n_items)
    assert scores.isfinite().all()
