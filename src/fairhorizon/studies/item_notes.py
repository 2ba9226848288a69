"""Providers and titles of items for an audit, from a table of items or from the log."""

import warnings
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from fairhorizon.data.interactions import MissingValuesWarning
from fairhorizon.data.parts import first_file
from fairhorizon.data.readers import columns_of, title_among
from fairhorizon.data.sources import is_named, item_columns
from fairhorizon.datasets import DataSpec, item_attribute
from fairhorizon.errors import DataError, NoColumnError
from fairhorizon.studies.shown_by import ItemNotes


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
