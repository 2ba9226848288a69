"""Feedback as it comes in: recorded once, and counted where it confirms a showing."""

from collections.abc import Sequence

from fairhorizon.service.budget.confirming import confirm
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.feedback import Event, add


def take(database: Database, events: Sequence[Event], *, read: Sequence[str]) -> int:
    """Record events in one transaction; how many were not seen before.

    read: the types that confirm a showing, where an event names its list.
    """
    with database.writing() as connection:
        added, fresh = add(database, connection, events)
        seen = {(str(one.list_id), one.item) for one in fresh if one.list_id and one.type in read}
        if seen:
            confirm(database, connection, sorted(seen))
    return added
