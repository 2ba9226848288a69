"""Who gains and who loses exposure, from one stretch of hours to the next."""

import threading
import time
from dataclasses import dataclass

from sqlalchemy.engine import Connection

from fairhorizon.service.monitoring.item_figures import popular_now_share, shown_items
from fairhorizon.service.monitoring.periods import HOUR
from fairhorizon.service.store import items, labels

MOST = 10
REMEMBERED = 30.0  # seconds: all items are counted, and pages ask every few seconds


@dataclass(frozen=True)
class Mover:
    """An item, with its shares of all showings before and now."""

    item: str
    title: str
    before: float
    now: float

    @property
    def change(self) -> float:
        return self.now - self.before


@dataclass(frozen=True)
class Movers:
    """The items whose shares changed most; hours since 1970, the last of each not included."""

    before: tuple[int, int]
    now: tuple[int, int]
    n_before: int  # showings
    n_now: int
    popular: float | None  # share now of the items that are popular now; None: nothing was shown
    gains: tuple[Mover, ...] = ()
    losses: tuple[Mover, ...] = ()


def movers(connection: Connection, now: float, length: int) -> Movers:
    """The last `length` seconds, in full hours and the present one, against as many before."""
    end = int(now // HOUR) + 1
    begin = int((now - length) // HOUR)
    hours, earlier = (begin, end), (2 * begin - end, begin)
    after, before = shown_items(connection, hours), shown_items(connection, earlier)
    n_after, n_before = sum(after.values()), sum(before.values())
    popular = popular_now_share(after, labels.of_epoch(connection, labels.last(connection)[0]))
    if not n_after or not n_before:
        return Movers(earlier, hours, n_before, n_after, popular)
    changes = {
        one: after.get(one, 0) / n_after - before.get(one, 0) / n_before for one in after | before
    }
    order = sorted(changes, key=lambda one: (-changes[one], one))
    gains = [one for one in order[:MOST] if changes[one] > 0]
    losses = [one for one in order[: -MOST - 1 : -1] if changes[one] < 0]
    titles = items.titles(connection, [*gains, *losses])

    def moved(some: list[str]) -> tuple[Mover, ...]:
        return tuple(
            Mover(one, titles[one], before.get(one, 0) / n_before, after.get(one, 0) / n_after)
            for one in some
        )

    return Movers(earlier, hours, n_before, n_after, popular, moved(gains), moved(losses))


class RememberedMovers:
    """Counts them anew only after some seconds."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Movers, float]] = {}
        self._counting = threading.Lock()

    def of(self, connection: Connection, now: float, length: int) -> Movers:
        with self._counting:
            found, until = self._known.get(length, (None, 0.0))
            if found is None or time.monotonic() >= until:
                found = movers(connection, now, length)
                self._known[length] = found, time.monotonic() + REMEMBERED
            return found
