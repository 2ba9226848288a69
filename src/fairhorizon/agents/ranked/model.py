"""A ranker as a recommender: its best items, through a re-ranker where there is one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.environment.dynamics import advance
from fairhorizon.environment.feedback import Scenario
from fairhorizon.exposure.groups import POPULAR_SHARE, popular_group
from fairhorizon.rankers import RANKERS
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import best_lists, users_at_once
from fairhorizon.rerank import RERANKERS
from fairhorizon.rerank.exposure import ExposureFairness
from fairhorizon.rerank.reranker import Reranker
from fairhorizon.storage import load_model, save_model

KIND = "ranked"


class Ranked:
    """Fit the ranker once; its re-ranker can be exchanged at any time."""

    sensitive_: Tensor  # (n_items,) bool, the group that is shown less

    def __init__(self, ranker: Ranker[Any], reranker: Reranker | None = None) -> None:
        self.ranker, self.reranker = ranker, reranker

    @property
    def method(self) -> str:
        return self.ranker.method + (f"+{self.reranker.method}" if self.reranker else "")

    @property
    def seed(self) -> int:
        return self.ranker.seed

    @property
    def fingerprint_(self) -> str:
        return self.ranker.fingerprint_

    @property
    def alpha_prime(self) -> float:
        return self.reranker.share_limit(self.sensitive_) if self.reranker else 1.0

    @property
    def popular_share(self) -> float:
        return POPULAR_SHARE

    @property
    def queue_length(self) -> int:
        return max(1, self.ranker.queue_length)

    def fit(
        self,
        split: Split,
        *,
        sensitive: NDArray[np.bool_] | None = None,
        on_epoch: Callable[[int, float], object] | None = None,
    ) -> Self:
        """Fit the ranker; without `sensitive`, the popular items are the group."""
        if sensitive is None:
            sensitive = popular_group(split.train.item_counts())
        self.sensitive_ = torch.tensor(sensitive)
        self.ranker.fit(split, on_epoch=on_epoch)
        return self

    def reranked(self, reranker: Reranker | None) -> "Ranked":
        """The same fitted ranker behind another re-ranker."""
        other = Ranked(self.ranker, reranker)
        other.sensitive_ = self.sensitive_
        return other

    @torch.no_grad()
    def recommend(
        self, scenario: Scenario, *, length: int, feedback: bool = False, seed: int | None = None
    ) -> NDArray[np.int64]:
        """(n_users, length) item codes, -1 where the catalogue is exhausted.

        With feedback, items are handed out one by one, and what is liked enters the history that
        the ranker looks at. The seed is that of the fit unless given.
        """
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
        state, answers = scenario.begin(users)
        scores = self.ranker.scores(users, state.queue)
        handicap: Tensor | float = 0.0
        allowance = length
        if self.reranker is not None:
            allowance = self.reranker.allowance(length)
            allowed = scores.masked_fill(state.blocked, -torch.inf)
            handicap = self.reranker.handicap(allowed, self.sensitive_, generator)
        left = torch.full((len(users), 1), allowance)  # of the allowance, per user
        shown = []
        for _ in range(length):
            barred = state.blocked | ((left <= 0) & self.sensitive_)
            adjusted = (scores - handicap).masked_fill(barred, -torch.inf)
            items = best_lists(adjusted, self.sensitive_, 1, 1)
            outcome = advance(state, items, answers, self.sensitive_)
            left = left - outcome.cost[:, None].long()
            state = outcome.state
            shown.append(items)
            changed = outcome.reward.nonzero().squeeze(1)
            if self.ranker.queue_length and len(changed):
                fresh = self.ranker.scores(users[changed], state.queue[changed])
                scores = scores.index_copy(0, changed, fresh)
        return torch.cat(shown, dim=1)

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
        save_model(path, KIND, tensors | {"sensitive": self.sensitive_}, self.description())

    @classmethod
    def load(cls, path: Path) -> Self:
        tensors, description = load_model(path, KIND)
        sensitive = tensors.pop("sensitive")
        fitted = {name.removeprefix("ranker."): value for name, value in tensors.items()}
        stored = description["ranker"]
        reranker = None
        if description["reranker"] is not None:
            reranker_class = RERANKERS[description["reranker"]["method"]]
            reranker = reranker_class.model_validate(description["reranker"]["config"])
        model = cls(RANKERS[stored["method"]].from_parts(fitted, stored), reranker)
        model.sensitive_ = sensitive
        return model
