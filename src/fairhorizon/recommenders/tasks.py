"""What a recommender is asked to do: to be fitted, and to serve in a long run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError, DataError, ModelError
from fairhorizon.limits.groups import popular_group
from fairhorizon.limits.step_limits import StepLimit
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.online import Retraining
from fairhorizon.recommenders.progress import SILENT, Listener


class LogPart(StrEnum):
    """Which part of a training log something is fitted on."""

    WHOLE = "whole"
    EARLIER = "earlier"  # see data.splits.earlier_part


class Prerequisite(NamedTuple):
    """A ranker that a recommender is made of; fitted once, it can serve several recommenders."""

    method: str
    part: LogPart = LogPart.WHOLE


Fitted = Mapping[Prerequisite, Ranker[Any]]
NOTHING_FITTED: Fitted = MappingProxyType({})


@dataclass(frozen=True)
class FitTask:
    """What a recommender is fitted to; the parameters of `Recommender.fit`, checked."""

    split: Split
    group: NDArray[np.bool_]  # (n_items,) whose exposure is limited
    fitted: Fitted = field(default_factory=dict)
    listener: Listener = SILENT
    checkpoint: Path | None = None  # a folder
    resume: bool = False

    def __post_init__(self) -> None:
        if not len(self.split.train):
            raise DataError(
                f"{self.split.name or 'the split'} has nothing to train on",
                remedy="a user's last item is for validation and a fifth for test: give more",
            )

    @classmethod
    def of(cls, split: Split, sensitive: NDArray[np.bool_] | None = None, **others: Any) -> Self:
        """For the group that was given, or else for the popular items."""
        if sensitive is None:
            sensitive = popular_group(split.train.item_counts())
        return cls(split, sensitive, **others)


@dataclass(frozen=True)
class ServingPlan:
    """How a recommender serves in a long run; the parameters of `Recommender.server`."""

    limits: Sequence[StepLimit] = ()
    list_length: int | None = None  # None: as trained, else 1
    round_length: int = 100
    retrain_on: Split | None = None
    learn: bool = True
    seed: int | None = None  # None: that of the fit
    kinds: Tensor | None = None  # (n_items, kinds) the part that each kind has in an item

    def check_log(self, method: str, fingerprint: str) -> None:
        """Refuse to refit a method to another log than that of its fit."""
        log = self.retrain_on
        if log is not None and fingerprint != log.train.fingerprint():
            raise ModelError(
                f"{method} was fitted on other data than {log.name or 'this split'} and cannot be "
                "retrained on it (fit it again)"
            )

    def check_list_length(self, method: str, own: int) -> None:
        """For agents that are trained for lists of one length."""
        if self.list_length not in (None, own):
            raise ConfigError(
                f"{method} was trained for lists of {own} and cannot serve lists of "
                f"{self.list_length} (fit it with list_length={self.list_length})"
            )

    def retraining(self) -> Retraining | None:
        """What collects feedback for the refits, where there are any."""
        return None if self.retrain_on is None else Retraining(self.retrain_on, self.round_length)
