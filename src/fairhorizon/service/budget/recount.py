"""The accounts once more, from recorded lists and confirmations alone.

    used       units of the group in all places that count
    shown      units of all places that count, in the lists of a window
    pending    units of the group in places that may still be confirmed

Under a limit on served showings all places count, else those that were confirmed. What is stored
must be the same to the unit, and `charged = used + pending + what is left of leases`.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.limits.language import Limit
from fairhorizon.service.budget.rules import place_units
from fairhorizon.service.settings import Counts
from fairhorizon.service.store.schema import (
    accounts,
    confirmations,
    leases,
    limits,
    lists,
    unconfirmed,
    windows,
)

AT_ONCE = 1000  # lists in memory

Places = dict[str, set[int]]  # of each list


@dataclass(frozen=True)
class Tally:
    """What was counted for one group in one window, in units."""

    used: int = 0
    shown: int = 0
    pending: int = 0


@dataclass(frozen=True)
class Recount:
    """One account, as it is stored and as lists have it.

    account: None for a window without any group; only what was shown is counted there.
    """

    account: int | None
    group: str
    limit: Limit
    window: str
    counts: Counts
    stored: Tally
    charged: int
    left: int  # in leases of replicas
    found: Tally

    @property
    def agrees(self) -> bool:
        """Whether everything stored is what it should be."""
        # The invariant of the ledger: charged = used + pending + what is left of leases.
        covered = self.found.used + self.found.pending + self.left
        return self.stored == self.found and self.charged == covered


def recounted(connection: Connection) -> list[Recount]:
    """Every account of every window, in order; the transaction has to read one state."""
    opened = {row.id: row for row in connection.execute(_windows())}
    known = list(connection.execute(sa.select(accounts).order_by(accounts.c.id)))
    query = sa.select(leases.c.account_id, sa.func.sum(leases.c.left).label("left"))
    held = {
        row.account_id: int(row.left)
        for row in connection.execute(query.group_by(leases.c.account_id))
    }
    count = _Count(opened, {row.id: row.window_id for row in known})
    last = 0
    # Some lists at a time: there may be millions.
    while block := _next_lists(connection, last):
        last = block[-1].number
        count.add(block, *_confirmed_and_waiting(connection, block))
    found: list[Recount] = []
    for window in opened.values():
        own: list[Any] = [row for row in known if row.window_id == window.id]
        found += [_recount(window, row, held, count) for row in own or [None]]
    return found


def _recount(window: Any, row: Any, held: dict[int, int], count: "_Count") -> Recount:
    about = (Limit.parse(window.text), window.name, Counts(window.counts))
    shown = count.shown[window.id]
    if row is None:
        return Recount(None, "", *about, Tally(shown=window.shown), 0, 0, Tally(shown=shown))
    stored = Tally(row.used, window.shown, row.pending)
    again = Tally(count.used[row.id], shown, count.pending[row.id])
    return Recount(row.id, row.group, *about, stored, row.charged, held.get(row.id, 0), again)


class _Count:
    """Sums over lists, by window and by account."""

    def __init__(self, opened: dict[int, Any], window_of: dict[int, int]) -> None:
        self.limit_of = {number: Limit.parse(row.text) for number, row in opened.items()}
        self.by_confirmation = {
            number for number, row in opened.items() if row.counts == Counts.CONFIRMED
        }
        self.window_of = window_of
        self.shown: defaultdict[int, int] = defaultdict(int)
        self.used: defaultdict[int, int] = defaultdict(int)
        self.pending: defaultdict[int, int] = defaultdict(int)

    def add(self, rows: Sequence[Any], confirmed: Places, waiting: Collection[str]) -> None:
        for row in rows:
            seen = confirmed.get(row.id, set())
            for window in row.windows:
                units = place_units(self.limit_of[window], len(row.items))
                places = seen if window in self.by_confirmation else range(len(units))
                self.shown[window] += sum(units[place] for place in places)
            for place, inside in enumerate(row.labels):
                for account in inside:
                    self._showing(row, place, account, place in seen, row.id in waiting)

    def _showing(self, row: Any, place: int, account: int, seen: bool, waits: bool) -> None:
        window = self.window_of[account]
        units = place_units(self.limit_of[window], len(row.items))[place]
        if seen or window not in self.by_confirmation:
            self.used[account] += units
        elif waits:
            self.pending[account] += units


def _windows() -> sa.Select[Any]:
    columns: list[Any] = [windows, limits.c.text, limits.c.counts]
    return (
        sa.select(*columns)
        .join(limits, limits.c.id == windows.c.limit_id)
        .order_by(windows.c.limit_id, windows.c.id)
    )


def _next_lists(connection: Connection, last: int) -> list[Any]:
    names = ("number", "id", "items", "labels", "windows")
    query = (
        sa.select(*(lists.c[name] for name in names))
        .where(lists.c.number > last)
        .order_by(lists.c.number)
    )
    return list(connection.execute(query.limit(AT_ONCE)))


def _confirmed_and_waiting(connection: Connection, block: Sequence[Any]) -> tuple[Places, set[str]]:
    """The confirmed places of some lists, and which lists may still be confirmed."""
    ids = [row.id for row in block]
    places: Places = {}
    query = sa.select(confirmations).where(confirmations.c.list_id.in_(ids))
    for row in connection.execute(query):
        places.setdefault(row.list_id, set()).add(row.place)
    open_ones = sa.select(unconfirmed.c.list_id).where(unconfirmed.c.list_id.in_(ids))
    return places, set(connection.execute(open_ones).scalars())
