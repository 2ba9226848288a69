"""A ranker as a recommender, with or without a re-ranker."""

import copy
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.agents.base import Abilities, Levels, Recommender
from fairhorizon.agents.ranked.server import RankedServer
from fairhorizon.agents.steps import step_by_step
from fairhorizon.agents.tasks import FitTask, ServingPlan
from fairhorizon.environment.dynamics import Outcome, State
from fairhorizon.environment.feedback import Scenario
from fairhorizon.errors import ConfigError
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import best_lists, users_at_once
from fairhorizon.rerank import RERANKERS
from fairhorizon.rerank.exposure import ExposureFairness
from fairhorizon.rerank.reranker import Reranker
from fairhorizon.settings import Settings
from fairhorizon.storage import load_model, save_model


class Ranked(Recommender):
    """A ranker that is fitted once; its re-ranker can be exchanged at any time."""

    kind = "ranked"

    def __init__(self, ranker: Ranker[Any], reranker: Reranker | None = None) -> None:
        self._ranker, self.reranker, self.seed = ranker, reranker, ranker.seed

    @property
    def ranker(self) -> Ranker[Any]:
        return self._ranker

    @property
    def method(self) -> str:
        return self.ranker.method + (f"+{self.reranker.method}" if self.reranker else "")

    @property
    def alpha_prime(self) -> float:
        return self.reranker.share_limit(self.sensitive_) if self.reranker else 1.0

    @property
    def abilities(self) -> Abilities:
        return Abilities(
            levels=Levels.SERVED if self.reranker else Levels.NONE,
            level_is_share=self.reranker is not None and self.reranker.level_is_share,
            feedback=self.ranker.uses_history,
        )

    @property
    def settings(self) -> Settings:
        config: Settings = self.ranker.config
        return config

    def all_settings(self) -> dict[str, Any]:
        settings = self.settings.model_dump(mode="json")
        if self.reranker is not None:
            settings[self.reranker.method] = self.reranker.model_dump(mode="json")
        return settings

    @property
    def queue_length(self) -> int:
        return max(1, self.ranker.queue_length)

    def check_length(self, length: int) -> None:
        if self.reranker is not None:
            self.reranker.allowance(length)

    def _fit(self, task: FitTask) -> None:
        self.sensitive_ = torch.tensor(task.group)
        self.ranker.fit(task.split, on_epoch=task.listener.epoch)
        self.fingerprint_ = self.ranker.fingerprint_

    def reranked(self, reranker: Reranker | None) -> Self:
        """The same fitted ranker behind another re-ranker."""
        other = copy.copy(self)
        other.reranker = reranker
        return other

    def serving_as(self, other: Self) -> Self:
        return self.reranked(other.reranker)

    def at(self, alpha_prime: float) -> Self:
        if self.reranker is None or not self.reranker.level_is_share:
            return super().at(alpha_prime)
        if not 0 <= alpha_prime <= 1:
            raise ConfigError(
                f"{self.method}: {alpha_prime:g} is no share of what is shown (give one up to 1)"
            )
        return self.reranked(self.reranker.at_level(alpha_prime))

    def _server(self, plan: ServingPlan) -> RankedServer:
        return RankedServer(
            self.ranker,
            self.reranker,
            list_length=1 if plan.list_length is None else plan.list_length,
            round_length=plan.round_length,
            retrain_on=plan.retrain_on,
            seed=self.seed if plan.seed is None else plan.seed,
        )

    @torch.no_grad()
    def recommend(
        self, scenario: Scenario, *, length: int, feedback: bool = False, seed: int | None = None
    ) -> NDArray[np.int64]:
        generator = torch.Generator().manual_seed(self.seed if seed is None else seed)
        serve = self._step_by_step if feedback else self._at_once
        parts = [serve(scenario, users, length, generator) for users in self._chunks(scenario)]
        lists: NDArray[np.int64] = torch.cat(parts).numpy()
        return lists

    @torch.no_grad()
    def expected_exposure(self, scenario: Scenario) -> NDArray[np.float64] | None:
        """(n_items,) what exposure the drawn rankings of all users give an item on average.

        Over all candidates, not the few that a list shows; None if the re-ranker draws nothing.
        """
        if not isinstance(self.reranker, ExposureFairness):
            return None
        total = torch.zeros(len(self.sensitive_), dtype=torch.float64)
        for users in self._chunks(scenario):
            state, _ = scenario.begin(users)
            scores = self.ranker.scores(users, state.queue).masked_fill(state.blocked, -torch.inf)
            total += self.reranker.expected_exposure(scores, self.sensitive_)
        exposure: NDArray[np.float64] = total.numpy()
        return exposure

    def _chunks(self, scenario: Scenario) -> tuple[Tensor, ...]:
        """All users, as many at a time as there is memory for their scores."""
        at_once = users_at_once(len(self.sensitive_))
        chunks: tuple[Tensor, ...] = torch.arange(scenario.n_users).split(at_once)
        return chunks

    def _at_once(
        self, scenario: Scenario, users: Tensor, length: int, generator: torch.Generator
    ) -> Tensor:
        state, _ = scenario.begin(users)
        scores = self.ranker.scores(users, state.queue).masked_fill(state.blocked, -torch.inf)
        allowance = length
        if self.reranker is not None:
            allowance = self.reranker.allowance(length)
            scores = scores - self.reranker.handicap(scores, self.sensitive_, generator)
        return best_lists(scores, self.sensitive_, length, allowance)

    def _step_by_step(
        self, scenario: Scenario, users: Tensor, length: int, generator: torch.Generator
    ) -> Tensor:
        lists, _ = step_by_step(
            scenario,
            users,
            self.sensitive_,
            lambda state, _: _RankedSteps(self, state, length, generator),
            length=length,
        )
        return lists

    def description(self) -> dict[str, Any]:
        reranker = None
        if self.reranker is not None:
            reranker = {
                "method": self.reranker.method,
                "config": self.reranker.model_dump(mode="json"),
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
        save_model(path, self.kind, tensors | {"sensitive": self.sensitive_}, self.description())

    @classmethod
    def load(cls, path: Path) -> Self:
        tensors, description = load_model(path, cls.kind)
        sensitive = tensors.pop("sensitive")
        fitted = {name.removeprefix("ranker."): value for name, value in tensors.items()}
        stored = description["ranker"]
        reranker = None
        if description["reranker"] is not None:
            reranker_class = RERANKERS[description["reranker"]["method"]]
            reranker = reranker_class.model_validate(description["reranker"]["config"])
        model = cls(RANKERS[stored["method"]].from_parts(fitted, stored), reranker)
        model.sensitive_, model.fingerprint_ = sensitive, model.ranker.fingerprint_
        return model


class _RankedSteps:
    """Item by item by score less handicap, within the allowance of the re-ranker."""

    def __init__(
        self, model: Ranked, state: State, length: int, generator: torch.Generator
    ) -> None:
        self.ranker, self.sensitive = model.ranker, model.sensitive_
        self.scores = self.ranker.scores(state.users, state.queue)
        self.handicap: Tensor | float = 0.0
        allowance = length
        if model.reranker is not None:
            allowance = model.reranker.allowance(length)
            allowed = self.scores.masked_fill(state.blocked, -torch.inf)
            self.handicap = model.reranker.handicap(allowed, self.sensitive, generator)
        self.left = torch.full((len(state.users), 1), allowance)  # of the allowance, per user

    def choose(self, state: State) -> Tensor:
        barred = state.blocked | ((self.left <= 0) & self.sensitive)
        adjusted = (self.scores - self.handicap).masked_fill(barred, -torch.inf)
        return best_lists(adjusted, self.sensitive, 1, 1)

    def follow(self, lists: Tensor, outcome: Outcome) -> None:  # noqa: ARG002
        self.left = self.left - outcome.cost[:, None].long()
        changed = outcome.reward.nonzero().squeeze(1)
        if self.ranker.queue_length and len(changed):
            state = outcome.state
            fresh = self.ranker.scores(state.users[changed], state.queue[changed])
            self.scores = self.scores.index_copy(0, changed, fresh)
