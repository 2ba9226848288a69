"""The interface of rankers: fit(split), then scores for a batch of users."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, Self, TypeVar

from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.errors import DataError
from fairhorizon.settings import Settings
from fairhorizon.vocabulary import OnEpoch

Config = TypeVar("Config", bound=Settings)


class Ranker(ABC, Generic[Config]):
    """Scores every item for a user; lists are made of the scores elsewhere."""

    method: ClassVar[str]
    config_class: ClassVar[type[Settings]]
    in_thread: ClassVar[bool] = False  # a fit draws no random numbers that threads share

    fingerprint_: str  # of the training log

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
        return type(self).queue_length is not Ranker.queue_length

    def fit(self, split: Split, *, on_epoch: OnEpoch | None = None) -> Self:
        """Fit from scratch on the training log; the validation items decide when to stop."""
        if not len(split.train):
            raise DataError(
                f"{split.name or 'the split'} has nothing to train on",
                remedy="give more: each user's last item is for validation and a fifth for test",
            )
        self._learn(split, on_epoch)
        self.fingerprint_ = split.train.fingerprint()
        return self

    @abstractmethod
    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        """Set the fitted values."""

    @abstractmethod
    def scores(self, users: Tensor, queue: Tensor) -> Tensor:
        """(b, n_items), higher is better; queue: (b, N) recent items, newest last, padded in front
        with n_items. Items of a user's history are scored like all others."""

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
        config = cls.config_class.model_validate(description["config"])
        ranker = cls(config, seed=description["seed"])  # type: ignore[arg-type]
        ranker.fingerprint_ = description["fingerprint"]
        ranker.restore(tensors)
        return ranker
