"""One item or one user: what is known of them, what they were shown in or shown, and why."""

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
from fairhorizon.report.charts import PALETTE
from fairhorizon.service.api.auth import Serving
from fairhorizon.service.api.bodies import Id
from fairhorizon.service.api.problems import ApiProblem
from fairhorizon.service.background import Service
from fairhorizon.service.budget.rules import place_units, showings
from fairhorizon.service.dashboard.charts import Curve, LineChart, plain
from fairhorizon.service.dashboard.pages import PageRoute, environment, page, see_other
from fairhorizon.service.dashboard.sessions import CurrentVisitor
from fairhorizon.service.monitoring.counts import DAY, HOUR, Period
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.settings import ServiceSettings, Source
from fairhorizon.service.store import feedback
from fairhorizon.service.store.catalogue import Item, User, find_user, item_titles
from fairhorizon.service.store.schema import accounts, item_hours, limits, lists, windows
from fairhorizon.service.store.schema import items as item_table
from fairhorizon.service.store.state import popular_in_epoch, read_state

LOOKED_AT = 2000  # newest lists that are searched for an item
MOST_LISTS_OF_ITEM = 10
MOST_EVENTS_OF_ITEM = 20
HOURS = 7 * DAY // HOUR

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True)
class ListSearch:
    """Lists that were found among the newest ones, and how far back these go."""

    found: list[tuple[Any, int]]  # the row of a list, and the place of the item, from 1
    looked_at: int
    since: float | None


@router.get("/dashboard/item/{item:path}")
def show_item(
    request: Request, service: Serving, visitor: CurrentVisitor, item: Annotated[Id, Path()]
) -> Response:
    with service.database.reading() as connection:
        state = read_state(service.database, connection)
        row = connection.execute(sa.select(item_table).where(item_table.c.id == item)).first()
        hours = shown_by_hour(connection, item, int(state.now // HOUR))
        search = lists_with(connection, item)
        events = feedback.newest(connection, MOST_EVENTS_OF_ITEM, item=item)
        if row is None and not any(hours.values()) and not search.found and not events:
            raise ApiProblem(404, f"no item is called {item!r}", "look for another id")
        content: dict[str, Any] = {
            "title": item_titles(connection, [item])[item],
            "item": item,
            "described": None if row is None else Item.from_row(row),
            "is_deleted": row is not None and row.deleted,
            "groups": groups_of_item(service.engine.snapshot, item),
            "is_popular": item in popular_in_epoch(connection, state.epoch),
            "shown": sum(hours.values()),
            "chart_of_item": _hourly_chart(hours),
            "search": search,
            "events": events,
        }
    return page(request, visitor, "item.html.j2", **content)


def groups_of_item(snapshot: ServingSnapshot | None, item: str) -> list[str] | None:
    """The groups of limits that an item is in now; None: it is not known yet."""
    if snapshot is None:
        return None
    code = snapshot.catalogue.codes.get(item)
    if code is None:
        return []
    return [str(rule) for rule in snapshot.rules.group_rules if rule.members[code]]


def shown_by_hour(connection: Connection, item: str, hour: int) -> dict[int, int]:
    """Showings of an item in each of the last hours; 0 where there are none."""
    query = sa.select(item_hours.c.hour, item_hours.c.shown).where(
        item_hours.c.item_id == item, item_hours.c.hour > hour - HOURS
    )
    found = {row.hour: int(row.shown) for row in connection.execute(query)}
    return {one: found.get(one, 0) for one in range(hour - HOURS + 1, hour + 1)}


def lists_with(connection: Connection, item: str) -> ListSearch:
    """The newest lists that showed an item; only so many are looked at."""
    columns = [lists.c[name] for name in ("number", "served_at", "user_id", "items")]
    query = sa.select(*columns).order_by(lists.c.number.desc()).limit(LOOKED_AT)
    # The items of a list are JSON, which no index finds: the newest lists are searched here.
    rows = list(connection.execute(query))
    found = [(row, row.items.index(item) + 1) for row in rows if item in row.items]
    return ListSearch(found[:MOST_LISTS_OF_ITEM], len(rows), rows[-1].served_at if rows else None)


def _hourly_chart(hours: dict[int, int]) -> LineChart:
    points = [(HOUR * hour, n) for hour, n in hours.items()]
    period = Period(HOUR * min(hours), HOUR * (max(hours) + 1), HOUR)
    curve = Curve("showings an hour", points, PALETTE[0])
    return LineChart("Showings an hour", (curve,), period, plain)


MOST_LISTS = 5
MOST_EVENTS = 30
MOST_TAKEN = 50  # newest items of the log


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
    """Lists of a user with the groups, price and reasons of every showing.

    rows: the lists as they were recorded. The reasons are those of the present model and history,
        which may have changed since.
    """
    groups = _accounts_of(connection, rows)
    wanted = {one for row in rows if row.source == Source.RECOMMEND for one in row.items}
    because = _reasons(connection, snapshot, settings, user, sorted(wanted))
    causes = {name for parts in because.values() for name, _ in parts}
    shown = {one for row in rows for one in row.items}
    titles = item_titles(connection, sorted(shown | causes))

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


def _accounts_of(connection: Connection, rows: Sequence[Any]) -> dict[int, InGroup]:
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
        # Of a limit on each value, brand:each<=0.1, that of one group is brand=Acme<=0.1.
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
    # The user as a request for a list would see them: the log and the events since.
    person, _ = snapshot.user_now(user, events, settings.negative)
    scenario = Requests([person], None, RepeatRule()).scenario(
        state.users, state.n_items, state.queue_length
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
    request: Request, service: Serving, visitor: CurrentVisitor, user: Annotated[Id, Path()]
) -> Response:
    with service.database.reading() as connection:
        known = known_of(connection, service.engine.snapshot, user)
        if known.is_nothing:
            raise ApiProblem(404, f"nothing is known of a user {user!r}", "look for another id")
        shown: list[ExplainedList] = explained_lists(
            connection, service.engine.snapshot, service.settings, user, known.lists
        )
        named = [*(known.taken or []), *(row.item_id for row in known.events)]
        titles = item_titles(connection, list(dict.fromkeys(named)))
    return page(
        request, visitor, "user.html.j2", user=user, known=known, shown=shown, titles=titles
    )


def known_of(connection: Connection, snapshot: ServingSnapshot | None, user: str) -> UserKnown:
    """What is known of a user; of somebody who was forgotten nothing is."""
    taken: list[str] | None = None
    if snapshot is not None and snapshot.state is not None and user not in snapshot.forgotten:
        person = snapshot.state.users.find(user)
        if person is not None:
            taken = [snapshot.catalogue.ids[code] for code in person.items.tolist()][::-1]
    query = sa.select(lists).where(lists.c.user_id == user)
    rows = connection.execute(query.order_by(lists.c.number.desc()).limit(MOST_LISTS))
    return UserKnown(
        find_user(connection, user),
        None if taken is None else taken[:MOST_TAKEN],
        len(taken or ()),
        feedback.newest(connection, MOST_EVENTS, user=user),
        list(rows),
    )


@router.get("/dashboard/find")
def find(
    request: Request,
    service: Serving,
    visitor: CurrentVisitor,
    id: Annotated[Id, Query()],  # noqa: A002
) -> Response:
    """Go to the item or the user with this id; where both have it, offer a choice."""
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
