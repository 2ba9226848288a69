"""Bayesian Personalized Ranking (Rendle et al. 2009): taken items rank above all others."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.histories import UserItems
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.training import NegativeSampler, Validation, train_until_stale
from fairhorizon.settings import Search, Settings
from fairhorizon.vocabulary import OnEpoch, Protocol


class BprConfig(Settings):
    """Settings of BPR."""

    dim: Annotated[int, Search(16, 256, log=True)] = Field(64, ge=1)
    """Length of the user and item vectors."""
    biases: bool = False
    """Whether every item has its own bias."""
    learning_rate: Annotated[float, Search(0.001, 0.05, log=True)] = Field(0.01, gt=0)
    """Learning rate of Adam."""
    l2: Annotated[float, Search(0.0001, 0.1, log=True)] = Field(0.003, ge=0)
    """Weight of the L2 penalty on the vectors."""
    batch: int = Field(8192, ge=1)
    """Interactions per gradient step, each with one item that was not taken."""
    max_epochs: int = Field(200, ge=1)
    """Largest number of passes over the training log."""
    patience: int = Field(5, ge=1)
    """Epochs without a better validation NDCG before training stops."""
    protocol: Protocol = Protocol.STANDARD
    """Which items the validation may rank; "paper" includes the training items."""


class BprTraining:
    """Adam on the loss  -ln sigmoid(x_ui - x_uj) + l2 (|u|² + |v_i|² + |v_j|²)  over triples of a
    user, a taken item i and another item j, with  x_ui = u.v_i.

    With biases, a vector has one more coordinate: an item's is its bias, a user's is always 1.
    """

    def __init__(self, taken: UserItems, config: BprConfig, generator: torch.Generator) -> None:
        self.config, self.generator = config, generator
        self.n_users, n_items = taken.n_users, taken.n_items
        self.sampler = NegativeSampler(taken)
        self.users, self.items = self.sampler.examples(taken)

        table = torch.randn(self.n_users + n_items, config.dim, generator=generator) * 0.1
        if config.biases:
            last = torch.cat([torch.ones(self.n_users, 1), torch.zeros(n_items, 1)])
            table = torch.cat([table, last], dim=1)
        self.table = table  # users, then items
        # Written by `set_gradient`, so that Adam can be used without autograd.
        self.table.grad = torch.empty_like(table)
        self.optimiser = torch.optim.Adam([self.table], lr=config.learning_rate, fused=True)
        # Reused by every batch: allocation takes longer than the arithmetic.
        self._buffers = torch.empty(3, min(config.batch, len(self.users)), table.shape[1])

    @torch.no_grad()
    def epoch(self) -> None:
        """Every interaction once, each with a new negative."""
        # Drawn before the shuffle, as the sampler is fastest for users in order.
        negatives = self.sampler.draw(self.users, self.generator)
        order = torch.randperm(len(self.users), generator=self.generator)
        triples = torch.stack(
            [self.users, self.items + self.n_users, negatives + self.n_users]
        ).index_select(1, order)
        for rows in triples.split(self.config.batch, dim=1):
            self.set_gradient(rows)
            self.optimiser.step()

    def set_gradient(self, triples: Tensor) -> None:
        """The gradient of the mean loss of triples, (3, b) rows of the table: users, items i and j.

        Written out, because autograd is far slower: with the margin m = x_ui - x_uj,
        dloss/dm = -sigmoid(-m),  dm/du = v_i - v_j,  dm/dv_i = u = -dm/dv_j.
        """
        users, i, j = triples
        u, difference, product = self._buffers[:, : len(users)]
        torch.index_select(self.table, 0, users, out=u)
        torch.index_select(self.table, 0, i, out=difference)
        difference -= torch.index_select(self.table, 0, j, out=product)
        margins = torch.mul(u, difference, out=product).sum(1)
        # dloss/dm over the size of the batch: the loss is a mean.
        slopes = torch.sigmoid(-margins)[:, None] / -len(users)

        # The penalty is on the vectors of each triple, so a row counts as often as it occurs.
        occurrences = torch.bincount(triples.flatten(), minlength=len(self.table))
        decay = occurrences[:, None] * (2 * self.config.l2 / len(users))
        gradient = torch.mul(self.table, decay, out=self.table.grad)
        gradient.index_add_(0, users, difference.mul_(slopes))
        gradient.index_add_(0, i, u.mul_(slopes))
        # The buffers hold slope * (v_i - v_j) and slope * u by now; v_j gets the negative of v_i.
        gradient.index_add_(0, j, u.neg_())
        if self.config.biases:
            gradient[: self.n_users, -1] = 0  # a user's last coordinate stays 1


class Bpr(Ranker[BprConfig]):
    """Bayesian Personalized Ranking (Rendle et al. 2009): factorisation trained on item pairs.

    x_ui = u.v_i, trained by Adam on pairs of a taken and another item.
    """

    method = "bpr"
    config_class = BprConfig

    user_vectors_: Tensor  # (n_users, dim), with biases one more: 1
    item_vectors_: Tensor  # (n_items, dim), with biases one more: the bias

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        training = BprTraining(UserItems.from_log(split.train), self.config, generator)
        validation = Validation(split, self.queue_length, self.config.protocol)

        def adopt(table: Tensor) -> None:
            self.user_vectors_, self.item_vectors_ = table.tensor_split([training.n_users])

        def validate() -> float:
            adopt(training.table)
            return validation.ndcg(self.scores)

        best = train_until_stale(
            {"table": training.table},
            training.epoch,
            validate,
            max_epochs=self.config.max_epochs,
            patience=self.config.patience,
            on_epoch=on_epoch,
        )
        adopt(best["table"])

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # no history
        return self.user_vectors_[users] @ self.item_vectors_.T

    def item_vectors(self) -> Tensor:
        return self.item_vectors_

    def user_vectors(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # no history
        return self.user_vectors_[users]

    def tensors(self) -> dict[str, Tensor]:
        return {"user_vectors": self.user_vectors_, "item_vectors": self.item_vectors_}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.user_vectors_ = tensors["user_vectors"]
        self.item_vectors_ = tensors["item_vectors"]
