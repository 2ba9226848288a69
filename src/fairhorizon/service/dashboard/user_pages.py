"""A user: what they took, what they were shown and why, place by place; the search for an id."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import sqlalchemy as sa
from fastapi import APIRouter, Path, Query, Request, Response
from sqlalchemy.engine import Connection

from fairhorizon.limits.language import Limit
from fairhorizon.model.explain import Parts, reasons
from fairhorizon.model.serving import RepeatRule, Requests
from fairhorizon.service.api.auth import Serving
from fairhorizon.service.api.bodies import Id
from fairhorizon.service.api.problems import ApiProblem
from fairhorizon.service.background import Service
from fairhorizon.service.budget.rules import place_units, showings
from fairhorizon.service.dashboard.auth import Visiting
from fairhorizon.service.dashboard.rendering import PageRoute, environment, page, see_other
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store import feedback, items, users
from fairhorizon.service.store.schema import accounts, limits, lists, windows
from fairhorizon.service.store.schema import items as item_table
from fairhorizon.service.store.users import User
from fairhorizon.service.vocabulary import Source

MOST_LISTS = 5
MOST_EVENTS = 30
MOST_TAKEN = 50  # newest items of the log

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True)
class InGroup:
    """A group that a showing counted in."""

    name: str
    limit: Limit
    group_limit: str  # the limit of this group alone, as prices are recorded

    def change(self, prices: dict[str, float], length: int, place: int) -> float:
        """What the limit adds to the value of a showing: it takes its price, a floor gives it."""
        price = prices.get(self.group_limit, 0.0)
        counted = showings(place_units(self.limit, length)[place])
        return price * counted * (1 if self.limit.is_floor else -1)


@dataclass(frozen=True)
class ExplainedPlace:
    """One showing."""

    place: int
    item: str
    title: str
    score: float
    value: float
    groups: tuple[str, ...]
    change: float  # by the prices of limits
    propensity: float | None
    because: tuple[tuple[str, float], ...]  # titles of items of the history, with their parts


@dataclass(frozen=True)
class ExplainedList:
    """A list as it was recorded."""

    row: Any
    places: tuple[ExplainedPlace, ...]

    @property
    def is_ranked(self) -> bool:
        """Whether its scores are those of the caller."""
        return bool(self.row.source == Source.RANK)


def explained_lists(
    connection: Connection,
    snapshot: ServingSnapshot | None,
    settings: ServiceSettings,
    user: str,
    rows: Sequence[Any],
) -> list[ExplainedList]:
    """The reasons are those of the present model and history, which may have changed since."""
    groups = _groups(connection, rows)
    wanted = {one for row in rows if row.source == Source.RECOMMEND for one in row.items}
    because = _reasons(connection, snapshot, settings, user, sorted(wanted))
    causes = {name for parts in because.values() for name, _ in parts}
    shown = {one for row in rows for one in row.items}
    titles = items.titles(connection, sorted(shown | causes))

    def place(row: Any, k: int) -> ExplainedPlace:
        item = row.items[k]
        inside = [groups[number] for number in row.labels[k] if number in groups]
        parts = because.get(item, []) if row.source == Source.RECOMMEND else []
        return ExplainedPlace(
            k + 1,
            item,
            titles[item],
            row.scores[k],
            row.values[k],
            tuple(one.name for one in inside),
            sum(one.change(row.prices, len(row.items), k) for one in inside),
            None if row.propensities is None else row.propensities[k],
            tuple((titles[name], share) for name, share in parts),
        )

    return [ExplainedList(row, tuple(place(row, k) for k in range(len(row.items)))) for row in rows]


def _groups(connection: Connection, rows: Sequence[Any]) -> dict[int, InGroup]:
    """The accounts that some lists count in."""
    ids = {number for row in rows for inside in row.labels for number in inside}
    query = (
        sa.select(accounts.c.id, accounts.c.group, limits.c.text)
        .join(windows, windows.c.id == accounts.c.window_id)
        .join(limits, limits.c.id == windows.c.limit_id)
        .where(accounts.c.id.in_(ids))
    )
    found = {}
    for row in connection.execute(query):
        limit = Limit.parse(row.text)
        asked = str(limit).removeprefix(str(limit.group))
        found[row.id] = InGroup(row.group, limit, f"{row.group}{asked}")
    return found


def _reasons(
    connection: Connection,
    snapshot: ServingSnapshot | None,
    settings: ServiceSettings,
    user: str,
    names: Sequence[str],
) -> dict[str, Parts]:
    """For each item, the items of the history that add most to its score now."""
    if snapshot is None or snapshot.state is None:
        return {}
    codes = {one: snapshot.catalogue.codes[one] for one in names if one in snapshot.catalogue.codes}
    if not codes:
        return {}
    state = snapshot.state
    events = feedback.of_users(connection, [user], settings.read).get(user, [])
    person = snapshot.requester(user, events, settings.negative).person
    scenario = Requests([person], None, RepeatRule()).scenario(
        state.people, state.n_items, state.free.queue_length
    )
    because, _ = reasons(state, scenario, np.array(list(codes.values()), dtype=np.int64))
    return {
        one: [(str(name), share) for name, share in parts]
        for one, parts in zip(codes, because, strict=True)
    }


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
