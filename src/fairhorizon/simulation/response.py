"""The probability that a user takes an item: a model fitted on the held-out parts of a split.

It simulates users and has been fitted on the test items, so no recommender may train on it or
read its vectors.
"""

import math
from dataclasses import dataclass

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softplus

from fairhorizon.data.splits import Split
from fairhorizon.data.synthetic import SyntheticMarket
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.histories import UserItems
from fairhorizon.settings import Settings
from fairhorizon.vocabulary import OnEpoch

CELLS = 2**20  # user-item cells at once, 4 MiB of float32: they should stay in the cache
FOLDS = 10  # one cell in ten is held out to decide when to stop

Parameters = dict[str, Tensor]


class ResponseConfig(Settings):
    """Settings of the response model's fit."""

    dim: int = Field(16, ge=1)
    """Length of the user and item vectors."""
    l2: float = Field(6.0, ge=0)
    """Weight of the L2 penalty on the vectors, in units of one cell's log-likelihood."""
    l2_bias: float = Field(0.3, ge=0)
    """Weight of the L2 penalty on the biases; small, so that sums over a user or an item match the
    counts."""
    learning_rate: float = Field(0.05, gt=0)
    """Learning rate of Adam."""
    max_epochs: int = Field(150, ge=1)
    """Largest number of passes over all user-item cells."""
    patience: int = Field(20, ge=1)
    """Epochs without a better validation log-likelihood before the fit stops."""


@dataclass(frozen=True, eq=False)
class ResponseModel:
    """P(u takes i) = sigmoid(p_u . q_i + a_u + b_i)."""

    user_vectors: Tensor  # (n_users, dim) p
    item_vectors: Tensor  # (n_items, dim) q
    user_bias: Tensor  # (n_users,) a
    item_bias: Tensor  # (n_items,) b

    @classmethod
    def from_market(cls, market: SyntheticMarket) -> "ResponseModel":
        """The truth that a synthetic market was drawn from."""
        tastes, traits, appeal = (
            torch.from_numpy(values).float()
            for values in (market.tastes, market.traits, market.appeal)
        )
        return cls(tastes, traits, torch.zeros(len(tastes)), appeal)

    @property
    def n_users(self) -> int:
        return len(self.user_vectors)

    @property
    def n_items(self) -> int:
        return len(self.item_vectors)

    def probabilities(self, users: Tensor) -> Tensor:
        """(len(users), n_items) float32: the probability that each user takes each item."""
        taste = self.user_vectors[users] @ self.item_vectors.T
        return torch.sigmoid(taste + self.user_bias[users, None] + self.item_bias)


@dataclass(frozen=True)
class _Cells:
    """The role of each user-item cell in the fit."""

    taken: UserItems  # held-out interactions: 1, everything else: 0
    known: UserItems  # training interactions: no item is taken twice, so these are no evidence
    user_fold: Tensor  # (n_users,)
    item_fold: Tensor  # (n_items,); a cell whose folds are equal is held out

    @classmethod
    def from_split(cls, split: Split, generator: torch.Generator) -> "_Cells":
        taken, known = (
            UserItems.from_log(split.validation, split.test),
            UserItems.from_log(split.train),
        )
        if not len(taken.items):
            raise DataError(
                f"{split.name or 'the log'} has no held-out interactions to fit responses to",
                remedy="split with a larger test_share",
            )
        # Users and items are dealt into ten folds each; a cell is held out where both folds are
        # equal. That is a tenth of the cells, a few of every user and item, and two small arrays
        # say which.
        folds = (
            torch.randperm(n, generator=generator) % FOLDS for n in (known.n_users, known.n_items)
        )
        return cls(taken, known, *folds)

    def masks(self, users: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Taken, fitted and held-out cells, each (len(users), n_items) bool."""
        # No item is taken twice, so that a training item is not taken later says nothing of taste.
        unknown = ~self.known.mask(users)
        held_out = (self.user_fold[users, None] == self.item_fold) & unknown
        return self.taken.mask(users), unknown & ~held_out, held_out


def fit_response(
    split: Split,
    config: ResponseConfig | None = None,
    seed: int = 0,
    on_epoch: OnEpoch | None = None,
) -> ResponseModel:
    """Logistic matrix factorisation of the held-out interactions (validation and test).

    Adam on  -sum log P(cell) + l2/2 (|p|^2 + |q|^2) + l2_bias/2 (|a|^2 + |b|^2)  over whole
    matrices: a cell is 1 for a taken item and 0 for all others, not only for sampled negatives, so
    that probabilities are those of taking (Johnson 2014 weights the ones). Stops by the mean
    log-likelihood of a tenth of the cells, left out of the fit; `on_epoch` receives it.
    """
    config = config or ResponseConfig()
    generator = torch.Generator().manual_seed(seed)
    cells = _Cells.from_split(split, generator)
    parameters = _initial(cells, config.dim, generator)
    optimiser = torch.optim.Adam(parameters.values(), lr=config.learning_rate)
    best, best_value, stale = {}, -math.inf, 0
    for epoch in range(1, config.max_epochs + 1):
        gradients, value = _gradients(parameters, cells)
        if not math.isfinite(value):
            raise ConfigError("the response model diverged (set a smaller learning_rate)")
        if on_epoch is not None:
            on_epoch(epoch, value)
        if value > best_value:
            best_value, stale = value, 0
            # A copy, as Adam changes the parameters in place.
            best = {name: tensor.clone() for name, tensor in parameters.items()}
        else:
            stale += 1
            if stale >= config.patience:
                break
        # The common bias c has no penalty: it has to match the mean.
        weights = {"p": config.l2, "q": config.l2, "a": config.l2_bias, "b": config.l2_bias}
        for name, tensor in parameters.items():
            tensor.grad = gradients[name] + weights.get(name, 0.0) * tensor
        optimiser.step()
    return ResponseModel(best["p"], best["q"], best["a"], best["b"] + best["c"])


def _initial(cells: _Cells, dim: int, generator: torch.Generator) -> Parameters:
    """Biases that give every cell the mean probability, and small random vectors."""
    n_users, n_items = cells.known.n_users, cells.known.n_items
    n_unknown = n_users * n_items - len(cells.known.items)
    return {
        "p": torch.randn(n_users, dim, generator=generator) * 0.02,
        "q": torch.randn(n_items, dim, generator=generator) * 0.02,
        "a": torch.zeros(n_users),
        "b": torch.zeros(n_items),
        "c": torch.tensor([len(cells.taken.items) / n_unknown]).logit(),
    }


def _gradients(parameters: Parameters, cells: _Cells) -> tuple[Parameters, float]:
    """Gradients of the fitted cells' negative log-likelihood; mean log-likelihood of the held-out.

    d/dx -log P = sigmoid(x) - t  for a cell of logit x and target t.
    """
    p, q, a, b, c = parameters.values()
    gradients = {name: torch.zeros_like(tensor) for name, tensor in parameters.items()}
    log_likelihood, n_held_out = 0.0, 0
    # Blocks of users keep the dense (users, n_items) matrices small.
    for users in torch.arange(len(p)).split(max(1, CELLS // len(q))):
        taken, fitted, held_out = cells.masks(users)
        logits = torch.addmm(b + c, p[users], q.T) + a[users, None]
        x, t = logits[held_out], taken[held_out]
        # log P(cell) = t x - softplus(x).
        log_likelihood += float(x[t].sum() - softplus(x).sum())
        n_held_out += len(x)
        # In place: the logits are not needed any more. Cells outside the fit get a gradient of 0.
        error = logits.sigmoid_().sub_(taken.float()).mul_(fitted)
        gradients["p"][users] = error @ q
        gradients["q"] += error.T @ p[users]
        gradients["a"][users] = error.sum(1)
        gradients["b"] += error.sum(0)
    gradients["c"] += gradients["b"].sum()
    return gradients, log_likelihood / max(n_held_out, 1)
