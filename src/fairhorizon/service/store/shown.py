"""What users were shown last."""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.store.schema import lists

MOST_SHOWN = 64  # newest showings of a user that a list looks at
OF_USER = (
    sa.select(lists.c.id, lists.c["items"], lists.c.served_at)
    .where(lists.c.user_id == sa.bindparam("user"))
    .order_by(lists.c.number.desc())
    .limit(MOST_SHOWN)
)


def of_users(connection: Connection, users: Sequence[str]) -> dict[str, list[Any]]:
    """The newest lists of some users, oldest first: rows of id, items and served_at.

    A query for each of them: with its limit it reads no more of the index than it answers.
    """
    return {
        user: list(reversed(connection.execute(OF_USER, {"user": user}).all())) for user in users
    }
