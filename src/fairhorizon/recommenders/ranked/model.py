"""A ranker as a recommender, with or without a re-ranker, and `NAME+lists`, joint allocation."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from typing import Protocol as Interface

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.limits.supported import SupportedLimits, gini_limits, is_multi_limit, level_under
from fairhorizon.rankers import ranker_class
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.recommenders.base import (
    BlockServing,
    Capabilities,
    FitTask,
    Levels,
    RankedLists,
    Recommender,
    ServingPlan,
    ValuedItems,
)
from fairhorizon.recommenders.likely_items import LikelyItems
from fairhorizon.recommenders.lists.item_lists import GiniTarget, ItemLists
from fairhorizon.recommenders.lists.probabilities import WeightedProbabilities
from fairhorizon.recommenders.online import OnlineRecommender
from fairhorizon.recommenders.progress import SILENT, Listener
from fairhorizon.recommenders.ranked.by_user import UserLists
from fairhorizon.recommenders.ranked.calibration import UNKNOWN, Calibration, FittedRanker, view_of
from fairhorizon.recommenders.ranked.controlled import ControlledLists, OnlineControlled
from fairhorizon.recommenders.ranked.paced import OnlineLists
from fairhorizon.rerank import RERANKERS
from fairhorizon.rerank.control import StepControl
from fairhorizon.rerank.lists import ListAllocation
from fairhorizon.rerank.online import OnlineReranker
from fairhorizon.rerank.reranker import JointReranker, Reranker, UserReranker
from fairhorizon.settings import Settings
from fairhorizon.simulation.feedback import Scenario
from fairhorizon.storage import below, load_model, save_model


class ServingStrategy(Interface):
    """Serves a fitted ranker, behind a re-ranker where there is one."""

    def serve(self, scenario: Scenario, *, length: int, feedback: bool, seed: int) -> RankedLists:
        """As `Recommender.rank` describes it."""

    def in_blocks(self, *, feedback: bool, seed: int) -> BlockServing | None:
        """As `Recommender.in_blocks` describes it."""

    def online(self, plan: ServingPlan) -> OnlineRecommender:
        """At work in a long run."""

    def expected_exposure(self, scenario: Scenario) -> NDArray[np.float64] | None:
        """(n_items,) what exposure the drawn rankings of all users give an item on average."""


def strategy_for(reranker: Reranker | None, fitted: FittedRanker) -> ServingStrategy:
    """How the re-ranker serves: the only place that distinguishes the kinds of re-rankers."""
    # From special to general, as all of these are re-rankers with settings of their own.
    match reranker:
        case ListAllocation():
            return AllocatedLists(fitted, reranker)
        case StepControl():
            return ControlledLists(fitted, reranker)
        case OnlineReranker():
            return OnlineLists(fitted, reranker)
        case UserReranker() | None:
            return UserLists(fitted, reranker)
        case _:
            raise TypeError(f"nothing serves with {type(reranker).__name__} (add it here)")


class Ranked(Recommender):
    """A ranker that is fitted once; its re-ranker can be exchanged at any time."""

    kind = "ranked"

    def __init__(self, ranker: Ranker[Any], reranker: Reranker | None = None) -> None:
        self._ranker, self.reranker, self.seed = ranker, reranker, ranker.seed
        self.sensitive_ = torch.zeros(0, dtype=torch.bool)  # no group before the fit
        self.calibration_ = Calibration(UNKNOWN, torch.zeros(0, dtype=torch.int64))

    @property
    def ranker(self) -> Ranker[Any]:
        return self._ranker

    @property
    def sharpness_(self) -> float:
        """The weight of the standardised score in the chance that a user takes an item next."""
        return self.calibration_.sharpness

    @property
    def method(self) -> str:
        return self.ranker.method + (f"+{self.reranker.method}" if self.reranker else "")

    @property
    def alpha_prime(self) -> float:
        if self.limits_:
            return level_under(self.limits_, self.sensitive_.numpy())
        return self.reranker.share_limit(self.sensitive_) if self.reranker else 1.0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            levels=Levels.SERVED if self.reranker else Levels.NONE,
            level_is_share=self.reranker is not None and self.reranker.level_is_share,
            feedback=self.ranker.uses_history,
            limits=self.reranker is not None and self.reranker.keeps_limits,
            long_run=self.reranker is None or self.reranker.in_long_run,
            rounds=isinstance(self.reranker, UserReranker),
            kinds=self.reranker is not None and self.reranker.needs_kinds,
            worth=isinstance(self.reranker, ListAllocation),
        )

    @property
    def supported_limits(self) -> SupportedLimits:
        kept = None if self.reranker is None else self.reranker.supported_limits
        return super().supported_limits if kept is None else kept

    @property
    def settings(self) -> Settings:
        config: Settings = self.ranker.config
        return config

    def all_settings(self) -> dict[str, Any]:
        settings = self.settings.model_dump(mode="json")
        if self.reranker is not None:
            settings[self.reranker.method] = self.reranker.stated()
        return settings

    @property
    def queue_length(self) -> int:
        return max(1, self.ranker.queue_length)

    def check_length(self, length: int) -> None:
        if isinstance(self.reranker, UserReranker):
            self.reranker.allowance(length)

    def _fit(self, task: FitTask) -> None:
        self.sensitive_ = torch.tensor(task.group)
        self.ranker.fit(task.split, on_epoch=task.listener.epoch)
        self.fingerprint_ = self.ranker.fingerprint_
        # Calibrated at every fit, although only some re-rankers need it: then any can be put behind
        # the fitted ranker later.
        self.calibration_ = Calibration.from_split(self.ranker, task.split, self.sensitive_)

    def refitted(
        self, split: Split, *, sensitive: NDArray[np.bool_], listener: Listener = SILENT
    ) -> Self:
        """The ranker fitted again; the calibration of its scores stays."""
        model = copy.copy(self)
        model._ranker = self.ranker.refitted(split, on_epoch=listener.epoch)
        model.sensitive_, model.fingerprint_ = torch.tensor(sensitive), model.ranker.fingerprint_
        # The weight of the scores stays: after a refit on everything no validation items are left
        # to calibrate on.
        taken = torch.from_numpy(split.train.user_counts())
        model.calibration_ = replace(self.calibration_, histories=taken)
        return model

    def with_rankers(self, rankers: Sequence[Ranker[Any]], sensitive: Tensor) -> Self:
        model = copy.copy(self)
        (model._ranker,) = rankers
        model.sensitive_ = sensitive
        return model

    def reranked(self, reranker: Reranker | None) -> Self:
        """The same fitted ranker behind another re-ranker."""
        other = copy.copy(self)
        other.reranker, other.limits_ = reranker, ()
        return other

    def as_served_by(self, other: Self) -> Self:
        return self.reranked(other.reranker)

    def with_level(self, alpha_prime: float) -> Self:
        if self.reranker is None or not self.reranker.level_is_share:
            return super().with_level(alpha_prime)
        if not 0 <= alpha_prime <= 1:
            raise ConfigError(
                f"{self.method}: {alpha_prime:g} is no share of what is shown (give one up to 1)"
            )
        return self.reranked(self.reranker.at_level(alpha_prime))

    def _online(self, plan: ServingPlan) -> OnlineRecommender:
        return self._strategy().online(plan)

    def rank(
        self, scenario: Scenario, *, length: int, feedback: bool = False, seed: int | None = None
    ) -> RankedLists:
        seed = self.seed if seed is None else seed
        return self._strategy().serve(scenario, length=length, feedback=feedback, seed=seed)

    def in_blocks(self, *, feedback: bool = False) -> BlockServing | None:
        return self._strategy().in_blocks(feedback=feedback, seed=self.seed)

    def item_values(self, scenario: Scenario, *, length: int) -> ValuedItems:
        lists = self._without_limits()
        return lists.values_of_all(scenario, torch.arange(scenario.n_users), length)

    def likely_items(self, scenario: Scenario, *, length: int) -> Iterator[LikelyItems]:
        return self._without_limits().likely_items(scenario, length, every=True)

    def _without_limits(self) -> ItemLists:
        return AllocatedLists(replace(self._fitted(), limits=()), ListAllocation()).item_lists()

    def expected_exposure(self, scenario: Scenario) -> NDArray[np.float64] | None:
        return self._strategy().expected_exposure(scenario)

    def _no_requests(self, option: str) -> ConfigError:
        if isinstance(self.reranker, JointReranker):
            return ConfigError(
                f"{self.method} serves all users together (leave out {option}, or use fcpo)"
            )
        return super()._no_requests(option)

    def _strategy(self) -> ServingStrategy:
        return strategy_for(self.reranker, self._fitted())

    def _fitted(self) -> FittedRanker:
        return FittedRanker(
            self.ranker,
            self.sensitive_,
            self.calibration_,
            self.seed,
            self.limits_,
            self.level_text() if self.capabilities.level_is_share else "",
        )

    def description(self) -> dict[str, Any]:
        reranker = None
        if self.reranker is not None:
            reranker = {
                "method": self.reranker.method,
                "config": self.reranker.stated(),
            }
        ranker = self.ranker.description()
        return {
            "method": self.method,
            "seed": self.seed,
            "fingerprint": self.fingerprint_,
            "ranker": ranker,
            "reranker": reranker,
        }

    def save(self, path: Path) -> None:
        tensors = {f"ranker.{name}": value for name, value in self.ranker.tensors().items()}
        tensors["sensitive"] = self.sensitive_
        tensors |= self.calibration_.tensors()
        save_model(path, self.kind, tensors, self.description())

    @classmethod
    def load(cls, path: Path) -> Self:
        tensors, description = load_model(path, cls.kind)
        fitted, stored = below("ranker.", tensors), description["ranker"]
        reranker = None
        if description["reranker"] is not None:
            reranker_class = RERANKERS[description["reranker"]["method"]]
            reranker = reranker_class.model_validate(description["reranker"]["config"])
        model = cls(ranker_class(stored["method"]).from_parts(fitted, stored), reranker)
        model.sensitive_, model.fingerprint_ = tensors["sensitive"], model.ranker.fingerprint_
        model.calibration_ = Calibration.from_tensors(tensors)
        return model


@dataclass(frozen=True)
class AllocatedLists:
    """The joint allocation over the probabilities by one ranker: `NAME+lists`."""

    fitted: FittedRanker
    reranker: ListAllocation

    def serve(
        self,
        scenario: Scenario,
        *,
        length: int,
        feedback: bool,
        seed: int,  # noqa: ARG002  # nothing is drawn
    ) -> RankedLists:
        lists, limits = self.item_lists(), self.fitted.limits
        if feedback and gini_limits(limits):
            raise ConfigError(
                f"{self.fitted.ranker.method}+{self.reranker.method} limits the Gini index of "
                "whole lists only (leave out --mode interactive, or use fcpo)"
            )
        if feedback and is_multi_limit(limits):
            raise ConfigError(
                f"{self.fitted.ranker.method}+{self.reranker.method} keeps several limits in "
                "whole lists only (leave out --mode interactive, or use fcpo)"
            )
        # A ranker that does not read histories learns nothing from answers: lists made item by item
        # would be those made at once, only slower.
        if feedback and self.fitted.ranker.uses_history:
            return RankedLists.from_tensors(lists.interactive(scenario, length))
        return lists.rank(scenario, length)

    def in_blocks(self, *, feedback: bool, seed: int) -> ItemLists | None:  # noqa: ARG002
        return None if feedback else self.item_lists()

    def item_lists(self) -> ItemLists:
        fitted, calibration = self.fitted, self.fitted.calibration
        lists = ItemLists(
            WeightedProbabilities(
                view_of(fitted.ranker, self.reranker.candidates), (calibration.sharpness,)
            ),
            fitted.sensitive,
            calibration.histories,
            self.reranker.place_rule,
            None if self.reranker.spread is None else GiniTarget(self.reranker.spread),
        )
        return lists.with_limits(fitted.limits, fitted.level)

    def online(self, plan: ServingPlan) -> OnlineControlled:  # noqa: ARG002
        name = self.fitted.ranker.method
        raise ConfigError(
            f"{name}+{self.reranker.method} makes whole lists at once and serves in no long run "
            f"(use {name}+{StepControl.method})"
        )

    def expected_exposure(self, scenario: Scenario) -> None:
        """Nothing is drawn."""
