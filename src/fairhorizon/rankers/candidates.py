"""Candidates: the items that lists are made from in a state, each with its features.

A feature is the standardised score of a ranker, or a coordinate of an item's vector; the last one
tells the limited group. Weights of the features are those of the best softmax policy over them.

In a large catalogue the best items of a ranker are looked up instead of scored, where its scores
are products of a vector of the user, q, and one of the item, v. FAISS (inverted index, IVF) puts
item vectors into clusters and compares only those of the clusters nearest to q. That can miss an
item, so the share of the best items that are found, the recall, is measured when a model is fitted.
Mean and spread over all items, by which scores are standardised, are exact: q.mean(v) and sqrt(q'
Cov(v) q).
"""

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self
from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.lbfgs import minimise
from fairhorizon.rankers.ranker import Ranker

CLOSED = -1e30  # a logit with probability 0; finite, so that differences are not NaN
RIDGE = 1e-3  # weight of the squared weights beside the mean log-likelihood
LEAST_FACTOR = 0.01  # lists never go against the order of what is weighed
ITERATIONS = 50


class CandidateSet(Interface):
    """The candidates of m states, C each; a row of W times an item's features is its logit."""

    @property
    def items(self) -> Tensor:
        """(m, C) item codes, -1 where there is none."""

    def logits(self, weights: Tensor) -> Tensor:
        """(m, K, C) from K rows of W for each state, (m, K, features)."""

    def pull(self, by_logits: Tensor) -> Tensor:
        """(m, K, features): the transpose of `logits`, applied to (m, K, C)."""

    def take(self, states: Tensor) -> Self:
        """The candidates of some of the states."""

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The candidates of several batches of states as one."""


@dataclass(frozen=True)
class ScoredCandidates:
    """A few items, with different features in every state."""

    items: Tensor  # (m, C)
    features: Tensor  # (m, C, features)

    def logits(self, weights: Tensor) -> Tensor:
        return weights @ self.features.transpose(1, 2)

    def pull(self, by_logits: Tensor) -> Tensor:
        return by_logits @ self.features

    def take(self, states: Tensor) -> "ScoredCandidates":
        return ScoredCandidates(self.items[states], self.features[states])

    def to(self, device: torch.device) -> "ScoredCandidates":
        return ScoredCandidates(self.items.to(device), self.features.to(device))

    @classmethod
    def join(cls, parts: "Sequence[ScoredCandidates]") -> "ScoredCandidates":
        return cls(torch.cat([p.items for p in parts]), torch.cat([p.features for p in parts]))


@dataclass(frozen=True)
class CatalogueCandidates:
    """All items, with the same vectors in every state, but for the group, which may change."""

    items: Tensor  # (m, n_items)
    vectors: Tensor  # (n_items, features), without the group where that has its own table
    groups: Tensor | None = None  # (m, n_items) the last feature of each item in each state

    def logits(self, weights: Tensor) -> Tensor:
        if self.groups is None:
            return weights @ self.vectors.T
        by_vectors = weights[..., :-1] @ self.vectors.T
        return by_vectors + weights[..., -1:] * self.groups[:, None]

    def pull(self, by_logits: Tensor) -> Tensor:
        pulled = by_logits @ self.vectors
        if self.groups is None:
            return pulled
        last = (by_logits * self.groups[:, None]).sum(2, keepdim=True)
        return torch.cat([pulled, last], dim=2)

    def take(self, states: Tensor) -> "CatalogueCandidates":
        groups = None if self.groups is None else self.groups[states]
        return CatalogueCandidates(self.items[states], self.vectors, groups)

    @classmethod
    def join(cls, parts: "Sequence[CatalogueCandidates]") -> "CatalogueCandidates":
        groups = [part.groups for part in parts if part.groups is not None]
        items = torch.cat([part.items for part in parts])
        return cls(items, parts[0].vectors, torch.cat(groups) if groups else None)


def best_of_groups(
    scores: Sequence[Tensor], blocked: Tensor, sensitive: Tensor, count: int
) -> Tensor:
    """(b, C) the items that any of several scores (b, n_items) ranks among the `count` best of
    their group; -1 for blocked items and repeats."""
    chosen = [torch.empty(len(blocked), 0, dtype=torch.int64, device=blocked.device)]
    for group in (sensitive.nonzero().squeeze(1), (~sensitive).nonzero().squeeze(1)):
        closed = blocked.index_select(1, group)
        for values in scores:
            open_values = values.index_select(1, group).masked_fill_(closed, -torch.inf)
            # Unsorted: only which items these are matters here.
            best, at = open_values.topk(min(count, len(group)), dim=1, sorted=False)
            chosen.append(group[at].masked_fill_(best == -torch.inf, -1))
    return distinct(torch.cat(chosen, dim=1))


def distinct(items: Tensor) -> Tensor:
    """The items (b, C) in the order of their codes, -1 for repeats."""
    items = items.sort(dim=1).values
    items[:, 1:].masked_fill_(items[:, 1:] == items[:, :-1], -1)
    return items


def weights_by_cross_entropy(candidates: ScoredCandidates, liked: Tensor) -> tuple[float, ...]:
    """Maximum-likelihood weights of a softmax policy, for every feature but the last (the group).

    `liked` (m, C) marks what users liked later on. All users count equally, the problem is convex,
    and without any liked item all weights are 1.
    """
    some = liked.any(1)
    features, targets = candidates.features[some, :, :-1], liked[some].float()
    # Every user has a weight of 1, however many items the user liked.
    targets = targets / targets.sum(1, keepdim=True)
    closed = candidates.items[some] < 0
    n_features = features.shape[2]
    if not len(features):
        return (1.0,) * n_features
    weights = torch.zeros(n_features, device=features.device, requires_grad=True)

    def loss() -> Tensor:
        logits = (features @ weights).masked_fill(closed, CLOSED)
        likelihood = (torch.log_softmax(logits, dim=1) * targets).sum(1).mean()
        return RIDGE * weights.square().sum() - likelihood

    minimise([weights], loss, iterations=ITERATIONS)
    return tuple(weights.detach().tolist())


def fit_temperature(
    weights: Sequence[float], candidates: ScoredCandidates, liked: Tensor
) -> tuple[float, ...]:
    """The weights times the one factor that makes what users liked most likely.

    The factor is the inverse temperature of a softmax over the weighted sum of the features.
    """
    # The last feature, the group, has no weight; the second call needs one in its place.
    *features, group = candidates.features.unbind(2)
    total = sum(weight * signal for weight, signal in zip(weights, features, strict=True))
    assert isinstance(total, Tensor)
    (factor,) = weights_by_cross_entropy(
        ScoredCandidates(candidates.items, torch.stack([total, group], dim=2)), liked
    )
    return tuple(max(LEAST_FACTOR, factor) * weight for weight in weights)


LARGE = 50_000  # items; below, scoring all of them takes no longer
ENOUGH = 0.99  # recall; where it is lower, that is said
AIM = 0.995
SAMPLE = 256  # users on whom recall is measured
SPARE = 3  # times as many items as are wanted are looked up, because some may not be shown
FIRST_PROBES = 8
SEED = 1234


def is_installed() -> bool:
    return importlib.util.find_spec("faiss") is not None


@dataclass(frozen=True)
class GroupIndex:
    """The vectors of a group of items, in clusters."""

    items: Tensor  # (m,) their codes
    index: Any  # of FAISS; None for a group without items

    @classmethod
    def from_vectors(cls, vectors: Tensor, items: Tensor) -> "GroupIndex":
        if not len(items):
            return cls(items, None)
        import faiss

        # One index per group, so that the best of each group can be asked for.
        own = vectors[items].contiguous().numpy()
        # Of the order of the square root: finding the nearest clusters then takes about as long as
        # looking through one of them.
        clusters = max(1, int(2 * len(items) ** 0.5))
        index = faiss.IndexIVFFlat(
            faiss.IndexFlatIP(own.shape[1]), own.shape[1], clusters, faiss.METRIC_INNER_PRODUCT
        )
        # A fixed seed gives the same clusters, and small groups are clustered without a warning.
        index.cp.seed, index.cp.min_points_per_centroid = SEED, 1
        index.train(own)
        index.add(own)
        return cls(items, index)

    @property
    def clusters(self) -> int:
        return 0 if self.index is None else self.index.nlist

    def nearest(self, queries: Tensor, count: int, probes: int) -> Tensor:
        """(b, count) items by falling product, -1 where the clusters have no more."""
        if self.index is None:
            return torch.full((len(queries), 0), -1)
        self.index.nprobe = min(probes, self.clusters)
        _, places = self.index.search(queries.contiguous().numpy(), min(count, len(self.items)))
        found = torch.from_numpy(places)
        return self.items[found.clamp(min=0)].masked_fill(found < 0, -1)


class VectorSearch:
    """The items of one ranker by their vectors."""

    def __init__(self, vectors: Tensor, probes: int = FIRST_PROBES) -> None:
        self.vectors = vectors  # (n_items, d)
        self.probes = probes  # clusters that are looked at
        # Clustering takes seconds, and the groups of a model rarely change.
        self._groups: tuple[Tensor, Sequence[GroupIndex]] | None = None  # of the last groups

    @classmethod
    def from_ranker(cls, ranker: Ranker[Any], probes: int = FIRST_PROBES) -> "VectorSearch":
        vectors = ranker.item_vectors()
        if vectors is None:
            raise ValueError(f"scores of {ranker.method} are no products of vectors")
        return cls(vectors, probes)

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """(d,) and (d, d) mean and covariance of the item vectors."""
        exact = self.vectors.double()
        mean = exact.mean(0)
        return mean, (exact - mean).T @ (exact - mean) / len(exact)

    def features(self, queries: Tensor, items: Tensor) -> Tensor:
        """(b, C) standardised scores of some items (b, C)."""
        mean, covariance = self._moments
        exact = queries.double()
        # Deviation of q.v over all items: sqrt(q' Cov q), in double precision, as variances cancel.
        spread = ((exact @ covariance) * exact).sum(1, keepdim=True).clamp(min=0).sqrt()
        scores = (self.vectors[items] @ queries[:, :, None]).squeeze(2)
        centred = scores.double() - (exact @ mean)[:, None]
        return (centred / spread.where(spread > 0, 1.0)).float()

    def best(self, queries: Tensor, blocked: Tensor, sensitive: Tensor, count: int) -> Tensor:
        """(b, C) the `count` best items of each group, none of them blocked; -1 for none.

        Where the clusters have too few for a user, all items are scored for this user.
        """
        chosen = []
        for group in self._indices(sensitive):
            found = group.nearest(queries, SPARE * count, self.probes)
            is_open = (found >= 0) & ~blocked.gather(1, found.clamp(min=0))
            # The first `count` open ones of those that were found, which are in falling order.
            place = is_open.cumsum(1)
            kept = found.masked_fill(~is_open | (place > count), -1)
            most = min(count, len(group.items))
            chosen.append(kept.sort(dim=1, descending=True).values[:, :most])
        items = torch.cat(chosen, dim=1)
        # Rare, for users who took much of what they would be shown; exact, whatever it costs.
        few = (items < 0).any(1).nonzero().squeeze(1)
        if len(few):
            scores = queries[few] @ self.vectors.T
            items[few] = best_of_groups([scores], blocked[few], sensitive, count)
        return items

    def clusters(self, sensitive: Tensor) -> int:
        """Of the larger group."""
        return max(index.clusters for index in self._indices(sensitive))

    def _indices(self, sensitive: Tensor) -> Sequence[GroupIndex]:
        if self._groups is None or not torch.equal(self._groups[0], sensitive):
            both = (sensitive.nonzero().squeeze(1), (~sensitive).nonzero().squeeze(1))
            self._groups = (
                sensitive,
                [GroupIndex.from_vectors(self.vectors, items) for items in both],
            )
        return self._groups[1]


@dataclass(frozen=True)
class Recall:
    """How many of the best items of a ranker are found, and how many clusters that takes."""

    probes: int
    share: float
    users: int

    def __str__(self) -> str:
        text = (
            f"{100 * self.share:.1f} % of its best items are found by FAISS in {self.probes} "
            f"clusters (recall on {self.users} users)"
        )
        if self.share >= ENOUGH:
            return text
        return f"{text}: below {100 * ENOUGH:.0f} % (set retrieval to exact to score all items)"


def searched(
    ranker: Ranker[Any], users: Tensor, queue: Tensor, blocked: Tensor, group: Tensor, count: int
) -> tuple[VectorSearch, Recall]:
    """A search that finds nearly all of the best items of these users, and how many it finds.

    Twice as many clusters are looked at until it does, from 8 to all of them.
    """
    search, queries = VectorSearch.from_ranker(ranker), ranker.user_vectors(users, queue)
    exact = best_of_groups([ranker.scores(users, queue)], blocked, group, count)
    while True:
        found = search.best(queries, blocked, group, count)
        # Both lists have distinct items, so matches are counted pairwise.
        hits = ((found[:, :, None] == exact[:, None, :]) & (found[:, :, None] >= 0)).sum()
        share = int(hits) / max(1, int((exact >= 0).sum()))
        if share >= AIM or search.probes >= search.clusters(group):
            return search, Recall(search.probes, share, len(users))
        search.probes *= 2


def again(search: VectorSearch | None, ranker: Ranker[Any] | None) -> VectorSearch | None:
    """The search of a ranker that was fitted again, in as many clusters."""
    if search is None or ranker is None:
        return None
    return VectorSearch.from_ranker(ranker, search.probes)
