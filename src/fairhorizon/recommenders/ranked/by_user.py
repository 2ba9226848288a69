"""Every user's list by itself: by score, or behind a re-ranker of single lists."""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.limits.counts import Exposure
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import best_lists, first_best, rows_at_once, top, users_at_once
from fairhorizon.recommenders.base import EachAlone, RankedLists, ServingPlan
from fairhorizon.recommenders.interactive import serve_interactively
from fairhorizon.recommenders.online import OnlineRanker, Retraining
from fairhorizon.recommenders.ranked.calibration import FittedRanker
from fairhorizon.rerank.exposure import ExposureFairness
from fairhorizon.rerank.reranker import UserReranker
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.simulation.feedback import Scenario
from fairhorizon.storage import below


class UserScores:
    """Scores of what may be shown now, -inf for all else.

    stored: scores (b, n_items) as another run stored them; computed unless given.
    """

    def __init__(self, ranker: Ranker[Any], state: State, stored: Tensor | None = None) -> None:
        self.ranker = ranker
        self.open = torch.empty(0)  # (b, n_items), -inf where an item may not be shown
        self.all: Tensor | None = None  # of these items too, where they are shown again
        if stored is None:
            self.open = torch.empty(state.blocked_sets.shape)
            self.all = torch.empty(state.blocked_sets.shape) if state.returning else None
            self.renew(state, torch.arange(len(state.users)))
        else:
            self.open = stored
            if state.returning:
                self.all, self.open = stored, stored.masked_fill(state.blocked, -torch.inf)

    def begin_step(self, state: State) -> None:
        """Users are in this state; what returns in it may be shown again."""
        if state.returning:
            self.open = self._with(self.open, state.returning[0])

    def renew(self, state: State, rows: Tensor) -> None:
        """Score these users by their present histories."""
        for some in rows.split(users_at_once(state.blocked_sets.shape[1])):
            scores = self.ranker.scores(state.users[some], state.queue[some])
            if self.all is not None:
                self.all[some] = scores
            self.open[some] = scores.masked_fill(state.blocked_sets.mask(some), -torch.inf)

    def best(self) -> Tensor:
        """(b,) each user's best item, -1 where nothing is left."""
        return first_best(self.open)

    def take(self, items: Tensor) -> None:
        """Items (b,) that were just shown may not be shown again in this step, -1 for none."""
        rows = (items >= 0).nonzero().squeeze(1)
        self.open[rows, items[rows]] = -torch.inf

    def some(self, rows: Tensor) -> Tensor:
        """(len(rows), n_items) of some users."""
        return self.open[rows]

    def of(self, items: Tensor, rows: Tensor | None = None) -> Tensor:
        """(b, c) of these items (b, c) of all users, or of some."""
        return (self.open if rows is None else self.open[rows]).gather(1, items)

    def blocks(self, also: Tensor | None = None) -> Iterator[Tensor]:
        """(some, n_items) of all users in order, a block at a time.

        also: (b, m) items that count as open, -1 for none.
        """
        scores = self.open if also is None else self._with(self.open.clone(), also)
        yield from scores.split(users_at_once(scores.shape[1]))

    def tensors(self) -> dict[str, Tensor]:
        """The scores themselves: computed again in other batches they differ in the last digits."""
        return {"scores": self.open if self.all is None else self.all}

    def _with(self, scores: Tensor, items: Tensor) -> Tensor:
        """Scores that have those of these items (b, m) again, -1 for none; changed in place."""
        assert self.all is not None
        rows, places = (items >= 0).nonzero(as_tuple=True)
        at = rows, items[rows, places]
        scores[at] = self.all[at]
        return scores


SCORES_IN_CACHE = 2**20  # of float32, 4 MiB
CANDIDATES = 2  # times the length of a round, as in the paper's long run


class Round:
    """What a re-ranker fixed at the start of the round, and what is left of its allowance."""

    def __init__(
        self,
        scores: UserScores,
        *,
        labels: Tensor,
        candidates: Tensor,
        handicap: Tensor,
        left: Tensor,
    ) -> None:
        self.labels = labels  # (n_items,) bool, G0 at the start
        self.candidates = candidates  # (b, c) items, ascending
        self.handicap = handicap  # (b, c) of the candidates
        self.left = left  # (b,) sensitive items that may still be shown
        self._limited = labels[candidates]
        # Added to scores: keeps an item of the group from being chosen, without a copy of the mask
        # per user.
        self._bar = torch.where(labels, -torch.inf, 0.0)
        self.rescore_all(scores)

    @classmethod
    def begin(
        cls,
        reranker: UserReranker,
        scores: UserScores,
        labels: Tensor,
        *,
        items: int,
        among: int,
        generator: Generator,
        also: Tensor | None = None,
    ) -> Self:
        """A round of `items` per user, of the best `among` by score and what will return, `also`.

        In batches of users, because a handicap may be large.
        """
        candidates, handicaps = [], []
        for some in scores.blocks(also):
            # Sorted by item code, so that `first_best` breaks ties as everywhere else.
            best = top(some, among)[1].sort(dim=1).values
            handicap = reranker.handicap(some, labels, generator)
            candidates.append(best)
            handicaps.append(handicap.expand_as(some).gather(1, best))
        return cls(
            scores,
            labels=labels,
            candidates=torch.cat(candidates),
            handicap=torch.cat(handicaps),
            left=torch.full((sum(map(len, candidates)),), reranker.allowance(items)),
        )

    def next(self, scores: UserScores) -> Tensor:
        """(b,) the best candidates within the allowance; without any, the best other items."""
        spent = self.left <= 0
        keys = self._keys
        if spent.any():
            keys = keys.masked_fill(spent[:, None] & self._limited, -torch.inf)
        best = first_best(keys)
        items = self.candidates.gather(1, best.clamp(min=0)[:, None]).squeeze(1)
        items = items.where(best >= 0, -1)
        # No candidate is left: first the whole catalogue within the allowance, then anything at
        # all.
        for bar in (spent, torch.zeros_like(spent)):
            rows = (items < 0).nonzero().squeeze(1)
            for some in rows.split(rows_at_once(len(self.labels), SCORES_IN_CACHE)):
                bars = torch.where(bar[some, None], self._bar, 0.0)
                items[some] = first_best(bars.add_(scores.some(some)))
        return items

    def take_off(self, items: Tensor) -> None:
        """Remove the items just shown, one to each user."""
        self._keys.masked_fill_(self.candidates == items[:, None], -torch.inf)
        self.left = self.left - ((items >= 0) & self.labels[items]).long()

    def rescore_all(self, scores: UserScores) -> None:
        """Update the scores of all users, of which those of blocked items are -inf."""
        self._keys = scores.of(self.candidates) - self.handicap  # -inf: may not be shown

    def rescore(self, scores: UserScores, rows: Tensor) -> None:
        """Update the scores of these users."""
        self._keys[rows] = scores.of(self.candidates[rows], rows) - self.handicap[rows]

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in ("labels", "candidates", "handicap", "left")}


class OnlineRanked:
    """Serves the best remaining items by score, item by item.

    A re-ranker works in rounds, as MF-FOE in the paper's long run: labels, candidates, handicap and
    allowance are fixed at the start of a round of `round_length` items per user. Candidates are the
    best 2 * round_length items by score. If none of them is within the allowance, the rest of the
    catalogue is searched, and at last any item is shown. Where items are offered again, those that
    come free during the round are candidates from then on, in addition.

    With `retrain_on` every round but the first begins with a ranker fitted again, on that log
    and all later likes. A ranker that reads histories uses new likes at once in any case.
    """

    def __init__(
        self,
        ranker: Ranker[Any],
        reranker: UserReranker | None = None,
        *,
        list_length: int = 1,
        round_length: int = 100,
        retrain_on: Split | None = None,
        seed: int = 0,
    ) -> None:
        if list_length < 1 or round_length < 1:
            raise ConfigError(
                f"list_length {list_length} and round_length {round_length} must be at least 1"
            )
        self.list_length = list_length
        retraining = None if retrain_on is None else Retraining(retrain_on)
        self._online = OnlineRanker(ranker, retraining)
        self.round_length = math.ceil(round_length / list_length) * list_length  # whole lists
        self.reranker = reranker
        self.remarks: list[str] = []  # warnings of the re-ranker, in the order given
        self._generator = Generator().manual_seed(seed)
        self._rounds = 0  # begun
        self._to_show = 0  # items per user until the round is over
        self._scores: UserScores | None = None
        self._round: Round | None = None

    @property
    def ranker(self) -> Ranker[Any]:
        """The ranker that serves now: as it was given, or refitted."""
        return self._online.now

    @property
    def queue_length(self) -> int:
        return max(1, self._online.given.queue_length)

    @torch.no_grad()
    def serve(self, state: State, exposure: Exposure) -> Tensor:
        """(b, K) items, which are not served again unless the state says that they return."""
        if self._scores is not None:
            self._scores.begin_step(state)
            if state.returning and self._round is not None:
                self._round.rescore_all(self._scores)
        if self._to_show == 0:
            self._begin_round(state, exposure)
        self._to_show -= self.list_length
        # Item by item, as the allowance may be used up within a list.
        scores, lists = self._scores, []
        assert scores is not None
        for _ in range(self.list_length):
            round_ = self._round
            items = scores.best() if round_ is None else round_.next(scores)
            scores.take(items)
            if round_ is not None:
                round_.take_off(items)
            lists.append(items)
        return torch.stack(lists, dim=1)

    @torch.no_grad()
    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:  # noqa: ARG002
        self._online.observe(lists, outcome)
        changed = outcome.reward.nonzero().squeeze(1)
        if self.ranker.queue_length and len(changed) and self._scores is not None:
            self._scores.renew(outcome.state, changed)
            if self._round is not None:
                self._round.rescore(self._scores, changed)

    def update(self) -> None:
        """Nothing: a ranker is fitted when a round begins."""

    def notes(self) -> dict[str, float]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        tensors = {
            "generator": self._generator.get_state(),
            "rounds": torch.tensor(self._rounds),
            "to_show": torch.tensor(self._to_show),
            "messages": torch.tensor(list("\n".join(self.remarks).encode()), dtype=torch.uint8),
        }
        tensors |= self._online.tensors()
        if self.ranker.queue_length and self._scores is not None:
            tensors |= self._scores.tensors()
        if self._round is not None:
            parts = self._round.tensors()
            tensors |= {f"round.{name}": tensor for name, tensor in parts.items()}
        return {name: tensor.clone() for name, tensor in tensors.items()}

    @torch.no_grad()
    def restore(self, tensors: dict[str, Tensor], state: State) -> None:
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        self._generator.set_state(tensors["generator"])
        self._rounds, self._to_show = int(tensors["rounds"]), int(tensors["to_show"])
        self._online.restore(tensors)
        self.remarks = bytes(tensors["messages"].tolist()).decode().splitlines()
        self._scores = None
        if self._rounds:
            self._scores = UserScores(self.ranker, state, tensors.get("scores"))
        parts = below("round.", tensors)
        self._round = Round(self._scores, **parts) if parts and self._scores else None

    def _begin_round(self, state: State, exposure: Exposure) -> None:
        retraining = self._online.retraining
        if self._rounds and retraining is not None:
            # `serve` runs without gradients; a fit needs them.
            with torch.enable_grad():
                self._online.refit(retraining)
        if not self._rounds or retraining is not None:
            self._scores, self._round = UserScores(self.ranker, state), None
        self._rounds += 1
        self._to_show = self.round_length
        if self.reranker is None:
            return
        assert self._scores is not None
        # What comes free before the round ends: due in 1, 2, ... steps of `list_length` items each.
        returning = state.returning[1 : self.round_length // self.list_length]
        later = torch.cat(returning, dim=1) if returning else None
        among = CANDIDATES * self.round_length + (0 if later is None else later.shape[1])
        # The same warning may come in every round; they are kept as remarks of the run instead.
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            self._round = Round.begin(
                _over(self.reranker, among),
                self._scores,
                exposure.sensitive.clone(),
                items=self.round_length,
                among=among,
                generator=self._generator,
                also=later,
            )
        self.remarks += [str(warning.message) for warning in caught]


def _over(reranker: UserReranker, candidates: int) -> UserReranker:
    """The re-ranker of a round; fairness of exposure solves over the candidates alone."""
    if isinstance(reranker, ExposureFairness):
        return reranker.model_copy(update={"candidates": candidates})
    return reranker


@dataclass(frozen=True)
class UserLists:
    """The best items by score less handicap, within the allowance of the re-ranker."""

    fitted: FittedRanker
    reranker: UserReranker | None

    @torch.no_grad()
    def serve(self, scenario: Scenario, *, length: int, feedback: bool, seed: int) -> RankedLists:
        generator = torch.Generator().manual_seed(seed)
        chunks = self._chunks(scenario)
        if feedback:
            steps = [self._step_by_step(scenario, users, length, generator) for users in chunks]
            return RankedLists.from_tensors(torch.cat(steps))
        parts = [self._at_once(scenario, users, length, generator) for users in chunks]
        lists, scores = (torch.cat(some) for some in zip(*parts, strict=True))
        return RankedLists.from_tensors(lists, scores=scores)

    def in_blocks(self, *, feedback: bool, seed: int) -> EachAlone | None:
        if isinstance(self.reranker, ExposureFairness):
            return None  # one stream of random numbers for all users

        def rank(scenario: Scenario, length: int) -> RankedLists:
            return self.serve(scenario, length=length, feedback=feedback, seed=seed)

        return EachAlone(rank)

    def online(self, plan: ServingPlan) -> OnlineRanked:
        return OnlineRanked(
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
        lists, _ = serve_interactively(
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
        # Fixed when the list begins, so that item by item gives the list that is made at once,
        # unless feedback changes the scores.
        self.handicap: Tensor | float = 0.0
        allowance = length
        if lists.reranker is not None:
            allowance = lists.reranker.allowance(length)
            allowed = self.scores.masked_fill(state.blocked, -torch.inf)
            self.handicap = lists.reranker.handicap(allowed, self.sensitive, generator)
        self.left = torch.full((len(state.users), 1), allowance)  # of the allowance, per user

    def choose(self, state: State) -> Tensor:
        excluded = state.blocked | ((self.left <= 0) & self.sensitive)
        adjusted = (self.scores - self.handicap).masked_fill(excluded, -torch.inf)
        return best_lists(adjusted, self.sensitive, 1, 1)

    def observe(self, lists: Tensor, outcome: Outcome) -> None:  # noqa: ARG002
        self.left = self.left - outcome.cost[:, None].long()
        changed = outcome.reward.nonzero().squeeze(1)
        if self.ranker.queue_length and len(changed):
            state = outcome.state
            fresh = self.ranker.scores(state.users[changed], state.queue[changed])
            self.scores = self.scores.index_copy(0, changed, fresh)
