"""RecBole's atomic files: NAME.inter, with the tables NAME.item and NAME.user beside it.

Cells are split by tabs, and the header names the type of each column:

    item_id:token   release_year:token   class:token_seq

The values of a `_seq` are split by blanks. Here they become one cell with bars between them, as in
Drama|War, so that a limit counts the item for each of them. A title stays as it is written.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.items import ItemTable
from fairhorizon.data.tables import (
    UTF_8,
    Table,
    columns_of,
    decode,
    is_usual_name,
    item_column,
    read_content,
    read_table,
)

INTER, ITEM, USER = ".inter", ".item", ".user"
SEVERAL = "_seq"  # the end of a type whose cells hold several values
Cells = NDArray[Any]


def atomic_file(source: str | Path) -> Path | None:
    """The .inter file that a path is, or that is the only one of a folder; else None.

    A folder with several of them is a log in parts.
    """
    path = Path(source)
    found = sorted(path.glob(f"*{INTER}")) if path.is_dir() else [path]
    return found[0] if len(found) == 1 and found[0].suffix.lower() == INTER else None


def table_beside(inter: Path, suffix: str) -> Path | None:
    """NAME.item or NAME.user of NAME.inter, also of a part of it, NAME.train.inter."""
    name = inter.name.removesuffix(inter.suffix)
    while name:
        if (table := inter.with_name(name + suffix)).is_file():
            return table
        name = name.rpartition(".")[0]
    return None


def read_atomic(path: Path, encoding: str = UTF_8) -> Table:
    """The table of an .item or .user file, its columns without types."""
    table = read_table(path, header=True, separator="\t", encoding=encoding)
    raw, _ = read_content(path)
    first = decode(raw, path, encoding, option="--encoding").split("\n", 1)[0].rstrip("\r")
    types = [name.rpartition(":")[2] for name in first.split("\t")]
    several = [
        name
        for name, kind in zip(table.frame.columns, types, strict=True)
        if kind.endswith(SEVERAL) and not is_usual_name(name, "title")
    ]
    with_bars = table.frame.with_columns(pl.col(several).str.replace_all(" ", "|", literal=True))
    return Table(with_bars, table.origin, table.header)


@dataclass(frozen=True, eq=False)
class AtomicColumns(Mapping[str, Cells]):
    """Columns that describe the items of a log: its own, and those of the table beside it.

    The table is read when one of its columns is asked for. An item without a row has "".
    """

    log: Interactions
    path: Path  # of the table
    encoding: str = UTF_8

    @cached_property
    def table(self) -> ItemTable:
        found = read_atomic(self.path, self.encoding)
        return ItemTable.from_frame(found.frame, item_column(found), found.origin)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self.log.further, *_described(self.path, self.encoding))))

    def __getitem__(self, name: str) -> Cells:
        if name in self.log.further:
            return self.log.further[name]
        if name not in self.names:
            raise KeyError(name)
        return self.table.attribute(name, self.log.item_ids.tolist(), complete=False)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


def columns_beside(source: str | Path, encoding: str = UTF_8) -> list[str]:
    """The columns of the table of items beside an .inter file, without the item; []: no table."""
    inter = atomic_file(source)
    table = None if inter is None else table_beside(inter, ITEM)
    return [] if table is None else _described(table, encoding)


def _described(table: Path, encoding: str) -> list[str]:
    every = columns_of(table, encoding=encoding)
    return [name for name in every if not is_usual_name(name, "item")]
