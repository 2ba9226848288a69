"""How a limit stands: one rule for the dashboard and for alerts, in whole units."""

from enum import StrEnum

from fairhorizon.limits.language import Limit
from fairhorizon.service.budget.rules import UNIT, allowed, share_units
from fairhorizon.service.store.budgets import AccountNow


class LimitStanding(StrEnum):
    """How far a group is from the line of its limit."""

    WAITING = "nothing shown yet"
    KEPT = "kept"
    NEAR = "near"  # of a limit: it has reached nearly its share; of a floor: it lacks a little
    MISSED = "missed"  # of a limit: beyond share and slack; of a floor: clearly below its share


# the worst one last
ORDER = (LimitStanding.WAITING, LimitStanding.KEPT, LimitStanding.NEAR, LimitStanding.MISSED)


def line(account: AccountNow) -> int:
    """Units that the share alone stands for: a limit binds there, and a floor is steered there."""
    return share_units(Limit.parse(account.text)) * account.shown // UNIT


def promised(account: AccountNow) -> int:
    """Units that a limit never exceeds: its share and the slack."""
    return allowed(share_units(Limit.parse(account.text)), account.shown, account.slack)


def standing(account: AccountNow, near: float) -> LimitStanding:
    """How a group stands.

    near: the part of the share that a limit is near from, and that a floor is missed below.
    """
    if not account.shown:
        return LimitStanding.WAITING
    share = share_units(Limit.parse(account.text))
    at_line = near * share * account.shown <= account.used * UNIT
    if account.is_floor:
        if account.used * UNIT >= share * account.shown:
            return LimitStanding.KEPT
        return LimitStanding.NEAR if at_line else LimitStanding.MISSED
    if account.used > promised(account):
        return LimitStanding.MISSED
    return LimitStanding.NEAR if at_line else LimitStanding.KEPT
