"""How limits stand now, by one rule in whole units, and their shares and prices over time.

The dashboard, the API and alerts judge by the same rule.
"""

import calendar
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.errors import FairHorizonError
from fairhorizon.limits.language import Limit
from fairhorizon.service.budget.rules import UNIT, Window, allowed, share_units
from fairhorizon.service.monitoring.counts import MINUTE, Period
from fairhorizon.service.store.schema import (
    account_minutes,
    accounts,
    limits,
    window_minutes,
    windows,
)


@dataclass(frozen=True)
class AccountNow:
    """One group under one limit in its present window; all counts in units."""

    id: int
    limit_id: int
    text: str  # of the limit
    group: str
    is_floor: bool
    share: float  # asked for
    window_id: int
    window: str
    opened_at: float
    slack: int
    shown: int
    used: int
    pending: int
    charged: int
    price: float

    @property
    def reached(self) -> float | None:
        """The share of the showings in the window; None before the first."""
        return self.used / self.shown if self.shown else None


def present_accounts(connection: Connection, ids: Sequence[int] | None = None) -> list[AccountNow]:
    """The accounts of limits in force, or of some limits, in their last window."""
    last = (
        sa.select(windows.c.limit_id, sa.func.max(windows.c.id).label("id"))
        .group_by(windows.c.limit_id)
        .subquery()
    )
    which = limits.c.ended_at.is_(None) if ids is None else limits.c.id.in_(ids)
    query = (
        sa.select(
            accounts,
            limits.c.id.label("limit_id"),
            limits.c.text,
            limits.c.slack,
            windows.c.name,
            windows.c.opened_at,
            windows.c.shown,
        )
        .join(windows, windows.c.id == accounts.c.window_id)
        .join(last, last.c.id == windows.c.id)
        .join(limits, limits.c.id == windows.c.limit_id)
        .where(which)
        .order_by(limits.c.id, accounts.c.id)
    )
    found = []
    for row in connection.execute(query):
        limit = Limit.parse(row.text)
        found.append(
            AccountNow(
                row.id,
                row.limit_id,
                row.text,
                row.group,
                limit.is_floor,
                limit.share,
                row.window_id,
                row.name,
                row.opened_at,
                row.slack,
                row.shown,
                row.used,
                row.pending,
                row.charged,
                row.price,
            )
        )
    return found


class LimitStatus(StrEnum):
    """How far a group is from the line of its limit."""

    WAITING = "nothing shown yet"
    KEPT = "kept"
    NEAR = "near"  # of a limit: it has reached nearly its share; of a floor: it lacks a little
    MISSED = "missed"  # of a limit: beyond share and slack; of a floor: clearly below its share


# The worst one last.
ORDER = (LimitStatus.WAITING, LimitStatus.KEPT, LimitStatus.NEAR, LimitStatus.MISSED)


def line(account: AccountNow) -> int:
    """Units that the share alone stands for: a limit binds there, and a floor is steered there."""
    return share_units(Limit.parse(account.text)) * account.shown // UNIT


def promised(account: AccountNow) -> int:
    """Units that a limit never exceeds: its share and the slack."""
    return allowed(share_units(Limit.parse(account.text)), account.shown, account.slack)


def is_kept(account: AccountNow) -> bool:
    """Within share and slack; of a floor, whether the share is reached."""
    if account.is_floor:
        return account.used * UNIT >= share_units(Limit.parse(account.text)) * account.shown
    return account.used <= promised(account)


def status_of(account: AccountNow, near: float) -> LimitStatus:
    """How a group stands.

    near: the part of the share that a limit is near from, and that a floor is missed below.
    """
    if not account.shown:
        return LimitStatus.WAITING
    kept = is_kept(account)
    share = share_units(Limit.parse(account.text))
    # used / shown >= near * share, without a division.
    at_line = near * share * account.shown <= account.used * UNIT
    if account.is_floor:
        if kept:
            return LimitStatus.KEPT
        return LimitStatus.NEAR if at_line else LimitStatus.MISSED
    if not kept:
        return LimitStatus.MISSED
    return LimitStatus.NEAR if at_line else LimitStatus.KEPT


MOST_POINTS = 100_000  # of all series together


@dataclass(frozen=True)
class SharePoint:
    """One step in which something was shown; counts in units."""

    time: int  # when the step begins
    shown: int  # of everything, while the limit was in force
    spent: int  # of the group
    price: float | None  # the last of the step; None: nothing of the group was shown

    @property
    def share(self) -> float:
        return self.spent / self.shown


@dataclass(frozen=True)
class LimitSeries:
    """One group under one limit; a limit goes on over its windows, but ends when it is changed."""

    limit_id: int
    limit: Limit
    group: str  # as the account calls it
    points: tuple[SharePoint, ...]

    @property
    def share(self) -> float | None:
        """Of all showings of the period; None: there were none."""
        shown = sum(point.shown for point in self.points)
        return sum(point.spent for point in self.points) / shown if shown else None


def limit_series(
    connection: Connection,
    period: Period,
    only: Collection[tuple[int, str]] | None = None,
) -> list[LimitSeries]:
    """Showings by step, of all limits that were in force in the period.

    only: some groups, by the limit and their names; None: all of them.
    """
    known = _limits_in(connection, period, None if only is None else {limit for limit, _ in only})
    if not known:
        return []
    names = None if only is None else {group for _, group in only}
    shown = _shown_by_step(connection, period, list(known))
    spent, prices = _spent_by_step(connection, period, list(known), names)
    groups = [
        key for key in _groups_of(connection, period, list(known)) if only is None or key in only
    ]
    n_points = sum(len(shown[number]) for number, _ in groups)
    if n_points > MOST_POINTS:
        raise FairHorizonError(
            f"step: the series of {len(groups):,} groups have {n_points:,} points together, "
            f"{MOST_POINTS:,} are the most (give a longer step)"
        )
    return [
        LimitSeries(
            number,
            known[number],
            group,
            tuple(
                SharePoint(
                    period.time(step),
                    units,
                    spent.get((number, group, step), 0),
                    prices.get((number, group, step)),
                )
                for step, units in sorted(shown[number].items())
            ),
        )
        for number, group in groups
    ]


def _limits_in(
    connection: Connection, period: Period, ids: Collection[int] | None
) -> dict[int, Limit]:
    query = sa.select(limits.c.id, limits.c.text).where(
        limits.c.created_at < period.end,
        sa.or_(limits.c.ended_at.is_(None), limits.c.ended_at >= period.begin),
    )
    if ids is not None:
        query = query.where(limits.c.id.in_(ids))
    rows = connection.execute(query.order_by(limits.c.id))
    return {row.id: Limit.parse(row.text) for row in rows}


def _groups_of(connection: Connection, period: Period, ids: list[int]) -> list[tuple[int, str]]:
    """The groups of each limit, in the order in which it has them."""
    query = (
        sa.select(windows.c.limit_id, accounts.c.group, sa.func.min(accounts.c.id).label("first"))
        .join(windows, windows.c.id == accounts.c.window_id)
        .where(
            windows.c.limit_id.in_(ids),
            windows.c.opened_at < period.end,
            sa.or_(windows.c.closed_at.is_(None), windows.c.closed_at >= period.begin),
        )
        .group_by(windows.c.limit_id, accounts.c.group)
        .order_by(windows.c.limit_id, "first")
    )
    return [(row.limit_id, row.group) for row in connection.execute(query)]


def _step(column: sa.Column[Any], period: Period) -> sa.ColumnElement[int]:
    first, _ = period.minutes
    return (column - first) // (period.step // MINUTE)


def _within(column: sa.Column[Any], period: Period) -> sa.ColumnElement[bool]:
    first, last = period.minutes
    return sa.and_(column >= first, column < last)


def _shown_by_step(
    connection: Connection, period: Period, ids: list[int]
) -> dict[int, dict[int, int]]:
    """Units of everything, by limit and step."""
    minute = (
        sa.select(
            windows.c.limit_id,
            _step(window_minutes.c.minute, period).label("step"),
            window_minutes.c.shown,
        )
        .join(windows, windows.c.id == window_minutes.c.window_id)
        .where(_within(window_minutes.c.minute, period), windows.c.limit_id.in_(ids))
        .subquery()
    )
    query = sa.select(
        minute.c.limit_id, minute.c.step, sa.func.sum(minute.c.shown).label("shown")
    ).group_by(minute.c.limit_id, minute.c.step)
    found: defaultdict[int, dict[int, int]] = defaultdict(dict)
    for row in connection.execute(query):
        if row.shown:
            found[row.limit_id][int(row.step)] = int(row.shown)
    return found


def _spent_by_step(
    connection: Connection, period: Period, ids: list[int], names: Collection[str] | None
) -> tuple[dict[tuple[int, str, int], int], dict[tuple[int, str, int], float]]:
    """Units of each group by step, and its last price there."""
    rows = (
        sa.select(
            account_minutes.c.account_id,
            _step(account_minutes.c.minute, period).label("step"),
            account_minutes.c.minute,
            account_minutes.c.used,
        )
        .join(accounts, accounts.c.id == account_minutes.c.account_id)
        .where(_within(account_minutes.c.minute, period))
    )
    minute = (rows if names is None else rows.where(accounts.c.group.in_(names))).subquery()
    summed = (
        sa.select(
            minute.c.account_id,
            minute.c.step,
            sa.func.sum(minute.c.used).label("used"),
            sa.func.max(minute.c.minute).label("last"),
        )
        .group_by(minute.c.account_id, minute.c.step)
        .subquery()
    )
    last = account_minutes.alias()
    query = (
        sa.select(windows.c.limit_id, accounts.c.group, summed, last.c.price)
        .join(accounts, accounts.c.id == summed.c.account_id)
        .join(windows, windows.c.id == accounts.c.window_id)
        .join(
            last,
            sa.and_(last.c.account_id == summed.c.account_id, last.c.minute == summed.c.last),
        )
        .where(windows.c.limit_id.in_(ids))
        # In this order, so that the last price of a step is the one that stays below.
        .order_by(summed.c.last, summed.c.account_id)
    )
    spent: defaultdict[tuple[int, str, int], int] = defaultdict(int)
    prices: dict[tuple[int, str, int], float] = {}
    for row in connection.execute(query):
        key = row.limit_id, row.group, int(row.step)
        spent[key] += int(row.used)
        prices[key] = row.price
    return spent, prices


def window_totals(
    connection: Connection, limit_id: int, group: str, window: Window, period: Period
) -> dict[float, tuple[int, int]]:
    """Units used and shown in the windows of a group that reach into a period, by their begin.

    Counts are those of the end of a window, or of now. None where windows end by showings.
    """
    if window.showings is not None:
        return {}
    query = (
        sa.select(windows.c.name, windows.c.shown, accounts.c.used)
        .join(accounts, accounts.c.window_id == windows.c.id)
        .where(
            windows.c.limit_id == limit_id,
            accounts.c.group == group,
            windows.c.opened_at < period.end,
            sa.or_(windows.c.closed_at.is_(None), windows.c.closed_at >= period.begin),
        )
        .order_by(windows.c.id)
    )
    return {
        _midnight(row.name) if window.daily else 0.0: (row.used, row.shown)
        for row in connection.execute(query)
    }


def _midnight(name: str) -> float:
    return float(calendar.timegm(date.fromisoformat(name).timetuple()))


def window_share(
    series: LimitSeries, totals: Mapping[float, tuple[int, int]]
) -> list[tuple[int, float]]:
    """The share in the window so far at the end of each step: backwards from the totals.

    Steps may not reach from one window into the next.
    """
    left = dict(totals)
    found = []
    for point in reversed(series.points):
        begin = max((begin for begin in left if begin <= point.time), default=None)
        if begin is None:
            continue
        used, shown = left[begin]
        if shown > 0:
            # Clamped: lists are in the totals at once, but in the minutes only once rolled up.
            found.append((point.time, min(1.0, max(0.0, used / shown))))
        left[begin] = used - point.spent, shown - point.shown
    return found[::-1]
