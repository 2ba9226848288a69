"""The items that can be shown: those a model was fitted on and, behind them, new ones."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.item_columns import Cells, ItemTable, log_attribute
from fairhorizon.data.locations import AREA_KM, attribute_or_area
from fairhorizon.errors import NoColumnError


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Item ids and codes; an item that is new to the model has a code behind all others."""

    log: Interactions  # that the model was fitted on
    table: ItemTable | None = None
    new: tuple[Any, ...] = ()  # ids of items that are not in the log
    area_km: float = AREA_KM  # width of the areas of items with coordinates

    @classmethod
    def of(
        cls,
        log: Interactions,
        table: ItemTable | None,
        observed: Iterable[Any] = (),
        *,
        area_km: float = AREA_KM,
    ) -> "Catalogue":
        """With the items that only the table has, and those that were observed since the fit."""
        known = set(map(str, log.item_ids.tolist()))
        listed = [] if table is None else table.ids.tolist()
        new = {str(one): one for one in (*listed, *observed) if str(one) not in known}
        return cls(log, table, tuple(new.values()), area_km)

    @property
    def n_fitted(self) -> int:
        return self.log.n_items

    @property
    def n_items(self) -> int:
        return self.log.n_items + len(self.new)

    @cached_property
    def ids(self) -> NDArray[Any]:
        """(n_items,) by code; text if some are no integers."""
        return joined_ids(self.log.item_ids, self.new)

    @cached_property
    def codes(self) -> dict[str, int]:
        """By the text of the id: 7 and "7" are the same."""
        return {str(one): code for code, one in enumerate(self.ids.tolist())}

    def attribute(self, column: str) -> Cells:
        """(n_items,) a column of the table, else of the log; empty for new items without a row.

        `area` is made of the coordinates where there is no such column.
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
        """The codes of known ids, and the ids that are unknown."""
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
