"""How many lists are served, and how long they take."""

from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.monitoring.periods import MINUTE, Period
from fairhorizon.service.store.schema import lists, minutes

NEWEST = 2000  # lists that quantiles are of
JUST_NOW = 60.0  # seconds


@dataclass(frozen=True)
class LatestLists:
    """The newest lists; times in milliseconds, from a request to its record."""

    n: int
    since: float | None  # when the first of them was served
    per_second: float  # in the last minute
    mean: float | None
    median: float | None
    p99: float | None
    slowest: float | None


def latest_lists(connection: Connection, now: float) -> LatestLists:
    """Of at most so many lists; None where there are none."""
    query = sa.select(lists.c.served_at, lists.c.milliseconds)
    rows = list(connection.execute(query.order_by(lists.c.number.desc()).limit(NEWEST)))
    if not rows:
        return LatestLists(0, None, 0.0, None, None, None, None)
    times = np.array([row.milliseconds for row in rows])
    recent = sum(row.served_at > now - JUST_NOW for row in rows)
    # where all of them are of the last minute there may have been more
    span = JUST_NOW if recent < NEWEST else max(1e-3, now - rows[-1].served_at)
    median, p99 = np.quantile(times, [0.5, 0.99]).tolist()
    return LatestLists(
        len(rows),
        rows[-1].served_at,
        recent / span,
        float(times.mean()),
        median,
        p99,
        float(times.max()),
    )


@dataclass(frozen=True)
class TrafficPoint:
    """One step; no lists have no times."""

    time: int
    per_second: float
    mean: float | None  # milliseconds
    slowest: float | None


def traffic(connection: Connection, period: Period, now: float) -> list[TrafficPoint]:
    """Step by step since the first list ever.

    A step that has just begun says little and is left out, if there is another one.
    """
    first, last = period.minutes
    query = sa.select(minutes).where(minutes.c.minute >= first, minutes.c.minute < last)
    rows = list(connection.execute(query.order_by(minutes.c.minute)))
    earliest = connection.execute(sa.select(sa.func.min(minutes.c.minute))).scalar()
    if earliest is None:
        return []
    sums: dict[int, list[float]] = {}
    for row in rows:
        one = sums.setdefault((row.minute - first) // (period.step // MINUTE), [0, 0.0, 0.0])
        one[0] += row.lists
        one[1] += row.milliseconds
        one[2] = max(one[2], row.slowest)
    found: list[TrafficPoint] = []
    for step in range(max(0, (earliest - first) // (period.step // MINUTE)), period.n_steps):
        begun = period.time(step)
        length = min(period.step, now - begun)
        if length <= 0 or (found and length < period.step / 2):
            continue
        n, milliseconds, slowest = sums.get(step, [0, 0.0, 0.0])
        found.append(
            TrafficPoint(begun, n / length, milliseconds / n if n else None, slowest if n else None)
        )
    return found
