"""The users that lists are wanted for: ids that were typed, or a file of them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.readers import is_usual_name
from fairhorizon.data.tables import Table, read_table
from fairhorizon.errors import DataError


def user_codes(ids: Sequence[str], log: Interactions) -> NDArray[np.int64]:
    """The codes of users by their ids, each once; an unknown id is a DataError that names it."""
    code_of = {str(known): code for code, known in enumerate(log.user_ids.tolist())}
    for one in ids:
        if one not in code_of:
            raise DataError(_unknown(one, log), remedy="give ids of the data")
    return np.array([code_of[one] for one in dict.fromkeys(ids)], dtype=np.int64)


def read_user_ids(path: Path, log: Interactions, column: str | int | None = None) -> list[str]:
    """The ids of a file: one per line, or those of the user column of a table.

    column: what the data calls the user, by which a header is recognised besides the usual names.
    An id that the log does not have is a DataError with file and line.
    """
    cells, first_row, table = _ids(path, column)
    known = set(map(str, log.user_ids.tolist()))
    for row, one in enumerate(cells, start=first_row):
        if one not in known:
            table.origin.fail(_unknown(one, log), row, "give ids of the data")
    return cells


def _ids(path: Path, column: str | int | None) -> tuple[list[str], int, Table]:
    """The ids, the row of the table that the first is in, and the table."""
    table = read_table(path, header=False)
    named = table.frame.columns if table.header else table.frame.row(0)
    names = [str(name).strip() for name in named]
    user = next((at for at, name in enumerate(names) if name == column), None)
    if user is None:
        user = next((at for at, name in enumerate(names) if is_usual_name(name, "user")), None)
    if user is None and len(names) > 1:
        table.origin.fail(
            f"no column looks like the user; there are {', '.join(map(repr, names))}",
            remedy="give a file with one id per line, or with a column called user",
        )
    first_row = 0 if table.header or user is None else 1
    cells = table.frame.to_series(user or 0).to_list()[first_row:]
    return [str(cell).strip() for cell in cells], first_row, table


def _unknown(one: str, log: Interactions) -> str:
    return f"user {one!r} is not in {log.name or 'the data'}"
