"""Exposure over a period: limits, items, providers, Gini index, new labels, and what changed."""

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.limits.language import POPULAR, GroupOf
from fairhorizon.metrics.fairness import gini
from fairhorizon.service.monitoring.counts import HOUR, MINUTE, Period
from fairhorizon.service.monitoring.limits import LimitSeries, limit_series
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.store.catalogue import Item, item_titles, items_changed_since
from fairhorizon.service.store.schema import item_hours, labels, minutes
from fairhorizon.service.store.state import last_epoch, popular_in_epoch

PROVIDER_COLUMNS = ("seller", "provider", "brand", "artist", "shop")
MOST_EPOCHS = 100  # the newest of a period
AT_ONCE = 500  # ids in one query
MOST_CHANGES = 10  # items that gain, and as many that lose
REMEMBERED = 30.0  # seconds: all items are counted, and pages ask every few seconds


@dataclass(frozen=True, eq=False)
class KnownItems:
    """The items of the service, deleted ones too, and those that may be shown now."""

    rows: Mapping[str, Item]
    open_ids: Sequence[str]


def known_items(snapshot: ServingSnapshot | None, connection: Connection) -> KnownItems:
    """As a replica has them in memory, else as they are stored."""
    if snapshot is not None:
        here = snapshot.catalogue
        hidden = here.hidden.tolist()
        return KnownItems(
            here.rows, [one for one, closed in zip(here.ids, hidden, strict=True) if not closed]
        )
    found = items_changed_since(connection, -1)
    return KnownItems(
        {one.id: one for one, _ in found},
        [one.id for one, there in found if there and not one.hidden],
    )


def shown_items(connection: Connection, hours: tuple[int, int]) -> dict[str, int]:
    """How often each item was shown from one hour since 1970 until before another."""
    query = (
        sa.select(item_hours.c.item_id, sa.func.sum(item_hours.c.shown).label("shown"))
        .where(item_hours.c.hour >= hours[0], item_hours.c.hour < hours[1])
        .group_by(item_hours.c.item_id)
    )
    return {row.item_id: int(row.shown) for row in connection.execute(query)}


def gini_of(shown: Mapping[str, int], known: KnownItems) -> float | None:
    """Over all items that may be shown or were; None: nothing was shown."""
    if not shown:
        return None
    counts = [*shown.values(), *(0 for one in known.open_ids if one not in shown)]
    return gini(np.array(counts))


def provider_column(chosen: str | None, rows: Mapping[str, Item]) -> str | None:
    """The column that names who provides items: as chosen, else the first usual one there is."""
    if chosen is not None:
        return chosen
    found: set[str] = set()
    for item in rows.values():
        if isinstance(item.labels, Mapping):
            found.update(name for name in PROVIDER_COLUMNS if name in item.labels)
            if PROVIDER_COLUMNS[0] in found:
                break
    return next((name for name in PROVIDER_COLUMNS if name in found), None)


def shown_providers(shown: Mapping[str, int], known: KnownItems, column: str) -> dict[str, int]:
    """Showings of each provider, the most shown first; an item of several counts for each."""
    counts: defaultdict[str, int] = defaultdict(int)
    for one in dict.fromkeys([*known.open_ids, *shown]):
        item = known.rows.get(one)
        cell = "" if item is None else item.columns().get(column, "")
        for provider in {part.strip() for part in cell.split("|")} - {""}:
            counts[provider] += shown.get(one, 0)
    return dict(sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])))


@dataclass(frozen=True)
class EpochChange:
    """What an epoch of labels has changed against the one before."""

    epoch: int
    time: float
    entered: int
    left: int
    share: float | None  # of all showings so far, by these items; None: nothing was shown


def churn(connection: Connection, period: Period) -> list[EpochChange]:
    """Who became popular, and who no longer is, with each epoch that began in the period.

    The share is of all showings until the end of the hour in which the epoch began, without the
    training log. A first epoch changes nothing.
    """
    query = sa.select(labels).where(
        labels.c.begun_at >= period.begin, labels.c.begun_at < period.end
    )
    rows = list(connection.execute(query.order_by(labels.c.epoch.desc()).limit(MOST_EPOCHS)))[::-1]
    if not rows:
        return []
    query = sa.select(labels.c.popular).where(labels.c.epoch < rows[0].epoch)
    before = connection.execute(query.order_by(labels.c.epoch.desc()).limit(1)).scalar()
    found = []
    for row in rows:
        now = set(row.popular)
        if before is not None:
            then = set(before)
            until = int(row.begun_at // HOUR) + 1
            # The symmetric difference: whoever entered or left.
            share = _share_until(connection, now ^ then, until)
            found.append(
                EpochChange(row.epoch, row.begun_at, len(now - then), len(then - now), share)
            )
        before = row.popular
    return found


def _share_until(connection: Connection, ids: Iterable[str], hour: int) -> float | None:
    """The share of some items of all showings before an hour."""
    query = sa.select(sa.func.sum(minutes.c.showings)).where(
        minutes.c.minute < hour * HOUR // MINUTE
    )
    total = int(connection.execute(query).scalar() or 0)
    if not total:
        return None
    some, inside = sorted(ids), 0
    for begin in range(0, len(some), AT_ONCE):
        query = sa.select(sa.func.sum(item_hours.c.shown)).where(
            item_hours.c.item_id.in_(some[begin : begin + AT_ONCE]), item_hours.c.hour < hour
        )
        inside += int(connection.execute(query).scalar() or 0)
    return inside / total


def popular_now_share(shown: Mapping[str, int], popular: Iterable[str]) -> float | None:
    """The share of showings by the labels of now; None: nothing was shown."""
    total = sum(shown.values())
    return sum(shown.get(one, 0) for one in popular) / total if total else None


@dataclass(frozen=True, eq=False)
class ExposureReport:
    """What was shown in a period; items are counted in the full hours that it touches."""

    period: Period
    series: list[LimitSeries]
    shown: dict[str, int]  # by item
    column: str | None  # that names providers
    providers: dict[str, int]  # showings of each
    gini: float | None
    churn: list[EpochChange]
    popular_now: float | None  # share of the items that are popular now

    @property
    def total(self) -> int:
        return sum(self.shown.values())

    @property
    def on_popular(self) -> list[LimitSeries]:
        """The limits whose group moves: the labels of now are not those that they count."""
        return [one for one in self.series if one.limit.group == GroupOf(POPULAR)]


def exposure(
    connection: Connection,
    period: Period,
    *,
    snapshot: ServingSnapshot | None,
    provider: str | None,
) -> ExposureReport:
    """Everything about a period.

    snapshot: as a replica has it, None: items are read from the database.
    provider: the column that names who provides items; None: a usual one, if items have it.
    """
    known, shown = known_items(snapshot, connection), shown_items(connection, period.hours)
    column = provider_column(provider, known.rows)
    popular = popular_in_epoch(connection, last_epoch(connection)[0])
    return ExposureReport(
        period,
        limit_series(connection, period),
        shown,
        column,
        {} if column is None else shown_providers(shown, known, column),
        gini_of(shown, known),
        churn(connection, period),
        popular_now_share(shown, popular),
    )


@dataclass(frozen=True)
class ShareChange:
    """An item, with its shares of all showings before and now."""

    item: str
    title: str
    before: float
    now: float

    @property
    def change(self) -> float:
        return self.now - self.before


@dataclass(frozen=True)
class ExposureChanges:
    """The items whose shares changed most; hours since 1970, the last of each not included."""

    before: tuple[int, int]
    now: tuple[int, int]
    n_before: int  # showings
    n_now: int
    popular: float | None  # share now of the items that are popular now; None: nothing was shown
    gains: tuple[ShareChange, ...] = ()
    losses: tuple[ShareChange, ...] = ()


def exposure_changes(connection: Connection, now: float, length: int) -> ExposureChanges:
    """The last `length` seconds, in full hours and the present one, against as many before."""
    end = int(now // HOUR) + 1
    begin = int((now - length) // HOUR)
    hours, earlier = (begin, end), (2 * begin - end, begin)
    after, before = shown_items(connection, hours), shown_items(connection, earlier)
    n_after, n_before = sum(after.values()), sum(before.values())
    popular = popular_now_share(after, popular_in_epoch(connection, last_epoch(connection)[0]))
    if not n_after or not n_before:
        return ExposureChanges(earlier, hours, n_before, n_after, popular)
    changes = {
        one: after.get(one, 0) / n_after - before.get(one, 0) / n_before for one in after | before
    }
    order = sorted(changes, key=lambda one: (-changes[one], one))
    gains = [one for one in order[:MOST_CHANGES] if changes[one] > 0]
    losses = [one for one in order[: -MOST_CHANGES - 1 : -1] if changes[one] < 0]
    titles = item_titles(connection, [*gains, *losses])

    def moved(some: list[str]) -> tuple[ShareChange, ...]:
        return tuple(
            ShareChange(
                one, titles[one], before.get(one, 0) / n_before, after.get(one, 0) / n_after
            )
            for one in some
        )

    return ExposureChanges(earlier, hours, n_before, n_after, popular, moved(gains), moved(losses))


class RememberedChanges:
    """Counts them anew only after some seconds."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[ExposureChanges, float]] = {}
        self._counting = threading.Lock()

    def over(self, connection: Connection, now: float, length: int) -> ExposureChanges:
        # One thread counts and the others wait for its result.
        with self._counting:
            found, until = self._known.get(length, (None, 0.0))
            if found is None or time.monotonic() >= until:
                found = exposure_changes(connection, now, length)
                self._known[length] = found, time.monotonic() + REMEMBERED
            return found
