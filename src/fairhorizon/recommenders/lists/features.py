"""What a policy sees of the items: features of each item, and the candidates of each user.

The items of an ensemble have the standardised scores of its rankers as features, and their group. A
row of W has a weight for each ranker and a price for G0:

    score_i = sum_e w_e z_e(s, i) - price 1[i in G0],    z_e: scores of ranker e, standardised

So an item that enters G0 is priced at once, without any learning, and a policy with the best
weights for each state is at least as good as the best fixed mixture of the rankers.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from typing import Protocol as Interface
from weakref import ref

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fairhorizon.allocation.candidates import NEVER
from fairhorizon.allocation.limit_matrix import Counts, Flags
from fairhorizon.histories import ItemSets
from fairhorizon.rankers.candidates import CandidateSet, ScoredCandidates, best_of_groups, distinct
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import moments, rows_at_once, some_at_a_time, standardised
from fairhorizon.simulation.feedback import Scenario

SCORES_AT_ONCE = 2**24  # of all users who are served together
SCORES_FOR_CANDIDATES = 2**21  # 8 MiB: memory that is used again, block after block
USERS_AT_ONCE = 1024
BLOCKED_AT_ONCE = 2**22  # cells: 4 MiB

Groups = tuple[Counts, Counts]  # the items of the limited group, and the others
Logits = NDArray[np.float32]


class ItemFeatures(Interface):
    """The features of all items, for a batch of users in their present states."""

    def scores(self, weights: Tensor) -> Tensor:
        """(b, n_items), a new tensor, from one row of W for each user (b, features)."""

    def refresh(self, rows: Tensor, users: Tensor, queues: Tensor) -> None:
        """Recompute the features of the users at these rows, who are in new states."""

    def relabel(self, sensitive: Tensor) -> None:
        """Update the groups."""

    def candidate_items(self, rows: Tensor, blocked: ItemSets, count: int) -> Tensor:
        """(rows, C) candidates of the users at these rows, none of the `blocked`.

        The `count` best of either group, by what the features know of an item; -1 where there are
        fewer. C is the same at every call.
        """

    def with_shown(self, items: Tensor, shown: Tensor) -> CandidateSet:
        """The candidates of all users with the present groups: items (b, C), and those of the
        lists shown (b, K) that are not among them."""


class FeatureSource(Interface):
    """The items as an actor sees them; a row of W has a number for each feature of an item."""

    @property
    def n_features(self) -> int:
        """Features of an item; where it is `priced`, the last one is its group."""

    @property
    def priced(self) -> bool:
        """Whether the actor sees the group of an item and so has a price for it."""

    @property
    def least_per_group(self) -> float:
        """The least number of candidates of either group, if there are as many."""

    def encoder_input(self, queues: Tensor) -> Tensor:
        """The part of the queues that the encoder reads."""

    def features(self, users: Tensor, queues: Tensor, sensitive: Tensor) -> ItemFeatures:
        """The features of all items for these users in these states."""

    def candidate_set(
        self, users: Tensor, queues: Tensor, blocked: Tensor, sensitive: Tensor, at_least: int = 0
    ) -> CandidateSet:
        """The items that a policy may choose from in these states, none of them blocked.

        At least `at_least` items of either group, if there are as many.
        """

    def all_candidates(
        self, users: Tensor, queues: Tensor, blocked: Tensor, sensitive: Tensor
    ) -> CandidateSet:
        """All items as candidates, in the order of their codes, -1 for blocked ones."""

    def logits(
        self,
        weights: Logits,
        users: Tensor,
        queues: Tensor,
        blocked: Flags,
        groups: Groups | None,
        at_least: int = 0,
    ) -> Iterator[tuple[Counts | None, Logits]]:
        """For each of a few users the items (n,) that lists are made from, and their logits (n,).

        Up to a number per user; NEVER for what is blocked (b, n_items).  weights: (b, features),
        the last of them, of a group, 0.  groups: of which the best are candidates, as in
        `candidate_set`; None: all items are, for which no codes are given.
        """


class EnsembleFeatures:
    """Standardised scores of the rankers for a batch of users, and the present groups.

    Where it is not `priced`, the feature of the group is 0 for all items.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        users: Tensor,
        queues: Tensor,
        sensitive: Tensor,
        *,
        priced: bool = True,
    ) -> None:
        self.rankers, self.priced = ensemble.rankers, priced
        self.relabel(sensitive)
        at_once = max(1, SCORES_AT_ONCE // len(sensitive))
        chunks = list(zip(users.split(at_once), queues.split(at_once), strict=True))
        self.values = [  # each (b, n_items)
            torch.cat([self._scores(ranker, *chunk) for chunk in chunks]) for ranker in self.rankers
        ]

    def scores(self, weights: Tensor) -> Tensor:
        *shares, price = weights.split(1, dim=1)
        scores: Tensor = price * self._group_feature
        for share, values in zip(shares, self.values, strict=True):
            scores.addcmul_(share, values)
        return scores

    def refresh(self, rows: Tensor, users: Tensor, queues: Tensor) -> None:
        for ranker, values in zip(self.rankers, self.values, strict=True):
            values.index_copy_(0, rows, self._scores(ranker, users, queues))

    def relabel(self, sensitive: Tensor) -> None:
        self.group = sensitive.float()

    @property
    def _group_feature(self) -> Tensor:
        return -self.group if self.priced else torch.zeros_like(self.group)

    def candidate_items(self, rows: Tensor, blocked: ItemSets, count: int) -> Tensor:
        values = [ranker[rows] for ranker in self.values]
        items = best_of_groups(values, blocked.mask(rows), self.group > 0, count)
        width = 2 * count * len(values)  # a group may have fewer items
        return nn.functional.pad(items, (0, width - items.shape[1]), value=-1)

    def with_shown(self, items: Tensor, shown: Tensor) -> ScoredCandidates:
        known = (shown[:, :, None] == items[:, None, :]).any(2)
        return self.with_features(torch.cat([items, shown.masked_fill(known, -1)], dim=1))

    def with_features(self, items: Tensor) -> ScoredCandidates:
        """These items (b, C) as candidates, -1 for none, with the present groups."""
        at = items.clamp(min=0)
        scores = (values.gather(1, at) for values in self.values)
        return ScoredCandidates(items, torch.stack([*scores, self._group_feature[at]], dim=2))

    def _scores(self, ranker: Ranker[Any], users: Tensor, queues: Tensor) -> Tensor:
        return standardised(ranker.scores(users.cpu(), queues.cpu())).to(self.group.device)


@dataclass(frozen=True)
class EnsembleItems:
    """Items by the scores of an ensemble, and by their group."""

    ensemble: Ensemble
    history: int  # items of a queue that the encoder reads; rankers read more
    candidates: int  # best items of each ranker and group among the candidates
    priced: bool = True

    @property
    def n_features(self) -> int:
        return len(self.ensemble.rankers) + 1

    @property
    def least_per_group(self) -> float:
        return self.candidates

    def encoder_input(self, queues: Tensor) -> Tensor:
        return queues[:, -self.history :]

    def features(self, users: Tensor, queues: Tensor, sensitive: Tensor) -> EnsembleFeatures:
        return EnsembleFeatures(self.ensemble, users, queues, sensitive, priced=self.priced)

    @torch.no_grad()
    def candidate_set(
        self, users: Tensor, queues: Tensor, blocked: Tensor, sensitive: Tensor, at_least: int = 0
    ) -> ScoredCandidates:
        """The items that some ranker puts among the best of their group."""
        count = max(self.candidates, at_least)
        at_once = rows_at_once(len(sensitive), SCORES_FOR_CANDIDATES)
        rows = zip(users.split(at_once), queues.split(at_once), blocked.split(at_once), strict=True)
        return ScoredCandidates.join(
            [self._candidate_set(*some, sensitive, count) for some in rows]
        )

    @torch.no_grad()
    def all_candidates(
        self, users: Tensor, queues: Tensor, blocked: Tensor, sensitive: Tensor
    ) -> ScoredCandidates:
        items = torch.arange(len(sensitive)).to(blocked.device).expand(blocked.shape)
        features = self.features(users, queues, sensitive)
        return features.with_features(items.masked_fill(blocked, -1))

    def logits(
        self,
        weights: Logits,
        users: Tensor,
        queues: Tensor,
        blocked: Flags,
        groups: Groups | None,
        at_least: int = 0,
    ) -> Iterator[tuple[Counts | None, Logits]]:
        """The same as the candidates of `candidate_set` have, without making it."""
        count = max(self.candidates, at_least)
        users, queues = users.cpu(), queues.cpu()
        if groups is not None and any(self.ensemble.searches):
            yield from self._looked_up(weights, users, queues, blocked, groups, count)
            return
        tables = [ranker.scores(users, queues).detach().numpy() for ranker in self.ensemble.rankers]
        for row, closed in enumerate(blocked):
            scores = [table[row] for table in tables]
            logits = _weighed(scores, weights[row])
            if groups is None:
                logits[closed] = NEVER
                yield None, logits
            else:
                codes = _best_of_groups(scores, closed, groups, count)
                yield codes, logits[codes]

    def _looked_up(
        self,
        weights: Logits,
        users: Tensor,
        queues: Tensor,
        blocked: Flags,
        groups: Groups,
        count: int,
    ) -> Iterator[tuple[Counts, Logits]]:
        """The items and logits in a large catalogue, where candidates of some ranker are searched.

        weights: (b, features).
        """
        sensitive = torch.zeros(blocked.shape[1], dtype=torch.bool)
        sensitive[torch.from_numpy(groups[0])] = True
        found = self.candidate_set(users, queues, torch.from_numpy(blocked), sensitive, count)
        for codes, own, row in zip(
            found.items.numpy(), found.features.numpy(), weights, strict=True
        ):
            yield codes[codes >= 0], (own @ row)[codes >= 0]

    def _candidate_set(
        self, users: Tensor, queues: Tensor, blocked: Tensor, sensitive: Tensor, count: int
    ) -> ScoredCandidates:
        """Only scores of candidates are standardised: the order of the items is the same before."""
        who, group, closed = (users.cpu(), queues.cpu()), sensitive.cpu(), blocked.cpu()
        searches = [search for _, search in self.ensemble.ways()]
        tables = [
            ranker.scores(*who) if search is None else ranker.user_vectors(*who)
            for ranker, search in self.ensemble.ways()
        ]
        found = [
            search.best(table, closed, group, count)
            for table, search in zip(tables, searches, strict=True)
            if search is not None
        ]
        looked_up = torch.cat(found or [closed.new_zeros(len(users), 0, dtype=torch.int64)], dim=1)
        price = -group.float() if self.priced else torch.zeros(len(group))
        candidate_set = []
        for shut, known, *some in some_at_a_time(closed, looked_up, *tables):
            scored = [t for t, search in zip(some, searches, strict=True) if search is None]
            items = torch.cat([known, best_of_groups(scored, shut, group, count)], dim=1)
            items = distinct(items) if known.shape[1] else items
            at = items.clamp(min=0)
            features = [
                _standardised_at(table, at) if search is None else search.features(table, at)
                for table, search in zip(some, searches, strict=True)
            ]
            candidate_set.append(
                ScoredCandidates(items, torch.stack([*features, price[at]], dim=2))
            )
        return ScoredCandidates.join(candidate_set).to(sensitive.device)


def _best_of_groups(scores: Sequence[Logits], closed: Flags, groups: Groups, count: int) -> Counts:
    """The codes of what any of several scores (n_items,) ranks among the `count` best of a group.

    As `best_of_groups`, for one user.
    """
    chosen = np.zeros(len(closed), dtype=np.bool_)
    for own in scores:
        ranked = np.where(closed, np.float32(-np.inf), own)
        for group in groups:
            best = torch.from_numpy(ranked[group]).topk(min(count, len(group)), sorted=False)
            chosen[group[best.indices.numpy()]] = True
    chosen &= ~closed
    return chosen.nonzero()[0]


def _weighed(scores: Sequence[Logits], weights: Logits) -> Logits:
    """(n_items,) the weighted sum of the standardised scores of some rankers, for one user."""
    logits = np.zeros(len(scores[0]), dtype=np.float32)
    for own, weight in zip(scores, weights, strict=False):
        centred = own - np.add.reduce(own) / len(own)
        spread = math.sqrt(float(centred @ centred) / len(own))
        logits += centred * np.float32(weight / (spread or 1.0))
    return logits


def _standardised_at(scores: Tensor, at: Tensor) -> Tensor:
    """(b, C) the standardised scores (b, n_items) of items."""
    mean, spread = moments(scores)
    return (scores.gather(1, at).float() - mean).div_(spread)


@dataclass(frozen=True)
class InitialCandidates:
    """The candidates of users where their episodes begin.

    Rankers are fixed, so they are scored once.
    """

    users: Tensor  # (b,)
    candidate_set: CandidateSet

    def take(self, rows: Tensor) -> "InitialCandidates":
        return InitialCandidates(self.users[rows], self.candidate_set.take(rows))


def initial_candidates(
    items: FeatureSource, scenario: Scenario, users: Tensor, sensitive: Tensor, at_least: int = 0
) -> InitialCandidates:
    """For some users of a scenario, in batches, because the table of blocked items is wide."""
    parts = []
    for some in users.split(rows_at_once(len(sensitive), BLOCKED_AT_ONCE)):
        state = scenario.state(some, sensitive.device)
        parts.append(
            items.candidate_set(state.users, state.queue, state.blocked, sensitive, at_least)
        )
    return InitialCandidates(users, type(parts[0]).join(parts))


class CandidateCache:
    """The candidates of the last scenario whose lists were made, as long as somebody holds it.

    Studies serve the same users at one level after the other, always with the same candidates.
    """

    def __init__(self) -> None:
        self._known: tuple[ref[Scenario], FeatureSource, Tensor, int, CandidateSet] | None = None

    def get(
        self, items: FeatureSource, scenario: Scenario, sensitive: Tensor, length: int
    ) -> CandidateSet:
        """The candidates of all users of the scenario."""
        if self._known is not None:
            whose, view, group, count, candidate_set = self._known
            if whose() is scenario and view == items and group is sensitive and count == length:
                return candidate_set
        users = torch.arange(scenario.n_users)
        candidate_set = initial_candidates(items, scenario, users, sensitive, length).candidate_set
        self._known = (ref(scenario, self._forget), items, sensitive, length, candidate_set)
        return candidate_set

    def _forget(self, whose: object) -> None:
        if self._known is not None and self._known[0] is whose:
            self._known = None

    def __deepcopy__(self, memo: dict[int, object]) -> "CandidateCache":
        return CandidateCache()


def liked_items(initial: InitialCandidates, scenario: Scenario) -> Tensor:
    """(b, C) bool: which of the candidates the users like in the scenario."""
    items, parts = initial.candidate_set.items, []
    for rows in torch.arange(len(items)).split(USERS_AT_ONCE):
        mask = scenario.positive.mask(initial.users[rows]).to(items.device)
        parts.append(mask.gather(1, items[rows].clamp(min=0)) & (items[rows] >= 0))
    return torch.cat(parts)


def some_users(scenario: Scenario, most: int, generator: torch.Generator) -> Tensor:
    """Users who like anything in the scenario, at most `most` of them, drawn at random."""
    users = scenario.positive.indptr.diff().nonzero().squeeze(1)
    if len(users) > most:
        users = users[torch.randperm(len(users), generator=generator)[:most]]
    return users
