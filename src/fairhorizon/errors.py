"""Errors that a user can act on: what was wrong, where, and what to do."""

from collections.abc import Sequence
from pathlib import Path


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
