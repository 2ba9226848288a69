"""Lists counted by minute and by hour: as they are recorded, and read over a period."""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.errors import FairHorizonError
from fairhorizon.limits.language import Limit
from fairhorizon.service.budget.rules import place_units
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import (
    account_minutes,
    accounts,
    item_hours,
    limits,
    lists,
    minutes,
    window_minutes,
    windows,
)
from fairhorizon.service.store.state import change_state, lock_state, read_state

MINUTE, HOUR, DAY = 60, 3600, 86_400
SHORTEST_STEP, LONGEST_STEP = MINUTE, 30 * DAY
MOST_STEPS = 2000
USUAL_STEPS = 100
LAST_MOMENT = 253_370_764_800  # the year 9999


@dataclass(frozen=True)
class Period:
    """From a full minute to a full minute; steps are whole minutes, the last may be cut off."""

    begin: int  # seconds since 1970
    end: int
    step: int

    @classmethod
    def asked(
        cls, now: float, begin: float | None, end: float | None, step: float | None
    ) -> "Period":
        """Widened to full minutes, a step rounded up to them.

        Without an end it is now, without a begin a day before; without a step it has about a
        hundred.
        """
        until = now if end is None else end
        since = until - DAY if begin is None else begin
        if not 0 <= since < until <= LAST_MOMENT:
            raise FairHorizonError(
                "from and to: the time between them is empty, or beyond the calendar (give a "
                "`from` before `to`, both between 1970 and 9999)"
            )
        first, last = MINUTE * math.floor(since / MINUTE), MINUTE * math.ceil(until / MINUTE)
        length = last - first
        if step is None:
            step = min(max(length / USUAL_STEPS, SHORTEST_STEP), LONGEST_STEP)
        period = cls(first, last, MINUTE * math.ceil(step / MINUTE))
        if period.n_steps > MOST_STEPS:
            least = max(SHORTEST_STEP, MINUTE * math.ceil(length / MOST_STEPS / MINUTE))
            remedy = f"give a step of at least {least} seconds"
            if least > LONGEST_STEP:
                remedy = f"give a period of at most {MOST_STEPS * LONGEST_STEP // DAY} days"
            raise FairHorizonError(
                f"step: {period.n_steps:,} points, {MOST_STEPS:,} are the most ({remedy})"
            )
        return period

    @classmethod
    def last(cls, now: float, length: int, step: int) -> "Period":
        """The last `length` seconds, begun at a multiple of the step; the present step is in it."""
        end = step * (math.floor(now / step) + 1)
        return cls(end - length, end, step)

    @property
    def n_steps(self) -> int:
        return -(-(self.end - self.begin) // self.step)

    def time(self, step: int) -> int:
        """When a step begins."""
        return self.begin + step * self.step

    @property
    def minutes(self) -> tuple[int, int]:
        """The first minute since 1970, and the one after the last."""
        return self.begin // MINUTE, self.end // MINUTE

    @property
    def hours(self) -> tuple[int, int]:
        """The first full hour since 1970 that is touched, and the one after the last."""
        return self.begin // HOUR, -(-self.end // HOUR)


AT_ONCE = 25  # lists of one transaction: requests wait for it
COLUMNS = [
    lists.c[name] for name in ("number", "served_at", "milliseconds", "items", "labels", "windows")
]

_Sums = defaultdict[tuple[int, Any], int]  # by time and whatever is counted


def roll_up(database: Database) -> int:
    """Count lists that were recorded since the last time; how many these were.

    Every list is counted once, whatever replica asks and whenever one ends: which lists are in the
    counts is written with the counts. They are added up before the lock is taken, which whoever
    records lists waits for.
    """
    with database.reading() as connection:
        seen = read_state(database, connection)
        if seen.rolled_up == seen.lists:
            return 0
        query = sa.select(*COLUMNS).where(lists.c.number > seen.rolled_up)
        rows = list(connection.execute(query.order_by(lists.c.number).limit(AT_ONCE)))
        by_time = _CountsByTime.from_lists(connection, rows)
    with database.writing() as connection:
        if lock_state(database, connection).rolled_up != seen.rolled_up:
            # Another replica was faster, and has counted the same lists.
            return 0
        by_time.write(database, connection)
        change_state(connection, rolled_up=rows[-1].number)
    return len(rows)


@dataclass(frozen=True)
class _CountsByTime:
    """Some lists, added up by time."""

    traffic: dict[int, list[float]]  # by minute: lists, showings, milliseconds, the slowest
    items: _Sums  # by hour and item
    shown: _Sums  # units by minute and window
    used: _Sums  # units by minute and account, served ones whether or not they are confirmed
    prices: dict[int, float]  # of accounts

    @classmethod
    def from_lists(cls, connection: Connection, rows: list[Any]) -> "_CountsByTime":
        limit_of, window_of, prices = _known_accounts(connection, rows)
        tally = cls({}, defaultdict(int), defaultdict(int), defaultdict(int), prices)
        for row in rows:
            minute, length = int(row.served_at // MINUTE), len(row.items)
            # By the minute in which lists were served, not in which they are counted.
            one = tally.traffic.setdefault(minute, [0, 0, 0.0, 0.0])
            one[0] += 1
            one[1] += length
            one[2] += row.milliseconds
            one[3] = max(one[3], row.milliseconds)
            for item in row.items:
                tally.items[int(row.served_at // HOUR), item] += 1
            for window in row.windows:
                tally.shown[minute, window] += sum(place_units(limit_of[window], length))
            for place, inside in enumerate(row.labels):
                for account in inside:
                    units = place_units(limit_of[window_of[account]], length)[place]
                    tally.used[minute, account] += units
        return tally

    def write(self, database: Database, connection: Connection) -> None:
        """Add it to what the tables have."""
        names = ("lists", "showings", "milliseconds", "slowest")
        traffic = [
            {"minute": minute, **dict(zip(names, one, strict=True))}
            for minute, one in self.traffic.items()
        ]
        _add_rows(database, connection, minutes, ("minute",), traffic)
        items = [{"hour": h, "item_id": i, "shown": n} for (h, i), n in self.items.items()]
        _add_rows(database, connection, item_hours, ("hour", "item_id"), items)
        shown = [{"minute": m, "window_id": w, "shown": n} for (m, w), n in self.shown.items()]
        _add_rows(database, connection, window_minutes, ("minute", "window_id"), shown)
        used = [
            {"minute": m, "account_id": a, "used": n, "price": self.prices[a]}
            for (m, a), n in self.used.items()
        ]
        _add_rows(database, connection, account_minutes, ("minute", "account_id"), used)


def _known_accounts(
    connection: Connection, rows: list[Any]
) -> tuple[dict[int, Limit], dict[int, int], dict[int, float]]:
    """The limits of windows, the windows of accounts, and the prices of these."""
    ids = {window for row in rows for window in row.windows}
    query = sa.select(windows.c.id, limits.c.text).join(limits, limits.c.id == windows.c.limit_id)
    found = connection.execute(query.where(windows.c.id.in_(ids)))
    limit_of = {row.id: Limit.parse(row.text) for row in found}
    query = sa.select(accounts.c.id, accounts.c.window_id, accounts.c.price)
    own = list(connection.execute(query.where(accounts.c.window_id.in_(ids))))
    return limit_of, {one.id: one.window_id for one in own}, {one.id: one.price for one in own}


def _add_rows(
    database: Database,
    connection: Connection,
    table: sa.Table,
    keys: tuple[str, ...],
    rows: list[dict[str, Any]],
) -> None:
    """Add rows to those that are there; of a price the last one stays, of the slowest the most."""
    if not rows:
        return
    insert = database.insert(table)
    new: dict[str, Any] = {}
    for name in (one.name for one in table.c if one.name not in keys):
        old, more = table.c[name], insert.excluded[name]
        if name == "slowest":
            new[name] = sa.case((old > more, old), else_=more)
        else:
            new[name] = more if name == "price" else old + more
    connection.execute(insert.on_conflict_do_update(index_elements=list(keys), set_=new), rows)


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
    # Where all of them are of the last minute there may have been more.
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


def short_lists(connection: Connection, n_lists: int, now: float) -> tuple[int, int, int]:
    """How many of the newest lists there are, are shorter than asked for, and are empty.

    n_lists: recorded so far, which is the number of the newest one.
    """
    first = max(0, n_lists - NEWEST)
    query = sa.select(lists.c["items"]).where(
        lists.c.number > first, lists.c.missing > 0, lists.c.served_at > now - HOUR
    )
    short = list(connection.execute(query).scalars())
    return n_lists - first, len(short), sum(not one for one in short)


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
        started = period.time(step)
        length = min(period.step, now - started)
        if length <= 0 or (found and length < period.step / 2):
            continue
        n, milliseconds, slowest = sums.get(step, [0, 0.0, 0.0])
        found.append(
            TrafficPoint(
                started, n / length, milliseconds / n if n else None, slowest if n else None
            )
        )
    return found
