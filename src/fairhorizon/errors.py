"""Errors that a user can act on: what was wrong, where, and what to do."""

import os
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path
from typing import Any


class FairHorizonError(Exception):
    """Anything the user can correct; the command line prints it and exits with 1."""


class DataError(FairHorizonError):
    """Bad input data: the file, the line where there is one, the fault and its remedy."""

    def __init__(
        self,
        fault: str,
        *,
        file: str | Path | None = None,
        line: int | None = None,
        remedy: str = "",
    ) -> None:
        where = "" if file is None else f"{file}: " if line is None else f"{file} line {line}: "
        super().__init__(f"{where}{fault}" + (f" ({remedy})" if remedy else ""))
        self.file, self.line, self.remedy = file, line, remedy


class NoColumnError(DataError):
    """A column that should describe the items is not there; those that could are `columns`."""

    def __init__(
        self, column: str | int, columns: Sequence[str], *, file: str | Path | None, remedy: str
    ) -> None:
        super().__init__(f"there is no column {column!r}", file=file, remedy=remedy)
        self.column, self.columns = column, tuple(columns)


class ConfigError(FairHorizonError):
    """A setting that does not exist or does not fit."""


class ModelError(FairHorizonError):
    """A model folder that is missing, truncated, foreign or does not fit the data."""


# ---- Arguments of calls from Python that are of another type -------------------------------------
def whole_number(value: Any, what: str, remedy: str) -> int:
    """The value, if it is a whole number; True and 2.0 are none."""
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise ConfigError(f"{what} = {value!r} is no whole number ({remedy})")
    return int(value)


def of_type(value: Any, kind: type | tuple[type, ...], what: str, remedy: str) -> None:
    """Refuse an argument of another type."""
    if not isinstance(value, kind):
        raise ConfigError(f"{what} is of the type {type(value).__name__} ({remedy})")


def path_of(folder: Any) -> Path:
    """The path of a folder or a file, given as text or as a path."""
    of_type(folder, (str, os.PathLike), "the path", "give it as text")
    return Path(folder)
