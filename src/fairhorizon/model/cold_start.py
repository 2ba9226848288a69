"""Items that a model was not fitted on: their codes, and scores by those that share attributes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.items import Cells, ItemTable, log_attribute
from fairhorizon.data.locations import AREA_KM, attribute_or_area
from fairhorizon.data.splits import Split
from fairhorizon.errors import ModelError, NoColumnError
from fairhorizon.limits.groups import values_of_items
from fairhorizon.rankers.ranker import Ranker
from fairhorizon.settings import Settings
from fairhorizon.vocabulary import OnEpoch


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Ids and codes of items. Those that are new to the model have the last codes.

    The codes of the log stay as they are, so that a fitted model can go on using them.
    """

    log: Interactions  # that the model was fitted on
    table: ItemTable | None = None
    new: tuple[Any, ...] = ()  # ids of items that are not in the log
    area_km: float = AREA_KM  # width of the areas of items with coordinates

    @classmethod
    def from_log(
        cls,
        log: Interactions,
        table: ItemTable | None,
        observed: Iterable[Any] = (),
        *,
        area_km: float = AREA_KM,
    ) -> "Catalogue":
        """The items of the log, then those that only the table has, then those observed since."""
        # A dict by text keeps the first of equal ids and their order.
        known = set(map(str, log.item_ids.tolist()))
        in_table = [] if table is None else table.ids.tolist()
        new = {str(one): one for one in (*in_table, *observed) if str(one) not in known}
        return cls(log, table, tuple(new.values()), area_km)

    @property
    def n_fitted(self) -> int:
        return self.log.n_items

    @property
    def n_items(self) -> int:
        return self.log.n_items + len(self.new)

    @cached_property
    def ids(self) -> NDArray[Any]:
        """(n_items,) ids by code; all are text unless all are integers."""
        return joined_ids(self.log.item_ids, self.new)

    @cached_property
    def codes(self) -> dict[str, int]:
        """Codes by the text of the id, so that 7 and "7" are the same item."""
        return {str(one): code for code, one in enumerate(self.ids.tolist())}

    def attribute(self, column: str) -> Cells:
        """(n_items,) a column of the table, else of the log; "" for new items without a row.

        Where there is no column `area`, it is computed from latitude and longitude.
        """
        return attribute_or_area(column, self._column, self.area_km)

    def _column(self, column: str) -> Cells:
        if self.table is not None and column in self.table.columns:
            return self.table.attribute(column, self.ids.tolist(), complete=False)
        try:
            cells = log_attribute(self.log, column)
        except NoColumnError as error:
            others = () if self.table is None else tuple(self.table.columns)
            names = (*others, *error.columns)
            raise NoColumnError(column, names, file=None, remedy="give another") from None
        return np.append(cells, np.full(len(self.new), "", dtype=object))

    def counts(self) -> NDArray[np.int64]:
        """(n_items,) interactions in the log that the model was fitted on."""
        return np.append(self.log.item_counts(), np.zeros(len(self.new), dtype=np.int64))

    def find(self, ids: Iterable[Any]) -> tuple[NDArray[np.int64], list[Any]]:
        """The codes of the ids that are known, and the ids that are not."""
        codes, unknown = [], []
        for one in ids:
            code = self.codes.get(str(one))
            if code is None:
                unknown.append(one)
            else:
                codes.append(code)
        return np.array(codes, dtype=np.int64), unknown


def joined_ids(known: NDArray[Any], new: Sequence[Any]) -> NDArray[Any]:
    """Both, as integers if all are, else as text."""
    if not len(new):
        return known
    if known.dtype.kind == "i" and all(isinstance(one, int | np.integer) for one in new):
        return np.append(known, np.array(new, dtype=np.int64))
    texts = [str(one) for one in (*known.tolist(), *new)]
    return np.array(texts, dtype=object)


# Up to this many users are scored by sums over their own histories; for more, products of whole
# matrices are faster.
FEW = 64


@dataclass(frozen=True, eq=False)
class ColdStartItems:
    """Scores of new items as means over the known items that share their attributes.

    With scores s (n_fitted, b):  new scores = shares @ (groups @ s),  (n_new, b).
    """

    groups: csr_array  # (values, n_fitted) a row takes the mean over the items that have a value
    shares: csr_array  # (n_new, values) a row takes the mean over the values of a new item

    @classmethod
    def from_catalogue(cls, catalogue: Catalogue) -> "ColdStartItems":
        """By all columns of the table. An item that shares nothing scores like the average item."""
        fitted, new = catalogue.n_fitted, len(catalogue.new)
        members: dict[tuple[str, str], list[int]] = {}
        owners: list[list[tuple[str, str]]] = [[] for _ in range(new)]
        names = () if catalogue.table is None else tuple(catalogue.table.columns)
        for name in names:
            cells = values_of_items(catalogue.attribute(name))
            # Only values that a new item has: a column of titles would give a row per item.
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
        """(b, n_new) scores of new items, from those of the known items (b, n_fitted)."""
        means = self.shares @ (self.groups @ known.T.numpy())
        return torch.from_numpy(np.ascontiguousarray(means.T)).to(known)


class ColdStartRanker(Ranker[Any]):
    """A fitted ranker that also scores new items, and serves users without a history.

    A new item has the mean score of the items that share its attributes. For users who have taken
    nothing, scores are the popularity of the items.
    """

    method: ClassVar[str] = "open"
    config_class = Settings

    def __init__(
        self, ranker: Ranker[Any], cold_start: ColdStartItems, counts: NDArray[np.int64]
    ) -> None:
        super().__init__(ranker.config, seed=ranker.seed)
        self.inner, self.cold_start = ranker, cold_start
        # Messages name the ranker that it wraps; `method` is a class variable for type checkers.
        vars(self)["method"] = ranker.method
        # Less than 1, so that it decides ties only: to the smaller code, as everywhere.
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
        scores = self.inner.score_small_batch if len(users) <= FEW else self.inner.scores
        known = scores(users, queue)
        # A queue is padded with the code behind the last item; without a history it has no other.
        empty = (queue >= len(self.popularity)).all(1)
        if empty.any():
            known = torch.where(empty[:, None], self.popularity.to(known), known)
        if not self.cold_start.shares.shape[0]:
            return known
        return torch.cat([known, self.cold_start.scores(known)], dim=1)

    def contributions(self, queue: Tensor, items: Tensor) -> Tensor | None:
        known = items < len(self.popularity)
        # Item 0 stands in for new ones, whose contributions are zero in the result.
        added = self.inner.contributions(queue, items.where(known, 0))
        return None if added is None else added * known

    def _learn(self, split: Split, on_epoch: OnEpoch | None) -> None:  # noqa: ARG002
        raise ModelError("a ranker with new items wraps a fitted one (fit that one)")

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
