"""Tables of items that come with named sets: title, year and genre of every film.

A cell of genres holds several, as in "Comedy|Drama": an item is in the group of each of them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.downloads import NamedSet, fetch
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.tables import read_table
from fairhorizon.errors import NoColumnError

COLUMNS = ("title", "year", "genre")  # beside the item
NO_FILM = "unkonwn"  # title and year, in RecBole's spelling, of the one record without a film
TITLE_AND_YEAR = r"^(.*?) ?\((\d{4})\)$"  # as in "Toy Story (1995)"
TABLES = {
    "ml-100k": NamedSet(
        name="ml-100k",
        file="ml-100k.item",
        sha256="51d7cdf777ce5c0f5b32c1d947a4a81fe07d75e78abbe761e0cd4d0756064532",
        package="recbole==1.2.1",
        pip_options=("--only-binary", "recbole"),
        package_member="recbole/dataset_example/ml-100k/ml-100k.item",
    ),
    "ml-1m": NamedSet(
        name="ml-1m",
        file="movies.dat",
        sha256="0140fc2356357c1a851d0f52e893a1e4d3696df632c4141cea8d5bc3d621f0b9",
        url="https://files.grouplens.org/datasets/movielens/ml-1m.zip",
        member="ml-1m/movies.dat",
        package="scikit-rec==0.3.0",
        pip_options=("--no-binary", "scikit-rec"),
        package_member="examples/data/movielens-1m/movies.dat",
    ),
}


def named_items(name: str, cache: Path) -> pl.DataFrame:
    """The items of a named set with `COLUMNS`, all text; its table is downloaded once."""
    return READERS[name](fetch(TABLES[name], cache))


def read_recbole_items(path: Path) -> pl.DataFrame:
    """RecBole's ml-100k.item: item_id, movie_title, release_year, class; blanks between genres."""
    frame = read_table(path).frame
    title, year = (
        pl.col(column).replace(NO_FILM, "") for column in ("movie_title", "release_year")
    )
    genre = pl.col("class").str.replace_all(" ", "|", literal=True)
    item = pl.col("item_id")
    return frame.select(item.alias("item"), title.alias("title"), year.alias("year"), genre=genre)


def read_movielens_items(path: Path) -> pl.DataFrame:
    """MovieLens' movies.dat: item::title (year)::genres with bars between them, in latin-1."""
    frame = read_table(path, header=False, separator="::", encoding="latin-1").frame
    titled = pl.col("1").str.extract_groups(TITLE_AND_YEAR)
    title, year = titled.struct[0].fill_null(pl.col("1")), titled.struct[1].fill_null("")
    item = pl.col("0")
    return frame.select(item.alias("item"), title.alias("title"), year.alias("year"), genre="2")


READERS: dict[str, Callable[[Path], pl.DataFrame]] = {
    "ml-100k": read_recbole_items,
    "ml-1m": read_movielens_items,
}


@dataclass(frozen=True, eq=False)
class NamedColumns(Mapping[str, NDArray[Any]]):
    """The columns of a named set's table; it is downloaded when one of them is asked for."""

    name: str
    cache: Path
    log: Interactions

    def __getitem__(self, column: str) -> NDArray[Any]:
        if column not in COLUMNS:
            raise KeyError(column)
        return attributes_of(self.name, self.cache, self.log, [column])[column]

    def __iter__(self) -> Iterator[str]:
        return iter(COLUMNS)

    def __len__(self) -> int:
        return len(COLUMNS)


def attributes_of(
    name: str, cache: Path, log: Interactions, wanted: Iterable[str | int]
) -> dict[str, NDArray[Any]]:
    """Columns of a named set's table for the items of its log, (n_items,) each."""
    wanted = tuple(wanted)
    for column in wanted:
        if column not in COLUMNS:
            remedy = f"the items of {name} have {', '.join(COLUMNS)}"
            raise NoColumnError(column, COLUMNS, file=None, remedy=remedy)
    if not wanted:
        return {}
    frame = named_items(name, cache)
    row_of = {item: row for row, item in enumerate(frame["item"].to_list())}
    rows = [row_of.get(str(item)) for item in log.item_ids.tolist()]
    return {
        str(column): np.array(
            ["" if row is None else frame[str(column)][row] for row in rows], dtype=object
        )
        for column in wanted
    }
