"""How limits stand now: the accounts of their present windows, and one rule for what that means.

The dashboard, the API and alerts judge by the same rule, in whole units.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.limits.language import Limit
from fairhorizon.service.budget.rules import UNIT, allowed, share_units
from fairhorizon.service.store.schema import accounts, limits, windows


@dataclass(frozen=True)
class AccountNow:
    """One group under one limit in its present window; all counts in units."""

    id: int
    limit_id: int
    text: str  # of the limit
    group: str
    is_floor: bool
    share: float  # asked for
    window_id: int
    window: str
    opened_at: float
    slack: int
    shown: int
    used: int
    pending: int
    charged: int
    price: float

    @property
    def reached(self) -> float | None:
        """The share of the showings in the window; None before the first."""
        return self.used / self.shown if self.shown else None


def present_accounts(connection: Connection, ids: Sequence[int] | None = None) -> list[AccountNow]:
    """The accounts of limits in force, or of some limits, in their last window."""
    last = (
        sa.select(windows.c.limit_id, sa.func.max(windows.c.id).label("id"))
        .group_by(windows.c.limit_id)
        .subquery()
    )
    which = limits.c.ended_at.is_(None) if ids is None else limits.c.id.in_(ids)
    query = (
        sa.select(
            accounts,
            limits.c.id.label("limit_id"),
            limits.c.text,
            limits.c.slack,
            windows.c.name,
            windows.c.opened_at,
            windows.c.shown,
        )
        .join(windows, windows.c.id == accounts.c.window_id)
        .join(last, last.c.id == windows.c.id)
        .join(limits, limits.c.id == windows.c.limit_id)
        .where(which)
        .order_by(limits.c.id, accounts.c.id)
    )
    found = []
    for row in connection.execute(query):
        limit = Limit.parse(row.text)
        found.append(
            AccountNow(
                row.id,
                row.limit_id,
                row.text,
                row.group,
                limit.is_floor,
                limit.share,
                row.window_id,
                row.name,
                row.opened_at,
                row.slack,
                row.shown,
                row.used,
                row.pending,
                row.charged,
                row.price,
            )
        )
    return found


class LimitStatus(StrEnum):
    """How far a group is from the line of its limit."""

    WAITING = "nothing shown yet"
    KEPT = "kept"
    NEAR = "near"  # of a limit: it has reached nearly its share; of a floor: it lacks a little
    MISSED = "missed"  # of a limit: beyond share and slack; of a floor: clearly below its share


# the worst one last
ORDER = (LimitStatus.WAITING, LimitStatus.KEPT, LimitStatus.NEAR, LimitStatus.MISSED)


def line(account: AccountNow) -> int:
    """Units that the share alone stands for: a limit binds there, and a floor is steered there."""
    return share_units(Limit.parse(account.text)) * account.shown // UNIT


def promised(account: AccountNow) -> int:
    """Units that a limit never exceeds: its share and the slack."""
    return allowed(share_units(Limit.parse(account.text)), account.shown, account.slack)


def is_kept(account: AccountNow) -> bool:
    """Within share and slack; of a floor, whether the share is reached."""
    if account.is_floor:
        return account.used * UNIT >= share_units(Limit.parse(account.text)) * account.shown
    return account.used <= promised(account)


def status_of(account: AccountNow, near: float) -> LimitStatus:
    """How a group stands.

    near: the part of the share that a limit is near from, and that a floor is missed below.
    """
    if not account.shown:
        return LimitStatus.WAITING
    kept = is_kept(account)
    share = share_units(Limit.parse(account.text))
    at_line = near * share * account.shown <= account.used * UNIT
    if account.is_floor:
        if kept:
            return LimitStatus.KEPT
        return LimitStatus.NEAR if at_line else LimitStatus.MISSED
    if not kept:
        return LimitStatus.MISSED
    return LimitStatus.NEAR if at_line else LimitStatus.KEPT
