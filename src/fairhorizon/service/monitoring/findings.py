"""What may be wrong: limits, floors, feedback that stopped, limits about nothing.

A limit that binds is always at its line: that alone is no alert. What is promised is its share and
the slack C, so an alert begins when half of the slack is used up beyond the share, and ends when
the group is back within its share. A floor is steered to its line, now a little above it, now a
little below: it is missed below `alert_at` of its share, and no longer when the share is reached.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.service.budget.rules import UNIT
from fairhorizon.service.monitoring.standing import LimitStanding, line, standing
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.budgets import AccountNow, present_accounts
from fairhorizon.service.store.schema import feedback, lists
from fairhorizon.service.store.state import ServiceState


class AlertKind(StrEnum):
    """What an alert is about."""

    LIMIT_NEAR = "limit-near"
    FLOOR_MISSED = "floor-missed"
    FEEDBACK_STOPPED = "feedback-stopped"
    ABOUT_NOTHING = "limit-about-nothing"


@dataclass(frozen=True)
class Finding:
    """Something that is wrong, or not right yet.

    begins: an alert is made of it.  Otherwise one that was made goes on.
    """

    kind: AlertKind
    subject: str
    message: str
    begins: bool = True


def findings(
    connection: Connection,
    settings: ServiceSettings,
    state: ServiceState,
    snapshot: ServingSnapshot | None,
) -> tuple[list[Finding], set[AlertKind]]:
    """What is wrong now, and the kinds of alerts that can be judged.

    snapshot: as a replica has it; one of another generation says nothing about limits.
    """
    found = of_limits(present_accounts(connection), settings)
    found += of_feedback(connection, settings, state)
    if snapshot is None or snapshot.generation != state.generation:
        return found, set(AlertKind) - {AlertKind.ABOUT_NOTHING}
    return found + of_troubles(snapshot), set(AlertKind)


def of_limits(accounts: Sequence[AccountNow], settings: ServiceSettings) -> list[Finding]:
    """One finding for each limit, about the group that is worst; the first showings say little."""
    by_limit: dict[int, list[AccountNow]] = {}
    for account in accounts:
        if account.shown and account.shown >= settings.alert_after * UNIT:
            by_limit.setdefault(account.limit_id, []).append(account)
    found = [
        _missed(some, settings.alert_at) if some[0].is_floor else _near(some)
        for some in by_limit.values()
    ]
    return [one for one in found if one is not None]


def _near(some: Sequence[AccountNow]) -> Finding | None:
    worst = max(some, key=lambda one: one.used - line(one))
    over = worst.used - line(worst)
    if over <= 0:
        return None
    return Finding(
        AlertKind.LIMIT_NEAR,
        worst.text,
        f"{worst.group} has {_percent(worst)} of the showings in window {worst.window}, "
        f"{worst.share:.2%} are asked for; {over / UNIT:,.0f} showings of the slack of "
        f"{worst.slack / UNIT:,.0f} are used",
        begins=2 * over >= worst.slack,
    )


def _missed(some: Sequence[AccountNow], near: float) -> Finding | None:
    below = [one for one in some if standing(one, near) is not LimitStanding.KEPT]
    if not below:
        return None
    worst = min(below, key=lambda one: one.used / one.shown)
    others = f" ({len(below)} groups are below it)" if len(below) > 1 else ""
    return Finding(
        AlertKind.FLOOR_MISSED,
        worst.text,
        f"{worst.group} has {_percent(worst)} of the showings in window {worst.window}, at least "
        f"{worst.share:.2%} are asked for{others}",
        begins=any(standing(one, near) is LimitStanding.MISSED for one in below),
    )


def _percent(account: AccountNow) -> str:
    return f"{account.used / account.shown:.2%}"


def of_feedback(
    connection: Connection, settings: ServiceSettings, state: ServiceState
) -> list[Finding]:
    """No feedback for some time in which lists were served; never before the first feedback.

    The first of these lists is at least half of the time old: after a quiet night the first
    visitor has not had the time to answer.
    """
    if not settings.silence:
        return []
    last = connection.execute(sa.select(sa.func.max(feedback.c.received_at))).scalar()
    since = state.now - settings.silence
    if last is None or last > since:
        return []
    first = connection.execute(
        sa.select(lists.c.served_at)
        .where(lists.c.served_at > since)
        .order_by(lists.c.served_at)
        .limit(1)
    ).scalar()
    if first is None:
        return []
    return [
        Finding(
            AlertKind.FEEDBACK_STOPPED,
            "feedback",
            f"no feedback was received for {(state.now - last) / 60:,.0f} minutes, and lists are "
            "served (is whoever sends it to POST /api/feedback still at work?)",
            begins=state.now - first >= settings.silence / 2,
        )
    ]


def of_troubles(snapshot: ServingSnapshot) -> list[Finding]:
    """Limits whose group no item is in any more."""
    texts = [str(one.limit) for one in snapshot.rules.limits]
    found: dict[str, Finding] = {}
    for trouble in snapshot.troubles:
        about = (text for text in texts if text in trouble)
        subject = max(about, key=len, default=trouble)
        found[subject] = Finding(AlertKind.ABOUT_NOTHING, subject, trouble)
    return list(found.values())
