"""Rankers that predict the next item from the order of a user's recent items."""

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, TypeVar

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from fairhorizon.data.splits import Split
from fairhorizon.errors import DataError
from fairhorizon.histories import UserItems
from fairhorizon.rankers.early_stopping import Validation, train_until_stale
from fairhorizon.rankers.ranker import Ranker, with_one
from fairhorizon.rankers.schedule import Recipe, Schedule, planned_epochs
from fairhorizon.rankers.sequences import (
    SequenceConfig,
    SequenceNetwork,
    catalogue_sampler,
    last_states,
    next_item_scores,
    seeded,
    shuffled_batches,
    softmax_loss,
    training_windows,
)
from fairhorizon.vocabulary import OnEpoch

Config = TypeVar("Config", bound=SequenceConfig)


class NextItemRanker(Ranker[Config]):
    """Trained with the softmax over the catalogue, or a sample of it, at every position."""

    recipe: ClassVar[Recipe]

    network_: SequenceNetwork

    @abstractmethod
    def network(self, n_items: int) -> SequenceNetwork:
        """A network with random weights, from torch's global generator."""

    @property
    def queue_length(self) -> int:
        return self.config.history

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        self.network_ = train_network(
            lambda: self.network(split.train.n_items),
            self.config,
            split,
            self.recipe,
            seed=self.seed,
            on_epoch=on_epoch,
        )

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # the queue is enough
        return next_item_scores(self.network_, queue, self.config.history)

    def item_vectors(self) -> Tensor:
        network = self.network_
        return torch.cat([network.items, network.bias[:, None]], dim=1).detach()

    @torch.no_grad()
    def user_vectors(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002
        return with_one(last_states(self.network_, queue, self.config.history))

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.network_.state_dict())

    def restore(self, tensors: dict[str, Tensor]) -> None:
        network = self.network(len(tensors["items"]))
        network.load_state_dict(tensors)
        self.network_ = network.eval()


class NetworkTraining:
    """Epochs of Adam on the softmax loss, by torch's global generator.

    `averaged` is a moving average of the weights over the last steps: it ranks better than the
    weights of any one step, and its validation NDCG varies less from epoch to epoch.
    """

    def __init__(
        self, network: SequenceNetwork, config: SequenceConfig, history: UserItems, recipe: Recipe
    ) -> None:
        self.network, self.config, self.history = network, config, history
        self.recipe = recipe
        self.stride = max(1, config.history // 2)
        self.schedule = self._schedule()
        self._sampler = catalogue_sampler(history, recipe.all_items_at_most)
        average = get_ema_multi_avg_fn(recipe.average_decay)
        self._average = AveragedModel(network, multi_avg_fn=average)
        self.averaged: SequenceNetwork = self._average.module.eval()  # type: ignore[assignment]
        self._optimiser = torch.optim.Adam(network.parameters(), betas=recipe.betas, fused=True)
        self._epochs_done = 0

    def _schedule(self) -> Schedule:
        config, epochs = self.config, self.recipe.epochs
        if epochs is None:
            return Schedule(config.learning_rate, config.max_epochs, falling=False)
        targets = (self.history.indptr.diff() - 1).clamp(min=0)
        windows = int(targets.div(self.stride).ceil().sum())  # a shift may add one per user
        planned = planned_epochs(epochs, config.max_epochs, math.ceil(windows / config.batch))
        return Schedule(config.learning_rate, planned)

    def run_epoch(self) -> None:
        history, config = self.history, self.config
        shifts = torch.randint(self.stride, (history.n_users,))
        windows = training_windows(history, config.history, self.stride, shifts)
        seen, in_all = 0, len(windows.inputs)
        for inputs, targets in shuffled_batches(
            windows, history.n_items, config.batch, self.stride
        ):
            share = (seen + len(inputs) / 2) / in_all  # half of the step itself, so never 0 or 1
            self._step(inputs, targets, self.schedule.rate(self._epochs_done + share))
            seen += len(inputs)
        self._epochs_done += 1

    def _step(self, inputs: Tensor, targets: Tensor, learning_rate: float) -> None:
        sample = None if self._sampler is None else self._sampler.draw()
        self._optimiser.param_groups[0]["lr"] = learning_rate
        self._optimiser.zero_grad()
        softmax_loss(self.network, inputs, targets, sample).backward()
        self._optimiser.step()
        self._average.update_parameters(self.network)


def train_network(
    build: Callable[[], SequenceNetwork],
    config: SequenceConfig,
    split: Split,
    recipe: Recipe,
    *,
    seed: int,
    on_epoch: OnEpoch | None,
) -> SequenceNetwork:
    """The averaged network after the epoch with the best validation NDCG."""
    validation = Validation(split, config.history, config.protocol)
    if not (validation.known.indptr.diff() > 1).any():
        raise DataError(
            f"{split.name or 'the split'}: no user has two training items, so nothing follows",
            remedy="use a ranker that ignores the order, such as ease",
        )
    with seeded(seed):
        training = NetworkTraining(build(), config, validation.known, recipe)
        averaged = training.averaged
        best = train_until_stale(
            averaged.state_dict(),
            training.run_epoch,
            lambda: validation.ndcg(
                lambda _, queue: next_item_scores(averaged, queue, config.history)
            ),
            max_epochs=training.schedule.epochs,
            patience=config.patience,
            on_epoch=on_epoch,
        )
    averaged.load_state_dict(best)
    return averaged
