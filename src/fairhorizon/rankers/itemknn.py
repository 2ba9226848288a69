"""Item-based nearest neighbours (Sarwar et al. 2001; Deshpande & Karypis 2004).

`itemknn` is the published method, with the cosine. `itemknn:recent` is a variant for logs in time
order, in which recent items count more than others.
"""

from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from scipy.sparse import csr_array
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import Split
from fairhorizon.histories import (
    items_to_look_at,
    longest_history,
    popularity_scale,
    strengths_by_user,
    weighted_history,
    weights_by_age,
)
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.ranking import rows_at_once
from fairhorizon.settings import Search, Settings
from fairhorizon.vocabulary import OnEpoch

CELLS = 2**24  # of a block of similarities, 64 MiB
LISTED = 2**25  # neighbours of all items together: 400 MB
DENSE_AT_MOST = 8192  # for more items, only the neighbours of the history are scored


class ItemKnnConfig(Settings):
    """Settings of item-kNN."""

    neighbours: Annotated[int, Search(5, 2000, log=True)] = Field(20, ge=1)
    """Number of most similar items that are kept for every item (k); fewer in a large catalogue,
    so that all items together have at most 2^25. Beyond 20 the paper found little difference."""


class RecentItemKnnConfig(ItemKnnConfig):
    """Settings of item-kNN with recency."""

    neighbours: Annotated[int, Search(20, 2000, log=True)] = Field(500, ge=1)
    """Number of most similar items that are kept for every item; fewer in a large catalogue, so
    that all items together have at most 2^25."""
    shrinkage: Annotated[float, Search(0, 100)] = Field(5.0, ge=0)
    """Number added to the denominator of the cosine, which lowers similarities that rest on few
    users."""
    half_life: Annotated[float | None, Search(0.5, 50, log=True)] = Field(2.0, gt=0)
    """Age, in items, at which an item of the history counts half; None: all items count equally."""
    popularity: Annotated[float, Search(0, 0.6)] = Field(0.0, ge=0)
    """Scores are divided by the item's count to this power; 0: left as they are."""


class ItemKnn(Ranker[ItemKnnConfig]):
    """Item-based nearest neighbours by the cosine (Deshpande & Karypis 2004).

    score_j = sum of s_ij over the nearest items i of j that are in the history.

    s_ij = n_ij / sqrt(n_i n_j), the cosine of two items' users. Only the neighbours are stored, for
    large catalogues. With weights, n_ij is the sum over users of x_ui x_uj, x being the strength of
    a row (`histories.py`), and n_i = n_ii.
    """

    method = "itemknn"
    in_thread = True
    uses_weights = True
    config_class = ItemKnnConfig

    neighbours_: Tensor  # (n_items, k)
    similarities_: Tensor  # (n_items, k)
    longest_: int
    _transposed: tuple[Tensor, csr_array] | None = None  # computed on first use

    @property
    def queue_length(self) -> int:
        return items_to_look_at(self.half_life, self.longest_)

    @property
    def half_life(self) -> float | None:
        """Age, in items, at which an item of the history counts half; None: none counts less."""
        return None

    @property
    def shrinkage(self) -> float:
        """Number added to the denominator of the cosine."""
        return 0.0

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:  # noqa: ARG002  # no epochs
        k, shrinkage = self.config.neighbours, self.shrinkage
        self.similarities_, self.neighbours_ = self._once(
            (k, shrinkage), lambda: nearest_items(split.train, k, shrinkage)
        )
        self.longest_ = longest_history(split)

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002  # the queue is enough
        recent = queue[:, -self.queue_length :]
        if len(self.neighbours_) > DENSE_AT_MOST:
            return self._scores_from_history(recent)
        history = weighted_history(recent, len(self.neighbours_), self.half_life)
        # For each item j a weighted sum over its neighbours' rows of the history: (n_items, b),
        # transposed.
        return embedding_bag(
            self.neighbours_,
            history.T.contiguous(),
            per_sample_weights=self.similarities_,
            mode="sum",
        ).T

    def _scores_from_history(self, recent: Tensor) -> Tensor:
        """The same sums, from the history to the items that have its items as neighbours."""
        n_items = len(self.neighbours_)
        rows, places = (recent < n_items).nonzero(as_tuple=True)
        weights = weights_by_age(recent, self.half_life)[places].numpy()
        shape = (len(recent), n_items)
        history = csr_array((weights, (rows.numpy(), recent[rows, places].numpy())), shape=shape)
        return torch.from_numpy((history @ self._listed_by()).toarray())

    def _listed_by(self) -> csr_array:
        """S^T, (n_items, n_items): in row i, s_ij of the items j that have i as a neighbour."""
        if self._transposed is None or self._transposed[0] is not self.similarities_:
            n_items = len(self.neighbours_)
            # Fewer than k neighbours leave zeros, which point at arbitrary items.
            listed = self.similarities_ > 0
            items = torch.arange(n_items).repeat_interleave(listed.sum(1))
            entries = (self.neighbours_[listed].numpy(), items.numpy())
            table = csr_array((self.similarities_[listed].numpy(), entries), (n_items, n_items))
            self._transposed = (self.similarities_, table)
        return self._transposed[1]

    def score_small_batch(self, users: Tensor, queue: Tensor) -> Tensor:  # noqa: ARG002
        recent, table = queue[:, -self.queue_length :].numpy(), self._listed_by()
        by_age = weights_by_age(queue[:, -self.queue_length :], self.half_life).numpy()
        n_items = len(self.neighbours_)
        scores = np.zeros((len(recent), n_items), dtype=np.float32)
        # Plain slices of the sparse rows: for one user a sparse product spends most of its time on
        # set-up.
        for row, items in enumerate(recent):
            known = items < n_items
            begins, ends = (table.indptr[items[known] + side].tolist() for side in (0, 1))
            parts = [slice(*pair) for pair in zip(begins, ends, strict=True)]
            if parts:
                listed = np.concatenate([table.indices[part] for part in parts])
                similar = np.concatenate([table.data[part] for part in parts])
                weights = np.repeat(by_age[known], np.subtract(ends, begins))
                scores[row] = np.bincount(listed, similar * weights, minlength=n_items)
        return torch.from_numpy(scores)

    def contributions(self, queue: Tensor, items: Tensor) -> Tensor:
        n_items = len(self.neighbours_)
        recent = queue[None, -self.queue_length :]
        known = recent[0] < n_items
        weights = (weights_by_age(recent, self.half_life) * known)[:, None]
        rows = self._listed_by()[recent[0].clamp(max=n_items - 1).numpy()].toarray()
        added = weights * torch.from_numpy(rows)[:, items]
        return nn.functional.pad(added, (0, 0, len(queue) - len(added), 0))

    def tensors(self) -> dict[str, Tensor]:
        return {
            "neighbours": self.neighbours_,
            "similarities": self.similarities_,
            "longest": torch.tensor(self.longest_),
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.neighbours_, self.similarities_ = tensors["neighbours"], tensors["similarities"]
        self.longest_ = int(tensors["longest"])


class RecentItemKnn(ItemKnn):
    """Item-based nearest neighbours with more weight on recent items, for logs in time order.

    score_j = sum of w_i s_ij over the nearest items i of j that are in the history.

    s_ij = n_ij / (sqrt(n_i n_j) + shrinkage), and w_i is 2^(-age / half_life). The rest is as in
    `itemknn`.
    """

    method = "itemknn:recent"
    config_class = RecentItemKnnConfig
    config: RecentItemKnnConfig

    @property
    def half_life(self) -> float | None:
        return self.config.half_life

    @property
    def shrinkage(self) -> float:
        return self.config.shrinkage

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:
        super()._learn(split, on_epoch)
        if self.config.popularity:
            scale = popularity_scale(split, self.config.popularity)
            self.similarities_ = self.similarities_ / scale[:, None]


def nearest_items(log: Interactions, most: int, shrinkage: float) -> tuple[Tensor, Tensor]:
    """(n_items, k) similarities of every item's `most` nearest items, and their codes."""
    taken = _taken(log)
    by_item = taken.T.tocsr()
    # n_i = n_ii: the sum of x^2 by item, which without weights is its count.
    counts = by_item.power(2).sum(1).astype(np.float32)
    n_items = len(counts)
    # Neighbours of all items together have to fit into memory.
    k = min(most, n_items, rows_at_once(n_items, LISTED))
    values, codes = [], []
    # A block of rows of X'X at a time: dense, all of it would be n_items^2.
    for items in torch.arange(n_items).split(rows_at_once(n_items, CELLS)):
        together = by_item[items.numpy()] @ taken
        similarity = similarities(together, items.numpy(), counts, shrinkage)
        nearest = torch.from_numpy(similarity.toarray()).topk(k, dim=1)
        values.append(nearest.values)
        codes.append(nearest.indices)
    return torch.cat(values), torch.cat(codes)


def similarities(
    together: csr_array, items: NDArray[np.int64], counts: NDArray[np.float32], shrinkage: float
) -> csr_array:
    """s_ij = n_ij / (sqrt(n_i n_j) + shrinkage) of some items i, from n_ij (items, n_items).

    Only pairs with a user in common are stored; no item is similar to itself.
    """
    rows = items.repeat(np.diff(together.indptr))
    scale = np.sqrt(counts[rows] * counts[together.indices]) + np.float32(shrinkage)
    # The diagonal is 0: an item does not recommend itself.
    similar = np.where(rows == together.indices, np.float32(0), together.data / scale)
    return csr_array((similar, together.indices, together.indptr), together.shape)


def _taken(log: Interactions) -> csr_array:
    """X, (n_users, n_items): 1, or the strength, where a user took an item."""
    indptr, items = log.by_user()
    given = strengths_by_user(log)
    cells = np.ones(len(items), np.float32) if given is None else given.float().numpy()
    return csr_array((cells, items, indptr), shape=(log.n_users, log.n_items))
