"""Rankers that predict the next item from the order of a user's recent items."""

from abc import abstractmethod
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from fairhorizon.data.splits import Split
from fairhorizon.errors import DataError
from fairhorizon.rankers.early_stopping import Validation, train_until_stale
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.sequences import (
    SequenceConfig,
    SequenceNetwork,
    catalogue_sampler,
    next_item_scores,
    seeded,
    shuffled_batches,
    softmax_loss,
    training_windows,
)
from fairhorizon.vocabulary import OnEpoch

AVERAGE_DECAY = 0.995  # per step: averages about 200 steps

Config = TypeVar("Config", bound=SequenceConfig)


class NextItemRanker(Ranker[Config]):
    """Trained with the softmax over the catalogue, or a sample of it, at every position."""

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
            seed=self.seed,
            on_epoch=on_epoch,
        )

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # the queue is enough
        return next_item_scores(self.network_, queue, self.config.history)

    def tensors(self) -> dict[str, Tensor]:
        return dict(self.network_.state_dict())

    def restore(self, tensors: dict[str, Tensor]) -> None:
        network = self.network(len(tensors["items"]))
        network.load_state_dict(tensors)
        self.network_ = network.eval()


def train_network(
    build: Callable[[], SequenceNetwork],
    config: SequenceConfig,
    split: Split,
    *,
    seed: int,
    on_epoch: OnEpoch | None,
) -> SequenceNetwork:
    """The network after the epoch with the best validation NDCG, by Adam on the softmax loss.

    A moving average of the weights over the last steps is validated and kept: it ranks better than
    the weights of any one step, and its validation NDCG varies less from epoch to epoch.
    """
    validation = Validation(split, config.history, config.protocol)
    history = validation.known
    if not (history.indptr.diff() > 1).any():
        raise DataError(
            f"{split.name or 'the split'}: no user has two training items, so nothing follows",
            remedy="use a ranker that ignores the order, such as ease",
        )
    n_items, stride = history.n_items, max(1, config.history // 2)
    sampler = catalogue_sampler(history)
    with seeded(seed):
        network = build()
        average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(AVERAGE_DECAY))
        averaged: SequenceNetwork = average.module.eval()  # type: ignore[assignment]
        optimiser = torch.optim.Adam(network.parameters(), lr=config.learning_rate, fused=True)

        def run_epoch() -> None:
            shifts = torch.randint(stride, (history.n_users,))
            windows = training_windows(history, config.history, stride, shifts)
            for inputs, targets in shuffled_batches(windows, n_items, config.batch, stride):
                sample = None if sampler is None else sampler.draw()
                optimiser.zero_grad()
                softmax_loss(network, inputs, targets, sample).backward()
                optimiser.step()
                average.update_parameters(network)

        def validate() -> float:
            return validation.ndcg(
                lambda _, queue: next_item_scores(averaged, queue, config.history)
            )

        best = train_until_stale(
            averaged.state_dict(),
            run_epoch,
            validate,
            max_epochs=config.max_epochs,
            patience=config.patience,
            on_epoch=on_epoch,
        )
    averaged.load_state_dict(best)
    return averaged
