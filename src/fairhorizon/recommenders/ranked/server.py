"""A ranker in a long run, alone or with a re-ranker."""

import math
import warnings
from typing import Any, Self

import torch
from torch import Generator, Tensor

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.limits.counts import Exposure
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import first_best, rows_at_once, top
from fairhorizon.recommenders.ranked.stored import ranker_tensors, restored_ranker
from fairhorizon.recommenders.ranked.user_scores import UserScores
from fairhorizon.recommenders.retraining import Retraining
from fairhorizon.rerank.exposure import ExposureFairness
from fairhorizon.rerank.reranker import UserReranker
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.storage import below

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


class RankedServer:
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
        self.retraining = None if retrain_on is None else Retraining(retrain_on)
        self.round_length = math.ceil(round_length / list_length) * list_length  # whole lists
        self.ranker = self._first_ranker = ranker
        self.reranker = reranker
        self.remarks: list[str] = []  # warnings of the re-ranker, in the order given
        self._generator = Generator().manual_seed(seed)
        self._rounds = 0  # begun
        self._to_show = 0  # items per user until the round is over
        self._scores: UserScores | None = None
        self._round: Round | None = None

    @property
    def queue_length(self) -> int:
        return max(1, self._first_ranker.queue_length)

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
        if self.retraining is not None:
            self.retraining.observe(lists, outcome)
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
        if self.retraining is not None:
            stored = self.retraining.tensors()
            tensors |= {f"retraining.{name}": tensor for name, tensor in stored.items()}
        if self.ranker is not self._first_ranker:
            stored = ranker_tensors(self.ranker)
            tensors |= {f"ranker.{name}": tensor for name, tensor in stored.items()}
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
        if self.retraining is not None:
            self.retraining.restore(below("retraining.", tensors))
        self.remarks = bytes(tensors["messages"].tolist()).decode().splitlines()
        self.ranker = self._first_ranker
        refitted = below("ranker.", tensors)
        if refitted:
            self.ranker = restored_ranker(refitted, self._first_ranker)
        self._scores = None
        if self._rounds:
            self._scores = UserScores(self.ranker, state, tensors.get("scores"))
        parts = below("round.", tensors)
        self._round = Round(self._scores, **parts) if parts and self._scores else None

    def _begin_round(self, state: State, exposure: Exposure) -> None:
        if self._rounds and self.retraining is not None:
            with torch.enable_grad():
                self.ranker = self._fresh().fit(self.retraining.extended())
        if not self._rounds or self.retraining is not None:
            self._scores, self._round = UserScores(self.ranker, state), None
        self._rounds += 1
        self._to_show = self.round_length
        if self.reranker is None:
            return
        assert self._scores is not None
        returning = state.returning[1 : self.round_length // self.list_length]
        later = torch.cat(returning, dim=1) if returning else None
        among = CANDIDATES * self.round_length + (0 if later is None else later.shape[1])
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

    def _fresh(self) -> Ranker[Any]:
        """A ranker to fit; the caller's is not changed."""
        ranker = self._first_ranker
        return type(ranker)(ranker.config, seed=ranker.seed)


def _over(reranker: UserReranker, candidates: int) -> UserReranker:
    """The re-ranker of a round; fairness of exposure solves over the candidates alone."""
    if isinstance(reranker, ExposureFairness):
        return reranker.model_copy(update={"candidates": candidates})
    return reranker
