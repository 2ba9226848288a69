"""A ranker behind an online re-ranker in a long run."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from fairhorizon.errors import ConfigError
from fairhorizon.limits.counts import Exposure
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import first_highest, some_at_a_time, standardised, users_at_once
from fairhorizon.recommenders.ranked.fitted import CANDIDATES, FittedRanker
from fairhorizon.recommenders.ranked.relevance import (
    BestOfGroups,
    Relevance,
    best_of_groups,
    scale_of,
    scaled,
)
from fairhorizon.recommenders.ranked.stored import ranker_tensors, restored_ranker
from fairhorizon.recommenders.retraining import Retraining
from fairhorizon.rerank.online import Ledger, OnlineReranker, Visit
from fairhorizon.simulation.dynamics import Outcome, State
from fairhorizon.storage import below


class OnlineServer:
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
        self.ranker: Ranker[Any] = fitted.ranker
        self._first_ranker = fitted.ranker
        self.reranker, self.list_length, self.retraining = reranker, list_length, retraining
        # the lists of a round make one long list, whose NDCG counts
        self._relevance = Relevance.of(fitted, max(round_length, list_length))
        self._ledger: Ledger = {}
        self._scale = 0.0  # of the first menus; 0 before them
        self._scores = torch.empty(0)  # (b, n_items) standardised; empty if to be computed
        self._totals = torch.empty(0)  # (b,) of the softmax when they were; empty likewise

    @property
    def queue_length(self) -> int:
        return max(1, self._first_ranker.queue_length)

    @property
    def remarks(self) -> Sequence[str]:
        return ()

    @torch.no_grad()
    def serve(self, state: State, exposure: Exposure) -> Tensor:
        if not len(self._totals):
            self._score_everyone(state, exposure.sensitive)
        if not self._ledger:
            self._ledger = self.reranker.begin(len(state.users))
        sides = self._best(state, exposure.sensitive)
        menus = self._relevance.on_sides(sides, state.users, self._totals)
        self._scale = self._scale or scale_of(menus)
        menus = scaled(menus, self._scale)
        lists = []
        for rows in self.reranker.batches(len(state.users)):
            some = menus.of(rows)
            target = self.reranker.target_share(some, exposure.sensitive)
            visit = Visit(some, rows, self.list_length, target)
            lists.append(self.reranker.lists(visit, self._ledger))
        return torch.cat(lists)

    @torch.no_grad()
    def observe(self, lists: Tensor, outcome: Outcome, exposure: Exposure) -> None:
        if self.retraining is not None:
            self.retraining.observe(lists, outcome)
        rows = (outcome.reward > 0).nonzero().squeeze(1)
        if self.ranker.queue_length and len(rows):
            self._score(outcome.state, rows, exposure.sensitive)

    def update(self) -> None:
        """Fit the ranker again where a round is over."""
        if self.retraining is not None and self.retraining.due:
            first = self._first_ranker  # the caller's is not changed
            fresh = type(first)(first.config, seed=first.seed)
            self.ranker = fresh.fit(self.retraining.extended())
            self._scores, self._totals = torch.empty(0), torch.empty(0)

    def notes(self) -> dict[str, float]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        parts = {"ledger": self._ledger}
        if self._ledger:
            parts["online"] = {"scale": torch.tensor(self._scale, dtype=torch.float64)}
        if len(self._totals):
            # computed for other users at a time, they would differ in the last digits
            parts["scored"] = {"scores": self._scores, "totals": self._totals}
        if self.retraining is not None:
            parts["retraining"] = self.retraining.tensors()
        if self.ranker is not self._first_ranker:
            parts["ranker"] = ranker_tensors(self.ranker)
        return {
            f"{part}.{name}": value.detach().clone()
            for part, some in parts.items()
            for name, value in some.items()
        }

    def restore(self, tensors: dict[str, Tensor], state: State) -> None:  # noqa: ARG002
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}
        self._ledger = below("ledger.", tensors)
        self._scale = float(tensors.get("online.scale", 0.0))
        scored = below("scored.", tensors)
        self._scores = scored.get("scores", torch.empty(0))
        self._totals = scored.get("totals", torch.empty(0))
        if self.retraining is not None:
            self.retraining.restore(below("retraining.", tensors))
        refitted = below("ranker.", tensors)
        first = self._first_ranker
        self.ranker = restored_ranker(refitted, first) if refitted else first

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
