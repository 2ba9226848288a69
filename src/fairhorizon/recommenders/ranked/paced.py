"""Re-rankers that look at what was shown so far (`NAME+pmmf`, `NAME+fairco`, `NAME+tfrom`).

Users arrive batch by batch. Relevance is the value of a showing by the calibrated scores of the
ranker, as in joint allocation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fairhorizon.data.splits import LATER
from fairhorizon.errors import ConfigError
from fairhorizon.histories import TableSets
from fairhorizon.limits.counts import Exposure
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import first_highest, some_at_a_time, standardised, top, users_at_once
from fairhorizon.recommenders.base import RankedLists, ServingPlan, on_lists
from fairhorizon.recommenders.interactive import serve_interactively
from fairhorizon.recommenders.lists.probabilities import item_values
from fairhorizon.recommenders.online import OnlineRanker, Retraining
from fairhorizon.recommenders.ranked.calibration import CANDIDATES, FittedRanker
from fairhorizon.rerank.online import GroupCandidates, Ledger, OnlineReranker, UserBatch
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.simulation.feedback import Scenario
from fairhorizon.storage import below

SCORES_AT_ONCE = 2**20  # of float32, 4 MiB


@dataclass(frozen=True)
class BestOfGroups:
    """Each user's best items of the limited group (first) and of the rest, best first."""

    columns: Tensor  # (2, b, n) item codes
    values: Tensor  # (2, b, n) scores; -inf where there is none


@dataclass(frozen=True)
class Relevance:
    """The value of showing an item, as joint allocation has it: in units of a user's NDCG.

    The chance that a user takes an item next is a softmax of the standardised scores, over the best
    items of each group.
    """

    sharpness: float
    histories: Tensor  # (n_users,) how many training items each user has
    length: int  # of the lists whose NDCG is meant

    @classmethod
    def from_fitted(cls, fitted: FittedRanker, length: int) -> "Relevance":
        return cls(fitted.calibration.sharpness, fitted.calibration.histories, length)

    def candidates(
        self, scores: Tensor, users: Tensor, sensitive: Tensor, most: int
    ) -> GroupCandidates:
        """From standardised scores (b, n_items), -inf where an item may not be shown."""
        count = max(most, CANDIDATES)
        sides = best_of_groups(scores, sensitive, count)
        candidates = self.on_sides(sides, users, self.totals(sides))
        return GroupCandidates(*(tensor[:, :, :most] for tensor in vars(candidates).values()))

    def totals(self, sides: BestOfGroups) -> Tensor:
        """(b,) log of the sum in the softmax over the best items of both groups."""
        return (self.sharpness * sides.values.double()).logsumexp(2).logsumexp(0)

    def on_sides(self, sides: BestOfGroups, users: Tensor, totals: Tensor) -> GroupCandidates:
        """Candidates of both groups, with the softmax denominators of an earlier step.

        totals: (b,) from `totals`. Kept while items are used up, so that the value of an item does
            not rise because others have been shown.
        """
        scores = sides.values
        there = scores > -torch.inf
        probabilities = (self.sharpness * scores.double() - totals[None, :, None]).exp()
        probabilities = probabilities.where(there, 0.0)
        # The expected number of relevant items: one held out for every LATER - 1 in training, as in
        # the split that evaluates.
        likes = (self.histories[users].double() / (LATER - 1)).clamp(min=1.0)
        values = torch.stack([item_values(side, likes, self.length) for side in probabilities])
        items = sides.columns.masked_fill(~there, -1)
        return GroupCandidates(items, scores, values.masked_fill(~there, -torch.inf))


def best_of_groups(scores: Tensor, sensitive: Tensor, most: int) -> BestOfGroups:
    """The best items of each group, padded to `most`."""
    chunks = some_at_a_time(scores, cells=SCORES_AT_ONCE)
    columns, values = [], []
    for (some,) in chunks:
        both = [top(some.masked_fill(out, -torch.inf), most) for out in (~sensitive, sensitive)]
        values.append(torch.stack([found for found, _ in both]))
        columns.append(torch.stack([at for _, at in both]))
    missing = (0, most - values[0].shape[2])
    pad = torch.nn.functional.pad
    return BestOfGroups(
        pad(torch.cat(columns, dim=1), missing),
        pad(torch.cat(values, dim=1), missing, value=-torch.inf),
    )


def mean_best_relevance(candidates: GroupCandidates) -> float:
    """The relevance of the best item of the average user; 1 where nobody can be shown anything."""
    best = candidates.relevances[:, :, 0].amax(0)
    there = best[best > 0]
    return float(there.mean()) if len(there) else 1.0


def scaled(candidates: GroupCandidates, scale: float) -> GroupCandidates:
    return GroupCandidates(candidates.items, candidates.scores, candidates.relevances / scale)


class OnlinePaced:
    """Serves all users in every step, batch by batch, and remembers what was shown.

    Groups are those of the moment; a showing stays counted under the group it was shown in. What
    users like changes the scores of a ranker that reads histories at once. With `retraining` the
    ranker is fitted again at the first update after every round.
    """

    def __init__(
        self,
        fitted: FittedRanker,
        reranker: OnlineReranker,
        *,
        list_length: int = 1,
        round_length: int = 100,
        retraining: Retraining | None = None,
    ) -> None:
        if list_length < 1:
            raise ConfigError(f"list_length {list_length} must be at least 1")
        self._online = OnlineRanker(fitted.ranker, retraining)
        self.reranker, self.list_length = reranker, list_length
        # The lists of a round make one long list per user, and values are in units of its NDCG.
        self._relevance = Relevance.from_fitted(fitted, max(round_length, list_length))
        self._ledger: Ledger = {}
        self._scale = 0.0  # of the first candidates; 0 before them
        self._scores = torch.empty(0)  # (b, n_items) standardised; empty if to be computed
        self._totals = torch.empty(0)  # (b,) of the softmax when they were; empty likewise

    @property
    def ranker(self) -> Ranker[Any]:
        return self._online.now

    @property
    def queue_length(self) -> int:
        return max(1, self._online.given.queue_length)

    @property
    def remarks(self) -> Sequence[str]:
        return ()

    @torch.no_grad()
    def serve(self, state: State, exposure: Exposure) -> Tensor:
        if not len(self._totals):
            self._score_everyone(state, exposure.sensitive)
        if not self._ledger:
            self._ledger = self.reranker.new_ledger(len(state.users))
        sides = self._best(state, exposure.sensitive)
        candidates = self._relevance.on_sides(sides, state.users, self._totals)
        # Fixed at the first step: the prices of the re-ranker are in units of this relevance.
        self._scale = self._scale or mean_best_relevance(candidates)
        candidates = scaled(candidates, self._scale)
        lists = []
        for rows in self.reranker.batches(len(state.users)):
            some = candidates.take(rows)
            target = self.reranker.target_share(some, exposure.sensitive)
            batch = UserBatch(some, rows, self.list_length, target)
            lists.append(self.reranker.lists(batch, self._ledger))
        return torch.cat(lists)

    @torch.no_grad()
    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:
        self._online.observe(lists, outcome)
        rows = (outcome.reward > 0).nonzero().squeeze(1)
        if self.ranker.queue_length and len(rows):
            self._score(outcome.state, rows, exposure.sensitive)

    def update(self) -> None:
        """Fit the ranker again where a round is over."""
        if self._online.refit_when_due():
            self._scores, self._totals = torch.empty(0), torch.empty(0)

    def notes(self) -> dict[str, float]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        parts = {"ledger": self._ledger}
        if self._ledger:
            parts["online"] = {"scale": torch.tensor(self._scale, dtype=torch.float64)}
        if len(self._totals):
            # Computed again in other batches, they would differ in the last digits.
            parts["scored"] = {"scores": self._scores, "totals": self._totals}
        tensors = {
            f"{part}.{name}": value for part, some in parts.items() for name, value in some.items()
        }
        tensors |= self._online.tensors()
        return {name: value.detach().clone() for name, value in tensors.items()}

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:  # noqa: ARG002
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        self._ledger = below("ledger.", tensors)
        self._scale = float(tensors.get("online.scale", 0.0))
        scored = below("scored.", tensors)
        self._scores = scored.get("scores", torch.empty(0))
        self._totals = scored.get("totals", torch.empty(0))
        self._online.restore(tensors)

    def _score_everyone(self, state: State, sensitive: Tensor) -> None:
        self._scores = torch.empty(state.blocked_sets.shape)
        self._totals = torch.zeros(len(state.users), dtype=torch.float64)
        self._score(state, torch.arange(len(state.users)), sensitive)

    def _score(self, state: State, rows: Tensor, sensitive: Tensor) -> None:
        """Scores of these users by their present histories."""
        for some in rows.split(users_at_once(state.blocked_sets.shape[1])):
            scores = standardised(self.ranker.scores(state.users[some], state.queue[some]))
            self._scores[some] = scores
            allowed = scores.masked_fill(state.blocked_sets.mask(some), -torch.inf)
            self._totals[some] = self._relevance.totals(
                best_of_groups(allowed, sensitive, CANDIDATES)
            )

    def _best(self, state: State, sensitive: Tensor) -> BestOfGroups:
        """The best items of each group that each user may still be shown."""
        blocked = state.blocked
        if self.list_length > 1:
            return best_of_groups(
                self._scores.masked_fill(blocked, -torch.inf), sensitive, self.list_length
            )
        # One item per group is enough: an argmax over scores plus a bar is many times faster than
        # `top`.
        bars = [torch.where(out, -torch.inf, 0.0) for out in (~sensitive, sensitive)]
        columns, values = [], []
        for scores, shut in some_at_a_time(self._scores, blocked):
            allowed = scores.masked_fill(shut, -torch.inf)
            sides = [allowed + bar for bar in bars]
            best = [first_highest(side)[:, None] for side in sides]
            columns.append(torch.stack(best))
            pairs = zip(sides, best, strict=True)
            values.append(torch.stack([side.gather(1, at) for side, at in pairs]))
        return BestOfGroups(torch.cat(columns, 1), torch.cat(values, 1))


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
    ) -> RankedLists:
        reranker = self.reranker
        relevance = Relevance.from_fitted(self.fitted, length)
        initial = self._initial_candidates(scenario, relevance)
        scale = mean_best_relevance(initial)
        initial = scaled(initial, scale)
        ledger = reranker.new_ledger(scenario.n_users)
        # The ledger of the warm-up is kept: its prices are what the warm-up is for.
        self._warm_up(initial, length, ledger)
        batches = reranker.batches(scenario.n_users)
        if not (feedback and self.fitted.ranker.uses_history):
            prepared = (self._batch(initial, users, length) for users in batches)
            lists = torch.cat([reranker.lists(batch, ledger) for batch in prepared])
            items, scores, relevances = (
                torch.cat([*sides], dim=1)
                for sides in (initial.items, initial.scores, initial.relevances)
            )
            values = on_lists(lists, items, relevances * scale)
            return RankedLists.from_tensors(
                lists, values=values, scores=on_lists(lists, items, scores)
            )
        parts = []
        for users in batches:
            batch = self._batch(initial, users, length)
            steps = _OnlineSteps(self, batch, ledger, relevance, scale)
            parts.append(steps.lists(scenario))
            reranker.record(batch, ledger)
        return RankedLists.from_tensors(torch.cat(parts))

    def in_blocks(self, *, feedback: bool, seed: int) -> None:
        """Every batch of users depends on those before it."""

    def online(self, plan: ServingPlan) -> OnlinePaced:
        return OnlinePaced(
            self.fitted,
            self.reranker,
            list_length=1 if plan.list_length is None else plan.list_length,
            round_length=plan.round_length,
            retraining=plan.retraining(),
        )

    def expected_exposure(self, scenario: Scenario) -> None:
        """Nothing is drawn."""

    def candidates(self, state: State, relevance: Relevance) -> GroupCandidates:
        """The candidates of users in their present state."""
        scores = standardised(self.fitted.ranker.scores(state.users, state.queue))
        scores = scores.masked_fill(state.blocked, -torch.inf)
        return relevance.candidates(scores, state.users, self.fitted.sensitive, relevance.length)

    def _initial_candidates(self, scenario: Scenario, relevance: Relevance) -> GroupCandidates:
        chunks = torch.arange(scenario.n_users).split(users_at_once(len(self.fitted.sensitive)))
        return GroupCandidates.join(
            [self.candidates(scenario.state(some), relevance) for some in chunks]
        )

    def _batch(self, initial: GroupCandidates, users: Tensor, length: int) -> UserBatch:
        candidates = initial.take(users)
        target = self.reranker.target_share(candidates, self.fitted.sensitive)
        return UserBatch(candidates, users, length, target)

    def _warm_up(self, initial: GroupCandidates, length: int, ledger: Ledger) -> None:
        """Lists that nobody sees, so that the first users are served at a settled price."""
        batches = self.reranker.batches(initial.items.shape[1])
        for _ in range(math.ceil(self.reranker.warm_up_batches / max(1, len(batches)))):
            for users in batches:
                self.reranker.lists(self._batch(initial, users, length), ledger)


@dataclass(frozen=True)
class _OnlineSteps:
    """The lists of one batch of users, item by item."""

    made_by: OnlineLists
    batch: UserBatch
    ledger: Ledger
    relevance: Relevance
    scale: float

    def lists(self, scenario: Scenario) -> Tensor:
        lists, _ = serve_interactively(
            scenario,
            self.batch.users,
            self.made_by.fitted.sensitive,
            lambda _, __: self,
            length=len(self.batch.weights),
        )
        return lists

    def choose(self, state: State) -> Tensor:  # noqa: ARG002
        return self.made_by.reranker.next(self.batch, self.ledger)[:, None]

    def observe(self, lists: Tensor, outcome: Outcome) -> None:  # noqa: ARG002
        """New candidates for the users who liked what they were shown."""
        rows = outcome.reward.nonzero().squeeze(1)
        if len(rows):
            state = outcome.state
            some = State(
                state.users[rows], state.queue[rows], TableSets(state.blocked_sets.mask(rows))
            )
            self.batch.replace_candidates(
                rows, scaled(self.made_by.candidates(some, self.relevance), self.scale)
            )
