"""Re-rankers that look at what was shown so far: users arrive in batches, and exposure adds up.

Items have two providers: the group that is limited and the rest. At every place of a list there is
one thing to decide: whether its item is the best one left of the group or the best one of the rest.
"""

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from fairhorizon.ranking import discount
from fairhorizon.rerank.reranker import JointReranker

Ledger = dict[str, Tensor]  # float64: what a re-ranker remembers of what was shown
Target = Literal["share", "parity", "merit"]


@dataclass(frozen=True)
class GroupCandidates:
    """Each user's best items of the group (first) and of the rest, best first."""

    items: Tensor  # (2, b, n) item codes, -1 where there is none
    scores: Tensor  # (2, b, n) -inf where there is none; they order items of equal relevance
    relevances: Tensor  # (2, b, n) float64, comparable between users; -inf where there is none

    @classmethod
    def join(cls, parts: "list[GroupCandidates]") -> Self:
        """One after the other, all of the same width."""
        fields = ("items", "scores", "relevances")
        return cls(*(torch.cat([getattr(part, name) for part in parts], 1) for name in fields))

    def take(self, rows: Tensor) -> "GroupCandidates":
        return GroupCandidates(self.items[:, rows], self.scores[:, rows], self.relevances[:, rows])

    def window(self, first: Tensor, width: int) -> "GroupCandidates":
        """The `width` items from place `first` (2, b) on, with nothing beyond the last."""
        # (2, b, width) positions; what lies beyond the last candidate is masked after the gather.
        at = first[..., None] + torch.arange(width)
        beyond = at >= self.items.shape[2]
        at = at.clamp(max=self.items.shape[2] - 1)
        return GroupCandidates(
            self.items.gather(2, at).masked_fill(beyond, -1),
            self.scores.gather(2, at).masked_fill(beyond, -torch.inf),
            self.relevances.gather(2, at).masked_fill(beyond, -torch.inf),
        )

    def group_ahead(self, price: float, *, reverse: bool = False) -> Tensor:
        """(b, n) whether an item of the group, less a price, is ahead of its counterpart.

        That is the item of the rest in the same column or, if reversed, in the mirrored one.
        Equal relevance goes by score, and then to the smaller item, as in all lists.
        """
        # Mirrored columns compare the i-th best of the group with the i-th last of the rest.
        flipped = [
            rest.flip(1) if reverse else rest
            for rest in (self.relevances[1], self.scores[1], self.items[1])
        ]
        # An infinite price is possible: then the group is never ahead, or always.
        priced = self.relevances[0] - price
        same = priced == flipped[0]
        better_score = self.scores[0] > flipped[1]
        first = (self.scores[0] == flipped[1]) & (self.items[0] < flipped[2])
        return (priced > flipped[0]) | (same & (better_score | first))


class UserBatch:
    """Users who arrive together, and their lists so far."""

    def __init__(
        self, candidates: GroupCandidates, users: Tensor, length: int, target: float
    ) -> None:
        self.candidates, self.users = candidates, users
        self.target = target  # share of exposure for the group
        weights = discount(torch.arange(1, length + 1, dtype=torch.float64))
        self.weights = weights / weights.sum()  # exposure by place: a whole list has 1
        self.place = 0  # the next one, from 0
        self.group = torch.zeros(len(users), length, dtype=torch.bool)  # places of the group
        self.shown = torch.zeros_like(self.group)  # places that could be filled
        self._at = torch.zeros(2, len(users), dtype=torch.int64)  # first item left of each group

    @property
    def left(self) -> GroupCandidates:
        """As many of the best items left of each group as there are places left."""
        return self.candidates.window(self._at, len(self.weights) - self.place)

    @cached_property
    def best(self) -> Tensor:
        """(b, length) the highest relevances of the candidates at the beginning, best first."""
        both = self.candidates.relevances.permute(1, 0, 2).flatten(1)
        # Padding: `topk` needs at least as many columns as there are places.
        wide = torch.nn.functional.pad(both, (0, len(self.weights)), value=-torch.inf)
        best = wide.topk(len(self.weights)).values
        return best.where(best > -torch.inf, 0.0)

    def take(self, group: Tensor) -> tuple[Tensor, Tensor]:
        """(b,) the next item of each user, of the group where said, and its relevance.

        Where that side has nothing left, the item is of the other; -1 where neither has.
        """
        best = self.candidates.window(self._at, 1)
        items, relevances = best.items[..., 0], best.relevances[..., 0]
        # Of the group where wanted or where the rest is used up, but never where the group is.
        group = (group | (items[1] < 0)) & (items[0] >= 0)
        chosen = torch.where(group, items[0], items[1])
        relevance = torch.where(group, relevances[0], relevances[1])
        self.group[:, self.place], self.shown[:, self.place] = group, chosen >= 0
        # Each side moves on by one where its item was taken.
        self._at += torch.stack([group, ~group & (chosen >= 0)])
        self.place += 1
        return chosen, relevance

    def take_all(self, price: float, *, shown_at_price: bool) -> Tensor:
        """(b, length) the best items of all places at a price on the group, of a new batch.

        They stand in the order of relevance less the price or, if not, of relevance.
        """
        left, length = self.left, len(self.weights)
        there = left.items >= 0
        prices = torch.tensor([price, 0.0], dtype=torch.float64)[:, None, None]
        priced = (left.relevances - prices).where(there, -torch.inf)
        relevances, scores, items = map(_side_by_side, (left.relevances, left.scores, left.items))
        # Which items: the best at the price. In which order: at the same price, or by plain
        # relevance.
        order = _best_first(_side_by_side(priced), scores, items)[:, :length]
        if not shown_at_price:
            chosen = (key.gather(1, order) for key in (relevances, scores, items))
            order = order.gather(1, _best_first(*chosen))
        lists = items.gather(1, order)
        self.shown = lists >= 0
        # The columns of the group come first in `_side_by_side`.
        self.group = self.shown & (order < left.items.shape[2])
        self.place = length
        return lists

    def replace_candidates(self, rows: Tensor, candidates: GroupCandidates) -> None:
        """Other candidates for some users, without what they have been shown."""
        self.candidates = GroupCandidates(
            self.candidates.items.index_copy(1, rows, candidates.items),
            self.candidates.scores.index_copy(1, rows, candidates.scores),
            self.candidates.relevances.index_copy(1, rows, candidates.relevances),
        )
        self._at[:, rows] = 0

    def exposure(self, weights: Tensor | None = None) -> Tensor:
        """(2,) of the group and of the rest, in lists; by place, or of equal places if none."""
        if weights is None:
            weights = torch.full_like(self.weights, 1 / len(self.weights))
        of_group = (self.group * weights).sum()
        return torch.stack([of_group, (self.shown * weights).sum() - of_group])


def _side_by_side(sides: Tensor) -> Tensor:
    """(2, b, n) -> (b, 2 n)."""
    return torch.cat([sides[0], sides[1]], dim=1)


def _best_first(relevances: Tensor, scores: Tensor, items: Tensor) -> Tensor:
    """(b, n) columns by falling relevance, then by falling score, then by rising item."""
    # Stable sorts from the least important key to the most important one.
    order = items.argsort(dim=1)
    for key in (scores, relevances):
        falling = key.gather(1, order).argsort(dim=1, descending=True, stable=True)
        order = order.gather(1, falling)
    return order


class OnlineReranker(JointReranker):
    """Decides place by place between the group and the rest, by what was shown so far.

    Relevances are the same calibrated values that joint allocation (`lists`) has, divided so that
    the best item of the average user has 1.
    """

    target: Target = "share"
    """Share of exposure for the group: the setting share, parity (its share of the catalogue) or
    merit (its share of the relevance of the users' candidates)."""
    form: Literal["equal", "at-most"] = "at-most"
    """Whether the group should get exactly its target, as in the paper, or at most that."""
    batch: Annotated[int, Field(ge=0)] = 16
    """Number of users who arrive together, between two updates; 0: all users."""
    warm_up_batches: Annotated[int, Field(ge=0)] = 0
    """Least number of batches served in warm_up_batches before lists of all users are made."""

    def at_level(self, level: float) -> Self:
        return self.model_validate({**self.model_dump(), "share": level, "target": "share"})

    def share_limit(self, sensitive: Tensor) -> float:
        """Without a share that is known before the users are, 1."""
        # "merit" depends on the users' relevances, so that no share is known in advance.
        shares = {"share": self.share, "parity": float(sensitive.double().mean()), "merit": 1.0}
        return shares[self.target]

    def target_share(self, candidates: GroupCandidates, sensitive: Tensor) -> float:
        """The share of exposure that the group should have from these users."""
        if self.target != "merit":
            return self.share_limit(sensitive)
        relevance = candidates.relevances.where(candidates.items >= 0, 0.0).sum((1, 2))
        total = float(relevance.sum())
        return float(relevance[0]) / total if total > 0 else 1.0

    @abstractmethod
    def new_ledger(self, n_users: int) -> Ledger:
        """The ledger before anything was shown."""

    @abstractmethod
    def next(self, batch: UserBatch, ledger: Ledger) -> Tensor:
        """(b,) the next item of every user, -1 where nothing is left."""

    @abstractmethod
    def record(self, batch: UserBatch, ledger: Ledger) -> None:
        """Enter the lists of a batch into the ledger."""

    def lists(self, batch: UserBatch, ledger: Ledger) -> Tensor:
        """(b, length) for all places at once."""
        lists = torch.stack([self.next(batch, ledger) for _ in batch.weights], dim=1)
        self.record(batch, ledger)
        return lists

    def batches(self, n_users: int) -> tuple[Tensor, ...]:
        """The users by position, in the order in which they arrive."""
        rows: tuple[Tensor, ...] = torch.arange(n_users).split(self.batch or max(1, n_users))
        return rows

    def price_at_the_ends(self, target: float) -> float | None:
        """On the group where its target is nothing or everything; None in between."""
        if target <= 0:
            return torch.inf
        if target >= 1:
            return 0.0 if self.form == "at-most" else -torch.inf
        return None
