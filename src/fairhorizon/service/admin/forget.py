"""Removing what is known of a person, also from the file of a SQLite database."""

from collections.abc import Sequence
from pathlib import Path

import sqlalchemy as sa

from fairhorizon.errors import FairHorizonError
from fairhorizon.model.model import open_model
from fairhorizon.service.store.catalogue import forget_user
from fairhorizon.service.store.database import SQLITE, Database
from fairhorizon.service.store.state import all_models


def remove(
    database: Database, user: str
) -> tuple[dict[str, int], tuple[str, ...], tuple[str, ...]]:
    """Forget a person; lists and counts stay, without their name.

    Returns the rows that were removed by table, the folders of models that still know the person,
    and those of which it could not be found out.
    """
    with database.writing() as connection:
        if database.dialect == SQLITE:
            # Overwrites what is deleted, which could still be read in the file otherwise.
            connection.execute(sa.text("PRAGMA secure_delete = ON"))
        rows = forget_user(database, connection, user)
        folders = [row.folder for row in all_models(connection)]
    # The write-ahead log still has the old pages; it cannot be emptied while somebody reads them.
    database.empty_log(larger_than=0)
    return rows, *_who_knows(user, folders)


def _who_knows(user: str, folders: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The folders of models whose log has the person, and those that cannot be read."""
    fitted, unreadable = [], []
    for folder in folders:
        try:
            if open_model(Path(folder)).state.users.find(user) is not None:
                fitted.append(folder)
        except FairHorizonError:
            unreadable.append(folder)
    return tuple(fitted), tuple(unreadable)
