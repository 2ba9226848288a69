"""Attributes of users: a column of a table with a row per user."""

from pathlib import Path

import polars as pl

from fairhorizon.data.atomic_files import INTER, USER, read_atomic, table_beside
from fairhorizon.data.columns import as_column, known_codes
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.items import Cells, per_item
from fairhorizon.data.tables import UTF_8, column_named, is_usual_name, read_table
from fairhorizon.errors import DataError


def users_beside(source: str | Path) -> Path | None:
    """The table NAME.user of an .inter file or of a folder of them, if there is one."""
    path = Path(source)
    files = sorted(path.glob(f"*{INTER}")) if path.is_dir() else [path]
    return table_beside(files[0], USER) if files and files[0].suffix.lower() == INTER else None


def user_cells(
    path: Path,
    column: str,
    log: Interactions,
    *,
    user: str | int | None = None,
    encoding: str = UTF_8,
) -> Cells:
    """(n_users,) a column by user of the log, as text; "" for a user without a row or a value.

    user: what the log calls the user, which the table may do too; else found by its usual name.
    """
    is_atomic = path.suffix.lower() == USER
    names = [name for name in (user, column) if isinstance(name, str)]
    table = (
        read_atomic(path, encoding)
        if is_atomic
        else read_table(path, names=names, encoding=encoding)
    )
    columns = table.frame.columns
    usual = next((name for name in columns if is_usual_name(name, "user")), None)
    who = user if isinstance(user, str) and user in columns else usual
    if who is None:
        raise DataError(
            f"no column looks like the user; there are {', '.join(map(repr, columns))}",
            file=path,
            remedy="call it as the log does, or `user`",
        )
    cells = as_column(table.frame[column_named(column, table, (who,))])
    codes = known_codes(as_column(table.frame[who]), who, log.user_ids, table.origin)
    rows = codes >= 0
    kept = cells.filter(rows) if isinstance(cells, pl.Series) else cells[rows]
    return per_item(kept, codes[rows], log.n_users)
