"""The interface of all methods, `Recommender`, with what is asked of one and what it returns.

`FitTask` and `ServingPlan` are requests, checked when they are made; `RankedLists` is the result.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, Self
from typing import Protocol as Interface

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.engine import Blocks
from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError, DataError, ModelError
from fairhorizon.limits.groups import POPULAR_SHARE, popular_group
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.limits.step_limits import StepLimit
from fairhorizon.limits.supported import SupportedLimits, check_supported, own_share
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.likely_items import LikelyItems
from fairhorizon.recommenders.online import OnlineRecommender, Retraining
from fairhorizon.recommenders.progress import SILENT, Listener
from fairhorizon.settings import Given, Settings
from fairhorizon.simulation.dynamics import State
from fairhorizon.simulation.feedback import Scenario

Floats = NDArray[np.float64]
NO_PRICES: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, eq=False)
class RankedLists:
    """Lists of users, best first, with all that is known about their items.

    lists: (n_users, K) item codes, -1 where nothing is left that may be shown.
    values: (n_users, K) the value of each showing, in units of the user's NDCG
        (`recommenders/lists/probabilities.py`); None of a method that has none. NaN where there is
        no item.
    scores: (n_users, K) the calibrated chance that the user takes the item next, of a method that
        calibrates; the score of the ranker otherwise; None where neither is known. NaN where there
        is no item.
    prices: what a limit subtracts from the value of an item, by the text of the limit; empty where
        nothing is priced.
    """

    lists: NDArray[np.int64]
    values: Floats | None = None
    scores: Floats | None = None
    prices: Mapping[str, float] = field(default_factory=lambda: NO_PRICES)

    def __reduce__(self) -> tuple[object, ...]:
        """For other processes: a mapping that cannot change cannot be pickled."""
        return RankedLists, (self.lists, self.values, self.scores, dict(self.prices))

    @classmethod
    def from_tensors(
        cls,
        lists: Tensor,
        *,
        values: Tensor | None = None,
        scores: Tensor | None = None,
        prices: Mapping[str, float] = NO_PRICES,
    ) -> "RankedLists":
        """From tensors of any device."""

        def numbers(some: Tensor | None) -> Floats | None:
            return None if some is None else some.cpu().double().numpy()

        return cls(
            lists.cpu().numpy(), numbers(values), numbers(scores), MappingProxyType(dict(prices))
        )


@dataclass(frozen=True, eq=False)
class ValuedItems:
    """Items of some users (b, n), -1 where one may not be shown, with values and probabilities."""

    items: Tensor
    values: Tensor
    probabilities: Tensor


def columns_of(lists: NDArray[np.int64], items: NDArray[np.int64]) -> NDArray[np.int64]:
    """(b, K) the column in which each item of the lists stands among the items of its row.

    lists: (b, K) item codes, each of them among the items of the same row; -1 for none, for which
        the column is arbitrary.
    items: (b, C) item codes, distinct within a row but for -1.
    """
    order = np.argsort(items, axis=1)
    ordered = np.take_along_axis(items, order, axis=1)
    # Adding row * width makes all rows one ascending sequence, so that one search serves all.
    width = np.int64(1 + max(int(items.max(initial=0)), int(lists.max(initial=0))) + 1)
    rows = np.arange(len(items))[:, None]
    at = np.searchsorted((ordered + rows * width).ravel(), (lists + rows * width).ravel())
    at = (at.reshape(lists.shape) - rows * items.shape[1]).clip(0, items.shape[1] - 1)
    return np.take_along_axis(order, at, axis=1)


def on_lists(lists: Tensor, items: Tensor, numbers: Tensor) -> Tensor:
    """(b, K) float64: the numbers (b, C) of the items (b, C) at the places of lists (b, K).

    NaN where the list has no item; items as in `columns_of`.
    """
    at = torch.from_numpy(columns_of(lists.numpy(), items.numpy()))
    return numbers.double().gather(1, at).masked_fill(lists < 0, float("nan"))


class BlockServing(Interface):
    """Serves blocks of users together."""

    def block(self, scenario: Scenario, length: int, users: int) -> Any:
        """Whatever `serve_blocks` needs of the users of a scenario; made where they are served.

        users: how many there are in all blocks together.
        """

    def serve_blocks(self, blocks: Blocks, length: int) -> RankedLists:
        """The lists of the users of all blocks."""


@dataclass(frozen=True)
class EachAlone:
    """Every user's list depends on nobody else: a block is its lists."""

    rank: Callable[[Scenario, int], RankedLists]

    def block(self, scenario: Scenario, length: int, users: int) -> RankedLists:  # noqa: ARG002
        return self.rank(scenario, length)

    def serve_blocks(self, blocks: Blocks, length: int) -> RankedLists:  # noqa: ARG002
        return joined(blocks.map(_itself))


def _itself(block: RankedLists) -> RankedLists:
    return block


def joined(parts: Sequence[RankedLists]) -> RankedLists:
    """The lists of all users, from those of blocks; the prices are the same in all."""

    def column(name: str) -> np.ndarray | None:
        tables = [getattr(part, name) for part in parts]
        return None if tables[0] is None else np.concatenate(tables)

    lists = np.concatenate([part.lists for part in parts])
    return RankedLists(lists, column("values"), column("scores"), parts[0].prices)


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
    def from_split(
        cls, split: Split, sensitive: NDArray[np.bool_] | None = None, **others: Any
    ) -> Self:
        """For the group that was given, or else for the popular items."""
        if sensitive is None:
            sensitive = popular_group(split.train.item_counts())
        return cls(split, sensitive, **others)


@dataclass(frozen=True)
class ServingPlan:
    """How a recommender serves in a long run; the parameters of `Recommender.online`."""

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
        """Refuse another length than that of the training, for methods that are trained for one."""
        if self.list_length not in (None, own):
            raise ConfigError(
                f"{method} was trained for lists of {own} and cannot serve lists of "
                f"{self.list_length} (fit it with list_length={self.list_length})"
            )

    def retraining(self) -> Retraining | None:
        """What collects feedback for the refits, where there are any."""
        return None if self.retrain_on is None else Retraining(self.retrain_on, self.round_length)


class Levels(StrEnum):
    """When the level of a method, such as its largest share of popular items, is chosen."""

    NONE = "none"  # it has none
    TRAINED = "trained"  # when it is trained: a model has one level
    SERVED = "served"  # when it serves: a model has any level


@dataclass(frozen=True)
class Capabilities:
    """What a recommender can do, known before it is fitted."""

    levels: Levels = Levels.NONE
    # its level is a largest share of showings for the group
    level_is_share: bool = False
    # studies give it that share as its level; without, they search for the level that keeps it
    aims_at_level: bool = False
    learns: bool = True  # False: a policy as it is before its training, for comparison
    feedback: bool = True  # what users like changes what they are shown next
    resume: bool = False  # its training keeps checkpoints and can be resumed
    limits: bool = False  # keeps several limits at once in the long run
    requests: bool = False  # serves users one by one under a limit on all of them
    worth: bool = False  # its lists are made of values, which the worth of a user can multiply
    long_run: bool = True  # serves in a long run
    rounds: bool = False  # its level is for a whole round of a long run
    kinds: bool = False  # in a long run it needs to know the kinds of items


class Recommender(ABC):
    """Makes lists for users: one of `methods.RECOMMENDERS`, or a ranker, re-ranked or not."""

    kind: ClassVar[str]  # of its model files
    presets: ClassVar[Mapping[str, Settings]] = MappingProxyType({})  # the default first
    fixed: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})  # settings, by preset
    level_setting: ClassVar[str] = ""  # the setting that its level is

    seed: int
    fingerprint_: str  # of the training log
    sensitive_: Tensor  # (n_items,) bool, the group whose exposure is limited
    finished_: bool = True  # False: the fit was interrupted, and can be resumed
    # whether the trained policy kept its limit by itself; None: it was trained for no limit
    keeps_limit_: bool | None = None
    limits_: tuple[ResolvedLimit, ...] = ()  # of the lists, in place of its level
    level_limit_: Limit | None = None  # the limit that its level was given as
    remarks_: tuple[str, ...] = ()  # caveats that belong beside every result of the model

    @classmethod
    def configured(cls, config: Settings, seed: int) -> Self:  # noqa: ARG003
        """The method with these settings, before its fit."""
        raise ConfigError(f"{cls.kind} is not built from settings alone")

    @property
    @abstractmethod
    def method(self) -> str:
        """Its name, without a level."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """What it can do with its settings."""

    @property
    @abstractmethod
    def settings(self) -> Settings:
        """Those of what is trained, which a search may change."""

    def all_settings(self) -> dict[str, Any]:
        """All settings, as they can be given again; those of a part under the part's name."""
        return self.settings.model_dump(mode="json")

    @property
    def alpha_prime(self) -> float:
        """The largest share of showings that is meant for the group."""
        return 1.0

    @property
    def popular_share(self) -> float:
        """The share of the catalogue that counts as popular."""
        return POPULAR_SHARE

    @property
    @abstractmethod
    def queue_length(self) -> int:
        """How many of a user's recent items it looks at."""

    @property
    def ranker(self) -> Ranker[Any] | None:
        """The ranker that it is, where it is one; others can be made of it."""
        return None

    def check_length(self, length: int) -> None:  # noqa: B027  # most have nothing to refuse
        """Refuse lists of a length that it cannot make."""

    def prerequisites(self, split: Split) -> tuple[Prerequisite, ...]:  # noqa: ARG002
        """Rankers that it is made of, in the order fitted."""
        return ()

    def fit(
        self,
        split: Split,
        *,
        sensitive: NDArray[np.bool_] | None = None,
        fitted: Fitted = NOTHING_FITTED,
        listener: Listener = SILENT,
        checkpoint: str | Path | None = None,
        resume: bool = False,
    ) -> Self:
        """Fit to the training log; a second fit starts from scratch.

        split: the training, validation and test items; test items are never looked at.
        sensitive: (n_items,) bool, the group; without it, the popular items.
        fitted: prerequisites that are fitted already, on this split and with this seed.
        listener: receives the progress.
        checkpoint: a folder to keep checkpoints in, for methods that can be resumed. Ctrl-C then
            ends the fit after the present round, with `finished_` False.
        resume: continue from the checkpoint in that folder.
        """
        if (checkpoint is not None or resume) and not self.capabilities.resume:
            text = f"{self.method} keeps no checkpoints (leave out checkpoint and resume)"
            raise ConfigError(text)
        if resume and checkpoint is None:
            raise ConfigError("resume: from which checkpoint? (name its folder)")
        if sensitive is None:
            sensitive = popular_group(split.train.item_counts(), self.popular_share)
        folder = None if checkpoint is None else Path(checkpoint)
        # Before the fit: only a method that can be interrupted sets it to False.
        self.finished_ = True
        self._fit(FitTask(split, sensitive, fitted, listener, folder, resume))
        return self

    def refitted(
        self, split: Split, *, sensitive: NDArray[np.bool_], listener: Listener = SILENT
    ) -> Self:
        """A fit to another log that keeps what this one chose on validation items, such as weights.

        Methods without such choices, and those that cannot follow another log without training,
        are fitted from scratch. This model stays as it is.
        """
        model = type(self).configured(self.settings, self.seed)
        return model.fit(split, sensitive=sensitive, listener=listener)

    @property
    def rankers(self) -> tuple[Ranker[Any], ...]:
        """The fitted rankers whose scores its lists are made of; none: they are made otherwise."""
        return () if self.ranker is None else (self.ranker,)

    def ranker_weights(self, state: State) -> tuple[float, ...]:  # noqa: ARG002
        """The weight of each of its `rankers` for the one user in a state."""
        return (1.0,) * len(self.rankers)

    def with_rankers(self, rankers: Sequence[Ranker[Any]], sensitive: Tensor) -> Self:  # noqa: ARG002
        """The same fitted model over others in place of its `rankers`, and another group."""
        raise ConfigError(f"{self.method} is not made of rankers")

    @abstractmethod
    def _fit(self, task: FitTask) -> None:
        """Set all fitted values."""

    def resumable(self, folder: Path, changes: Given, seed: int | None) -> Self:  # noqa: ARG002
        """With the settings of the checkpoint in a folder, some of them changed; to be fitted."""
        raise ConfigError(f"{self.method} keeps no checkpoints (leave out --resume to start again)")

    def recommend(
        self, scenario: Scenario, *, length: int, feedback: bool = False, seed: int | None = None
    ) -> NDArray[np.int64]:
        """(n_users, length) item codes, -1 where nothing is left that may be shown.

        Without feedback a user's whole list is made at once. With it, what is liked enters the
        user's history before the next items are chosen. The seed is that of the fit unless given.
        """
        return self.rank(scenario, length=length, feedback=feedback, seed=seed).lists

    @abstractmethod
    def rank(
        self, scenario: Scenario, *, length: int, feedback: bool = False, seed: int | None = None
    ) -> RankedLists:
        """The same lists with the values and scores of their items and the prices of the limits."""

    def in_blocks(self, *, feedback: bool = False) -> BlockServing | None:  # noqa: ARG002
        """How blocks of users are served together; None: all users are one block."""
        return None

    def recommend_one_by_one(self, scenario: Scenario, *, length: int) -> NDArray[np.int64]:
        """Lists as requests come: after each the limit holds for all that was shown so far."""
        return self.rank_one_by_one(scenario, length, self.request_guard(length)).lists

    def request_guard(self, length: int) -> ExposureGuard:  # noqa: ARG002
        """What keeps its limits over requests, before the first; a price is for one length."""
        raise self._no_requests("--one-by-one")

    def rank_one_by_one(
        self,
        scenario: Scenario,  # noqa: ARG002
        length: int,  # noqa: ARG002
        guard: ExposureGuard,  # noqa: ARG002
    ) -> RankedLists:
        """Lists as requests come, counted by a guard of `request_guard`."""
        raise self._no_requests("--one-by-one")

    def _no_requests(self, option: str) -> ConfigError:
        return ConfigError(f"{self.method} serves every user alone (leave out {option})")

    def item_values(self, scenario: Scenario, *, length: int) -> ValuedItems:  # noqa: ARG002
        """All items for every user, with calibrated probabilities and the values that follow.

        For callers that make lists themselves, under limits that the model does not know.
        """
        raise self._no_values()

    def likely_items(self, scenario: Scenario, *, length: int) -> Iterator[LikelyItems]:  # noqa: ARG002
        """All items for one user after the other, as `item_values`, but computed where needed."""
        raise self._no_values()

    def _no_values(self) -> ConfigError:
        return ConfigError(
            f"{self.method} has no calibrated values of items (fit fcpo, or a ranker such as ease)"
        )

    def expected_exposure(self, scenario: Scenario) -> NDArray[np.float64] | None:  # noqa: ARG002
        """(n_items,) expected exposure where rankings are drawn; None where nothing is drawn."""
        return None

    def with_level(self, alpha_prime: float) -> Self:
        """The same fitted model with another largest share of showings for the group."""
        raise ConfigError(
            f"{self.method} has no limit to set to {alpha_prime:g} (fit fcpo, which serves any)"
        )

    @property
    def supported_limits(self) -> SupportedLimits:
        """Which limits its lists can be made under."""
        return SupportedLimits.OWN if self.capabilities.level_is_share else SupportedLimits.NONE

    def with_limits(self, limits: Sequence[ResolvedLimit]) -> Self:
        """The same fitted model, whose lists are made under these limits; none: as it is."""
        group = self.sensitive_.cpu().numpy()
        check_supported(self.method, self.supported_limits, limits, group)
        # The one limit that the level stands for: set as the level, so that methods with a faster
        # or exact way to keep it use that.
        if (share := own_share(limits, group)) is not None:
            model = copy.copy(self.with_level(share))
            model.level_limit_ = limits[0].limit
            return model
        model = copy.copy(self)
        model.limits_ = tuple(limits)
        return model

    def level_text(self) -> str:
        """Its level as a limit; on the popular items unless it was given for another group."""
        return str(replace(self.level_limit_ or Limit.popular(1.0), share=self.alpha_prime))

    def as_served_by(self, other: Self) -> Self:  # noqa: ARG002
        """The trained part of this model with the serving settings of `other`, which has no fit.

        So one training serves `ease+quota@0.4` and `ease+quota@0.6`.
        """
        return self

    def online(
        self,
        limits: Sequence[StepLimit] = (),
        *,
        list_length: int | None = None,
        round_length: int = 100,
        retrain_on: Split | None = None,
        learn: bool = True,
        seed: int | None = None,
        kinds: Tensor | None = None,
    ) -> OnlineRecommender:
        """The recommender that serves this model in a long run; the model itself stays as it is.

        limits: what to keep, for methods that keep limits.
        list_length: items of a list; None: as trained, else 1.
        round_length: items per user, for what works in rounds.
        retrain_on: the log to refit on between rounds, extended by everything liked since.
        learn: whether to learn online, where the method can.
        kinds: (n_items, kinds) the part of each kind in an item, for rules about kinds.
        """
        plan = ServingPlan(limits, list_length, round_length, retrain_on, learn, seed, kinds)
        if retrain_on is not None:
            plan.check_log(self.method, self.fingerprint_)
        return self._online(plan)

    @abstractmethod
    def _online(self, plan: ServingPlan) -> OnlineRecommender:
        """The model at work, as planned."""

    def summary(self) -> str:
        """What the fit has led to, in a few words; empty where there is nothing to say."""
        return ""

    @abstractmethod
    def description(self) -> dict[str, Any]:
        """What was fitted, in JSON; the same for the same seed."""

    @abstractmethod
    def save(self, path: Path) -> None:
        """Write the fitted model to a file."""

    @classmethod
    @abstractmethod
    def load(cls, path: Path) -> Self:
        """The model that `save` wrote."""
