"""Rankers for items and people that they were not fitted on."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.errors import ModelError
from fairhorizon.limits.groups import values_of_items
from fairhorizon.model.catalogue import Catalogue
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.settings import Settings
from fairhorizon.vocabulary import OnEpoch

FEW = 64  # users, for whom sums over their own histories are faster than products of matrices


@dataclass(frozen=True, eq=False)
class Newcomers:
    """New items by the known items that share their attributes."""

    groups: csr_array  # (values, n_fitted) a row with the mean over the items of a value
    shares: csr_array  # (n_new, values) the mean over the values of a new item

    @classmethod
    def of(cls, catalogue: Catalogue) -> "Newcomers":
        """By all columns of the table; an item that shares nothing is like the average item."""
        fitted, new = catalogue.n_fitted, len(catalogue.new)
        members: dict[tuple[str, str], list[int]] = {}
        owners: list[list[tuple[str, str]]] = [[] for _ in range(new)]
        names = () if catalogue.table is None else tuple(catalogue.table.columns)
        for name in names:
            cells = values_of_items(catalogue.attribute(name))
            wanted = set().union(*cells[fitted:]) if new else set()
            for item, values in enumerate(cells[:fitted]):
                for value in values & wanted:
                    members.setdefault((name, value), []).append(item)
            for item, values in enumerate(cells[fitted:]):
                owners[item] += [(name, v) for v in sorted(values) if (name, v) in members]
        everything = ("", "")
        if any(not keys for keys in owners):
            members[everything] = list(range(fitted))
        numbers = {key: row for row, key in enumerate(members)}
        rows = [[numbers[key] for key in keys or [everything]] for keys in owners]
        return cls(_means(list(members.values()), fitted), _means(rows, len(members)))

    def scores(self, known: Tensor) -> Tensor:
        """(b, n_new) from the scores of the known items (b, n_fitted)."""
        means = self.shares @ (self.groups @ known.T.numpy())
        return torch.from_numpy(np.ascontiguousarray(means.T)).to(known)


class OpenRanker(Ranker[Any]):
    """A fitted ranker whose scores cover new items, and people who have taken nothing yet.

    A new item has the mean score of the items that share its attributes. Whoever has taken nothing
    has popularity for a score.
    """

    method: ClassVar[str] = "open"
    config_class = Settings

    def __init__(
        self, ranker: Ranker[Any], newcomers: Newcomers, counts: NDArray[np.int64]
    ) -> None:
        super().__init__(ranker.config, seed=ranker.seed)
        self.inner, self.newcomers = ranker, newcomers
        vars(self)["method"] = ranker.method  # in messages it is the ranker that it serves
        # ties go to the smaller id, as everywhere
        order = torch.arange(len(counts)) / max(1, len(counts))
        self.popularity = (torch.from_numpy(counts) - order).float()
        self.fingerprint_ = ranker.fingerprint_

    @property
    def queue_length(self) -> int:
        return self.inner.queue_length

    @property
    def uses_history(self) -> bool:
        return self.inner.uses_history

    def scores(self, users: Tensor, queue: Tensor) -> Tensor:
        scores = self.inner.few_scores if len(users) <= FEW else self.inner.scores
        known = scores(users, queue)
        empty = (queue >= len(self.popularity)).all(1)
        if empty.any():
            known = torch.where(empty[:, None], self.popularity.to(known), known)
        if not self.newcomers.shares.shape[0]:
            return known
        return torch.cat([known, self.newcomers.scores(known)], dim=1)

    def contributions(self, queue: Tensor, items: Tensor) -> Tensor | None:
        known = items < len(self.popularity)
        added = self.inner.contributions(queue, items.where(known, 0))
        return None if added is None else added * known

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:  # noqa: ARG002
        raise ModelError("an open ranker is made of a fitted one (fit that)")

    def tensors(self) -> dict[str, Tensor]:
        return self.inner.tensors()

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.inner.restore(tensors)


def _means(rows: list[list[int]], width: int) -> csr_array:
    """(rows, width): 1 / n in the n columns of each row."""
    lengths = [len(row) for row in rows]
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    values = np.repeat([1 / max(1, length) for length in lengths], lengths).astype(np.float32)
    columns = np.array([column for row in rows for column in row], dtype=np.int64)
    return csr_array((values, columns, indptr), shape=(len(rows), width))
