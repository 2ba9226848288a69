"""Probabilistic matrix factorisation (Mnih & Salakhutdinov 2008), from which FCPO starts."""

import math
from collections.abc import Callable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.data import Interactions, Split
from fairhorizon.errors import ConfigError
from fairhorizon.settings import Settings


class MfConfig(Settings):
    dim: int = Field(100, ge=1)
    target: Literal["rating", "interaction"] = "rating"  # a log without ratings has interactions
    learning_rate: float = Field(0.005, gt=0)
    l2: float = Field(0.05, ge=0)
    batch: int = Field(4096, ge=1)
    max_epochs: int = Field(60, ge=1)
    patience: int = Field(5, ge=1)  # epochs without a better validation error


class Mf:
    """r_ui ~ mean + u.v, fitted by Adam on squared error with L2, stopped on validation.

    The target "interaction" is 1 for what happened and 0 for as many random pairs.
    """

    user_vectors_: Tensor  # (n_users, dim)
    item_vectors_: Tensor  # (n_items, dim)
    mean_: float
    validation_rmse_: float

    def __init__(self, config: MfConfig | None = None, *, seed: int = 0) -> None:
        self.config = config or MfConfig()
        self.seed = seed

    def fit(self, split: Split, *, on_epoch: Callable[[int, float], object] | None = None) -> "Mf":
        """Start anew; `on_epoch` hears the number of each epoch and its validation RMSE."""
        config = self.config
        generator = torch.Generator().manual_seed(self.seed)
        train = self._examples(split.train, generator)
        # Without a validation item, the training error has to say when to stop.
        held_out = self._examples(
            split.validation if len(split.validation) else split.train, generator
        )
        self.mean_ = float(train[2].mean())
        shape = (split.train.n_users + split.train.n_items, config.dim)
        table = (torch.randn(shape, generator=generator) * 0.1).requires_grad_()
        optimiser = torch.optim.Adam([table], lr=config.learning_rate)
        best, stale = float("inf"), 0
        for epoch in range(1, config.max_epochs + 1):
            for rows in torch.randperm(len(train[0]), generator=generator).split(config.batch):
                users, items, targets = (column[rows] for column in train)
                u, v = table[users], table[items + split.train.n_users]
                error = (targets - self.mean_ - (u * v).sum(1)).square()
                penalty = config.l2 * (u.square() + v.square()).sum(1)
                optimiser.zero_grad()
                (error + penalty).mean().backward()
                optimiser.step()
            u, v = table.detach().tensor_split([split.train.n_users])
            rmse = self._rmse(u, v, held_out)
            if on_epoch is not None:
                on_epoch(epoch, rmse)
            if rmse < best - 1e-4:
                best, stale = rmse, 0
                self.user_vectors_, self.item_vectors_ = u.clone(), v.clone()
            else:
                stale += 1
                if stale >= config.patience:
                    break
        if not math.isfinite(best):
            raise ConfigError("the pretraining diverged (set a smaller pmf.learning_rate)")
        self.validation_rmse_ = best
        return self

    def _rmse(self, u: Tensor, v: Tensor, examples: tuple[Tensor, Tensor, Tensor]) -> float:
        users, items, targets = examples
        predicted = self.mean_ + (u[users] * v[items]).sum(1)
        return float((targets - predicted).square().mean().sqrt())

    def _examples(
        self, log: Interactions, generator: torch.Generator
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Users, items and targets."""
        users, items = torch.tensor(log.users), torch.tensor(log.items)
        if self.config.target == "rating" and log.ratings is not None:
            return users, items, torch.tensor(log.ratings, dtype=torch.float32)
        others = torch.randint(log.n_items, items.shape, generator=generator)
        targets = torch.cat([torch.ones(len(items)), torch.zeros(len(items))])
        return torch.cat([users, users]), torch.cat([items, others]), targets
