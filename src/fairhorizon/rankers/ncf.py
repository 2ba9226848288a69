"""Neural collaborative filtering (He et al. 2017): NeuMF, which fuses GMF and an MLP."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, embedding

from fairhorizon.data.splits import Split
from fairhorizon.histories import UserItems
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.training import NegativeSampler, Validation, train_until_stale
from fairhorizon.ranking import rows_at_once
from fairhorizon.settings import Search, Settings
from fairhorizon.vocabulary import OnEpoch, Protocol

HIDDEN_AT_ONCE = 2**20  # values of the MLP's first layer, 4 MiB, which stay in the cache
TABLES = ("gmf_users", "gmf_items", "mlp_users", "mlp_items")

Parameters = dict[str, Tensor]


class NcfConfig(Settings):
    """Settings of NeuMF."""

    dim: Annotated[int, Search(8, 128, log=True)] = Field(32, ge=1)
    """Length of the user and item vectors, of the GMF part and of the MLP part each."""
    widths: tuple[Annotated[int, Field(ge=1)], ...] = Field((32, 16), min_length=1)
    """Widths of the hidden layers of the MLP."""
    negatives: Annotated[int, Search(1, 8)] = Field(4, ge=1)
    """Items not taken that are sampled for every interaction, anew in every epoch."""
    learning_rate: Annotated[float, Search(0.0003, 0.01, log=True)] = Field(0.005, gt=0)
    """Learning rate of Adam."""
    l2: Annotated[float, Search(0.0001, 0.1, log=True)] = Field(0.01, ge=0)
    """Weight of the L2 penalty on the vectors."""
    batch: int = Field(2048, ge=1)
    """Interactions per gradient step, each with its negatives."""
    max_epochs: int = Field(100, ge=1)
    """Largest number of passes over the training log."""
    patience: int = Field(5, ge=1)
    """Epochs without a better validation NDCG before training stops."""
    protocol: Protocol = Protocol.STANDARD
    """Which items the validation may rank; "paper" includes the training items."""


def initial_parameters(
    n_users: int, n_items: int, config: NcfConfig, generator: torch.Generator
) -> Parameters:
    """Small vectors, He initialisation of the weights, biases 0."""

    def normal(*shape: int, std: float) -> Tensor:
        return torch.randn(*shape, generator=generator) * std

    first = config.widths[0]
    parameters = {
        "gmf_users": normal(n_users, config.dim, std=0.1),
        "gmf_items": normal(n_items, config.dim, std=0.1),
        "mlp_users": normal(n_users, config.dim, std=0.1),
        "mlp_items": normal(n_items, config.dim, std=0.1),
        # A layer on [u, v] is the sum of a layer on u and one on v. So the first layer is computed
        # once per user and item, and not once per pair.
        "first_users": normal(config.dim, first, std=config.dim**-0.5),
        "first_items": normal(config.dim, first, std=config.dim**-0.5),
        "first_bias": torch.zeros(first),
    }
    for layer, (width, following) in enumerate(zip(config.widths, config.widths[1:], strict=False)):
        std = (2 / width) ** 0.5
        parameters[f"weight{layer}"] = normal(width, following, std=std)
        parameters[f"bias{layer}"] = torch.zeros(following)
    parameters["fuse_gmf"] = torch.ones(config.dim)
    parameters["fuse_mlp"] = normal(config.widths[-1], std=config.widths[-1] ** -0.5)
    parameters["fuse_bias"] = torch.zeros(1)
    return parameters


def first_layer(parameters: Parameters) -> tuple[Tensor, Tensor]:
    """The users' and the items' part of the MLP's first layer, before its ReLU."""
    users = torch.addmm(
        parameters["first_bias"], parameters["mlp_users"], parameters["first_users"]
    )
    return users, parameters["mlp_items"] @ parameters["first_items"]


def mlp_logits(parameters: Parameters, hidden: Tensor) -> Tensor:
    """From the first layer before its ReLU, (..., width), to the MLP's part of the logit."""
    hidden = hidden.relu()
    layer = 0
    while f"weight{layer}" in parameters:
        hidden = (hidden @ parameters[f"weight{layer}"] + parameters[f"bias{layer}"]).relu()
        layer += 1
    return hidden @ parameters["fuse_mlp"] + parameters["fuse_bias"]


def logits(parameters: Parameters, users: Tensor, items: Tensor) -> Tensor:
    """(b, c) for users (b,) and items (b, c):  w.(u * v) + MLP([u', v'])."""
    gmf_users = embedding(users, parameters["gmf_users"]) * parameters["fuse_gmf"]
    gmf = embedding(items, parameters["gmf_items"]) @ gmf_users[:, :, None]
    of_users, of_items = first_layer(parameters)
    hidden = embedding(users, of_users)[:, None] + embedding(items, of_items)
    return gmf.squeeze(2) + mlp_logits(parameters, hidden)


@torch.no_grad()
def all_logits(parameters: Parameters, users: Tensor) -> Tensor:
    """(b, n_items), without a hidden layer of all pairs in memory at once."""
    scores = (parameters["gmf_users"][users] * parameters["fuse_gmf"]) @ parameters["gmf_items"].T
    of_users, of_items = first_layer(parameters)
    # The hidden layer of a chunk of users and all items stays in the cache.
    chunk = rows_at_once(of_items.numel(), HIDDEN_AT_ONCE)
    for rows in torch.arange(len(users)).split(chunk):
        hidden = of_users[users[rows], None] + of_items
        scores[rows] += mlp_logits(parameters, hidden)
    return scores


class NcfTraining:
    """Adam on the binary cross-entropy of interactions and sampled negatives, with L2 on the
    vectors of every example."""

    def __init__(self, taken: UserItems, config: NcfConfig, generator: torch.Generator) -> None:
        self.config, self.generator = config, generator
        self.sampler = NegativeSampler(taken)
        self.users, self.items = self.sampler.examples(taken)
        self.parameters = initial_parameters(taken.n_users, taken.n_items, config, generator)
        trained = [tensor.requires_grad_() for tensor in self.parameters.values()]
        self.optimiser = torch.optim.Adam(trained, lr=config.learning_rate, fused=True)

    def epoch(self) -> None:
        """Every interaction once, each with new negatives."""
        count = self.config.negatives
        negatives = self.sampler.draw(self.users.repeat_interleave(count), self.generator)
        items = torch.cat([self.items[:, None], negatives.view(-1, count)], dim=1)
        order = torch.randperm(len(items), generator=self.generator)
        for rows in order.split(self.config.batch):
            self.optimiser.zero_grad()
            self.loss(self.users[rows], items[rows]).backward()
            self.optimiser.step()

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # no history
        """As in the ranker, for validation."""
        return all_logits(self.parameters, users)

    def loss(self, users: Tensor, items: Tensor) -> Tensor:
        """users: (b,); items: (b, 1 + negatives), the first of each row was taken."""
        predicted = logits(self.parameters, users, items)
        taken = torch.zeros_like(predicted)
        taken[:, 0] = 1
        penalty = torch.zeros(())
        for name in TABLES:
            table = self.parameters[name]
            rows = items.flatten() if name.endswith("items") else users
            # A vector is penalised as often as it occurs in the batch; a sum over tables by counts
            # is much cheaper than gathering the vectors of all examples.
            occurrences = torch.bincount(rows, minlength=len(table))
            penalty = penalty + table.square().sum(1) @ (occurrences / len(rows))
        return binary_cross_entropy_with_logits(predicted, taken) + self.config.l2 * penalty


class Ncf(Ranker[NcfConfig]):
    """NeuMF, neural collaborative filtering (He et al. 2017); the score is its logit."""

    method = "ncf"
    config_class = NcfConfig

    parameters_: Parameters

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        training = NcfTraining(UserItems.from_log(split.train), self.config, generator)
        validation = Validation(split, self.queue_length, self.config.protocol)
        self.parameters_ = train_until_stale(
            training.parameters,
            training.epoch,
            lambda: validation.ndcg(training.scores),
            max_epochs=self.config.max_epochs,
            patience=self.config.patience,
            on_epoch=on_epoch,
        )

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # no history
        return all_logits(self.parameters_, users)

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.parameters_)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.parameters_ = dict(tensors)
