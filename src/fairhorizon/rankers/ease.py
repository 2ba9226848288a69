"""EASE (Steck 2019, "Embarrassingly Shallow Autoencoders for Sparse Data").

`ease` is the published method. `ease:recent` is a variant for logs in time order, in which recent
items count more than others.
"""

from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.histories import (
    UserItems,
    frequent,
    items_to_look_at,
    longest_history,
    popularity_scale,
    strengths_by_user,
    weighted_history,
    weights_by_age,
)
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.settings import Search, Settings
from fairhorizon.storage import rounded_to_half
from fairhorizon.vocabulary import OnEpoch

MOST_ITEMS = 20_000  # whose matrix can be inverted in minutes
FREQUENT = 12_000  # items that are weighed in a larger catalogue


class EaseConfig(Settings):
    """Settings of EASE."""

    l2: Annotated[float, Search(10, 5000, log=True)] = Field(500.0, gt=0)
    """Weight of the L2 penalty on the item-item weights (lambda); 500 is what the paper found for
    MovieLens-20M."""


class RecentEaseConfig(EaseConfig):
    """Settings of EASE with recency."""

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
    """EASE, a linear item-to-item model (Steck 2019).

    Scores x_u B: B reconstructs every user's items from the user's other items.

    B = argmin |X - X B|^2 + l2 |B|^2 with diag B = 0, which is I - P diag(1 / diag P) for
    P = (X^T X + l2 I)^-1. X is 1 where a user took an item; with weights, X holds the strength of
    each row in place of 1 (`histories.py`), while x_u stays 0 or 1. In a catalogue of more
    than 20,000 items X has columns for the 12,000 most frequent ones: the others say nothing and
    score 0.
    """

    method = "ease"
    in_thread = True
    uses_weights = True
    config_class = EaseConfig

    item_weights_: Tensor  # B, (m, m) of the items that have a number
    numbers_: Tensor  # (n_items,) the row of an item in B, -1 if it has none
    longest_: int

    @property
    def queue_length(self) -> int:
        return items_to_look_at(self.half_life, self.longest_)

    @property
    def half_life(self) -> float | None:
        """Age, in items, at which an item of the history counts half; None: none counts less."""
        return None

    @property
    def training_half_life(self) -> float | None:
        """Distance, in items, at which a pair of items counts half; None: none counts less."""
        return None

    def _gram(self, histories: UserItems, strengths: Tensor | None) -> Tensor:
        """(m, m) X^T X."""
        cells = np.ones(len(histories.items)) if strengths is None else strengths.double().numpy()
        shape = (len(histories.indptr) - 1, histories.n_items)
        taken = csr_array((cells, histories.items.numpy(), histories.indptr.numpy()), shape=shape)
        return torch.from_numpy((taken.T @ taken).toarray()).float()

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:  # noqa: ARG002  # no epochs
        self.longest_ = longest_history(split)
        histories, given = UserItems.from_log(split.train), strengths_by_user(split.train)
        # In a small catalogue all items are "frequent", and the numbers are the item codes.
        large = histories.n_items > MOST_ITEMS
        self.numbers_ = frequent(histories, FREQUENT if large else MOST_ITEMS)
        if given is not None:
            given = given[self.numbers_[histories.items] >= 0]
        known = histories.numbered(self.numbers_)
        gram = self._once(self.training_half_life, lambda: self._gram(known, given))
        regularised = gram if self.shared is None else gram.clone()
        regularised.diagonal().add_(self.config.l2)
        # P = (X'X + l2 I)^-1 by Cholesky: half the work of a general inverse, and it says when it
        # fails.
        factor, failed = torch.linalg.cholesky_ex(regularised)
        if failed:
            raise ConfigError(
                f"{self.method} with l2={self.config.l2} has no solution (set a larger l2)"
            )
        del regularised, gram  # for a large catalogue each of these matrices takes gigabytes
        inverse = torch.cholesky_inverse(factor)
        del factor
        # B = I - P diag(1 / diag P): off the diagonal -P_ij / P_jj, and 0 on it. In place.
        weights = inverse.div_(-inverse.diagonal().clone()).fill_diagonal_(0)
        weights = weights.contiguous()  # row-major, for lookups by row
        scale = self._column_scale(split)
        if scale is not None:
            # Scores are sums over rows of B, so that dividing the columns divides the scores.
            weights /= scale[self.numbers_ >= 0]
        self.item_weights_ = rounded_to_half(weights)

    def _column_scale(self, split: Split) -> Tensor | None:  # noqa: ARG002
        """(n_items,) by which the scores of the items are divided; None: they stay."""
        return None

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # the queue is enough
        recent, n = self._rows(queue[:, -self.queue_length :]), len(self.item_weights_)
        # Long histories: one dense product is faster than looking up so many rows of B.
        if recent.shape[1] > n // 8:  # not much fewer rows of B than all of them
            scores = weighted_history(recent, n, self.half_life) @ self.item_weights_
        else:
            known = recent < n
            scores = embedding_bag(
                recent.where(known, 0),
                self.item_weights_,
                per_sample_weights=weights_by_age(recent, self.half_life) * known,
                mode="sum",
            )
        if n == len(self.numbers_):
            return scores
        # Items without a number have the score 0, which is also that of items without any
        # similarity.
        weighed = (self.numbers_ >= 0).nonzero().squeeze(1).to(queue.device)
        every_item = scores.new_zeros(len(queue), len(self.numbers_))
        return every_item.scatter_(1, weighed.expand_as(scores), scores)

    def contributions(self, queue: Tensor, items: Tensor) -> Tensor:
        n = len(self.item_weights_)
        recent, columns = self._rows(queue[None, -self.queue_length :]), self.numbers_[items]
        known = recent < n
        weights = (weights_by_age(recent, self.half_life) * known)[0]
        # The scores are a sum over the history, so each item's term is its contribution.
        added = weights[:, None] * self.item_weights_[recent[0].where(known[0], 0)]
        added = added[:, columns].masked_fill(columns < 0, 0.0)
        return nn.functional.pad(added, (0, 0, len(queue) - len(added), 0))

    def _rows(self, queue: Tensor) -> Tensor:
        """The rows of B of the items in a queue; n, the number of rows, for items without one."""
        n_items, n = len(self.numbers_), len(self.item_weights_)
        if n == n_items:
            return queue
        # The padding of a queue, n_items, indexes the appended -1.
        numbers = nn.functional.pad(self.numbers_, (0, 1), value=-1).to(queue.device)[queue]
        return numbers.where(numbers >= 0, n)

    def tensors(self) -> dict[str, Tensor]:
        stored = {"item_weights": self.item_weights_, "longest": torch.tensor(self.longest_)}
        partial = len(self.item_weights_) < len(self.numbers_)
        return stored | ({"numbers": self.numbers_} if partial else {})

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.item_weights_, self.longest_ = tensors["item_weights"], int(tensors["longest"])
        self.numbers_ = tensors.get("numbers", torch.arange(len(self.item_weights_)))


class RecentEase(Ease):
    """EASE with more weight on recent items, for logs in time order.

    Scores w B, with B as in `ease`. Recency enters twice: w is the user's history, weighted by
    2^(-age / half_life), and in X^T X two items that a user took in succession count more than
    two with many in between, by 2^(-distance / training_half_life).
    """

    method = "ease:recent"
    config_class = RecentEaseConfig
    config: RecentEaseConfig

    @property
    def half_life(self) -> float | None:
        return self.config.half_life

    @property
    def training_half_life(self) -> float | None:
        return self.config.training_half_life

    def _gram(self, histories: UserItems, strengths: Tensor | None) -> Tensor:
        return co_counts(histories, self.training_half_life, self.longest_, strengths)

    def _column_scale(self, split: Split) -> Tensor | None:
        return popularity_scale(split, self.config.popularity) if self.config.popularity else None


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
        # Rows whose user has at least this many later items; pairs never cross two users.
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
    # An item with itself, at distance 0, counts once per user.
    both_ways.diagonal().add_(torch.bincount(items, squares, minlength=n_items))
    return both_ways
