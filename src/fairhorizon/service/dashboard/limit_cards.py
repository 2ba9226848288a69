"""Limits as the pages show them: in words, in numbers, and drawn over time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy.engine import Connection

from fairhorizon.limits.language import POPULAR, GroupOf, Limit
from fairhorizon.report.styles import GREY, PALETTE
from fairhorizon.service.budget.rules import Window, showings
from fairhorizon.service.dashboard.charts import Curve, LineChart, percent, plain
from fairhorizon.service.monitoring.limit_series import LimitSeries, limit_series
from fairhorizon.service.monitoring.periods import Period
from fairhorizon.service.monitoring.standing import ORDER, LimitStanding, standing
from fairhorizon.service.monitoring.window_course import window_course, window_totals
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store import limits
from fairhorizon.service.store.budgets import AccountNow, present_accounts
from fairhorizon.service.vocabulary import Counts

MOST_DRAWN = 3  # groups of one limit
MOST_LISTED = 20
SHARE, STEP_SHARE, PRICE = PALETTE[0], GREY, PALETTE[3]


@dataclass(frozen=True)
class GroupCard:
    """One group under a limit, in its present window."""

    account: AccountNow
    standing: LimitStanding
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
    def standing(self) -> LimitStanding:
        """That of the worst group."""
        return max((one.standing for one in self.groups), key=ORDER.index, default=ORDER[0])

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
        here.append(GroupCard(account, standing(account, settings.alert_at)))
    cards = []
    for row in limits.in_force(connection):
        groups = sorted(by_limit.get(row.id, []), key=_urgency, reverse=True)
        drawn: Sequence[GroupCard] = groups[:MOST_LISTED]
        if period is not None:
            drawn = _drawn(connection, row, drawn, period)
        cards.append(LimitCard(row, Limit.parse(row.text), tuple(drawn), len(groups)))
    return cards


def _urgency(group: GroupCard) -> tuple[int, float]:
    """How badly it stands, and how close to its line it is."""
    account = group.account
    part = (account.reached or 0.0) / account.share if account.share else 0.0
    return ORDER.index(group.standing), -part if account.is_floor else part


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
    totals = []
    if row.counts == Counts.SERVED:  # what is confirmed later is not counted by minute
        window = Window.parse(row.window)
        totals = window_totals(connection, row.id, series.group, window, period)
    course = window_course(series, totals)
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
