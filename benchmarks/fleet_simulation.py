"""A discrete-event simulation of replicas that lease one budget.

Replicas decide lists within their lease and what they last saw of the account, and send
transactions, which the database makes one after the other (a queue before a lock). Messages take
time, replicas crash, are cut off, leave and join. See fleet_scenario.py for what is drawn and
fleet_account.py for the account.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from fairhorizon.service.budget.leasing import OverdrawnError, is_low, used_lately
from fairhorizon.service.budget.units import UNIT, part_of
from fairhorizon.service.budget.windows import Window
from fleet_account import Account, FencedError, Seen, SizeRule, Truth
from fleet_scenario import Recording, Scenario

SIGNS = 5  # signs of life in a timeout
EXPIRED = 0.8  # of the timeout: when a replica without contact stops using its lease
Batch = list[tuple[float, int]]  # when each was asked for, and how much of the group it wants
NOWHERE = Seen("", 0, 0, 0, 0)


@dataclass(slots=True, eq=False)
class Replica:
    """One process. What it sees of the account is as old as its last transaction."""

    name: int  # as the database knows it; another one after every start
    is_up: bool = True
    is_busy: bool = False  # a transaction of it is under way
    waiting: deque[tuple[float, int]] = field(default_factory=deque)
    left: int = 0
    size: int = 0
    shown: int = 0
    used: int = 0
    lately: int = 0
    cut: tuple[float, float] = (np.inf, 0.0)  # when it is without network
    new_used: int = 0  # recorded apart, not yet reported
    new_shown: int = 0
    reported_at: float = 0.0

    def see(self, seen: Seen) -> None:
        self.left, self.size = seen.left, seen.size
        self.shown, self.used = seen.shown, seen.used

    def decide(self, share: int, length: int, wanted: int) -> int:
        """How many showings of the group a list has: the rule of Purse.room, then Purse.spend."""
        room = min(self.left, part_of(share, self.shown + length * UNIT) - self.used)
        given = max(0, min(wanted, room // UNIT))
        self.left -= given * UNIT
        self.used += given * UNIT
        self.shown += length * UNIT
        return given


@dataclass(frozen=True)
class Outcome:
    """What one run has shown."""

    lists: int
    overshoot: float  # showings above the share after any list, at most
    unused: float  # part of the budget
    refused: float  # part of what lists wanted, while the share had room for it
    transactions: float  # a second, under the lock
    utilisation: float  # of the lock
    wait_ms: float  # from request to answer, mean, less the time of deciding
    slow_ms: float  # the same, 99 of 100 are below
    lease: float  # showings, mean over time of what a lease should have


class Fleet:
    """Replicas and their database.

    size: how large leases are.  every: seconds between reports, where lists are recorded apart.
    """

    def __init__(
        self, scenario: Scenario, size: SizeRule, seed: int, *, every: float = 1.0
    ) -> None:
        self.scenario, self.every = scenario, every
        self.share, self.length = round(UNIT * scenario.share), scenario.length
        slack = UNIT * scenario.slack
        self.account = Account(self.share, slack, Window.parse(scenario.window), size)
        self.truth = Truth(self.share, slack)
        self.draws = np.random.default_rng(seed)
        self.delays = scenario.delays(self.draws)
        self.events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self.numbers, self.names = count(), count()
        self.free_at = self.busy = 0.0
        self.transactions = self.lists = 0
        self.waits: list[float] = []
        self.sizes: list[int] = []
        self.together = scenario.recording is Recording.TOGETHER
        if not self.together and scenario.window != "always":
            raise ValueError("lists that are recorded apart count always")
        self.replicas = [Replica(next(self.names)) for _ in range(scenario.replicas)]

    def run(self) -> Outcome:
        for replica in self.replicas:
            self.account.join(replica.name)
        for replica in self.replicas:
            replica.see(self.account.settle(replica.name, 0, 0, 0, 0.0))
        for when, who, kind in self.scenario.troubles(self.draws):
            self._at(when, getattr(self, f"_{kind}"), self.replicas[who])
        events = self.events
        for when, who, wanted in self.scenario.traffic(self.draws):
            while events and events[0][0] <= when:
                now, _, work, details = heapq.heappop(events)
                work(now, *details)
            self._arrive(when, who, wanted)
        while events and events[0][0] <= self.scenario.seconds:
            now, _, work, details = heapq.heappop(events)
            work(now, *details)
        return self._outcome()

    def _outcome(self) -> Outcome:
        seconds, truth = self.scenario.seconds, self.truth
        waits = np.array(self.waits or [0.0])
        return Outcome(
            self.lists,
            truth.worst / UNIT,
            truth.unused(),
            truth.lost / max(1, truth.asked),
            self.transactions / seconds,
            self.busy / seconds,
            1000 * float(waits.mean()),
            1000 * float(np.quantile(waits, 0.99)),
            float(np.mean(self.sizes or [0])) / UNIT,
        )

    def _at(self, when: float, work: Callable[..., None], *details: Any) -> None:
        heapq.heappush(self.events, (when, next(self.numbers), work, details))

    def _send(self, now: float, replica: Replica, work: Callable[..., None], *details: Any) -> None:
        """A message to the database; it waits while there is no network."""
        begin, end = replica.cut
        now = end if begin <= now < end else now
        self._at(now + next(self.delays), work, replica, replica.name, *details)

    def _reply(self, end: float, work: Callable[..., None], replica: Replica, *details: Any) -> None:
        self._at(end + next(self.delays), work, replica, *details)

    def _transaction(self, now: float, lists: int = 0) -> float:
        """Wait for the lock, and hold it; the time when it is over."""
        length = (self.scenario.lock_ms + self.scenario.list_ms * lists) / 1000
        self.free_at = max(now, self.free_at) + length
        self.busy += length
        self.transactions += 1
        return self.free_at

    # requests

    def _arrive(self, now: float, who: int, wanted: int) -> None:
        n = len(self.replicas)
        for step in range(n):  # the balancer takes the next one that is up
            replica = self.replicas[(who + step) % n]
            if replica.is_up:
                break
        else:
            return
        if not self.together:
            self._show_apart(now, replica, wanted)
            return
        replica.waiting.append((now, wanted))
        if not replica.is_busy:
            self._begin_batch(now, replica)

    def _begin_batch(self, now: float, replica: Replica) -> None:
        waiting = replica.waiting
        batch = [waiting.popleft() for _ in range(min(self.scenario.batch, len(waiting)))]
        replica.is_busy = True
        self._decide(now, replica, batch)

    def _decide(self, now: float, replica: Replica, batch: Batch) -> None:
        given = [replica.decide(self.share, self.length, wanted) for _, wanted in batch]
        then = now + self.scenario.deciding_ms / 1000
        self._send(then, replica, self._record, batch, given)

    def _record(
        self, now: float, replica: Replica, name: int, batch: Batch, given: list[int]
    ) -> None:
        """The transaction of a batch. It is made even if its replica has crashed since."""
        end = self._transaction(now, len(batch))
        used = sum(given) * UNIT
        lately = used_lately(replica.lately, used)
        try:
            shown = len(batch) * self.length * UNIT
            seen = self.account.settle(name, used, shown, lately, end)
        except (FencedError, OverdrawnError):
            self._reply(end, self._begin_anew, replica, name, batch)
            return
        for (_, wanted), one in zip(batch, given, strict=True):
            self.truth.count(seen.window, self.length, wanted, one)
        self.lists += len(batch)
        self.sizes.append(seen.size)
        self._reply(end, self._answer, replica, name, batch, seen, lately)

    def _answer(
        self, now: float, replica: Replica, name: int, batch: Batch, seen: Seen, lately: int
    ) -> None:
        if name != replica.name:
            return
        deciding = self.scenario.deciding_ms / 1000
        self.waits.extend(now - asked - deciding for asked, _ in batch)
        replica.see(seen)
        replica.lately, replica.is_busy = lately, False
        if replica.waiting:
            self._begin_batch(now, replica)

    def _begin_anew(self, now: float, replica: Replica, name: int, batch: Batch) -> None:
        """After it was taken for dead, or more was used than a new window had: open, and decide."""
        if name == replica.name:
            self._send(now, replica, self._open, batch)

    def _open(self, now: float, replica: Replica, name: int, batch: Batch) -> None:
        end = self._transaction(now)
        if name != replica.name:
            return
        if name not in self.account.held:
            replica.name = next(self.names)
            self.account.join(replica.name)
        seen = self.account.settle(replica.name, 0, 0, replica.lately, end)
        self._reply(end, self._opened, replica, replica.name, batch, seen)

    def _opened(self, now: float, replica: Replica, name: int, batch: Batch, seen: Seen) -> None:
        if name == replica.name:
            replica.see(seen)
            self._decide(now, replica, batch)

    # lists that are recorded apart

    def _show_apart(self, now: float, replica: Replica, wanted: int) -> None:
        begin, end = replica.cut
        if begin + EXPIRED * self.scenario.timeout <= now < end:
            replica.left = 0  # it may have been taken for dead
        given = replica.decide(self.share, self.length, wanted)
        self.truth.count("always", self.length, wanted, given)
        self.lists += 1
        replica.new_used += given * UNIT
        replica.new_shown += self.length * UNIT
        since = now - replica.reported_at
        if not replica.is_busy and (since >= self.every or is_low(replica.left, replica.size)):
            replica.is_busy = True
            rate = replica.new_used / max(since, 1e-3)
            lately = used_lately(replica.lately, round(min(self.every, 10 * since) * rate))
            replica.reported_at = now
            self._send(now, replica, self._report, lately)

    def _report(self, now: float, replica: Replica, name: int, lately: int) -> None:
        end = self._transaction(now)
        used, shown = replica.new_used, replica.new_shown
        if name != replica.name:
            return
        try:
            seen = self.account.settle(name, used, shown, lately, end)
        except FencedError:
            replica.name = next(self.names)
            self.account.join(replica.name)
            replica.new_used = replica.new_shown = 0
            seen, used, shown = self.account.settle(replica.name, 0, 0, lately, end), 0, 0
        replica.new_used -= used
        replica.new_shown -= shown
        self.sizes.append(seen.size)
        self._reply(end, self._reported, replica, replica.name, seen, lately)

    def _reported(self, now: float, replica: Replica, name: int, seen: Seen, lately: int) -> None:
        if name != replica.name:
            return
        replica.see(seen)
        replica.left -= replica.new_used  # shown while the report was under way
        replica.used += replica.new_used
        replica.shown += replica.new_shown
        replica.lately, replica.is_busy = lately, False
