"""Every user's list by itself: by score, or behind a re-ranker of single lists."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fairhorizon.ranking import best_lists, users_at_once
from fairhorizon.recommenders.blocks import EachAlone
from fairhorizon.recommenders.ranked.fitted import FittedRanker
from fairhorizon.recommenders.ranked.server import RankedServer
from fairhorizon.recommenders.served import Served
from fairhorizon.recommenders.steps import step_by_step
from fairhorizon.recommenders.tasks import ServingPlan
from fairhorizon.rerank.exposure import ExposureFairness
from fairhorizon.rerank.reranker import UserReranker
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.simulation.feedback import Scenario


@dataclass(frozen=True)
class UserLists:
    """The best items by score less handicap, within the allowance of the re-ranker."""

    fitted: FittedRanker
    reranker: UserReranker | None

    @torch.no_grad()
    def serve(self, scenario: Scenario, *, length: int, feedback: bool, seed: int) -> Served:
        generator = torch.Generator().manual_seed(seed)
        chunks = self._chunks(scenario)
        if feedback:
            steps = [self._step_by_step(scenario, users, length, generator) for users in chunks]
            return Served.of(torch.cat(steps))
        parts = [self._at_once(scenario, users, length, generator) for users in chunks]
        lists, scores = (torch.cat(some) for some in zip(*parts, strict=True))
        return Served.of(lists, scores=scores)

    def in_blocks(self, *, feedback: bool, seed: int) -> EachAlone | None:
        if isinstance(self.reranker, ExposureFairness):
            return None  # one stream of random numbers for all users

        def served(scenario: Scenario, length: int) -> Served:
            return self.serve(scenario, length=length, feedback=feedback, seed=seed)

        return EachAlone(served)

    def server(self, plan: ServingPlan) -> RankedServer:
        return RankedServer(
            self.fitted.ranker,
            self.reranker,
            list_length=1 if plan.list_length is None else plan.list_length,
            round_length=plan.round_length,
            retrain_on=plan.retrain_on,
            seed=self.fitted.seed if plan.seed is None else plan.seed,
        )

    @torch.no_grad()
    def expected_exposure(self, scenario: Scenario) -> NDArray[np.float64] | None:
        """Over all candidates, not the few that a list shows; None if nothing is drawn."""
        if not isinstance(self.reranker, ExposureFairness):
            return None
        ranker, sensitive = self.fitted.ranker, self.fitted.sensitive
        total = torch.zeros(len(sensitive), dtype=torch.float64)
        for users in self._chunks(scenario):
            state, _ = scenario.begin(users)
            scores = ranker.scores(state.users, state.queue)
            scores = scores.masked_fill(state.blocked, -torch.inf)
            total += self.reranker.expected_exposure(scores, sensitive)
        exposure: NDArray[np.float64] = total.numpy()
        return exposure

    def _chunks(self, scenario: Scenario) -> tuple[Tensor, ...]:
        """All users, as many at a time as there is memory for their scores."""
        at_once = users_at_once(len(self.fitted.sensitive))
        chunks: tuple[Tensor, ...] = torch.arange(scenario.n_users).split(at_once)
        return chunks

    def _at_once(
        self, scenario: Scenario, users: Tensor, length: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Lists (b, length), and the score of every item in them, NaN for none."""
        ranker, sensitive = self.fitted.ranker, self.fitted.sensitive
        state, _ = scenario.begin(users)
        scores = ranker.scores(state.users, state.queue)
        scores = scores.masked_fill(state.blocked, -torch.inf)
        allowance, adjusted = length, scores
        if self.reranker is not None:
            allowance = self.reranker.allowance(length)
            adjusted = scores - self.reranker.handicap(scores, sensitive, generator)
        lists = best_lists(adjusted, sensitive, length, allowance)
        return lists, scores.gather(1, lists.clamp(min=0)).masked_fill(lists < 0, torch.nan)

    def _step_by_step(
        self, scenario: Scenario, users: Tensor, length: int, generator: torch.Generator
    ) -> Tensor:
        lists, _ = step_by_step(
            scenario,
            users,
            self.fitted.sensitive,
            lambda state, _: _RankedSteps(self, state, length, generator),
            length=length,
        )
        return lists


class _RankedSteps:
    """Item by item by score less handicap, within the allowance of the re-ranker."""

    def __init__(
        self, lists: UserLists, state: State, length: int, generator: torch.Generator
    ) -> None:
        self.ranker, self.sensitive = lists.fitted.ranker, lists.fitted.sensitive
        self.scores = self.ranker.scores(state.users, state.queue)
        self.handicap: Tensor | float = 0.0
        allowance = length
        if lists.reranker is not None:
            allowance = lists.reranker.allowance(length)
            allowed = self.scores.masked_fill(state.blocked, -torch.inf)
            self.handicap = lists.reranker.handicap(allowed, self.sensitive, generator)
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
