"""Lists by re-rankers that look at what was shown so far: users arrive batch by batch."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.histories import TableSets
from fairhorizon.ranking import standardised, users_at_once
from fairhorizon.recommenders.ranked.fitted import FittedRanker
from fairhorizon.recommenders.ranked.online_server import OnlineServer
from fairhorizon.recommenders.ranked.relevance import Relevance, scale_of, scaled
from fairhorizon.recommenders.served import Served, on_lists
from fairhorizon.recommenders.steps import step_by_step
from fairhorizon.recommenders.tasks import ServingPlan
from fairhorizon.rerank.online import GroupMenus, Ledger, OnlineReranker, Visit
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.simulation.feedback import Scenario


@dataclass(frozen=True)
class OnlineLists:
    """A ranker behind an online re-ranker: `NAME+pmmf`, `NAME+fairco`, `NAME+tfrom`."""

    fitted: FittedRanker
    reranker: OnlineReranker

    @torch.no_grad()
    def serve(
        self,
        scenario: Scenario,
        *,
        length: int,
        feedback: bool,
        seed: int,  # noqa: ARG002  # nothing is drawn
    ) -> Served:
        reranker = self.reranker
        relevance = Relevance.of(self.fitted, length)
        opening = self._opening(scenario, relevance)
        scale = scale_of(opening)
        opening = scaled(opening, scale)
        ledger = reranker.begin(scenario.n_users)
        self._rehearse(opening, length, ledger)
        batches = reranker.batches(scenario.n_users)
        if not (feedback and self.fitted.ranker.uses_history):
            visits = (self._visit(opening, users, length) for users in batches)
            lists = torch.cat([reranker.lists(visit, ledger) for visit in visits])
            items, scores, relevances = (
                torch.cat([*sides], dim=1)
                for sides in (opening.items, opening.scores, opening.relevances)
            )
            values = on_lists(lists, items, relevances * scale)
            return Served.of(lists, values=values, scores=on_lists(lists, items, scores))
        parts = []
        for users in batches:
            visit = self._visit(opening, users, length)
            steps = _OnlineSteps(self, visit, ledger, relevance, scale)
            parts.append(steps.lists(scenario))
            reranker.settle(visit, ledger)
        return Served.of(torch.cat(parts))

    def in_blocks(self, *, feedback: bool, seed: int) -> None:
        """Every batch of users depends on those before it."""

    def server(self, plan: ServingPlan) -> OnlineServer:
        return OnlineServer(
            self.fitted,
            self.reranker,
            list_length=1 if plan.list_length is None else plan.list_length,
            round_length=plan.round_length,
            retraining=plan.retraining(),
        )

    def expected_exposure(self, scenario: Scenario) -> None:
        """Nothing is drawn."""

    def menus(self, state: State, relevance: Relevance) -> GroupMenus:
        """The menus of users in their present state."""
        scores = standardised(self.fitted.ranker.scores(state.users, state.queue))
        scores = scores.masked_fill(state.blocked, -torch.inf)
        return relevance.menus(scores, state.users, self.fitted.sensitive, relevance.length)

    def _opening(self, scenario: Scenario, relevance: Relevance) -> GroupMenus:
        chunks = torch.arange(scenario.n_users).split(users_at_once(len(self.fitted.sensitive)))
        return GroupMenus.join([self.menus(scenario.state(some), relevance) for some in chunks])

    def _visit(self, opening: GroupMenus, users: Tensor, length: int) -> Visit:
        menus = opening.of(users)
        target = self.reranker.target_share(menus, self.fitted.sensitive)
        return Visit(menus, users, length, target)

    def _rehearse(self, opening: GroupMenus, length: int, ledger: Ledger) -> None:
        """Lists that nobody sees, so that the first users are served at a settled price."""
        batches = self.reranker.batches(opening.items.shape[1])
        for _ in range(math.ceil(self.reranker.rehearsal / max(1, len(batches)))):
            for users in batches:
                self.reranker.lists(self._visit(opening, users, length), ledger)


@dataclass(frozen=True)
class _OnlineSteps:
    """The visit of one batch of users, item by item."""

    way: OnlineLists
    visit: Visit
    ledger: Ledger
    relevance: Relevance
    scale: float

    def lists(self, scenario: Scenario) -> Tensor:
        lists, _ = step_by_step(
            scenario,
            self.visit.users,
            self.way.fitted.sensitive,
            lambda _, __: self,
            length=len(self.visit.weights),
        )
        return lists

    def choose(self, state: State) -> Tensor:  # noqa: ARG002
        return self.way.reranker.next(self.visit, self.ledger)[:, None]

    def follow(self, lists: Tensor, outcome: Outcome) -> None:  # noqa: ARG002
        """New menus for the users who liked what they were shown."""
        rows = outcome.reward.nonzero().squeeze(1)
        if len(rows):
            state = outcome.state
            some = State(
                state.users[rows], state.queue[rows], TableSets(state.blocked_sets.mask(rows))
            )
            self.visit.renew(rows, scaled(self.way.menus(some, self.relevance), self.scale))
