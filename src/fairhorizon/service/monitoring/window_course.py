"""The share of a group in its window so far, which is what a limit is about, step by step."""

import calendar
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.budget.rules import Window
from fairhorizon.service.monitoring.limit_series import LimitSeries
from fairhorizon.service.monitoring.periods import Period
from fairhorizon.service.store.schema import accounts, windows


@dataclass(frozen=True)
class WindowTotal:
    """A window from its first moment, and its counts at the end or now, in units."""

    begin: float
    shown: int
    used: int


def window_totals(
    connection: Connection, limit_id: int, group: str, window: Window, period: Period
) -> list[WindowTotal]:
    """The windows of a group that reach into a period; none where they end by showings."""
    if window.showings is not None:
        return []
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
    return [
        WindowTotal(_midnight(row.name) if window.daily else 0.0, row.shown, row.used)
        for row in connection.execute(query)
    ]


def _midnight(name: str) -> float:
    return float(calendar.timegm(date.fromisoformat(name).timetuple()))


def window_course(series: LimitSeries, totals: Sequence[WindowTotal]) -> list[tuple[int, float]]:
    """The share in the window so far at the end of each step: backwards from the totals.

    Steps may not reach from one window into the next.
    """
    left = {one.begin: [one.used, one.shown] for one in totals}
    found = []
    for point in reversed(series.points):
        begin = max((begin for begin in left if begin <= point.time), default=None)
        if begin is None:
            continue
        used, shown = left[begin]
        if shown > 0:
            found.append((point.time, min(1.0, max(0.0, used / shown))))
        left[begin] = [used - point.spent, shown - point.shown]
    return found[::-1]
