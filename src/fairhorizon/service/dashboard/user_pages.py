"""A user: what they took, what they were shown, and why; and the search for an id."""

from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Path, Query, Request, Response
from sqlalchemy.engine import Connection

from fairhorizon.service.api.access import Serving
from fairhorizon.service.api.bodies import Id
from fairhorizon.service.api.problems import ApiProblem
from fairhorizon.service.background import Service
from fairhorizon.service.dashboard.explained_lists import ExplainedList, explained_lists
from fairhorizon.service.dashboard.page_routes import PageRoute, see_other
from fairhorizon.service.dashboard.rendering import environment, page
from fairhorizon.service.dashboard.visiting import Visiting
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.store import feedback, items, users
from fairhorizon.service.store.schema import items as item_table
from fairhorizon.service.store.schema import lists
from fairhorizon.service.store.users import User

MOST_LISTS = 5
MOST_EVENTS = 30
MOST_TAKEN = 50  # newest items of the log

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True)
class UserKnown:
    """All that is known of a user."""

    described: User | None
    taken: list[str] | None  # of the log, newest first; None: the log does not have them
    n_taken: int
    events: list[Any]
    lists: list[Any]

    @property
    def is_nothing(self) -> bool:
        return not (self.described or self.taken is not None or self.events or self.lists)


@router.get("/dashboard/user/{user:path}")
def show_user(
    request: Request, service: Serving, visitor: Visiting, user: Annotated[Id, Path()]
) -> Response:
    with service.database.reading() as connection:
        known = known_of(connection, service.engine.snapshot, user)
        if known.is_nothing:
            raise ApiProblem(404, f"nothing is known of a user {user!r}", "look for another id")
        shown: list[ExplainedList] = explained_lists(
            connection, service.engine.snapshot, service.settings, user, known.lists
        )
        named = [*(known.taken or []), *(row.item_id for row in known.events)]
        titles = items.titles(connection, list(dict.fromkeys(named)))
    return page(
        request, visitor, "user.html.j2", user=user, known=known, shown=shown, titles=titles
    )


def known_of(connection: Connection, snapshot: ServingSnapshot | None, user: str) -> UserKnown:
    """What is known of a user; of somebody who was forgotten nothing is."""
    taken: list[str] | None = None
    if snapshot is not None and snapshot.state is not None and user not in snapshot.forgotten:
        person = snapshot.state.people.find(user)
        if person is not None:
            taken = [snapshot.catalogue.ids[code] for code in person.items.tolist()][::-1]
    query = sa.select(lists).where(lists.c.user_id == user)
    rows = connection.execute(query.order_by(lists.c.number.desc()).limit(MOST_LISTS))
    return UserKnown(
        users.get(connection, user),
        None if taken is None else taken[:MOST_TAKEN],
        len(taken or ()),
        feedback.newest(connection, MOST_EVENTS, user=user),
        list(rows),
    )


@router.get("/dashboard/find")
def find(
    request: Request,
    service: Serving,
    visitor: Visiting,
    id: Annotated[Id, Query()],  # noqa: A002
) -> Response:
    """To the item or the user with this id; where both have it, people choose."""
    name = id.strip() or id
    kinds = _kinds(service, name)
    if len(kinds) == 1:
        quoted = environment().filters["in_path"](name)
        return see_other(f"/dashboard/{kinds[0]}/{quoted}")
    status = 200 if kinds else 404
    return page(request, visitor, "found.html.j2", status, name=name, kinds=kinds)


def _kinds(service: Service, name: str) -> list[str]:
    with service.database.reading() as connection:
        query = sa.select(item_table.c.id).where(item_table.c.id == name)
        is_item = connection.execute(query).first() is not None
        is_user = not known_of(connection, service.engine.snapshot, name).is_nothing
    return ["item"] * is_item + ["user"] * is_user
