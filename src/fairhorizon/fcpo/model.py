"""FCPO as a recommender: fit, recommend, save, load."""

import copy
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.data.splits import Split, earlier_part
from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.config import FIXED, PRESETS, FcpoConfig
from fairhorizon.fcpo.fitted import FittedPolicy, best_round, default_device
from fairhorizon.fcpo.networks import queue_length
from fairhorizon.fcpo.online import OnlineFcpo
from fairhorizon.fcpo.rollouts import draws, serve
from fairhorizon.fcpo.training import CHECKPOINT, Training, started_with
from fairhorizon.fcpo.warm_start import check_names
from fairhorizon.limits.step_limits import PopularityLimit
from fairhorizon.limits.supported import SupportedLimits, kept_by_requests, level_under
from fairhorizon.rankers.ensemble import suitable
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.selection import SEARCH_GRID
from fairhorizon.recommenders.base import (
    BlockServing,
    Capabilities,
    FitTask,
    Levels,
    LogPart,
    Prerequisite,
    RankedLists,
    Recommender,
    ServingPlan,
    ValuedItems,
)
from fairhorizon.recommenders.interactive import serve_under_control
from fairhorizon.recommenders.lists.item_lists import ItemLists, by_steps, step_limits
from fairhorizon.recommenders.lists.probabilities import LikelyItems
from fairhorizon.recommenders.progress import SILENT, LimitNotKeptWarning, Listener, RoundReport
from fairhorizon.settings import Given, Settings, changed
from fairhorizon.simulation.dynamics import State
from fairhorizon.simulation.feedback import Scenario


class Fcpo(Recommender):
    """Fairness-Constrained Policy Optimization (Ge et al. 2021, Algorithm 1).

    A softmax policy over items serves any level of the limit. A Gaussian policy is learned for one
    limit; its lists are sampled from it, or are those of its mean (serve), which is another policy
    with another exposure.
    """

    kind = "fcpo"
    method = "fcpo"
    presets = PRESETS
    fixed = FIXED
    level_setting = "alpha_prime"

    policy_: FittedPolicy
    _kept: tuple[tuple[object, ...], ItemLists] | None = None  # and what it was made of

    def __init__(self, config: FcpoConfig | None = None, *, seed: int = 0) -> None:
        self.config, self.seed = config or FcpoConfig(), seed
        check_names(self.config.warm_start)

    @classmethod
    def configured(cls, config: Settings, seed: int) -> Self:
        assert isinstance(config, FcpoConfig)
        return cls(config, seed=seed)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            levels=Levels.SERVED if self.config.serves_any_level else Levels.TRAINED,
            level_is_share=True,
            aims_at_level=True,
            learns=self.config.rounds > 0,
            resume=True,
            limits=True,
            requests=self.config.policy == "softmax",
            worth=self.config.policy == "softmax" and not by_steps(self.limits_, feedback=False),
        )

    @property
    def settings(self) -> FcpoConfig:
        return self.config

    @property
    def alpha_prime(self) -> float:
        if self.limits_:
            return level_under(self.limits_, self.sensitive_.cpu().numpy())
        return self.config.alpha_prime

    @property
    def supported_limits(self) -> SupportedLimits:
        return SupportedLimits.ANY if self.config.policy == "softmax" else SupportedLimits.OWN

    @property
    def popular_share(self) -> float:
        return self.config.popular_share

    @property
    def queue_length(self) -> int:
        return queue_length(self.config, self.policy_.ensemble)

    def prerequisites(self, split: Split) -> tuple[Prerequisite, ...]:
        parts = [LogPart.WHOLE]
        # Histories may be too short to be cut twice, which is for the fit to report.
        if self.config.refits_rankers and len(earlier_part(split).train):
            parts.append(LogPart.EARLIER)
        names = suitable(self.config.warm_start, split)
        # Rankers with settings chosen on the log, or given, differ from those of other methods.
        if self.config.adapt:
            names = tuple(name for name in names if name not in SEARCH_GRID)
        names = tuple(name for name in names if not self.config.given_to(name))
        return tuple(Prerequisite(name, part) for name in names for part in parts)

    def with_level(self, alpha_prime: float) -> Self:
        if alpha_prime == self.config.alpha_prime and not self.limits_:
            return self
        if not self.config.serves_any_level:
            raise ConfigError(
                f"this policy was trained for alpha' {self.alpha_prime:g} and serves no other "
                "(fit it again with --alpha-prime, or fit the preset fast, which serves any)"
            )
        if not 0 < alpha_prime <= 1:
            raise ConfigError(
                f"alpha' {alpha_prime:g} is no share of what is shown (give one above 0, up to 1)"
            )
        model = copy.copy(self)
        # A level replaces limits that were set before.
        model.limits_ = ()
        model.config = changed(self.config, {"alpha_prime": alpha_prime})
        return model

    def refitted(
        self, split: Split, *, sensitive: NDArray[np.bool_], listener: Listener = SILENT
    ) -> Self:
        """The rankers fitted again, if it is a policy over rankers; else trained anew."""
        if self.policy_.ensemble is None:
            return super().refitted(split, sensitive=sensitive, listener=listener)
        model = copy.copy(self)
        model._take(self.policy_.refitted(split, self.config, sensitive, listener))
        return model

    @property
    def rankers(self) -> tuple[Ranker[Any], ...]:
        return () if self.policy_.ensemble is None else self.policy_.ensemble.rankers

    def ranker_weights(self, state: State) -> tuple[float, ...]:
        return self.policy_.weights(state)

    def with_rankers(self, rankers: Sequence[Ranker[Any]], sensitive: Tensor) -> Self:
        model = copy.copy(self)
        model.policy_ = self.policy_.with_rankers(rankers, sensitive)
        model.sensitive_ = model.policy_.sensitive
        return model

    def as_served_by(self, other: Self) -> Self:
        return self.with_level(other.alpha_prime) if self.config.serves_any_level else self

    def _fit(self, task: FitTask) -> None:
        """Warm start, rounds of CPO, and a refit of the rankers on the whole training log."""
        training = self.training(task)
        training.run()
        self.adopt(training)
        for remark in self.remarks_:
            warnings.warn(remark, LimitNotKeptWarning, stacklevel=3)

    def training(self, task: FitTask) -> Training:
        """The training before its next round, to be watched or changed."""
        group = torch.from_numpy(task.group).to(default_device())
        begin = Training.resume if task.checkpoint is not None and task.resume else Training.begin
        return begin(task, self.config, group, self.seed)

    def resumable(self, folder: Path, changes: Given, seed: int | None) -> Self:
        config, own_seed = started_with(folder / CHECKPOINT)
        return type(self)(changed(config, changes), seed=own_seed if seed is None else seed)

    def adopt(self, training: Training) -> Self:
        """Take over what a training has led to."""
        self.config, self.seed = training.config, training.seed
        self._take(training.conclude())
        return self

    def _take(self, policy: FittedPolicy) -> None:
        self.policy_, self.finished_ = policy, policy.finished
        self.sensitive_, self.fingerprint_ = policy.sensitive, policy.fingerprint
        chosen = best_round(policy.reports, self.config)
        self.keeps_limit_ = None if chosen is None else chosen.keeps_limit
        self.remarks_ = () if chosen is None or chosen.keeps_limit else (chosen.remark,)

    def summary(self) -> str:
        return self.policy_.summary(self.config)

    @property
    def history_(self) -> list[RoundReport]:
        """What every round of the training reported."""
        return self.policy_.reports

    def rank(
        self, scenario: Scenario, *, length: int, feedback: bool = False, seed: int | None = None
    ) -> RankedLists:
        seed = self.seed if seed is None else seed
        softmax = self.config.policy == "softmax"
        if softmax and not feedback and not self._lists().made_by_steps:
            return self._lists().rank(scenario, length)
        if softmax and feedback and not by_steps(self.limits_, feedback=True):
            shown = self._lists().interactive(scenario, length)
        elif self.limits_ or self.policy_.ensemble is not None:
            limits = step_limits(self.limits_) or [PopularityLimit(self.alpha_prime)]
            model = copy.copy(self)
            # Exploration, and a limit kept by learning alone, are for the long run.
            model.config = changed(self.config, {"explore": 0.0, "control": True})
            server = model._online(ServingPlan(limits, learn=False, seed=seed))
            shown = serve_under_control(
                server, scenario, self.sensitive_, length=length, feedback=feedback
            )
        else:
            shown = serve(
                self.policy_.actor,
                scenario,
                self.sensitive_,
                length=length,
                generator=draws(self.config, seed),
                feedback=feedback,
            )
        return RankedLists.from_tensors(shown)

    def in_blocks(self, *, feedback: bool = False) -> BlockServing | None:
        whole = self.config.policy == "softmax" and not feedback
        return self._lists() if whole and not by_steps(self.limits_, feedback=False) else None

    def request_guard(self, length: int) -> ExposureGuard:
        """After every list the limits hold for all that was shown so far (docs/guarantee.md).

        One price begins with that of the price table; under a floor or another group at 0.
        """
        self._check_alone("--one-by-one", kept_by_requests(self.limits_))
        lists = self._lists()
        return lists.guard(0.0 if lists.is_several else self._first_price(lists, length))

    def _first_price(self, lists: ItemLists, length: int) -> float:
        if lists.rule.is_floor or not torch.equal(lists.sensitive, self.sensitive_):
            return 0.0  # the table is about a limit on the model's own group
        return self.policy_.price_table().price(lists.rule.share, length)

    def rank_one_by_one(self, scenario: Scenario, length: int, guard: ExposureGuard) -> RankedLists:
        return self._lists().one_by_one(scenario, length, guard)

    def item_values(self, scenario: Scenario, *, length: int) -> ValuedItems:
        if self.config.policy != "softmax":
            return super().item_values(scenario, length=length)
        return self._lists().values_of_all(scenario, torch.arange(scenario.n_users), length)

    def likely_items(self, scenario: Scenario, *, length: int) -> Iterator[LikelyItems]:
        if self.config.policy != "softmax":
            return super().likely_items(scenario, length=length)
        return self._lists().likely_items(scenario, length, every=True)

    def _check_alone(self, option: str, can: bool) -> None:
        if not can:
            asked = ", ".join(map(str, self.limits_))
            raise ConfigError(f"{option} does not keep {asked} (leave out {option})")

    def _lists(self) -> ItemLists:
        # Kept between calls: a call for one user would wait for the limits longer than for scores.
        made_of = (self.policy_, self.config, self.limits_, self.level_limit_)
        if self._kept is None or any(
            a is not b for a, b in zip(self._kept[0], made_of, strict=True)
        ):
            lists = self.policy_.lists(self.config).with_limits(self.limits_, self.level_text())
            self._kept = made_of, lists
        return self._kept[1]

    def _online(self, plan: ServingPlan) -> OnlineFcpo:
        plan.check_list_length(self.method, self.config.list_length)
        seed = self.seed if plan.seed is None else plan.seed
        return OnlineFcpo(
            self.policy_.actor,
            self.config,
            queue_length=self.queue_length,
            limits=plan.limits,
            learn=plan.learn,
            seed=seed,
            retraining=plan.retraining(),
        )

    def save(self, path: Path) -> None:
        self.policy_.save(path, self.kind, self.description())

    def description(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "config": self.config.model_dump(mode="json"),
            "seed": self.seed,
            "keeps_limit": self.keeps_limit_,
            **self.policy_.description(),
        }

    @classmethod
    def load(cls, path: Path) -> Self:
        policy, config, seed = FittedPolicy.load(path, cls.kind, default_device())
        model = cls(config, seed=seed)
        model._take(policy)
        return model
