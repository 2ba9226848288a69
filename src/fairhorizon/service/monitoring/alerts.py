"""Alerts: what may be wrong, when an alert of it begins and ends, and who is told.

A limit that binds is always at its line: that alone is no alert. What is promised is its share and
the slack C, so an alert begins when half of the slack is used up beyond the share, and ends when
the group is back within its share. A floor is steered to its line, now a little above it, now a
little below: it is missed below `alert_at` of its share, and no longer when the share is reached.
"""

import json
import logging
import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from fairhorizon.errors import ConfigError
from fairhorizon.service.budget.rules import UNIT
from fairhorizon.service.monitoring.counts import short_lists
from fairhorizon.service.monitoring.limits import (
    AccountNow,
    LimitStatus,
    line,
    present_accounts,
    status_of,
)
from fairhorizon.service.replica.replica import Engine
from fairhorizon.service.replica.snapshot import ServingSnapshot
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.schema import alerts, feedback, lists
from fairhorizon.service.store.state import ServiceState, lock_state, read_state

EVERY = 5.0  # seconds between two looks
LOG = logging.getLogger("fairhorizon.service")
SHORT_AT = 0.01  # part of the newest lists from which on short ones are an alert
TIMEOUT = 5.0  # seconds of one try to tell somebody
PAUSES = (1.0, 3.0)  # seconds between the tries
BEGUN, ENDED = "begun", "ended"  # what has happened to an alert
MOST_WAITING = 1000  # alerts that are not sent yet


class AlertKind(StrEnum):
    """What an alert is about."""

    LIMIT_NEAR = "limit-near"
    FLOOR_MISSED = "floor-missed"
    FEEDBACK_STOPPED = "feedback-stopped"
    ABOUT_NOTHING = "limit-about-nothing"
    SHORT_LISTS = "short-lists"


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
    found += of_short_lists(connection, state)
    if snapshot is None or snapshot.generation != state.generation:
        # Alerts of a kind that cannot be judged now neither begin nor end.
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
    below = [one for one in some if status_of(one, near) is not LimitStatus.KEPT]
    if not below:
        return None
    worst = min(below, key=lambda one: one.used / one.shown)
    others = f" ({len(below)} groups are below it)" if len(below) > 1 else ""
    return Finding(
        AlertKind.FLOOR_MISSED,
        worst.text,
        f"{worst.group} has {_percent(worst)} of the showings in window {worst.window}, at least "
        f"{worst.share:.2%} are asked for{others}",
        begins=any(status_of(one, near) is LimitStatus.MISSED for one in below),
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


def of_short_lists(connection: Connection, state: ServiceState) -> list[Finding]:
    """Lists that are empty, or too many that are shorter than asked for, in the last hour."""
    n, short, empty = short_lists(connection, state.lists, state.now)
    if not short:
        return []
    return [
        Finding(
            AlertKind.SHORT_LISTS,
            "lists",
            f"{short:,} of the last {n:,} lists are shorter than asked for, {empty:,} of them are "
            "empty (do limits contradict each other, or may too few items be shown?)",
            begins=empty > 0 or short >= SHORT_AT * n,
        )
    ]


def of_troubles(snapshot: ServingSnapshot) -> list[Finding]:
    """Limits whose group no item is in any more."""
    texts = [str(one.limit) for one in snapshot.rules.limits]
    found: dict[str, Finding] = {}
    for trouble in snapshot.troubles:
        # The longest text, as one limit's may be the beginning of another's.
        about = (text for text in texts if text in trouble)
        subject = max(about, key=len, default=trouble)
        found[subject] = Finding(AlertKind.ABOUT_NOTHING, subject, trouble)
    return list(found.values())


def active_alerts(connection: Connection) -> list[Any]:
    """Those that have not ended, the newest first."""
    query = sa.select(alerts).where(alerts.c.ended_at.is_(None))
    return list(connection.execute(query.order_by(alerts.c.begun_at.desc(), alerts.c.id.desc())))


def ended_alerts(connection: Connection, n: int) -> list[Any]:
    """Those that ended last."""
    query = sa.select(alerts).where(alerts.c.ended_at.is_not(None))
    query = query.order_by(alerts.c.ended_at.desc(), alerts.c.id.desc()).limit(n)
    return list(connection.execute(query))


def begin_alert(connection: Connection, kind: str, subject: str, message: str, now: float) -> None:
    """Begin an alert; whoever calls holds the lock of the state."""
    row = {"kind": kind, "subject": subject, "message": message, "begun_at": now}
    connection.execute(alerts.insert().values(row))


def end_alert(connection: Connection, number: int, now: float) -> None:
    """End an alert; whoever calls holds the lock of the state."""
    connection.execute(alerts.update().where(alerts.c.id == number).values(ended_at=now))


@dataclass(frozen=True)
class AlertChange:
    """An alert that has begun or ended."""

    kind: str
    subject: str
    message: str
    state: str  # begun or ended
    time: float
    number: int | None = None  # of the row, where it has one

    def body(self) -> dict[str, str]:
        """As it is sent."""
        return {
            "Kind": self.kind,
            "Subject": self.subject,
            "Message": self.message,
            "State": self.state,
            "Time": datetime.fromtimestamp(self.time, UTC).isoformat(),
        }


class Watch:
    """Looks for what is wrong every few seconds; called by the maintenance of each replica."""

    def __init__(self, engine: Engine, every: float = EVERY) -> None:
        self.engine, self.every = engine, every
        self.webhook = Webhook(engine.settings.webhook)
        self._next = 0.0

    def __call__(self) -> None:
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self.every
        changes = look(self.engine.database, self.engine.settings, self.engine.snapshot)
        for change in changes:
            level = logging.WARNING if change.state == BEGUN else logging.INFO
            text = "alert %s %s: %s: %s"
            LOG.log(level, text, change.kind, change.state, change.subject, change.message)
            self.webhook.send(change.body())

    def stop(self) -> None:
        self.webhook.stop()


def look(
    database: Database, settings: ServiceSettings, snapshot: ServingSnapshot | None
) -> list[AlertChange]:
    """Begin and end alerts; those that this call has changed.

    Replicas look at the same time. What has to change is found out again under the lock of the
    state, so that one of them changes it, and with what is true at that moment.
    """
    with database.reading() as connection:
        state = read_state(database, connection)
        # Mostly nothing changes, and then no lock is taken.
        if not _changes(connection, settings, state, snapshot):
            return []
    with database.writing() as connection:
        state = lock_state(database, connection)
        changes = _changes(connection, settings, state, snapshot)
        for one in changes:
            if one.number is None:
                begin_alert(connection, one.kind, one.subject, one.message, one.time)
            else:
                end_alert(connection, one.number, one.time)
    return changes


def _changes(
    connection: Connection,
    settings: ServiceSettings,
    state: ServiceState,
    snapshot: ServingSnapshot | None,
) -> list[AlertChange]:
    found, judged = findings(connection, settings, state, snapshot)
    now = {(one.kind.value, one.subject): one for one in found}
    there = {(row.kind, row.subject): row for row in active_alerts(connection)}
    begun = [_begun(one, state.now) for key, one in now.items() if one.begins and key not in there]
    kinds = {kind.value for kind in judged}
    ended = [
        AlertChange(
            row.kind,
            row.subject,
            f"over after {(state.now - row.begun_at) / 60:,.0f} minutes; it was: {row.message}",
            ENDED,
            state.now,
            row.id,
        )
        for key, row in there.items()
        if key not in now and row.kind in kinds
    ]
    return begun + ended


def _begun(one: Finding, now: float) -> AlertChange:
    return AlertChange(one.kind.value, one.subject, one.message, BEGUN, now)


def check_address(address: str) -> str:
    """The host of an address that can be sent to; the rest of it may be a secret."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(
            "webhook: alerts cannot be sent to this address (give one that begins with http:// or "
            "https:// and has a host)"
        )
    return host


class Webhook:
    """The address that alerts are sent to, if there is one.

    pauses: seconds between tries; there is one try more than pauses.
    """

    def __init__(self, address: str | None, pauses: tuple[float, ...] = PAUSES) -> None:
        self.address, self.pauses = address, pauses
        self._waiting: queue.Queue[dict[str, str] | None] = queue.Queue(MOST_WAITING)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._opener = build_opener(_NoRedirects)
        if address is not None:
            try:
                self.host = check_address(address)
            except ConfigError as error:
                # A worker that refused to start would serve no lists.
                LOG.error("%s", error)
                self.address = None

    def send(self, body: dict[str, str]) -> None:
        """Send it as soon as possible; returns at once."""
        if self.address is None:
            return
        if self._thread is None:
            # Started with the first alert: most services never need it.
            self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(body)
        except queue.Full:
            LOG.error("webhook: %s does not answer, an alert is not sent", self.host)

    def stop(self) -> None:
        """Send what waits, each once at most, and end."""
        self._ended.set()
        if self._thread is not None:
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                return
            self._thread.join(timeout=TIMEOUT)

    def _run(self) -> None:
        while (body := self._waiting.get()) is not None:
            self._deliver(body)

    def _deliver(self, body: dict[str, str]) -> None:
        for pause in (*self.pauses, None):
            why = self._refused(body)
            if why is None:
                return
            if pause is None or self._ended.wait(pause):
                break
        LOG.error("webhook: an alert could not be sent to %s: %s", self.host, why)

    def _refused(self, body: dict[str, str]) -> Exception | None:
        """Why it could not be sent; None: it was."""
        request = Request(
            str(self.address),
            json.dumps(body).encode(),
            {"Content-Type": "application/json", "User-Agent": "fairhorizon"},
            method="POST",
        )
        try:
            self._opener.open(request, timeout=TIMEOUT).close()
        except HTTPError as error:
            error.close()
            return error
        except (OSError, HTTPException, ValueError) as error:
            return error
        return None


class _NoRedirects(HTTPRedirectHandler):
    """An alert goes to the address that was given, and nowhere else."""

    def redirect_request(self, *_: Any) -> None:
        return None
