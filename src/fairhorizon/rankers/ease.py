"""EASE (Steck 2019, "Embarrassingly Shallow Autoencoders for Sparse Data"), with recency."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.histories import UserItems
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.rankers.recency import (
    items_to_look_at,
    longest_history,
    popularity_scale,
    weighted_history,
    weights_by_age,
)
from fairhorizon.rankers.weights import strengths_by_user
from fairhorizon.settings import Search, Settings
from fairhorizon.vocabulary import OnEpoch

MOST_ITEMS = 40_000  # two matrices of this size, held at once, take 12 GiB


class EaseConfig(Settings):
    """Settings of EASE."""

    l2: Annotated[float, Search(10, 5000, log=True)] = Field(300.0, gt=0)
    """Weight of the L2 penalty on the item-item weights."""
    half_life: Annotated[float | None, Search(1, 50, log=True)] = Field(3.0, gt=0)
    """Age, in items, at which an item of the history counts half; None: all items count equally."""
    training_half_life: Annotated[float | None, Search(3, 300, log=True)] = Field(10.0, gt=0)
    """Distance, in items, at which a pair of a user's items counts half in training; None: all
    pairs count equally."""
    popularity: Annotated[float, Search(0, 0.6)] = Field(0.0, ge=0)
    """Scores are divided by the item's count to this power; 0: left as they are."""


class Ease(Ranker[EaseConfig]):
    """EASE, a linear item-to-item model (Steck 2019), with more weight on recent items.

    Scores w B: B reconstructs every user's items from the user's other items.

    B = argmin |X - X B|^2 + l2 |B|^2 with diag B = 0, which is I - P diag(1 / diag P) for
    P = (X^T X + l2 I)^-1. Recency enters twice: w is the user's history, weighted by
    2^(-age / half_life), and in X^T X two items that a user took in succession count more than
    two with many in between, by 2^(-distance / training_half_life). With weights, X holds the
    strength of each row in place of 1 (`rankers/weights.py`).
    """

    method = "ease"
    in_thread = True
    uses_weights = True
    config_class = EaseConfig

    item_weights_: Tensor  # B, (n_items, n_items)
    longest_: int

    @property
    def queue_length(self) -> int:
        return items_to_look_at(self.config.half_life, self.longest_)

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:  # noqa: ARG002  # no epochs
        n_items = split.train.n_items
        if n_items > MOST_ITEMS:
            raise ConfigError(
                f"ease inverts a matrix of items by items, and {n_items} items are more than "
                f"{MOST_ITEMS} (use itemknn or als, or remove rare items)"
            )
        self.longest_ = longest_history(split)
        histories = UserItems.of(split.train)
        given = strengths_by_user(split.train)
        regularised = co_counts(histories, self.config.training_half_life, self.longest_, given)
        regularised.diagonal().add_(self.config.l2)
        factor, failed = torch.linalg.cholesky_ex(regularised)
        if failed:
            raise ConfigError(f"ease with l2={self.config.l2} has no solution (set a larger l2)")
        del regularised  # for a large catalogue each of these matrices takes gigabytes
        inverse = torch.cholesky_inverse(factor)
        del factor
        weights = inverse.div_(-inverse.diagonal().clone()).fill_diagonal_(0)
        if self.config.popularity:
            weights /= popularity_scale(split, self.config.popularity)
        self.item_weights_ = weights.contiguous()  # row-major, for lookups by row

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # the queue is enough
        recent = queue[:, -self.queue_length :]
        n_items = len(self.item_weights_)
        if recent.shape[1] > n_items // 8:  # not much fewer rows of B than all of them
            return weighted_history(recent, n_items, self.config.half_life) @ self.item_weights_
        known = recent < n_items
        return embedding_bag(
            recent.where(known, 0),
            self.item_weights_,
            per_sample_weights=weights_by_age(recent, self.config.half_life) * known,
            mode="sum",
        )

    def contributions(self, queue: Tensor, items: Tensor) -> Tensor:
        recent = queue[None, -self.queue_length :]
        known = recent < len(self.item_weights_)
        weights = (weights_by_age(recent, self.config.half_life) * known)[0]
        added = weights[:, None] * self.item_weights_[recent[0].where(known[0], 0)][:, items]
        return nn.functional.pad(added, (0, 0, len(queue) - len(added), 0))

    def tensors(self) -> dict[str, Tensor]:
        return {"item_weights": self.item_weights_, "longest": torch.tensor(self.longest_)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.item_weights_, self.longest_ = tensors["item_weights"], int(tensors["longest"])


def co_counts(
    histories: UserItems, half_life: float | None, longest: int, strengths: Tensor | None = None
) -> Tensor:
    """(n_items, n_items): sum over users of 2^(-|distance| / half_life), for every pair of items.

    Without a half-life, X^T X. As 2^-|x| is a positive definite function, so is this matrix, also
    with the product of the strengths (n,) of the two in each term.
    """
    n_items, items = histories.n_items, histories.items
    ends = histories.indptr[1:].repeat_interleave(histories.indptr.diff())
    later = ends - 1 - torch.arange(len(items))  # number of later items of the user
    rows = torch.arange(len(items))
    counts = torch.zeros(n_items * n_items)
    for distance in range(1, items_to_look_at(half_life, longest)):
        rows = rows[later[rows] >= distance]
        if not len(rows):
            break
        weight = 1.0 if half_life is None else 2 ** (-distance / half_life)
        pairs = items[rows] * n_items + items[rows + distance]
        added = torch.full((len(rows),), weight)
        if strengths is not None:
            added *= strengths[rows] * strengths[rows + distance]
        counts.index_add_(0, pairs, added)
    one_way = counts.view(n_items, n_items)
    both_ways = one_way + one_way.T
    squares = None if strengths is None else strengths**2
    both_ways.diagonal().add_(torch.bincount(items, squares, minlength=n_items))
    return both_ways
