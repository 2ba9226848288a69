"""What must hold of a service's database, found out from its recorded lists alone."""

from collections import defaultdict
from dataclasses import dataclass

import sqlalchemy as sa

from fairhorizon.limits.language import Limit
from fairhorizon.service.budget.recount import recounted
from fairhorizon.service.budget.rules import UNIT, place_units, share_units
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import accounts, feedback, limits, lists, windows

AT_ONCE = 5000


@dataclass(frozen=True)
class Excess:
    """One group under one limit: how far it was above its share after any list, in showings."""

    limit: str
    slack: float
    showings: float
    share: float  # reached at the end
    worst: float  # largest of showings of the group - share * showings

    @property
    def kept(self) -> bool:
        return self.worst <= self.slack + 1e-6


def excesses(database: Database) -> list[Excess]:
    """Of every promised limit that counts what is served, list by list in order of commits."""
    with database.reading() as connection:
        query = (
            sa.select(accounts.c.id, accounts.c.window_id, limits.c.text, limits.c.slack)
            .join(windows, windows.c.id == accounts.c.window_id)
            .join(limits, limits.c.id == windows.c.limit_id)
            .where(limits.c.counts == "served")
        )
        known = {row.id: row for row in connection.execute(query)}
        limit_of = {one.window_id: Limit.parse(one.text) for one in known.values()}
        of_window: dict[int, list[int]] = defaultdict(list)
        for number, one in known.items():
            if not limit_of[one.window_id].is_floor:
                of_window[one.window_id].append(number)
        shown: dict[int, int] = defaultdict(int)
        used: dict[int, int] = defaultdict(int)
        worst: dict[int, float] = defaultdict(lambda: float("-inf"))
        last = 0
        while rows := connection.execute(
            sa.select(lists).where(lists.c.number > last).order_by(lists.c.number).limit(AT_ONCE)
        ).all():
            for row in rows:
                assert row.number == last + 1, f"list {last + 1} is missing"
                last = row.number
                for window in row.windows:
                    if window in limit_of:
                        shown[window] += sum(place_units(limit_of[window], len(row.items)))
                for place, inside in enumerate(row.labels):
                    for account in inside:
                        limit = limit_of[known[account].window_id]
                        used[account] += place_units(limit, len(row.items))[place]
                for window in row.windows:
                    share = share_units(limit_of[window]) if window in limit_of else 0
                    for account in of_window[window]:
                        above = used[account] - share * shown[window] / UNIT
                        worst[account] = max(worst[account], above / UNIT)
    return [
        Excess(
            known[number].text,
            known[number].slack / UNIT,
            shown[window] / UNIT,
            used[number] / max(1, shown[window]),
            worst[number],
        )
        for window, numbers in of_window.items()
        for number in numbers
    ]


def accounts_agree(database: Database) -> bool:
    """Whether the stored budgets are those that the recorded lists make, to the showing."""
    with database.reading() as connection:
        return all(one.agrees for one in recounted(connection))


def missing_lists(database: Database, answered: set[str]) -> int:
    """How many answered lists are not recorded."""
    with database.reading() as connection:
        return len(answered - set(connection.execute(sa.select(lists.c.id)).scalars()))


def missing_events(database: Database, acknowledged: set[str]) -> int:
    """How many acknowledged events are not there."""
    with database.reading() as connection:
        there = connection.execute(sa.select(feedback.c.event_id)).scalars()
        return len(acknowledged - {one.removeprefix("+") for one in there})


def count_events(database: Database) -> int:
    with database.reading() as connection:
        return int(connection.execute(sa.select(sa.func.count(feedback.c.id))).scalar_one())
