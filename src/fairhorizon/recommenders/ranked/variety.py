"""Rules of variety in a long run: kinds of items that a user was shown lately lose, or are closed.

Maximal marginal relevance (Carbonell & Goldstein, SIGIR 1998) takes off the score of an item what
it has in common with the items chosen before. Here these are all that the user was shown so far,
and they fade: with p_ik the part of kind k in item i,

    score(u, i) - mmr * sum_j forgetting^(steps between) sum_k p_ik p_jk,    j: shown to u before

The paper takes the most similar item; the sum counts how often a kind came up. With this sum the
rule has the form of satiation (simulation/moods.py), so that no better form is left to a rival.
"""

import torch
from torch import Tensor

from fairhorizon.errors import ConfigError
from fairhorizon.rerank.control import StepControl
from fairhorizon.simulation.dynamics import push_liked

# What closes an item, in standard deviations of the scores. It is finite so that limits come first:
# where a limit leaves nothing else, a closed item is shown.
CLOSED = 1e3


class Variety:
    """What each user was shown lately, and what the rules of a control make of it.

    kinds: (n_items, kinds) the part that each kind has in an item, rows that add up to 1, or to 0
        for items without a kind, which no rule is about.
    """

    lately: Tensor  # (b, kinds) the parts in what was shown, faded
    recent: Tensor  # (b, window - 1) items, newest last: with the next one a whole window

    def __init__(self, rules: StepControl, kinds: Tensor) -> None:
        self.rules, self.kinds = rules, kinds.float()
        self.main, self.has_kind = kinds.argmax(1), kinds.any(1)
        self._begin(0)

    def begin(self, users: int) -> None:
        """Nothing was shown yet, unless so many users are known already."""
        if len(self.lately) != users:
            self._begin(users)

    def observe(self, lists: Tensor) -> None:
        """These lists (b, K) were shown, -1 for none; a step is over."""
        self.lately = self.rules.forgetting * self.lately + self._of_kinds(lists)
        self.recent = push_liked(self.recent, lists, lists >= 0)

    def handicap(self, taken: Tensor) -> Tensor:
        """(b, n_items) what the rules take off the scores; taken (b, k): the lists so far."""
        handicap = torch.zeros(len(taken), len(self.kinds), device=taken.device)
        if self.rules.mmr > 0:
            alike = (self.lately + self._of_kinds(taken)) @ self.kinds.T
            handicap.add_(alike, alpha=self.rules.mmr)
        if self.rules.kind_quota is not None:
            full = self._kinds_of(push_liked(self.recent, taken, taken >= 0))
            closed = (full >= self.rules.kind_quota)[:, self.main] & self.has_kind
            handicap.add_(closed, alpha=CLOSED)
        return handicap

    def tensors(self) -> dict[str, Tensor]:
        return {"lately": self.lately, "recent": self.recent}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.lately, self.recent = tensors["lately"].clone(), tensors["recent"].clone()

    def _begin(self, users: int) -> None:
        device = self.kinds.device
        self.lately = torch.zeros(users, self.kinds.shape[1], device=device)
        self.recent = torch.full((users, self.rules.window - 1), -1, device=device)

    def _of_kinds(self, lists: Tensor) -> Tensor:
        """(b, kinds) the parts of the kinds in lists, added up."""
        return (self.kinds[lists.clamp(min=0)] * (lists >= 0)[:, :, None]).sum(1)

    def _kinds_of(self, items: Tensor) -> Tensor:
        """(b, kinds) how many of the items (b, n) have each main kind."""
        at = items.clamp(min=0)
        counts = torch.zeros(len(items), self.kinds.shape[1], device=items.device)
        return counts.scatter_add_(1, self.main[at], ((items >= 0) & self.has_kind[at]).float())


def variety_of(rules: StepControl, kinds: Tensor | None, method: str) -> Variety | None:
    """Of a server; None where the control has no such rule."""
    if not rules.needs_kinds:
        return None
    if kinds is None:
        raise ConfigError(
            f"{method}: mmr and kind_quota are about kinds of items, of which nothing is known "
            "(give `kinds`, or leave them out)"
        )
    return Variety(rules, kinds)
