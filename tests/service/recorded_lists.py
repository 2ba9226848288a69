"""A small history that was worked out by hand: four lists under three limits in two days."""

from dataclasses import dataclass

from fairhorizon.service.budget.rules import UNIT
from fairhorizon.service.monitoring.counts import roll_up
from fairhorizon.service.store.catalogue import Item, put_items
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.migrating import prepare
from fairhorizon.service.store.schema import accounts, labels, limits, lists, windows
from fairhorizon.service.store.state import change_state, lock_state

T = 472_222 * 3600  # 2023-11-14 22:00 in UTC
POPULAR, SELLERS, ENDED = 1, 2, 3  # ids of limits
TEXTS = {POPULAR: "popular<=0.4", SELLERS: "seller:each<=0.5", ENDED: "seller=x>=0.2"}
WINDOWS = {1: (POPULAR, "always"), 2: (SELLERS, "2023-11-14"), 3: (SELLERS, "2023-11-15")}
WINDOWS |= {4: (ENDED, "always")}
ACCOUNTS = {1: (1, "popular"), 2: (2, "seller=x"), 3: (2, "seller=y"), 6: (4, "seller=x")}
ACCOUNTS |= {4: (3, "seller=x"), 5: (3, "seller=y")}
SELLER_OF = {"a": "x", "b": "y", "c": ["x", "y"], "e": "z", "f": "z"}


@dataclass(frozen=True)
class Shown:
    """A list as it is recorded."""

    at: float  # seconds
    items: list[str]
    labels: list[list[int]]
    windows: list[int]
    user: str = "u"
    milliseconds: float = 1.0


FIRST = [
    Shown(10, ["a", "b"], [[1, 2, 6], [3]], [1, 2, 4], "u", 2.0),
    Shown(70, ["a", "c"], [[1, 2, 6], [2, 3, 6]], [1, 2, 4], "u", 4.0),
]
LATER = [
    Shown(3605, ["b", "c"], [[3], [2, 3]], [1, 2], "v", 9.0),
    Shown(7230, ["a", "d"], [[4], []], [1, 3], "u", 1.0),
]
SHOWN = {1: 8, 2: 6, 3: 2, 4: 4}  # in each window
USED = {1: 2, 2: 4, 3: 4, 4: 1, 5: 0, 6: 3}  # of each account


def record(database: Database, some: list[Shown], begin: float = 0) -> None:
    """Write lists as replicas do, without deciding them."""
    with database.writing() as connection:
        now = lock_state(database, connection)
        for number, one in enumerate(some, start=now.lists + 1):
            row = {"number": number, "id": f"{number:032x}", "user_id": one.user}
            row |= {"served_at": begin + one.at, "source": "recommend", "items": one.items}
            row |= {"labels": one.labels, "windows": one.windows, "prices": {}}
            row |= dict.fromkeys(("scores", "values"), [0.5] * len(one.items))
            row |= {"epoch": 1, "replica_id": "r", "milliseconds": one.milliseconds}
            connection.execute(lists.insert().values(row))
        shown = now.showings + sum(len(one.items) for one in some)
        change_state(connection, lists=now.lists + len(some), showings=shown)


def fill(database: Database, begin: int = T) -> None:
    """The history; the limit on popular items had a price of 0.1 and then of 0.3.

    begin: of an hour.
    """
    prepare(database)
    with database.writing() as connection:
        some = [Item(one, labels={"seller": SELLER_OF[one]}) for one in "abce"]
        some += [Item("d"), Item("f", hidden=True, labels={"seller": "z"})]
        put_items(database, connection, some)
        for number, text in TEXTS.items():
            row = {"id": number, "text": text, "window": "always", "counts": "served"}
            ended = begin + 100 if number == ENDED else None
            row |= {"slack": 200 * UNIT, "created_at": begin - 500, "ended_at": ended}
            connection.execute(limits.insert().values(row))
        for number, (limit, name) in WINDOWS.items():
            opened, closed = (begin + 7200, None) if number == 3 else (begin - 500, None)
            row = {"id": number, "limit_id": limit, "name": name, "shown": UNIT * SHOWN[number]}
            row |= {"opened_at": opened, "closed_at": begin + 7200 if number == 2 else closed}
            connection.execute(windows.insert().values(row))
        for number, (window, group) in sorted(ACCOUNTS.items()):
            row = {"id": number, "window_id": window, "group": group, "price": 0.1}
            row |= {"used": UNIT * USED[number], "pending": 0, "charged": UNIT * USED[number]}
            connection.execute(accounts.insert().values(row))
        for epoch, begun, popular in ((1, begin - 400, ["a"]), (2, begin + 3650, ["b"])):
            row = {"epoch": epoch, "begun_at": begun, "popular": popular}
            connection.execute(labels.insert().values(row))
        change_state(connection, epoch=2)
    record(database, FIRST, begin)
    roll_up(database)
    with database.writing() as connection:
        connection.execute(accounts.update().values(price=0.3))
    record(database, LATER, begin)
    roll_up(database)
