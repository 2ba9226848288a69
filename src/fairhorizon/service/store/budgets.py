"""The accounts of the limits in force, as people look at them."""

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.limits.language import Limit
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
