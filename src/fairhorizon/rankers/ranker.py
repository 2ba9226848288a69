"""The interface of rankers: fit(split), then scores for a batch of users."""

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, ClassVar, Generic, Self, TypeVar

from torch import Tensor, nn

from fairhorizon.data.interactions import WeightsIgnoredWarning
from fairhorizon.data.splits import Split
from fairhorizon.errors import DataError
from fairhorizon.settings import Settings, changed
from fairhorizon.vocabulary import OnEpoch

Config = TypeVar("Config", bound=Settings)
Part = TypeVar("Part")


class Ranker(ABC, Generic[Config]):
    """Scores every item for a user; lists are made of the scores elsewhere."""

    method: ClassVar[str]
    config_class: ClassVar[type[Settings]]
    in_thread: ClassVar[bool] = False  # a fit draws no random numbers that threads share
    uses_weights: ClassVar[bool] = False  # of the log: quantities, times spent

    fingerprint_: str  # of the training log
    best_epoch_: int | None = None  # whose values were kept; None: nothing is trained in epochs
    # parts of fits to one log that several settings have in common; None: nothing is kept
    shared: dict[Hashable, Any] | None = None

    def __init__(self, config: Config | None = None, *, seed: int = 0) -> None:
        self.config: Config = config or self.config_class()  # type: ignore[assignment]
        self.seed = seed

    @property
    def queue_length(self) -> int:
        """How many of a user's recent items `scores` reads."""
        return 0

    @property
    def uses_history(self) -> bool:
        """Whether scores depend on a user's recent items; known before the fit."""
        # Asked before the fit, when the length itself may not be known: a class that reads
        # histories overrides the property.
        return type(self).queue_length is not Ranker.queue_length

    def fit(self, split: Split, *, on_epoch: OnEpoch | None = None) -> Self:
        """Fit from scratch on the training log; the validation items decide when to stop."""
        if not len(split.train):
            raise DataError(
                f"{split.name or 'the split'} has nothing to train on",
                remedy="give more: each user's last item is for validation and a fifth for test",
            )
        if split.train.weights is not None and not self.uses_weights:
            warnings.warn(
                f"{self.method} does not use weights: every interaction counts once",
                WeightsIgnoredWarning,
                stacklevel=2,
            )
        # Of metrics only the RMSE is better when lower.
        epochs = _Epochs(on_epoch, lowest=getattr(self.config, "stop", "") == "rmse")
        self._learn(split, epochs)
        self.best_epoch_ = epochs.best
        self.fingerprint_ = split.train.fingerprint()
        return self

    def unfitted_copy(self) -> Self:
        """The same ranker before its fit, to be trained for as many epochs as the best had."""
        config = self.config
        if self.best_epoch_ is not None and "max_epochs" in type(config).model_fields:
            # Patience as long as the training: no validation item decides in the second fit.
            config = changed(config, {"max_epochs": self.best_epoch_, "patience": self.best_epoch_})
        return type(self)(config, seed=self.seed)

    def refitted(self, split: Split, *, on_epoch: OnEpoch | None = None) -> Self:
        """Another fit, to the training log of a split, with everything that this one has chosen."""
        return self.unfitted_copy().fit(split, on_epoch=on_epoch)

    def _once(self, key: Hashable, made: Callable[[], Part]) -> Part:
        """A part of the fit, made once for all settings with this key; it must stay as it is."""
        if self.shared is None:
            return made()
        if key not in self.shared:
            self.shared[key] = made()
        part: Part = self.shared[key]
        return part

    @abstractmethod
    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        """Set the fitted values."""

    @abstractmethod
    def scores(self, users: Tensor, queue: Tensor) -> Tensor:
        """(b, n_items), higher is better; queue: (b, N) recent items, newest last, padded in front
        with n_items. Items of a user's history are scored like all others."""

    def score_small_batch(self, users: Tensor, queue: Tensor) -> Tensor:
        """`scores` of a few users, fast; sums may be rounded otherwise."""
        return self.scores(users, queue)

    def item_vectors(self) -> Tensor | None:
        """(n_items, d) whose products with those of users are the scores, up to a number per user.

        None where scores are no such products.
        """
        return None

    def user_vectors(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002
        """(b, d) where there are `item_vectors`."""
        raise TypeError(f"scores of {self.method} are no products of vectors")

    def contributions(self, queue: Tensor, items: Tensor) -> Tensor | None:  # noqa: ARG002
        """(N, m) what each item of a queue (N,) adds to the scores of items (m,).

        None where scores are no sums over the history.
        """
        return None

    @abstractmethod
    def tensors(self) -> dict[str, Tensor]:
        """The fitted values, as they are stored."""

    @abstractmethod
    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Load the values of `tensors`."""

    def description(self) -> dict[str, Any]:
        """What is stored beside `tensors`: method, settings, seed and the log."""
        return {
            "method": self.method,
            "config": self.config.model_dump(mode="json"),
            "seed": self.seed,
            "fingerprint": self.fingerprint_,
        }

    @classmethod
    def from_parts(cls, tensors: dict[str, Tensor], description: dict[str, Any]) -> Self:
        """The ranker that was described and stored."""
        config = cls.config_class.from_file(description["config"])
        ranker = cls(config, seed=description["seed"])  # type: ignore[arg-type]
        ranker.fingerprint_ = description["fingerprint"]
        ranker.restore(tensors)
        return ranker


def with_one(vectors: Tensor) -> Tensor:
    """One more coordinate, whose product with a bias of the items is the bias."""
    return nn.functional.pad(vectors, (0, 1), value=1.0)


class _Epochs:
    """Passes on what epochs report, and remembers the best of them."""

    def __init__(self, on_epoch: OnEpoch | None, *, lowest: bool) -> None:
        self.on_epoch, self.sign = on_epoch, -1.0 if lowest else 1.0
        self.best: int | None = None
        self.highest = -math.inf

    def __call__(self, epoch: int, value: float) -> None:
        if self.sign * value > self.highest:
            self.best, self.highest = epoch, self.sign * value
        if self.on_epoch is not None:
            self.on_epoch(epoch, value)
