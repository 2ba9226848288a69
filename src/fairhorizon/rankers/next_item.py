"""Rankers that predict the next item from the order of a user's recent items.

Training windows, the loss, how long and at which rate to train, and scores.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, TypeVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from fairhorizon.data.splits import Split
from fairhorizon.errors import DataError
from fairhorizon.histories import UserItems
from fairhorizon.rankers.ranker import Ranker, with_one
from fairhorizon.rankers.training import (
    ItemSample,
    ItemSampler,
    Validation,
    sampled_softmax_loss,
    train_until_stale,
)
from fairhorizon.settings import Choice, Search, Settings
from fairhorizon.vocabulary import OnEpoch, Protocol

LOGITS_AT_ONCE = 2**18  # 1 MiB: they stay in the cache
LEAST_ROWS_AT_ONCE = 32
SAMPLED_ITEMS, SAMPLED_SHARE = 512, 1 / 7  # whichever is more
LARGE_CATALOGUE, SAMPLED_OF_LARGE = 8192, 4096
USERS_AT_ONCE = 1024  # the states of a long history take more room than the scores


class SequenceConfig(Settings):
    """Settings of every next-item model."""

    dim: Annotated[int, Choice((32, 64, 96, 128))] = Field(64, ge=1)
    """Length of the item vectors and of the hidden state."""
    history: Annotated[int, Search(20, 100)] = Field(50, ge=1)
    """Number of a user's most recent items that are read."""
    dropout: Annotated[float, Search(0, 0.6)] = Field(0.35, ge=0, lt=1)
    """Share of the vector coordinates that are set to 0 in training, the same ones in a window."""
    learning_rate: Annotated[float, Search(0.0005, 0.02, log=True)] = Field(0.012, gt=0)
    """Learning rate of Adam."""
    batch: int = Field(32, ge=1)
    """Windows per gradient step; a window is a part of one user's history."""
    max_epochs: int = Field(60, ge=1)
    """Largest number of passes over the training log."""
    patience: int = Field(5, ge=1)
    """Epochs without a better validation NDCG before training stops."""
    protocol: Protocol = Protocol.STANDARD
    """Which items the validation may rank; "paper" includes the training items."""


class WindowDropout(nn.Module):
    """Drops the same coordinates at all positions of a window (Gal & Ghahramani 2016).

    Drawing for each position separately takes longer than the attention itself.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        """x: (b, N, dim)"""
        kept = nn.functional.dropout(x.new_ones(len(x), 1, x.shape[2]), self.share, self.training)
        return x * kept


class SequenceNetwork(nn.Module, ABC):
    """Logits over the catalogue from the state after each item: state . item vector + bias.

    Inputs and outputs share a table of item vectors. Sequences are padded at the end with n_items,
    and every state depends on earlier items alone, so padding has no influence.
    """

    def __init__(self, n_items: int, dim: int) -> None:
        super().__init__()
        self.n_items = n_items
        # Vectors of about unit length, so that first logits are moderate for any dim.
        self.items = nn.Parameter(torch.randn(n_items, dim) / dim**0.5)
        self.bias = nn.Parameter(torch.zeros(n_items))

    def embedded(self, sequences: Tensor) -> Tensor:
        """(b, N, dim) item vectors; arbitrary where there is no item."""
        return nn.functional.embedding(sequences.where(sequences < self.n_items, 0), self.items)

    @abstractmethod
    def states(self, sequences: Tensor) -> Tensor:
        """(b, N, dim): the state after each item."""

    def logits(self, states: Tensor) -> Tensor:
        """(..., n_items)"""
        return nn.functional.linear(states, self.items, self.bias)


@dataclass(frozen=True)
class Windows:
    """Parts of users' histories, and which of their items are to be predicted."""

    inputs: Tensor  # (w, N) items, padded at the end with n_items
    targets: Tensor  # (w, N) the item that came next, n_items where it is not to be predicted


def training_windows(history: UserItems, length: int, stride: int, shifts: Tensor) -> Windows:
    """Every item but a user's first is a target once.

    A user's targets are cut into blocks of `stride`, the first of them shorter by the user's shift
    (0 <= shift < stride). The window of a block holds the `length` items before its last target, so
    that each target is predicted from at least min(length - stride, all earlier) + 1 items.
    """
    counts = history.indptr.diff()
    users = torch.arange(history.n_users).repeat_interleave((counts - 1).clamp(min=0))
    positions = torch.arange(len(history.items))
    first = history.indptr[:-1].repeat_interleave(counts)
    # A user's first item follows nothing, so it is no target.
    positions = positions[positions > first]  # of the targets in history.items
    within = positions - history.indptr[users] - 1
    block = (within + shifts[users]).div(stride, rounding_mode="floor")
    keys = torch.stack([users, block])
    # Targets are sorted by user and place, so that a block is a run of equal keys.
    _, sizes = keys.unique_consecutive(dim=1, return_counts=True)
    ends = sizes.cumsum(0) - 1
    last = positions[ends, None]  # the last target of each block
    begin = torch.maximum(last - length, history.indptr[users[ends], None])
    inputs = begin + torch.arange(length)  # (w, N) positions in history.items
    # Inputs end one item before the last target.
    known = inputs < last
    # Of all items in the window only the block's own are targets: the earlier ones are context, and
    # are targets of their own blocks.
    wanted = known & (inputs + 1 > last - sizes[:, None])
    items = torch.cat([history.items, history.items.new_tensor([history.n_items])])
    nothing = len(history.items)
    return Windows(items[inputs.where(known, nothing)], items[(inputs + 1).where(wanted, nothing)])


def shuffled_batches(
    windows: Windows, n_items: int, batch: int, stride: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets of all windows, `batch` at a time in random order.

    A step over a large catalogue is slow for any batch, and its users tend to have few items: there
    a batch holds about as many targets as `batch` full windows, without needless padding.
    """
    large = n_items > LARGE_CATALOGUE
    if large:
        targets_a_window = float((windows.targets < n_items).sum(1).float().mean())
        batch = max(batch, round(batch * stride / targets_a_window))
    for rows in torch.randperm(len(windows.inputs)).split(batch):
        inputs, targets = windows.inputs[rows], windows.targets[rows]
        if large:
            # Padding is at the end, so it can be cut off.
            longest = int((inputs < n_items).sum(1).max())
            inputs, targets = inputs[:, :longest], targets[:, :longest]
        yield inputs, targets


class SoftmaxLoss(torch.autograd.Function):
    """Mean of -log softmax(x V' + b)[target] over the rows of x.

    The gradient by a row's logits, softmax - 1[target], follows directly from the logits: both are
    computed and used for a few rows at a time in the cache, instead of moving whole tables of
    logits through memory forwards and backwards (about half the time).
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, vectors: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
        by_x, by_vectors, by_bias = map(torch.zeros_like, (x, vectors, bias))
        loss = x.new_zeros(())
        at_once = max(LEAST_ROWS_AT_ONCE, LOGITS_AT_ONCE // len(vectors))
        for begin in range(0, len(x), at_once):
            rows = slice(begin, begin + at_once)
            some, wanted = x[rows], targets[rows, None]
            logits = torch.addmm(bias, some, vectors.T)
            by_logits = logits.softmax(1)
            # log sum exp(logit) = highest logit - log of its softmax, which is already there.
            log_total = logits.amax(1) - by_logits.amax(1).log()
            loss += (log_total - logits.gather(1, wanted).squeeze(1)).sum()
            # The gradient by the logits: softmax - 1[target].
            by_logits.scatter_add_(1, wanted, by_logits.new_full(wanted.shape, -1.0))
            torch.mm(by_logits, vectors, out=by_x[rows])
            by_vectors.addmm_(by_logits.T, some)
            by_bias += by_logits.sum(0)
        # The gradients themselves are saved; backward only scales them.
        ctx.save_for_backward(by_x / len(x), by_vectors / len(x), by_bias / len(x))
        return loss / len(x)

    @staticmethod
    def backward(ctx: Any, *by_loss: Tensor) -> tuple[Tensor | None, ...]:
        return (*(gradient * by_loss[0] for gradient in ctx.saved_tensors), None)


def softmax_loss(
    network: SequenceNetwork, inputs: Tensor, targets: Tensor, sample: ItemSample | None = None
) -> Tensor:
    """The loss over the whole catalogue, at the positions that have a target.

    With a sample of the catalogue, an estimate of it.
    """
    # Only positions with a target go through the large product with all item vectors.
    wanted = targets < network.n_items
    states = network.states(inputs)[wanted]
    if sample is not None:
        return sampled_softmax_loss(states, network.items, network.bias, targets[wanted], sample)
    loss: Tensor = SoftmaxLoss.apply(  # type: ignore[no-untyped-call]
        states, network.items, network.bias, targets[wanted]
    )
    return loss


@torch.no_grad()
def next_item_scores(network: SequenceNetwork, queue: Tensor, length: int) -> Tensor:
    """(b, n_items) logits after a queue (b, N) that is padded in front with n_items.

    The state of an empty queue is zero: the scores are the bias.
    """
    return network.logits(last_states(network, queue, length))


def last_states(network: SequenceNetwork, queue: Tensor, length: int) -> Tensor:
    """(b, dim) the state after a queue (b, N) that is padded in front with n_items."""
    queue = queue[:, -length:]
    width = queue.shape[1]
    counts = (queue < network.n_items).sum(1, keepdim=True)
    # Rotate each row, so that the padding moves from the front to the end, where no state sees it.
    flush = queue.gather(1, (torch.arange(width) - counts) % width)
    last = []
    for rows in torch.arange(len(queue)).split(USERS_AT_ONCE):
        # The state of the last known item; times 0 for an empty queue.
        states = network.states(flush[rows])
        at = (counts[rows] - 1).clamp(min=0)[..., None].expand(-1, 1, states.shape[2])
        last.append(states.gather(1, at).squeeze(1) * (counts[rows] > 0))
    return torch.cat(last)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's global generator, which modules use for weights and dropout, for a while."""
    # The caller's random numbers go on afterwards as if nothing had been drawn.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def catalogue_sampler(history: UserItems, all_items_at_most: int) -> ItemSampler | None:
    """The sampler of items for the loss; None where the loss uses all items."""
    if history.n_items <= all_items_at_most:
        return None
    counts = torch.bincount(history.items, minlength=history.n_items)
    return ItemSampler(counts, sampled_items(history.n_items))


def sampled_items(n_items: int) -> int:
    """How many items a step's sample has, of a catalogue that is too large for all."""
    if n_items > LARGE_CATALOGUE:
        return SAMPLED_OF_LARGE
    return max(SAMPLED_ITEMS, round(SAMPLED_SHARE * n_items))


WARM_UP = 0.03  # share of the training in which the learning rate rises
FEWEST_STEPS = 1500  # with fewer, a small log would not be learnt in so few epochs


@dataclass(frozen=True)
class Recipe:
    """What a kind of network is trained with, other than its settings."""

    # passes over the log in which the learning rate falls to 0, more over a log of few windows;
    # None: a constant learning rate, up to max_epochs
    epochs: int | None
    betas: tuple[float, float]  # of Adam
    average_decay: float  # per step, of the moving average of the weights
    all_items_at_most: int  # for more items the loss uses a sample


# averages about 200 steps
STEADY = Recipe(epochs=None, betas=(0.9, 0.999), average_decay=0.995, all_items_at_most=8192)
# A few epochs: Adam and the average, of about 100 steps, follow faster. Self-attention ranked worse
# when trained like this.
FALLING = Recipe(epochs=10, betas=(0.9, 0.98), average_decay=0.99, all_items_at_most=1024)


@dataclass(frozen=True)
class Schedule:
    """The learning rate is constant, or rises from 0 to its highest value and then falls to 0.

    Both are linear. Large steps first and small ones at the end reach in a few epochs what a
    constant learning rate reaches in many.
    """

    highest: float
    epochs: int
    falling: bool = True

    def rate(self, passed: float) -> float:
        """`passed`: the epochs so far, 2.5 in the middle of the third."""
        if not self.falling:
            return self.highest
        share = passed / self.epochs
        return self.highest * min(share / WARM_UP, (1 - share) / (1 - WARM_UP))


def planned_epochs(epochs: int, max_epochs: int, steps_an_epoch: int) -> int:
    """`epochs`, or more for FEWEST_STEPS steps in all; never more than `max_epochs`."""
    return min(max_epochs, max(epochs, math.ceil(FEWEST_STEPS / steps_an_epoch)))


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
        # The learning rate is set at every step.
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
        # Other windows in every epoch, so that targets are seen with histories of different
        # lengths.
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
        # After every step, since the decay is one per step.
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
    # The training log of the validation: without validation items it lacks each user's last item.
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
