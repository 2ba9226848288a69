"""NDCG of lists by what users like in a scenario: the criterion of early stopping."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.metrics.accuracy import mean_over_users, ndcg
from fairhorizon.ranking import users_at_once
from fairhorizon.simulation.feedback import Scenario


def listed_ndcg(lists: Tensor, users: Tensor, scenario: Scenario) -> float:
    """NDCG of the lists (b, length) of some users, by what they like in the scenario."""
    return mean_over_users(ndcg_by_user(lists, users, scenario))


def ndcg_by_user(lists: Tensor, users: Tensor, scenario: Scenario) -> NDArray[np.float64]:
    """(b,) NDCG of every user; NaN for a user without liked items."""
    lists, liked, parts = lists.cpu(), scenario.positive, []
    for rows in torch.arange(len(lists)).split(users_at_once(liked.n_items)):
        some, shown = users[rows], lists[rows]
        hits = liked.mask(some).gather(1, shown.clamp(min=0)) & (shown >= 0)
        parts.append(ndcg(hits.numpy(), liked.counts(some).numpy(), lists.shape[1]))
    return np.concatenate(parts)
