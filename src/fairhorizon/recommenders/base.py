"""The interface that everything further down speaks to: a recommender."""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.limits.groups import POPULAR_SHARE, popular_group
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.limits.step_limits import StepLimit
from fairhorizon.limits.supported import SupportedLimits, check_supported, own_share
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.online import OnlineRecommender
from fairhorizon.recommenders.progress import SILENT, Listener
from fairhorizon.recommenders.ranked_lists import BlockServing, RankedLists, ValuedItems
from fairhorizon.recommenders.tasks import (
    NOTHING_FITTED,
    FitTask,
    Fitted,
    Prerequisite,
    ServingPlan,
)
from fairhorizon.settings import Given, Settings
from fairhorizon.simulation.dynamics import State
from fairhorizon.simulation.feedback import Scenario


class Levels(StrEnum):
    """When the level of a method, such as its largest share of popular items, is chosen."""

    NONE = "none"  # it has none
    TRAINED = "trained"  # when it is trained: a model has one level
    SERVED = "served"  # when it serves: a model has any level


@dataclass(frozen=True)
class Capabilities:
    """What a recommender can do, known before it is fitted."""

    levels: Levels = Levels.NONE
    level_is_share: bool = False  # its level is a largest share of showings for the group
    aims_at_level: bool = False  # it is given that share itself, not a setting found by search
    learns: bool = True  # False: a policy as it is before its training, for comparison
    feedback: bool = True  # what users like changes what they are shown next
    resume: bool = False  # its training keeps checkpoints and can be resumed
    limits: bool = False  # keeps several limits at once in the long run
    requests: bool = False  # serves users one by one under a limit on all of them
    worth: bool = False  # its lists are made of values, which the worth of a user can multiply
    long_run: bool = True  # has a server
    rounds: bool = False  # its level is for a whole round of a long run
    kinds: bool = False  # its server needs to know the kinds of items


class Recommender(ABC):
    """Makes lists for users: an agent of `methods.AGENTS`, or a ranker, re-ranked or not."""

    kind: ClassVar[str]  # of its model files
    presets: ClassVar[Mapping[str, Settings]] = MappingProxyType({})  # of an agent, default first
    fixed: ClassVar[Mapping[str, tuple[str, ...]]] = MappingProxyType({})  # settings, by preset
    level_setting: ClassVar[str] = ""  # of an agent with a level: the setting that it is

    seed: int
    fingerprint_: str  # of the training log
    sensitive_: Tensor  # (n_items,) bool, the group whose exposure is limited
    finished_: bool = True  # False: the fit was interrupted, and can be resumed
    keeps_limit_: bool | None = None  # the policy, in training; None: it was trained for no limit
    limits_: tuple[ResolvedLimit, ...] = ()  # of the lists, in place of its level
    level_limit_: Limit | None = None  # the limit that its level was given as
    remarks_: tuple[str, ...] = ()  # what results of the model should not be shown without

    @classmethod
    def configured(cls, config: Settings, seed: int) -> Self:  # noqa: ARG003
        """An agent before its fit."""
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
        self.finished_ = True
        self._fit(FitTask(split, sensitive, fitted, listener, folder, resume))
        return self

    def refitted(
        self, split: Split, *, sensitive: NDArray[np.bool_], listener: Listener = SILENT
    ) -> Self:
        """Another fit to the training log of a split, with everything that this one has chosen.

        Methods that choose nothing but their given settings, or that have to be trained again to
        follow another log, are fitted anew.
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
        return self.served(scenario, length=length, feedback=feedback, seed=seed).lists

    @abstractmethod
    def served(
        self, scenario: Scenario, *, length: int, feedback: bool = False, seed: int | None = None
    ) -> RankedLists:
        """The same lists with the values and scores of their items and the prices of the limits."""

    def in_blocks(self, *, feedback: bool = False) -> BlockServing | None:  # noqa: ARG002
        """How blocks of users are served together; None: all users are one block."""
        return None

    def recommend_one_by_one(self, scenario: Scenario, *, length: int) -> NDArray[np.int64]:
        """Lists as requests come: after each the limit holds for all that was shown so far."""
        return self.served_one_by_one(scenario, length, self.request_guard(length)).lists

    def request_guard(self, length: int) -> ExposureGuard:  # noqa: ARG002
        """What keeps its limits over requests, before the first; a price is for one length."""
        raise self._serves_alone("--one-by-one")

    def served_one_by_one(
        self,
        scenario: Scenario,  # noqa: ARG002
        length: int,  # noqa: ARG002
        guard: ExposureGuard,  # noqa: ARG002
    ) -> RankedLists:
        """Lists as requests come, counted by a guard of `request_guard`."""
        raise self._serves_alone("--one-by-one")

    def _serves_alone(self, option: str) -> ConfigError:
        return ConfigError(f"{self.method} serves every user alone (leave out {option})")

    def item_values(self, scenario: Scenario, *, length: int) -> ValuedItems:  # noqa: ARG002
        """All items for every user, with calibrated chances and the values that follow from them.

        What somebody else can make lists of, under limits that the model does not know.
        """
        raise ConfigError(
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
        """What is trained of this model, serving as another one that need not be fitted."""
        return self

    def server(
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
        """The model at work in a long run; the model itself stays as it is.

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
        return self._server(plan)

    @abstractmethod
    def _server(self, plan: ServingPlan) -> OnlineRecommender:
        """The server of the plan."""

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
