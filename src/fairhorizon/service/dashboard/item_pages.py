"""An item: what describes it, which groups it is in, and how often it was shown to whom."""

from dataclasses import dataclass
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import APIRouter, Path, Request, Response
from sqlalchemy.engine import Connection

from fairhorizon.report.charts import PALETTE
from fairhorizon.service.api.auth import Serving
from fairhorizon.service.api.bodies import Id
from fairhorizon.service.api.problems import ApiProblem
from fairhorizon.service.dashboard.auth import Visiting
from fairhorizon.service.dashboard.charts import Curve, LineChart, plain
from fairhorizon.service.dashboard.rendering import PageRoute, page
from fairhorizon.service.monitoring.periods import DAY, HOUR, Period
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.store import feedback, items, labels
from fairhorizon.service.store import state as service_state
from fairhorizon.service.store.items import Item
from fairhorizon.service.store.schema import item_hours, lists
from fairhorizon.service.store.schema import items as item_table

LOOKED_AT = 2000  # newest lists that are searched for an item
MOST_LISTS = 10
MOST_EVENTS = 20
HOURS = 7 * DAY // HOUR

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True)
class ShownIn:
    """A list that showed an item, and at which place, from 1."""

    row: Any
    place: int


@dataclass(frozen=True)
class ListSearch:
    """Lists that were found among the newest ones, and how far back these go."""

    found: list[ShownIn]
    looked_at: int
    since: float | None


@router.get("/dashboard/item/{item:path}")
def show_item(
    request: Request, service: Serving, visitor: Visiting, item: Annotated[Id, Path()]
) -> Response:
    with service.database.reading() as connection:
        state = service_state.read(service.database, connection)
        row = connection.execute(sa.select(item_table).where(item_table.c.id == item)).first()
        hours = shown_by_hour(connection, item, int(state.now // HOUR))
        search = lists_with(connection, item)
        events = feedback.newest(connection, MOST_EVENTS, item=item)
        if row is None and not any(hours.values()) and not search.found and not events:
            raise ApiProblem(404, f"no item is called {item!r}", "look for another id")
        content: dict[str, Any] = {
            "title": items.titles(connection, [item])[item],
            "item": item,
            "described": None if row is None else Item.from_row(row),
            "is_deleted": row is not None and row.deleted,
            "groups": groups_of(service.engine.snapshot, item),
            "is_popular": item in labels.of_epoch(connection, state.epoch),
            "shown": sum(hours.values()),
            "chart_of_item": _chart(hours),
            "search": search,
            "events": events,
        }
    return page(request, visitor, "item.html.j2", **content)


def groups_of(snapshot: ServingSnapshot | None, item: str) -> list[str] | None:
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
    rows = list(connection.execute(query))
    found = [ShownIn(row, row.items.index(item) + 1) for row in rows if item in row.items]
    return ListSearch(found[:MOST_LISTS], len(rows), rows[-1].served_at if rows else None)


def _chart(hours: dict[int, int]) -> LineChart:
    points = [(HOUR * hour, n) for hour, n in hours.items()]
    period = Period(HOUR * min(hours), HOUR * (max(hours) + 1), HOUR)
    curve = Curve("showings an hour", points, PALETTE[0])
    return LineChart("Showings an hour", (curve,), period, plain)
