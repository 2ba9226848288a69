"""Matrix factorisation of implicit feedback by least squares (Hu, Koren & Volinsky 2008)."""

from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split
from fairhorizon.histories import UserItems, longest_history, strengths
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.training import Validation, train_until_stale
from fairhorizon.settings import Search, Settings
from fairhorizon.vocabulary import OnEpoch, Protocol

CELLS = 2**20  # of a padded block of vectors, 4 MiB: it should stay in the processor's cache


class AlsConfig(Settings):
    """Settings of ALS."""

    dim: Annotated[int, Search(16, 256, log=True)] = Field(64, ge=1)
    """Length of the user and item vectors."""
    alpha: Annotated[float, Search(0.1, 40, log=True)] = Field(1.0, gt=0)
    """Extra confidence in items that the user took: their squared error counts 1 + alpha times."""
    l2: Annotated[float, Search(0.1, 200, log=True)] = Field(10.0, gt=0)
    """Weight of the L2 penalty on the vectors."""
    max_epochs: int = Field(30, ge=1)
    """Largest number of epochs; one epoch solves for all users, then for all items."""
    patience: int = Field(3, ge=1)
    """Epochs without a better validation NDCG before training stops."""
    protocol: Protocol = Protocol.STANDARD
    """Which items the validation may rank; "paper" includes the training items."""


class Als(Ranker[AlsConfig]):
    """Matrix factorisation of implicit feedback by least squares (Hu, Koren & Volinsky 2008).

    Scores u.v that minimise sum c_ui (t_ui - u.v)^2 + l2 (sum |u|^2 + sum |v|^2).

    t is 1 for taken items and 0 for all others; c = 1 + alpha t, with weights 1 + alpha x, x being
    the strength of the row (`histories.py`; r in the paper). Given the items, each user's
    vector is a separate least-squares problem, and vice versa. A user's vector is always solved
    from the user's present items, so that feedback counts at once; there each counts once.
    """

    method = "als"
    in_thread = True
    uses_weights = True
    config_class = AlsConfig

    item_vectors_: Tensor  # (n_items, dim)
    longest_: int

    @property
    def queue_length(self) -> int:
        return self.longest_

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        config = self.config
        self.longest_ = longest_history(split)
        # The same log from both sides, for the two half-steps.
        items_of, users_of = UserItems.from_log(split.train), _users_per_item(split.train)
        of_items, of_users = _strengths_both_ways(split.train)
        generator = torch.Generator().manual_seed(self.seed)
        vectors = torch.randn(split.train.n_items, config.dim, generator=generator) * 0.1
        self.item_vectors_ = vectors
        validation = Validation(split, self.queue_length, self.config.protocol)

        def both_half_steps() -> None:
            users = least_squares(items_of, vectors, config.alpha, config.l2, of_items)
            # In place: early stopping and `self.scores` hold on to this tensor.
            vectors.copy_(least_squares(users_of, users, config.alpha, config.l2, of_users))

        best = train_until_stale(
            {"item_vectors": vectors},
            both_half_steps,
            lambda: validation.ndcg(self.scores),
            max_epochs=config.max_epochs,
            patience=config.patience,
            on_epoch=on_epoch,
        )
        self.item_vectors_ = best["item_vectors"]

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:
        return self.user_vectors(users, queue) @ self.item_vectors_.T

    def item_vectors(self) -> Tensor:
        return self.item_vectors_

    def user_vectors(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002
        # The queue without its padding is the user's row of the log, as in a half-step of training.
        known = queue < len(self.item_vectors_)
        indptr = torch.cat([known.new_zeros(1, dtype=torch.int64), known.sum(1).cumsum(0)])
        histories = UserItems(indptr, queue[known], len(self.item_vectors_))
        return least_squares(histories, self.item_vectors_, self.config.alpha, self.config.l2)

    def tensors(self) -> dict[str, Tensor]:
        return {"item_vectors": self.item_vectors_, "longest": torch.tensor(self.longest_)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.item_vectors_, self.longest_ = tensors["item_vectors"], int(tensors["longest"])


def least_squares(
    sets: UserItems, vectors: Tensor, alpha: float, l2: float, strengths: Tensor | None = None
) -> Tensor:
    """One vector u for each set: (V^T V + alpha V_s^T V_s + l2 I) u = (1 + alpha) V_s^T 1.

    With strengths x of all members of all sets: (V^T V + alpha V_s^T X V_s + l2 I) u =
    V_s^T (1 + alpha x), X = diag x.

    V_s are the vectors of the set's members; an empty set has the zero vector. Sets of about the
    same size are solved together, padded to the largest of them.
    """
    dim = vectors.shape[1]
    # Every item that was not taken has the target 0 and weight 1. Their part of the sum is the same
    # for all users, so that only the members add to it.
    everywhere = vectors.T @ vectors + l2 * torch.eye(dim)
    sizes = sets.indptr.diff()
    # Largest sets first; empty sets are left out and keep the zero vector.
    order = sizes.argsort(descending=True, stable=True)[: int((sizes > 0).sum())]
    solved = torch.zeros(len(sizes), dim)
    while len(order):
        largest = int(sizes[order[0]])
        rows, order = order.tensor_split([max(1, CELLS // (largest * dim))])
        place = torch.arange(largest)
        member = place < sizes[rows, None]
        # Padding points at item 0 and is multiplied by 0 in the next line.
        where = torch.where(member, sets.indptr[rows, None] + place, 0)
        own = vectors[sets.items[where]] * member[..., None]  # (b, largest, dim)
        if strengths is None:
            left = everywhere + alpha * (own.mT @ own)
            right = (1 + alpha) * own.sum(1, keepdim=True).mT
        else:
            given = strengths[where][..., None]
            left = everywhere + alpha * (own.mT @ (own * given))
            right = (own * (1 + alpha * given)).sum(1, keepdim=True).mT
        solved[rows] = torch.cholesky_solve(right, torch.linalg.cholesky(left))[..., 0]
    return solved


def _strengths_both_ways(log: Interactions) -> tuple[Tensor | None, Tensor | None]:
    """The strengths of the rows in the order of each user's items and of each item's users."""
    given = strengths(log)
    if given is None:
        return None, None
    orders = (
        torch.from_numpy(np.argsort(codes, kind="stable")) for codes in (log.users, log.items)
    )
    by_user, by_item = (given[order].float() for order in orders)
    return by_user, by_item


def _users_per_item(log: Interactions) -> UserItems:
    """The transposed log: each item's users."""
    indptr = np.concatenate([[0], np.cumsum(log.item_counts())])
    users = log.users[np.argsort(log.items, kind="stable")]
    return UserItems(torch.from_numpy(indptr), torch.from_numpy(users), log.n_users)
