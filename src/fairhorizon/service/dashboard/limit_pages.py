"""Limits as pages show them, in words, in numbers and drawn, and the forms to change them."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from sqlalchemy.engine import Connection

from fairhorizon.errors import ConfigError, FairHorizonError
from fairhorizon.limits.language import POPULAR, RESERVED, GroupOf, Limit, number_of, written
from fairhorizon.report.charts import GREY, PALETTE
from fairhorizon.service.admin.set_up import create_limit
from fairhorizon.service.api.auth import Serving
from fairhorizon.service.background import Service
from fairhorizon.service.budget.rules import UNIT, Window, showings
from fairhorizon.service.dashboard.charts import Curve, LineChart, percent, plain
from fairhorizon.service.dashboard.pages import PageRoute, page, see_other
from fairhorizon.service.dashboard.sessions import AdminForm, CurrentVisitor, Submitted, Visitor
from fairhorizon.service.monitoring.counts import Period
from fairhorizon.service.monitoring.limits import (
    ORDER,
    AccountNow,
    LimitSeries,
    LimitStatus,
    limit_series,
    present_accounts,
    status_of,
    window_share,
    window_totals,
)
from fairhorizon.service.settings import Counts, ServiceSettings
from fairhorizon.service.store.database import DatabaseAwayError
from fairhorizon.service.store.state import end_limit, limit_row, limits_in_force

MOST_DRAWN = 3  # groups of one limit
MOST_OPEN = 5  # groups of one limit in the table; the others are folded
MOST_LISTED = 200
MOST_VALUES = 500  # values of columns to choose from
SHARE, STEP_SHARE, PRICE = PALETTE[0], GREY, PALETTE[3]
LIMITS = "/dashboard/limits"
LARGEST_SLACK = 10**9
LONGEST = 1000  # characters of a limit
DONE = {
    "created": "The limit is kept from now on.",
    "changed": "The limit is changed; it counts anew.",
    "ended": "The limit has ended.",
}
AT_MOST, AT_LEAST = "at most", "at least"
FIELDS = ("limit", "column", "value", "bound", "share", "window", "slack", "counts")
NEW = 0  # the form of a limit that is not there yet
Number = Annotated[int, Path(ge=1, le=2**53)]

router = APIRouter(route_class=PageRoute, include_in_schema=False)


@dataclass(frozen=True)
class GroupCard:
    """One group under a limit, in its present window."""

    account: AccountNow
    status: LimitStatus
    charts: tuple[LineChart, ...] = ()
    in_period: float | None = None  # share in the period that is drawn; None: nothing was shown

    @property
    def spent(self) -> float:
        return showings(self.account.used)


@dataclass(frozen=True)
class LimitCard:
    """A limit and how it stands; of many groups those that are worst come first."""

    row: Any
    limit: Limit
    groups: tuple[GroupCard, ...]
    n_groups: int

    @property
    def is_promised(self) -> bool:
        return not self.limit.is_floor

    @property
    def moves(self) -> bool:
        """Whether its group changes with the labels."""
        return self.limit.group == GroupOf(POPULAR)

    @property
    def slack(self) -> float:
        return showings(self.row.slack)

    @property
    def status(self) -> LimitStatus:
        """That of the worst group."""
        return max((one.status for one in self.groups), key=ORDER.index, default=ORDER[0])

    @property
    def window(self) -> AccountNow | None:
        """What all groups have in common."""
        return self.groups[0].account if self.groups else None

    @property
    def shown(self) -> float:
        return showings(self.groups[0].account.shown) if self.groups else 0.0


def limit_cards(
    connection: Connection, settings: ServiceSettings, period: Period | None = None
) -> list[LimitCard]:
    """All limits in force.

    period: to be drawn; None: nothing is drawn.
    """
    by_limit: dict[int, list[GroupCard]] = {}
    for account in present_accounts(connection):
        here = by_limit.setdefault(account.limit_id, [])
        here.append(GroupCard(account, status_of(account, settings.alert_at)))
    cards = []
    for row in limits_in_force(connection):
        groups = sorted(by_limit.get(row.id, []), key=_urgency, reverse=True)
        # A limit on each value of a column may have thousands of groups.
        drawn: Sequence[GroupCard] = groups[:MOST_LISTED]
        if period is not None:
            drawn = _drawn(connection, row, drawn, period)
        cards.append(LimitCard(row, Limit.parse(row.text), tuple(drawn), len(groups)))
    return cards


def _urgency(group: GroupCard) -> tuple[int, float]:
    """A key to sort by: how badly a group stands, and then how close to its line it is."""
    account = group.account
    part = (account.reached or 0.0) / account.share if account.share else 0.0
    return ORDER.index(group.status), -part if account.is_floor else part


def _drawn(
    connection: Connection, row: Any, groups: Sequence[GroupCard], period: Period
) -> list[GroupCard]:
    wanted = {(row.id, one.account.group) for one in groups[:MOST_DRAWN]}
    found = {one.group: one for one in limit_series(connection, period, wanted)}
    return [
        replace(
            one,
            charts=_charts(connection, row, found[one.account.group], period),
            in_period=found[one.account.group].share,
        )
        if one.account.group in found
        else one
        for one in groups
    ]


def _charts(
    connection: Connection, row: Any, series: LimitSeries, period: Period
) -> tuple[LineChart, ...]:
    """The share against its line, and the price."""
    totals: dict[float, tuple[int, int]] = {}
    # What is confirmed later is not counted by minute, so that there is no course of the window.
    if row.counts == Counts.SERVED:
        window = Window.parse(row.window)
        totals = window_totals(connection, row.id, series.group, window, period)
    course = window_share(series, totals)
    of_steps = Curve(
        "in the step",
        [(point.time, point.share) for point in series.points],
        STEP_SHARE if totals else SHARE,
        is_faint=bool(totals),
    )
    curves = [of_steps, Curve("in the window so far", course, SHARE)] if totals else [of_steps]
    prices = [(point.time, point.price) for point in series.points if point.price is not None]
    limit = series.limit
    return (
        LineChart(
            f"{series.group}: share of showings",
            curves,
            period,
            percent,
            line=limit.share,
            line_name=f"{'at least' if limit.is_floor else 'at most'} {percent(limit.share)}",
        ),
        LineChart(f"{series.group}: price", [Curve("price", prices, PRICE)], period, plain),
    )


@router.get(LIMITS)
def show_limits(
    request: Request,
    service: Serving,
    visitor: CurrentVisitor,
    done: Annotated[str, Query(max_length=20)] = "",
) -> Response:
    return _page(request, service, visitor, said=DONE.get(done, ""))


@router.post(LIMITS)
def create(request: Request, service: Serving, form: AdminForm) -> Response:
    def attempt() -> None:
        text = form.field("limit") or _chosen_limit(form)
        if len(text) > LONGEST:
            raise ConfigError(f"limit: more than {LONGEST} characters (give a shorter one)")
        counts = form.field("counts")
        create_limit(
            service.database,
            text,
            service.settings,
            window=form.field("window") or None,
            counts=Counts(counts).value if counts in list(Counts) else None,
            slack=_slack(form),
        )

    return _attempted(request, service, form, NEW, "created", attempt)


@router.post(LIMITS + "/{number}/change")
def change(request: Request, service: Serving, form: AdminForm, number: Number) -> Response:
    def attempt() -> None:
        row = _in_force(service, number)
        text = str(replace(Limit.parse(row.text), share=_share(form)))
        create_limit(
            service.database,
            text,
            service.settings,
            window=form.field("window") or row.window,
            counts=row.counts,
            slack=_slack(form) or row.slack // UNIT,
            instead_of=number,
        )

    return _attempted(request, service, form, number, "changed", attempt)


@router.post(LIMITS + "/{number}/end")
def end(request: Request, service: Serving, form: AdminForm, number: Number) -> Response:
    def attempt() -> None:
        _in_force(service, number)
        with service.database.writing() as connection:
            end_limit(service.database, connection, number)

    return _attempted(request, service, form, number, "ended", attempt)


def _attempted(
    request: Request,
    service: Service,
    form: Submitted,
    number: int,
    done: str,
    attempt: Callable[[], None],
) -> Response:
    """Do what a form asks for; then the list of limits, or the form again with what is wrong.

    number: of the limit that the form is about; NEW: the form of a new one.  done: a key of DONE.
    """
    try:
        attempt()
    except DatabaseAwayError:
        # Nothing is wrong with the form.
        raise
    except FairHorizonError as error:
        typed = {name: form.field(name) for name in FIELDS}
        problem = {"number": number, "text": str(error), "typed": typed}
        return _page(request, service, form.by, problem=problem)
    return see_other(f"{LIMITS}?done={done}")


def _page(
    request: Request,
    service: Service,
    visitor: Visitor,
    *,
    said: str = "",
    problem: dict[str, Any] | None = None,
) -> Response:
    with service.database.reading() as connection:
        cards = limit_cards(connection, service.settings)
    columns, values = _choices(service)
    # Somebody else has ended the limit meanwhile, so its form is not on the page.
    gone = problem is not None and problem["number"] not in {NEW, *(c.row.id for c in cards)}
    return page(
        request,
        visitor,
        "limits.html.j2",
        200 if problem is None else 422,
        cards=cards,
        said=said,
        problem=problem,
        problem_is_gone=gone,
        counts=[one.value for one in Counts],
        columns=columns,
        values=values,
        bounds=(AT_MOST, AT_LEAST),
        defaults=service.settings,
    )


def _in_force(service: Service, number: int) -> Any:
    with service.database.reading() as connection:
        row = limit_row(connection, number)
    if row is None or row.ended_at is not None:
        raise ConfigError(f"limit {number} is not in force any more (create another)")
    return row


def _chosen_limit(form: Submitted) -> str:
    """The limit whose column, value and share were chosen; without a value, of each value."""
    column, value = form.field("column"), form.field("value")
    if not column:
        raise ConfigError("limit: no column is chosen (choose one, or write the limit as text)")
    if column == POPULAR:
        group = GroupOf(POPULAR)
    else:
        group = GroupOf(column, (value,) if value else (), each=not value)
    return f"{group}{'>=' if form.field('bound') == AT_LEAST else '<='}{written(_share(form))}"


def _choices(service: Service) -> tuple[list[str], list[tuple[str, str]]]:
    """The columns that a limit can be about, and the most common values as pairs with a column."""
    snapshot = service.engine.snapshot
    known = {} if snapshot is None else snapshot.catalogue.column_values
    columns = [name for name in sorted(known) if name not in RESERVED]
    pairs = [(n, column, value) for column in columns for value, n in known[column].items()]
    # The most common ones, and of those as common in alphabetical order.
    pairs.sort(key=lambda one: (-one[0], one[1:]))
    return [POPULAR, *columns], sorted((column, value) for _, column, value in pairs[:MOST_VALUES])


def _share(form: Submitted) -> float:
    share = number_of(form.field("share"))
    if share is None or not 0 <= share <= 1:
        raise ConfigError(f"share {form.field('share')!r} (give a number from 0 to 1, such as 0.4)")
    return share


def _slack(form: Submitted) -> int | None:
    """None: nothing was typed."""
    text = form.field("slack")
    if not text:
        return None
    if not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= LARGEST_SLACK:
        raise ConfigError(f"slack {text!r} (give a whole number of showings, such as 200)")
    return int(text)
