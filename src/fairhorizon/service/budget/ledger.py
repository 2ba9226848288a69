"""Accounts, the leases of replicas, and the replicas themselves, in the database.

    charged + L <= share * shown + C        before a lease of L is handed out

`charged` counts leases when they are handed out, so showings of the group are at most `charged`;
and `shown` counts lists when they are recorded, before they are answered. docs/guarantee.md has the
proof. All changes of accounts are made inside a transaction that holds the lock of the state.

Replicas join, give signs of life, and leave or fall silent. Leases of a replica that is gone go
back to their accounts, as far as its recorded lists have not used them. That is safe even if it is
only slow: it can record no list any more, because its row is gone, and a list that is not recorded
is not answered.
"""

import os
import socket
import uuid
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.budget.leases import (
    LeaseBalance,
    Units,
    granted,
    is_low,
    lease_size,
    used_lately,
)
from fairhorizon.service.budget.rules import Rules, ServedLimit
from fairhorizon.service.settings import Counts
from fairhorizon.service.store.database import INSERTS, Database
from fairhorizon.service.store.schema import accounts, leases, replicas, windows
from fairhorizon.service.store.state import lock_state

IDS: sa.BindParameter[int] = sa.bindparam("ids", expanding=True)
SHOWN = sa.select(windows.c.id, windows.c.shown).where(windows.c.id.in_(IDS))
ACCOUNTS = sa.select(accounts).where(accounts.c.id.in_(IDS))
ALIVE = sa.select(sa.func.count()).select_from(replicas)
SHOW = (
    windows.update()
    .where(windows.c.id == sa.bindparam("window"))
    .values(shown=sa.bindparam("to_shown"))
)
CHARGE = (
    accounts.update()
    .where(accounts.c.id == sa.bindparam("account"))
    .values({name: sa.bindparam(f"to_{name}") for name in ("used", "pending", "charged", "price")})
)


class Ledger:
    """The accounts, as one replica sees and changes them."""

    def __init__(self, database: Database, connection: Connection, replica: str) -> None:
        self.database, self.connection, self.replica = database, connection, replica

    def open(self, rules: Rules, now: float, before: LeaseBalance | None = None) -> LeaseBalance:
        """The present windows of all limits with this replica's leases, filled up.

        before: its last balance, which says what it used lately.
        Leases that it has elsewhere, of limits or windows that have ended, are given back.
        """
        balance = _empty(rules)
        if before is not None and before.rules is rules:
            # Only of the same rules: rows of others are other groups.
            balance.lately = before.lately.copy()
        for number in range(len(rules.limits)):
            self._enter(balance, number, now)
        # After all windows were entered: what is not among them belongs to limits or windows that
        # ended.
        self._give_back_all_but(balance.accounts.tolist())
        self._refill(balance, np.zeros(len(rules), dtype=np.int64), balance.shown)
        return balance

    def settle(
        self,
        balance: LeaseBalance,
        inside: Units,
        total: Units,
        prices: Sequence[float],
        now: float,
    ) -> LeaseBalance:
        """Charge and count lists that are recorded in this transaction.

        balance: as it was before the lists were decided.
        inside: (m,) units that the lists use of each group.  total: (limits,) units in all.
        Returns the balance after it, with leases filled up again.
        """
        after = balance.copy()
        if not after.windows:
            return after
        stored = {
            row.id: row.shown for row in self.connection.execute(SHOWN, {"ids": after.windows})
        }
        for number, limit in enumerate(after.rules.limits):
            window, name = after.windows[number], after.names[number]
            # The window has ended since the lists were decided, by time or by what others showed:
            # they count in the next one, with a lease of it.
            if limit.window.name(now, name, stored[window]) != name:
                shown = self._enter(after, number, now)
                stored[after.windows[number]] = shown
        before = np.array([stored[window] for window in after.windows], dtype=np.int64)
        after.shown = self._count_shown(after, stored, total)[after.rules.owners]
        self._refill(after, inside, before[after.rules.owners], prices)
        return after

    def _enter(self, balance: LeaseBalance, number: int, now: float) -> int:
        """Take the present window of a limit into the balance; it is opened if nobody has yet.

        Returns what was shown in it so far.
        """
        limit, rows = balance.rules.limits[number], balance.rules.slices()[number]
        if len(balance.accounts[rows]):
            # The lease of the window that ended goes back to it.
            self._give_back(balance.accounts[rows].tolist())
        window = self._present(limit, now)
        found = self._accounts_of(window.id, limit)
        balance.windows[number], balance.names[number] = window.id, window.name
        balance.accounts[rows] = [row.id for row in found]
        balance.used[rows] = [row.used for row in found]
        balance.prices[rows] = [row.price for row in found]
        balance.shown[rows] = window.shown
        query = sa.select(leases.c.account_id, leases.c.left).where(
            leases.c.replica_id == self.replica,
            leases.c.account_id.in_(balance.accounts[rows].tolist()),
        )
        own = {row.account_id: row.left for row in self.connection.execute(query)}
        balance.left[rows] = [own.get(row.id, 0) for row in found]
        return int(window.shown)

    def _present(self, limit: ServedLimit, now: float) -> Any:
        """The row of the window that a limit counts in now."""
        query = sa.select(windows).where(windows.c.limit_id == limit.id)
        last = self.connection.execute(query.order_by(windows.c.id.desc()).limit(1)).first()
        # At most twice around: a window that has ended is closed, and its successor opened. By its
        # name it is the same for all replicas.
        while True:
            name = limit.window.name(
                now, None if last is None else last.name, 0 if last is None else last.shown
            )
            if last is not None and last.name == name:
                return last
            if last is not None:
                closing = windows.update().where(windows.c.id == last.id).values(closed_at=now)
                self.connection.execute(closing)
            row = {"limit_id": limit.id, "name": name, "opened_at": now, "shown": 0}
            self.connection.execute(windows.insert().values(row))
            last = self.connection.execute(query.where(windows.c.name == name)).one()

    def _accounts_of(self, window: int, limit: ServedLimit) -> list[Any]:
        """The accounts of a window in the order of the limit's groups."""
        query = sa.select(accounts).where(accounts.c.window_id == window)
        names = [str(bound.limit.group) for bound in limit.groups]
        found = {row.group: row for row in self.connection.execute(query)}
        missing = [name for name in names if name not in found]
        if missing:
            prices = self._last_prices(limit, window)
            new = [
                {
                    "window_id": window,
                    "group": name,
                    **dict.fromkeys(("used", "pending", "charged"), 0),
                    "price": prices.get(name, 0.0),
                }
                for name in missing
            ]
            self.connection.execute(accounts.insert(), new)
            found = {row.group: row for row in self.connection.execute(query)}
        return [found[name] for name in names]

    def _last_prices(self, limit: ServedLimit, window: int) -> dict[str, float]:
        """Of the window before: a new one begins with them."""
        before = (
            sa.select(sa.func.max(windows.c.id))
            .where(windows.c.limit_id == limit.id, windows.c.id < window)
            .scalar_subquery()
        )
        query = sa.select(accounts.c.group, accounts.c.price).where(accounts.c.window_id == before)
        return {row.group: row.price for row in self.connection.execute(query)}

    def _count_shown(self, balance: LeaseBalance, stored: dict[int, int], total: Units) -> Units:
        """(limits,) what was shown in the window of each limit, with these lists."""
        changes = [
            {"window": window, "to_shown": stored[window] + units}
            for limit, window, units in zip(
                balance.rules.limits, balance.windows, total.tolist(), strict=True
            )
            if limit.counts is Counts.SERVED and units
        ]
        if changes:
            self.connection.execute(SHOW, changes)
        # Under limits on confirmed showings nothing is counted here; confirmations do that.
        after = stored | {one["window"]: one["to_shown"] for one in changes}
        return np.array([after[window] for window in balance.windows], dtype=np.int64)

    def _refill(
        self,
        balance: LeaseBalance,
        inside: Units,
        before: Units,
        prices: Sequence[float] | None = None,
    ) -> None:
        """Charge what was shown, fill up leases that were used or are half empty, and write both.

        before: (m,) what was shown without these lists.
        """
        rules = balance.rules
        if not len(rules):
            return
        after = balance.left - np.where(rules.hard, inside, 0)
        balance.lately = np.array(
            [
                used_lately(*pair)
                for pair in zip(balance.lately.tolist(), inside.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
        size = self._lease_sizes(balance)
        low = [is_low(*pair) for pair in zip(after.tolist(), size, strict=True)]
        # Rows that nothing happens to are neither read nor written: with thousands of groups a list
        # touches a few.
        touched = np.flatnonzero((rules.hard & low) | (inside > 0))
        if not len(touched):
            return
        ids = balance.accounts[touched].tolist()
        stored = {row.id: row for row in self.connection.execute(ACCOUNTS, {"ids": ids})}
        changes, held = [], []
        for j in touched.tolist():
            limit, account = rules.limits[rules.owners[j]], stored[int(balance.accounts[j])]
            spent = int(inside[j])
            confirmed = limit.counts is Counts.CONFIRMED
            used = account.used + (0 if confirmed else spent)
            # A lease was charged when it was handed out, so its use changes nothing here.
            charged = account.charged if limit.is_hard else account.charged + spent
            if limit.is_hard:
                grant = granted(
                    limit.share,
                    limit.slack,
                    charged=charged,
                    left=int(after[j]),
                    size=size[j],
                    before=int(before[j]),
                    shown=int(balance.shown[j]),
                )
                charged += grant
                after[j] += grant
                held.append(
                    {"replica_id": self.replica, "account_id": account.id, "left": int(after[j])}
                )
            changes.append(
                {
                    "account": account.id,
                    "to_used": used,
                    "to_pending": account.pending + (spent if confirmed else 0),
                    "to_charged": charged,
                    "to_price": account.price if prices is None else prices[j],
                }
            )
            balance.used[j] = used
        balance.left = after
        self._write(changes, held)

    def _write(self, changes: list[dict[str, Any]], held: list[dict[str, Any]]) -> None:
        self.connection.execute(CHARGE, changes)
        if held:
            self.connection.execute(_hold(self.database.dialect), held)

    def _lease_sizes(self, balance: LeaseBalance) -> list[int]:
        """(m,) by the replicas there are and what this one used lately."""
        alive = self.connection.execute(ALIVE).scalar_one()
        limits, owners = balance.rules.limits, balance.rules.owners.tolist()
        return [
            lease_size(limits[owner].slack, alive, lately)
            for owner, lately in zip(owners, balance.lately.tolist(), strict=True)
        ]

    def _give_back(self, ids: Sequence[int]) -> None:
        give_back(
            self.connection, leases.c.replica_id == self.replica, leases.c.account_id.in_(ids)
        )

    def _give_back_all_but(self, ids: Sequence[int]) -> None:
        own = leases.c.replica_id == self.replica
        give_back(self.connection, own, leases.c.account_id.not_in(ids))


def give_back(connection: Connection, *which: sa.ColumnElement[bool]) -> None:
    """Return what is left of some leases to their accounts."""
    held = connection.execute(
        sa.select(leases.c.account_id, sa.func.sum(leases.c.left).label("left"))
        .where(*which)
        .group_by(leases.c.account_id)
    ).all()
    if not held:
        return
    change = accounts.update().where(accounts.c.id == sa.bindparam("account"))
    connection.execute(
        change.values(charged=accounts.c.charged - sa.bindparam("left")),
        [{"account": row.account_id, "left": int(row.left)} for row in held],
    )
    connection.execute(leases.delete().where(*which))


@cache
def _hold(dialect: str) -> sa.Insert:
    insert = INSERTS[dialect](leases)
    held: sa.Insert = insert.on_conflict_do_update(
        index_elements=[leases.c.replica_id, leases.c.account_id],
        set_={"left": insert.excluded.left},
    )
    return held


def _empty(rules: Rules) -> LeaseBalance:
    def zeros() -> Units:
        return np.zeros(len(rules), dtype=np.int64)

    n, free = len(rules.limits), np.zeros(len(rules))
    return LeaseBalance(rules, [0] * n, [""] * n, zeros(), zeros(), zeros(), zeros(), zeros(), free)


def join_replica(database: Database, connection: Connection) -> str:
    """A new replica; its id."""
    number, now = uuid.uuid4().hex, database.now(connection)
    row = {"id": number, "host": socket.gethostname()[:255], "pid": os.getpid()}
    connection.execute(replicas.insert().values(**row, started_at=now, seen_at=now))
    return number


def sign_of_life(
    database: Database, connection: Connection, replica: str, model_ready: int | None = None
) -> bool:
    """Give a sign of life; False: it was taken for dead."""
    update = replicas.update().where(replicas.c.id == replica)
    values: dict[str, Any] = {"seen_at": database.now(connection)}
    if model_ready is not None:
        values["model_ready"] = model_ready
    return bool(connection.execute(update.values(values)).rowcount)


def silent_replicas(database: Database, connection: Connection, seconds: float) -> list[str]:
    """Those without a sign of life for so long, and processes of this machine that have ended."""
    before, host = database.now(connection) - seconds, socket.gethostname()[:255]
    return [
        row.id
        for row in connection.execute(sa.select(replicas))
        # A process of this machine is known to be dead at once.
        if row.seen_at < before or (row.host == host and not _runs(row.pid))
    ]


def _runs(pid: int) -> bool:
    try:
        # Signal 0 only asks whether there is such a process.
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True


def live_replicas(connection: Connection) -> list[Any]:
    return list(connection.execute(sa.select(replicas).order_by(replicas.c.started_at)))


def recover_leases(database: Database, timeout: float) -> int:
    """End the replicas that are silent and take their leases back; how many these were."""
    with database.reading() as connection:
        if not silent_replicas(database, connection, timeout):
            return 0
    with database.writing() as connection:
        lock_state(database, connection)
        # Looked for again under the lock: it may have given a sign of life meanwhile.
        gone = silent_replicas(database, connection, timeout)
        _end_replicas(connection, gone)
    return len(gone)


def leave_replica(database: Database, replica: str) -> None:
    """End one replica in good order."""
    with database.writing() as connection:
        lock_state(database, connection)
        _end_replicas(connection, [replica])


def _end_replicas(connection: Connection, gone: list[str]) -> None:
    # The row goes first: from now on the replica can record nothing, and its leases are free.
    connection.execute(replicas.delete().where(replicas.c.id.in_(gone)))
    give_back(connection, leases.c.replica_id.in_(gone))
