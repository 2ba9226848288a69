"""Attributes of items: the columns of a log or of a table of items, read when asked for."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.columns import Column, Origin, as_column, encode, has_value
from fairhorizon.data.interactions import Interactions
from fairhorizon.errors import DataError, NoColumnError

Cells = NDArray[Any]  # (n_items,) text, empty where it is missing


@dataclass(frozen=True, eq=False)
class ItemColumns(Mapping[str, Cells]):
    """Attributes of items by the names of columns, each made from rows when it is asked for.

    An item has the value of its first row that has one.
    """

    rows: Mapping[str, Column]  # (n,) each
    codes: NDArray[np.int64]  # (n,) the item of each row
    n_items: int
    one_value: Origin | None = None  # of a table in which an item must not have two values
    _known: dict[str, Cells] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Cells:
        if name not in self._known:
            cells = per_item(self.rows[name], self.codes, self.n_items)
            if self.one_value is not None and len(self.codes) > self.n_items:
                self._refuse_two_values(name, cells, self.one_value)
            self._known[name] = cells
        return self._known[name]

    def _refuse_two_values(self, name: str, cells: Cells, origin: Origin) -> None:
        column = self.rows[name]
        rows = np.flatnonzero(has_value(column))
        texts = [str(cell) for cell in _cells(column, rows)]
        for row, text in zip(rows.tolist(), texts, strict=True):
            if text != (first := cells[self.codes[row]]):
                origin.fail(
                    f"the item of this row has the {name} {first!r} in an earlier one, and here "
                    f"{text!r}",
                    row,
                    "give one row per item; several values of one item go in one cell, as in "
                    "Drama|War",
                )

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, eq=False)
class ItemTable:
    """A table with a row per item: attributes that are not in the log."""

    ids: NDArray[Any]  # (n,) of the items, sorted
    columns: Mapping[str, Cells]  # (n,) each, by name
    file: str | Path | None = None

    @classmethod
    def from_frame(cls, frame: pl.DataFrame, item: str, origin: Origin) -> "ItemTable":
        """From a frame with a column of item ids.

        origin: where the frame comes from, for messages.
        """
        ids, codes = encode(as_column(frame[item]), item, origin)
        others = [name for name in frame.columns if name != item]
        rows = {name: as_column(frame[name]) for name in others}
        return cls(ids, ItemColumns(rows, codes, len(ids), one_value=origin), origin.file)

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {str(one): row for row, one in enumerate(self.ids.tolist())}

    def attribute(self, name: str, ids: Sequence[Any], *, complete: bool = True) -> Cells:
        """(n,) the attribute of some items, as text.

        ids: of the items; 7 and "7" are the same.
        complete: every item must have a row, else it is a DataError; False: those without have "".
        """
        if name not in self.columns:
            remedy = f"the columns are {', '.join(map(repr, self.columns))}"
            raise NoColumnError(name, tuple(self.columns), file=self.file, remedy=remedy)
        cells, rows = self.columns[name], self._rows
        if not complete:
            found = [cells[rows[key]] if (key := str(one)) in rows else "" for one in ids]
            return np.array(found, dtype=object)
        missing = [one for one in ids if str(one) not in rows]
        if missing:
            raise DataError(
                f"item {missing[0]} of the log is not in the table of items",
                file=self.file,
                remedy="add a row for it",
            )
        return np.array([cells[rows[str(one)]] for one in ids], dtype=object)


def merged_tables(first: ItemTable | None, second: ItemTable | None) -> ItemTable | None:
    """The rows and columns of both tables; a cell of the first counts unless it is empty."""
    if first is None or second is None:
        return first or second
    ids = {str(one): one for one in (*first.ids.tolist(), *second.ids.tolist())}
    columns = {}
    for name in dict.fromkeys((*first.columns, *second.columns)):
        cells = np.full(len(ids), "", dtype=object)
        # The first table comes last, so that its cells win.
        for table in (second, first):
            if name in table.columns:
                own = table.attribute(name, list(ids), complete=False)
                cells = np.where(own != "", own, cells)
        columns[name] = cells
    every = list(ids.values())
    whole = all(isinstance(one, int) for one in every)
    texts = np.array(every if whole else list(ids), dtype=np.int64 if whole else object)
    return ItemTable(texts, columns, first.file)


def log_attribute(log: Interactions, column: str) -> Cells:
    """(n_items,) a column of the log's file by item, also one that was not asked for at loading."""
    for known in (log.attributes, log.further):
        if column in known:
            return known[column]
    names = (*log.attributes, *log.further)
    raise NoColumnError(column, names, file=log.name or None, remedy="give a table of items")


def per_item(column: Column, items: NDArray[np.int64], n_items: int) -> Cells:
    """(n_items,) the value of each item in its first row that has one, as text; "" if none has."""
    rows = np.flatnonzero(has_value(column))
    first = np.full(n_items, -1)
    # numpy keeps the last of several assignments, so that from the back it is the first row.
    first[items[rows[::-1]]] = rows[::-1]
    known = np.flatnonzero(first >= 0)
    cells = np.full(n_items, "", dtype=object)
    cells[known] = [str(cell) for cell in _cells(column, first[known])]
    return cells


def _cells(column: Column, rows: NDArray[np.int64]) -> Iterable[Any]:
    """The values of some rows; integers as in `attribute_cells`."""
    if isinstance(column, pl.Series):
        return column.gather(rows).to_list()
    # A column of integers with missing cells was read as floats: 7 and not "7.0".
    if column.dtype.kind == "f" and np.isnan(column).any() and not np.nansum(column % 1):
        return column[rows].astype(np.int64)
    return column[rows]


def attribute_cells(column: Column) -> NDArray[Any]:
    """The cells of a column; integers that became floats, as some are missing, are back."""
    values = column.to_numpy() if isinstance(column, pl.Series) else column
    if values.dtype.kind == "f" and (missing := np.isnan(values)).any():
        whole = not np.any(values[~missing] % 1)
        cells = values.astype(object)
        cells[missing] = None
        if whole:
            cells[~missing] = values[~missing].astype(np.int64)
        return cells
    return values
