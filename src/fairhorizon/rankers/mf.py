"""Matrix factorisation of ratings (Koren et al. 2009); without biases it is PMF
(Mnih & Salakhutdinov 2008), from which FCPO starts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split
from fairhorizon.rankers.ranker import Ranker, with_one
from fairhorizon.rankers.training import Validation, train_until_stale
from fairhorizon.settings import Search, Settings
from fairhorizon.vocabulary import OnEpoch, Protocol

SMALLEST_GAIN = {"rmse": 1e-4, "ndcg": 0.0}  # anything less is no improvement

Examples = tuple[Tensor, Tensor, Tensor]  # users, items, targets


class MfConfig(Settings):
    """Settings of matrix factorisation; the defaults are those of PMF, from which FCPO starts."""

    dim: Annotated[int, Search(16, 256, log=True)] = Field(100, ge=1)
    """Length of the user and item vectors."""
    target: Literal["rating", "interaction"] = "rating"
    """What is predicted: the rating, or whether the user took the item, which is also used for a
    log without ratings. Rows whose rating is missing are left out when ratings are predicted."""
    learning_rate: Annotated[float, Search(0.001, 0.05, log=True)] = Field(0.005, gt=0)
    """Learning rate of Adam."""
    l2: Annotated[float, Search(0.001, 1, log=True)] = Field(0.05, ge=0)
    """Weight of the L2 penalty on vectors and biases."""
    batch: int = Field(4096, ge=1)
    """Interactions per gradient step."""
    max_epochs: int = Field(60, ge=1)
    """Largest number of passes over the training log."""
    patience: int = Field(5, ge=1)
    """Epochs without a better validation (see stop) before training stops."""
    protocol: Protocol = Protocol.STANDARD
    """Which items the validation may rank; "paper" includes the training items."""
    centred: bool = True
    """Whether the mean of the targets is subtracted before the factorisation."""
    biases: bool = False
    """Whether every user and every item has its own bias."""
    stop: Literal["rmse", "ndcg"] = "rmse"
    """Validation metric that decides when training stops."""


class RankingMfConfig(MfConfig):
    """The defaults of the ranker: dimension, learning rate and L2 from the paper's grids.

    Without centring, an item with few ratings stays near 0 and so at the end of the lists; with
    it, near the mean, above items that are known to be mediocre.
    """

    dim: Annotated[int, Search(16, 256, log=True)] = Field(64, ge=1)
    """Length of the user and item vectors."""
    l2: Annotated[float, Search(0.001, 1, log=True)] = Field(0.01, ge=0)
    """Weight of the L2 penalty on vectors and biases."""
    centred: bool = False
    """Whether the mean of the targets is subtracted before the factorisation."""
    stop: Literal["rmse", "ndcg"] = "ndcg"
    """Validation metric that decides when training stops."""


class MfTraining:
    """Adam on  (r_ui - mean - b_u - b_i - u.v)² + l2 (|u|² + |v|² + b_u² + b_i²)."""

    def __init__(
        self,
        examples: Examples,
        n_users: int,
        n_items: int,
        config: MfConfig,
        generator: torch.Generator,
    ) -> None:
        self.examples, self.n_users = examples, n_users
        self.config, self.generator = config, generator
        self.mean = float(examples[2].mean()) if config.centred else 0.0
        n_rows = n_users + n_items  # users, then items
        # Users and items in one table, so that Adam has one parameter to step.
        table = torch.randn(n_rows, config.dim, generator=generator) * 0.1
        self.table = table.requires_grad_()
        self.biases = torch.zeros(n_rows, requires_grad=config.biases)
        trained = [self.table, self.biases] if config.biases else [self.table]
        self.optimiser = torch.optim.Adam(trained, lr=config.learning_rate)

    def epoch(self) -> None:
        """Every example once."""
        count = len(self.examples[0])
        for rows in torch.randperm(count, generator=self.generator).split(self.config.batch):
            self.optimiser.zero_grad()
            self.loss(*(column[rows] for column in self.examples)).backward()
            self.optimiser.step()

    def loss(self, users: Tensor, items: Tensor, targets: Tensor) -> Tensor:
        items = items + self.n_users
        u, v = self.table[users], self.table[items]
        error = targets - self.mean - (u * v).sum(1)
        # The penalty is part of each example's loss: frequent users and items are penalised more
        # often, as in Koren et al.
        size = (u.square() + v.square()).sum(1)
        if self.config.biases:
            b_u, b_i = self.biases[users], self.biases[items]
            error, size = error - b_u - b_i, size + b_u.square() + b_i.square()
        return (error.square() + self.config.l2 * size).mean()

    def tensors(self) -> dict[str, Tensor]:
        """The state of the training, under the names of the fitted values."""
        user_vectors, item_vectors = self.table.detach().tensor_split([self.n_users])
        user_biases, item_biases = self.biases.detach().tensor_split([self.n_users])
        return {
            "user_vectors": user_vectors,
            "item_vectors": item_vectors,
            "user_biases": user_biases,
            "item_biases": item_biases,
            "mean": torch.tensor([self.mean]),
        }


class Mf(Ranker[MfConfig]):
    """Matrix factorisation of ratings (Koren et al. 2009).

    r_ui ~ mean + b_u + b_i + u.v, fitted by Adam on squared error with L2. The target
    "interaction" is 1 for logged pairs and 0 for as many random pairs.
    """

    method = "mf"
    config_class = RankingMfConfig

    user_vectors_: Tensor  # (n_users, dim)
    item_vectors_: Tensor  # (n_items, dim)
    user_biases_: Tensor  # (n_users,), zeros without biases
    item_biases_: Tensor  # (n_items,), zeros without biases
    mean_: float
    validation_rmse_: float

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        """`on_epoch` receives the metric named by `stop`: the validation RMSE or NDCG."""
        config = self.config
        generator = torch.Generator().manual_seed(self.seed)
        rows, validation = self._rows(split)
        train = self._examples(rows, generator)
        # Without validation items, training stops by the training error.
        held_out = self._examples(validation if len(validation) else rows, generator)
        training = MfTraining(train, split.train.n_users, split.train.n_items, config, generator)
        validate = self._validation(split, held_out)
        # Views of the trained tensors: validation sees each epoch without a copy.
        self.restore(training.tensors())
        best = train_until_stale(
            training.tensors(),
            training.epoch,
            validate,
            max_epochs=config.max_epochs,
            patience=config.patience,
            smallest_gain=SMALLEST_GAIN[config.stop],
            on_epoch=on_epoch and (lambda epoch, value: on_epoch(epoch, abs(value))),
            remedy="set a smaller learning_rate, FCPO's is pmf.learning_rate",
        )
        self.restore(best)
        self.validation_rmse_ = self._rmse(held_out)

    def _validation(self, split: Split, held_out: Examples) -> Callable[[], float]:
        """The metric that early stopping maximises."""
        if self.config.stop == "rmse":
            return lambda: -self._rmse(held_out)
        validation = Validation(split, self.queue_length, self.config.protocol)
        return lambda: validation.ndcg(self.scores)

    def _rmse(self, examples: Examples) -> float:
        users, items, targets = examples
        predicted = self.mean_ + (self.user_vectors_[users] * self.item_vectors_[items]).sum(1)
        if self.config.biases:
            predicted += self.user_biases_[users] + self.item_biases_[items]
        return float((targets - predicted).square().mean().sqrt())

    def _rows(self, split: Split) -> tuple[Interactions, Interactions]:
        """Training and validation rows; those without a rating are left out if it is the target."""
        if self.config.target == "rating" and len(rated := split.train.rated()):
            return rated, split.validation.rated()
        return replace(split.train, ratings=None), replace(split.validation, ratings=None)

    def _examples(self, log: Interactions, generator: torch.Generator) -> Examples:
        users, items = torch.tensor(log.users), torch.tensor(log.items)
        if log.ratings is not None:
            return users, items, torch.tensor(log.ratings, dtype=torch.float32)
        # Without ratings there are no negative examples in the log: as many random pairs are taken
        # for 0. A few of them may have been taken in truth.
        others = torch.randint(log.n_items, items.shape, generator=generator)
        targets = torch.cat([torch.ones(len(items)), torch.zeros(len(items))])
        return torch.cat([users, users]), torch.cat([items, others]), targets

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # no history
        level = self.mean_ + self.user_biases_[users, None] + self.item_biases_
        return level + self.user_vectors_[users] @ self.item_vectors_.T

    def item_vectors(self) -> Tensor:
        # The bias is one more coordinate, for which users have 1. The user's bias and the mean are
        # the same for all items, so they do not change the order.
        return torch.cat([self.item_vectors_, self.item_biases_[:, None]], dim=1)

    def user_vectors(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # no history
        return with_one(self.user_vectors_[users])

    def tensors(self) -> dict[str, Tensor]:
        return {
            "user_vectors": self.user_vectors_,
            "item_vectors": self.item_vectors_,
            "user_biases": self.user_biases_,
            "item_biases": self.item_biases_,
            "mean": torch.tensor([self.mean_]),
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.user_vectors_ = tensors["user_vectors"]
        self.item_vectors_ = tensors["item_vectors"]
        self.user_biases_ = tensors["user_biases"]
        self.item_biases_ = tensors["item_biases"]
        self.mean_ = float(tensors["mean"])
