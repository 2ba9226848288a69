"""The first page: what is served now, how limits are kept, and who gains or loses exposure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from sqlalchemy.engine import Connection

from fairhorizon.report.charts import PALETTE
from fairhorizon.service.admin import jobs
from fairhorizon.service.api.auth import Serving
from fairhorizon.service.budget.ledger import live_replicas
from fairhorizon.service.dashboard.charts import Curve, LineChart, milliseconds, plain
from fairhorizon.service.dashboard.limit_pages import MOST_OPEN, LimitCard, limit_cards
from fairhorizon.service.dashboard.pages import PageRoute, page
from fairhorizon.service.dashboard.sessions import CurrentVisitor
from fairhorizon.service.monitoring.alerts import active_alerts, ended_alerts
from fairhorizon.service.monitoring.counts import (
    DAY,
    HOUR,
    MINUTE,
    Period,
    latest_lists,
    short_lists,
    traffic,
)
from fairhorizon.service.monitoring.exposure import RememberedChanges
from fairhorizon.service.monitoring.limits import LimitStatus
from fairhorizon.service.store.state import model_row, read_state

MOST_ENDED = 5  # alerts that are over
MOST_JOBS = 20
MOST_NAMED = 3  # limits in the first sentence
NARROW = 340  # width of a chart, three of which are side by side

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class ChartPeriod:
    """A period to choose; steps divide a day, so that none reaches from one into the next."""

    words: str
    length: int
    step: int


CHART_PERIODS = {
    "1h": ChartPeriod("1 hour", HOUR, MINUTE),
    "24h": ChartPeriod("24 hours", DAY, 15 * MINUTE),
    "7d": ChartPeriod("7 days", 7 * DAY, 2 * HOUR),
}
USUAL = "1h"

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@router.get("/")
def overview(
    request: Request,
    service: Serving,
    visitor: CurrentVisitor,
    period: Annotated[str, Query(pattern=f"^({'|'.join(CHART_PERIODS)})$")] = USUAL,
) -> Response:
    stretch = CHART_PERIODS[period]
    remembered: RememberedChanges = request.app.state.changes
    with service.database.reading() as connection:
        state = read_state(service.database, connection)
        drawn = Period.last(state.now, stretch.length, stretch.step)
        cards = limit_cards(connection, service.settings, drawn)
        active = active_alerts(connection)
        content: dict[str, Any] = {
            "finding": finding(cards, len(active)),
            "alerts": active,
            "over": ended_alerts(connection, MOST_ENDED),
            "latest": latest_lists(connection, state.now),
            "short": short_lists(connection, state.lists, state.now),
            "charts": _traffic_charts(connection, drawn, state.now),
            "changes": remembered.over(connection, state.now, stretch.length),
            "replicas": live_replicas(connection),
            "model": None if state.model_id is None else model_row(connection, state.model_id),
            "jobs": _open_jobs(connection),
        }
    return page(
        request,
        visitor,
        "overview.html.j2",
        n_open=MOST_OPEN,
        stretches=CHART_PERIODS,
        period=period,
        stretch=stretch,
        cards=cards,
        state=state,
        **content,
    )


def _open_jobs(connection: Connection) -> list[Any]:
    return [row for row in jobs.newest(connection, MOST_JOBS) if row.state in jobs.OPEN]


def _traffic_charts(connection: Connection, drawn: Period, now: float) -> tuple[LineChart, ...]:
    points = traffic(connection, drawn, now)
    rates = [(one.time, one.per_second) for one in points]
    means = [(one.time, one.mean) for one in points if one.mean is not None]
    slowest = [(one.time, one.slowest) for one in points if one.slowest is not None]

    def chart(title: str, some: Points, colour: str, write: Callable[[float], str]) -> LineChart:
        return LineChart(title, (Curve(title, some, colour),), drawn, write, width=NARROW)

    return (
        chart("Lists a second", rates, PALETTE[2], plain),
        chart("Mean time of a list", means, PALETTE[3], milliseconds),
        chart("Slowest list", slowest, PALETTE[1], milliseconds),
    )


def finding(cards: list[LimitCard], n_alerts: int) -> str:
    """The sentence that the page opens with."""
    missed = [card for card in cards if card.status is LimitStatus.MISSED]
    # Near is where a promised limit often stays and is kept; a floor is not reached there.
    below = [card for card in cards if card.status is LimitStatus.NEAR and not card.is_promised]
    kept = len(cards) - len(missed) - len(below)
    if not cards:
        text = "No limit is in force."
    elif kept == len(cards):
        text = "The limit is kept." if kept == 1 else f"All {kept} limits are kept."
    else:
        parts = [f"{kept} of {len(cards)} limits kept"]
        parts += [f"{card.limit} missed" for card in missed[:MOST_NAMED]]
        parts += [f"{card.limit} nearly reached" for card in below[:MOST_NAMED]]
        text = "; ".join(parts) + "."
    if n_alerts:
        text += f" {n_alerts} alert{'s' * (n_alerts > 1)} active."
    return text
