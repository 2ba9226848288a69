"""The chance that a user takes an item next, and the value of showing it, in units of NDCG, so that
users can be compared."""

from dataclasses import dataclass
from typing import Protocol as Interface

import numpy as np
import torch
from torch import Tensor

from fairhorizon.rankers.candidates import CLOSED, CandidateSet
from fairhorizon.ranking import discount
from fairhorizon.recommenders.lists.features import FeatureSource, Logits


class ItemProbabilities(Interface):
    """Candidates of users, and how probable each of them is."""

    @property
    def items(self) -> FeatureSource:
        """Where candidates come from."""

    def weights(self, users: Tensor, queues: Tensor) -> Tensor:
        """(b, features) the weight of each feature of the items for users in these states."""

    def same_weights(self) -> Logits | None:
        """(features,) the weights where they are the same in all states; else None."""

    def predict(self, candidate_set: CandidateSet, users: Tensor, queues: Tensor) -> Tensor:
        """(b, C) the probability of each candidate of users in these states; 0 for no item."""


@dataclass(frozen=True)
class WeightedProbabilities:
    """softmax(sum_e w_e z_e) over the candidates, with the same weights in every state.

    The last feature of the items, their group, has no weight.
    """

    items: FeatureSource
    row: tuple[float, ...]  # of weights, of all features but the last

    def weights(self, users: Tensor, queues: Tensor) -> Tensor:
        return torch.from_numpy(self.same_weights()).to(queues.device).expand(len(users), -1)

    def same_weights(self) -> Logits:
        return np.array([*self.row, 0.0], dtype=np.float32)

    def predict(self, candidate_set: CandidateSet, users: Tensor, queues: Tensor) -> Tensor:
        return softmax_probabilities(candidate_set, self.weights(users, queues)[:, None])


def softmax_probabilities(candidate_set: CandidateSet, weights: Tensor) -> Tensor:
    """(b, C) softmax over the candidates of the logits by one row of weights (b, 1, features)."""
    logits = candidate_set.logits(weights).masked_fill((candidate_set.items < 0)[:, None], CLOSED)
    return torch.log_softmax(logits, dim=2).exp().squeeze(1)


def item_values(probabilities: Tensor, likes: Tensor, length: int) -> Tensor:
    """(b, C) probability that the user likes the item, over the DCG of the user's ideal list.

    probabilities (b, C): that the next item the user takes is this one; likes (b,): how many items
    the user is expected to take. A hit counts more for a user who takes few.
    """
    liked = -torch.expm1(likes[:, None] * torch.log1p(-probabilities.clamp(max=1 - 1e-6)))
    return liked / ideal(likes, length)[:, None]


def ideal(likes: Tensor, length: int) -> Tensor:
    """DCG of a list of `length` with all of a user's `likes` first; linear in between."""
    gains = discount(torch.arange(1, length + 1).to(likes))
    totals = torch.cat([gains.new_zeros(1), gains.cumsum(0)])
    whole = likes.clamp(0, length).floor().long()
    rest = likes.clamp(0, length) - whole
    return totals[whole] + rest * gains[whole.clamp(max=length - 1)]
