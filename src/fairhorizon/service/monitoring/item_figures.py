"""Showings of items by full hours: providers, evenness, and who is popular now."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.metrics.fairness import gini
from fairhorizon.service.monitoring.periods import HOUR, MINUTE, Period
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.store import items as item_rows
from fairhorizon.service.store.items import Item
from fairhorizon.service.store.schema import item_hours, labels, minutes

PROVIDER_COLUMNS = ("seller", "provider", "brand", "artist", "shop")
MOST_EPOCHS = 100  # the newest of a period
AT_ONCE = 500  # ids in one query


@dataclass(frozen=True, eq=False)
class KnownItems:
    """The items of the service, deleted ones too, and those that may be shown now."""

    rows: Mapping[str, Item]
    open_ids: Sequence[str]


def known_items(snapshot: ServingSnapshot | None, connection: Connection) -> KnownItems:
    """As a replica has them in memory, else as they are stored."""
    if snapshot is not None:
        here = snapshot.catalogue
        shut = here.shut.tolist()
        return KnownItems(
            here.rows, [one for one, closed in zip(here.ids, shut, strict=True) if not closed]
        )
    found = item_rows.changed_since(connection, -1)
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
