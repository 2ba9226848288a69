"""Candidates: the items that lists are made from in a state, each with its signals.

A signal is the standardised score of a ranker, or a coordinate of an item's vector; the last one
tells the limited group. Weights of the signals are those of the best softmax policy over them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol as Interface
from typing import Self

import torch
from torch import Tensor

from fairhorizon.lbfgs import minimise

CLOSED = -1e30  # a logit with probability 0; finite, so that differences are not NaN
RIDGE = 1e-3  # weight of the squared weights beside the mean log-likelihood
LEAST_FACTOR = 0.01  # lists never go against the order of what is weighed
ITERATIONS = 50


class CandidateSet(Interface):
    """The candidates of m states, C each; a row of W times an item's signals is its logit."""

    @property
    def items(self) -> Tensor:
        """(m, C) item codes, -1 where there is none."""

    def logits(self, weights: Tensor) -> Tensor:
        """(m, K, C) from K rows of W for each state, (m, K, signals)."""

    def pull(self, by_logits: Tensor) -> Tensor:
        """(m, K, signals): the transpose of `logits`, applied to (m, K, C)."""

    def take(self, states: Tensor) -> Self:
        """The candidates of some of the states."""

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """The candidates of several batches of states as one."""


@dataclass(frozen=True)
class ScoredCandidates:
    """A few items, with different signals in every state."""

    items: Tensor  # (m, C)
    signals: Tensor  # (m, C, signals)

    def logits(self, weights: Tensor) -> Tensor:
        return weights @ self.signals.transpose(1, 2)

    def pull(self, by_logits: Tensor) -> Tensor:
        return by_logits @ self.signals

    def take(self, states: Tensor) -> "ScoredCandidates":
        return ScoredCandidates(self.items[states], self.signals[states])

    def to(self, device: torch.device) -> "ScoredCandidates":
        return ScoredCandidates(self.items.to(device), self.signals.to(device))

    @classmethod
    def join(cls, parts: "Sequence[ScoredCandidates]") -> "ScoredCandidates":
        return cls(torch.cat([p.items for p in parts]), torch.cat([p.signals for p in parts]))


@dataclass(frozen=True)
class CatalogueCandidates:
    """All items, with the same vectors in every state, but for the group, which may change."""

    items: Tensor  # (m, n_items)
    vectors: Tensor  # (n_items, signals), without the group where that has its own table
    groups: Tensor | None = None  # (m, n_items) the last signal of each item in each state

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
            best, at = open_values.topk(min(count, len(group)), dim=1, sorted=False)
            chosen.append(group[at].masked_fill_(best == -torch.inf, -1))
    return distinct(torch.cat(chosen, dim=1))


def distinct(items: Tensor) -> Tensor:
    """The items (b, C) in the order of their codes, -1 for repeats."""
    items = items.sort(dim=1).values
    items[:, 1:].masked_fill_(items[:, 1:] == items[:, :-1], -1)
    return items


def weights_by_cross_entropy(candidates: ScoredCandidates, liked: Tensor) -> tuple[float, ...]:
    """Maximum-likelihood weights of a softmax policy, for every signal but the last (the group).

    `liked` (m, C) marks what users liked later on. All users count equally, the problem is convex,
    and without any liked item all weights are 1.
    """
    some = liked.any(1)
    signals, targets = candidates.signals[some, :, :-1], liked[some].float()
    targets = targets / targets.sum(1, keepdim=True)
    closed = candidates.items[some] < 0
    n_signals = signals.shape[2]
    if not len(signals):
        return (1.0,) * n_signals
    weights = torch.zeros(n_signals, device=signals.device, requires_grad=True)

    def loss() -> Tensor:
        logits = (signals @ weights).masked_fill(closed, CLOSED)
        likelihood = (torch.log_softmax(logits, dim=1) * targets).sum(1).mean()
        return RIDGE * weights.square().sum() - likelihood

    minimise([weights], loss, iterations=ITERATIONS)
    return tuple(weights.detach().tolist())


def fit_temperature(
    weights: Sequence[float], candidates: ScoredCandidates, liked: Tensor
) -> tuple[float, ...]:
    """The weights times the one factor that makes what users liked most likely.

    The factor is the inverse temperature of a softmax over the weighted sum of the signals.
    """
    *signals, group = candidates.signals.unbind(2)
    total = sum(weight * signal for weight, signal in zip(weights, signals, strict=True))
    assert isinstance(total, Tensor)
    (factor,) = weights_by_cross_entropy(
        ScoredCandidates(candidates.items, torch.stack([total, group], dim=2)), liked
    )
    return tuple(max(LEAST_FACTOR, factor) * weight for weight in weights)
