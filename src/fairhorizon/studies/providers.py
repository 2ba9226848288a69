"""Who is behind the items that were shown: providers such as sellers, and titles."""

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.interactions import MissingValuesWarning
from fairhorizon.data.loading import is_named, item_columns
from fairhorizon.data.log_files import first_file
from fairhorizon.data.recommendations import Recommendations
from fairhorizon.data.tables import columns_of, title_among
from fairhorizon.datasets import Dataset, DataSpec, item_attribute
from fairhorizon.errors import DataError, NoColumnError
from fairhorizon.limits.groups import attribute_values, values_of_items

Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ItemNotes:
    """What a table says of items beside the groups of limits."""

    provider_column: str = ""
    providers: NDArray[Any] | None = None  # (n_items,) text; "A|B" are two providers
    titles: NDArray[Any] | None = None  # (n_items,) text, empty where there is none

    def title(self, item: int) -> str:
        return "" if self.titles is None else str(self.titles[item])


def item_notes(
    data: DataSpec,
    item_table: str | None,
    cache_dir: Path | None,
    *,
    providers: str | None = None,
    title: str | None = None,
) -> ItemNotes:
    """What the audit may say of items beside their groups.

    providers: the column whose values are the providers of an item; None: they are not reported.
    title: the column with titles; None: it is found by its usual name, if there is one.
    """
    owners = None if providers is None else _cells(data, item_table, providers, cache_dir)
    titles = None
    if title is not None:
        titles = _cells(data, item_table, title, cache_dir, is_complete=False)
    elif (found := title_among(_columns(data, item_table))) is not None:
        try:
            titles = item_attribute(data, item_table, found, cache_dir, is_complete=False)
        except DataError as error:  # of a named set whose table cannot be had: they are a courtesy
            fault = f"items are shown without titles: {error}"
            warnings.warn(fault, MissingValuesWarning, stacklevel=2)
    return ItemNotes(providers or "", owners, titles)


def _cells(
    data: DataSpec,
    item_table: str | None,
    column: str,
    cache_dir: Path | None,
    *,
    is_complete: bool = True,
) -> NDArray[Any]:
    """Of the table if it has the column, else of the log."""
    try:
        return item_attribute(data, item_table, column, cache_dir, is_complete)
    except NoColumnError:
        if item_table is None:
            raise
    try:
        return item_attribute(data, None, column, cache_dir)
    except NoColumnError as error:
        columns = (*_columns(data, item_table), *error.columns)
        remedy = f"neither the table nor the log has it; the columns are {', '.join(columns)}"
        raise NoColumnError(column, columns, file=item_table, remedy=remedy) from None


def _columns(data: DataSpec, item_table: str | None) -> list[str]:
    """The columns that may describe items."""
    if item_table is not None:
        return columns_of(item_table, encoding=data.encoding)
    if is_named(data.source):
        return list(item_columns(data.source))
    return columns_of(
        first_file(data.source),
        header=data.header,
        separator=data.separator,
        encoding=data.encoding,
    )


@dataclass(frozen=True)
class ProviderExposure:
    """What the items of a provider, such as a seller, are shown; shares of all."""

    provider: str
    items: int
    shown: int
    of_exposure: float
    of_training: float
    of_catalogue: float
    best_rank: int | None  # of its items in any list; None: never shown, or no lists

    @property
    def ratio(self) -> float:
        """Exposure by share of the training log; NaN of providers that it does not have."""
        return self.of_exposure / self.of_training if self.of_training else math.nan


def exposure_of_providers(
    dataset: Dataset, shown: Recommendations, notes: ItemNotes
) -> tuple[ProviderExposure, ...]:
    """Every provider that has items, the one with least exposure for its share of the log first.

    Of providers with the same ratio, the one with more of the log is first. Those that the training
    log does not have come last. An item of two providers counts for both.
    """
    if notes.providers is None:
        return ()
    cells = values_of_items(notes.providers)
    names = attribute_values(notes.providers)
    code_of = {name: code for code, name in enumerate(names)}
    items = np.repeat(np.arange(len(cells)), [len(cell) for cell in cells])
    owners = np.array([code_of[name] for cell in cells for name in sorted(cell)], dtype=np.int64)
    exposure = np.bincount(shown.items, minlength=dataset.log.n_items)
    training = dataset.split.train.item_counts()

    def summed(of_items: NDArray[Any]) -> NDArray[np.float64]:
        sums = np.bincount(owners, weights=of_items[items], minlength=len(names))
        return sums.astype(np.float64)

    best = np.full(dataset.log.n_items, np.iinfo(np.int64).max)
    np.minimum.at(best, shown.items, shown.places())
    best_of = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(best_of, owners, best[items])
    columns = zip(
        names,
        np.bincount(owners, minlength=len(names)).tolist(),
        summed(exposure).tolist(),
        summed(shares(exposure)).tolist(),
        summed(shares(training)).tolist(),
        best_of.tolist(),
        strict=True,
    )
    rows = [
        ProviderExposure(
            *(name, n, int(showings), of_exposure, of_training, n / dataset.log.n_items),
            best_rank=rank + 1 if showings and not shown.is_log else None,
        )
        for name, n, showings, of_exposure, of_training, rank in columns
    ]
    return tuple(sorted(rows, key=_worst_off_first))


def _worst_off_first(one: ProviderExposure) -> tuple[float, float, str]:
    return (math.inf if math.isnan(one.ratio) else one.ratio, -one.of_training, one.provider)


def shares(counts: Counts) -> NDArray[np.float64]:
    """Shares of the total; zeros if the total is zero."""
    return counts / counts.sum() if counts.any() else np.zeros(len(counts))
