"""A discrete-event simulation of replicas that lease one budget.

Replicas decide lists within their lease and what they last saw of the account, and send
transactions, which the database makes one after the other. Messages take time; replicas crash, are
cut off, leave and join. After every list the limit must hold up to C: the run fails otherwise.
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.service.budget.leases import OverdrawnError, granted, is_low, used_lately
from fairhorizon.service.budget.rules import UNIT, Window, part_of
from scale_on_paper import LIST_MS, LOCK_MS

# The account, by the rules of the service (service/budget), and what is true of all lists.


SizeRule = Callable[[int, int, int], int]  # slack, replicas, used lately: the size of a lease


class FencedError(Exception):
    """The replica was taken for dead."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a replica knows after a transaction; in units."""

    window: str
    left: int  # of its lease
    size: int  # that its lease should have
    shown: int
    used: int


@dataclass
class Account:
    """Budget of one group in the database: one transaction after the other."""

    share: int  # in millionths
    slack: int
    window: Window
    size: SizeRule
    shown: int = 0
    used: int = 0
    charged: int = 0
    name: str = ""  # of the present window
    held: dict[int, int] = field(default_factory=dict)  # leases by replica; its keys are alive

    def join(self, replica: int) -> None:
        self.held[replica] = 0

    def settle(self, replica: int, used: int, shown: int, lately: int, now: float) -> Seen:
        """Count what a replica has shown, and fill up its lease."""
        if replica not in self.held:
            raise FencedError
        self._turn(now)
        left, size = self.held[replica] - used, self.size(self.slack, len(self.held), lately)
        grant = 0
        if used or is_low(left, size):
            grant = granted(
                self.share,
                self.slack,
                charged=self.charged,
                left=left,
                size=size,
                before=self.shown,
                shown=self.shown + shown,
            )
        self.held[replica] = left + grant
        self.charged += grant
        self.shown += shown
        self.used += used
        return Seen(self.name, left + grant, size, self.shown, self.used)

    def end(self, replica: int, used: int = 0, shown: int = 0) -> None:
        """Give back the lease of a replica that is gone; first what it had not reported counts."""
        left = self.held.pop(replica, None)
        if left is not None:
            self.charged -= left - used
            self.used += used
            self.shown += shown

    def _turn(self, now: float) -> None:
        """Begin a new window if the present one is full; leases of the old one end with it."""
        name = self.window.name(now, self.name or None, self.shown)
        if name != self.name:
            self.name, self.shown, self.used, self.charged = name, 0, 0, 0
            self.held = dict.fromkeys(self.held, 0)


@dataclass
class Truth:
    """All recorded lists, one after the other, as somebody who sees everything counts them."""

    share: int
    slack: int
    window: str = ""
    shown: int = 0
    used: int = 0
    wanted: int = 0
    worst: float = 0.0  # units above the share after any list
    budget: int = 0  # that windows before had
    spent: int = 0  # of it

    def count(self, window: str, length: int, wanted: int, given: int) -> None:
        """One list. It must not exceed share * shown + C."""
        if window != self.window:
            self._close(window)
        self.wanted += wanted * UNIT
        self.shown += length * UNIT
        self.used += given * UNIT
        above = self.used - self.share * self.shown / UNIT
        if above > self.worst:
            self.worst = above
            assert above <= self.slack, f"{above / UNIT} showings above the share: more than C"

    def _close(self, window: str) -> None:
        self.budget += min(part_of(self.share, self.shown), self.wanted)
        self.spent += self.used
        self.window, self.shown, self.used, self.wanted = window, 0, 0, 0

    def unused(self) -> float:
        """Part of the budget that lists wanted and that nobody had at the end of its window."""
        self._close(self.window)
        return max(0.0, 1 - self.spent / max(1, self.budget))


# What the fleet is like, and the traffic it gets: everything that is drawn.


Floats = NDArray[np.float64]
BLOCK = 10.0  # seconds of traffic that are drawn at once


class Recording(StrEnum):
    """Where lists are recorded."""

    TOGETHER = "together"  # in the one database, as the service does: every batch is a transaction
    APART = "apart"  # with their replica; the account hears of them with the next lease


@dataclass(frozen=True)
class Crowd:
    """A flash crowd: for a while, a part of the replicas gets so many times the requests."""

    begin: float
    end: float
    times: float
    part: float = 0.1


@dataclass(frozen=True)
class Scenario:
    """Times in seconds unless a name says milliseconds; figures of the measured service."""

    name: str = "even"
    recording: Recording = Recording.TOGETHER
    replicas: int = 1000
    seconds: float = 3600.0
    # traffic
    lists_per_second: float = 150.0  # of all replicas
    unevenness: float = 0.0  # of the rates of replicas: deviation of their logarithm
    hot: int = 0  # replicas that get `hot_times` the rate of the others
    hot_times: float = 50.0
    swing: float = 0.0  # of a day: rates between 1 - swing and 1 + swing, a day in `seconds`
    crowd: Crowd | None = None
    # lists
    length: int = 10
    share: float = 0.4
    wanted: float = 0.45  # chance of a place to want the group: the limit binds
    drift: float = 0.0  # of that chance: by so much less in the first half, and more in the second
    slack: int = 200
    window: str = "always"
    batch: int = 16
    # times
    deciding_ms: float = 5.0  # of a batch
    lock_ms: float = LOCK_MS.value  # of a transaction under the lock
    list_ms: float = LIST_MS.value  # of each list in it
    delay_ms: float = 0.5  # one way between a replica and the database, median
    delay_spread: float = 0.5  # deviation of its logarithm
    # what goes wrong
    between_crashes: float = np.inf  # of one replica, on average
    restart: float = 5.6
    timeout: float = 10.0
    between_cuts: float = np.inf  # of the network of one replica, on average
    cut: float = 15.0  # how long
    leaving: float = 0.0  # part of the replicas that leaves after a third, and joins after two

    def rates(self, draws: np.random.Generator) -> Floats:
        """(replicas,) lists a second of each, over a whole day."""
        weights = np.exp(self.unevenness * draws.standard_normal(self.replicas))
        weights[: self.hot] *= self.hot_times
        return self.lists_per_second * weights / weights.sum()

    def traffic(self, draws: np.random.Generator) -> Iterator[tuple[float, int, int]]:
        """Requests in order of time: when, which replica, showings of the group it wants."""
        rates = self.rates(draws)
        crowded = draws.random(self.replicas) < (0 if self.crowd is None else self.crowd.part)
        for begin in np.arange(0.0, self.seconds, BLOCK):
            width = min(BLOCK, self.seconds - begin)
            now = rates * (1 + self.swing * np.sin(2 * np.pi * begin / self.seconds))
            if self.crowd is not None and self.crowd.begin <= begin < self.crowd.end:
                now = np.where(crowded, self.crowd.times * now, now)
            sums = np.cumsum(now)
            size = draws.poisson(sums[-1] * width)
            times = begin + width * np.sort(draws.random(size))
            whose = np.searchsorted(sums, sums[-1] * draws.random(size), side="right")
            chance = self.wanted + self.drift * (1 if begin >= self.seconds / 2 else -1)
            wanted = draws.binomial(self.length, chance, size)
            yield from zip(times.tolist(), whose.tolist(), wanted.tolist(), strict=True)

    def troubles(self, draws: np.random.Generator) -> Iterator[tuple[float, int, str]]:
        """When which replica crashes, is cut off, leaves or joins; in no order."""
        for kind, apart in (("crash", self.between_crashes), ("cut", self.between_cuts)):
            size = draws.poisson(self.replicas * self.seconds / apart)
            for when, who in zip(
                self.seconds * draws.random(size),
                draws.integers(self.replicas, size=size),
                strict=True,
            ):
                yield float(when), int(who), kind
        for who in range(round(self.leaving * self.replicas)):
            yield self.seconds / 3 + who * 0.1, who, "leave"
            yield 2 * self.seconds / 3 + who * 0.1, who, "join"

    def delays(self, draws: np.random.Generator) -> Iterator[float]:
        """Seconds of one message after the other."""
        while True:
            drawn = np.exp(self.delay_spread * draws.standard_normal(4096))
            yield from (self.delay_ms / 1000 * drawn).tolist()


# Events in the order of time, messages, and the queue before the lock.


@dataclass(slots=True, eq=False)
class Replica:
    """One process. What it sees of the account is as old as its last transaction."""

    name: int  # as the database knows it; another one after every start
    is_up: bool = True
    is_busy: bool = False  # a transaction of it is under way
    waiting: deque[tuple[float, int]] = field(default_factory=deque)  # asked at, wanted
    left: int = 0
    size: int = 0
    shown: int = 0
    used: int = 0
    lately: int = 0
    cut: tuple[float, float] = (np.inf, 0.0)  # when it is without network
    # of lists that are recorded apart
    new_used: int = 0  # not yet reported
    new_shown: int = 0
    reported_at: float = 0.0
    is_dry: bool = False  # it did not get what it asked for
    is_expired: bool = False  # it was without contact for so long that its lease is void

    def see(self, seen: Seen) -> None:
        self.left, self.size = seen.left, seen.size
        self.shown, self.used = seen.shown, seen.used

    def decide(self, share: int, length: int, wanted: int) -> int:
        """Showings of the group in a list: the first of `LeaseBalance.caps`, then its `spend`."""
        room = min(self.left, part_of(share, self.shown + length * UNIT) - self.used)
        given = max(0, min(wanted, room // UNIT))
        self.left -= given * UNIT
        self.used += given * UNIT
        self.shown += length * UNIT
        return given

    def stop(self, name: int) -> None:
        """Forget everything; `name` is for its next life."""
        self.name, self.is_up, self.is_busy = name, False, False
        self.left = self.size = self.lately = self.new_used = self.new_shown = 0
        self.is_dry = self.is_expired = False
        self.waiting.clear()


class Events:
    """What happens next, and what all replicas share."""

    def __init__(self, scenario: Scenario, account: Account, draws: np.random.Generator) -> None:
        self.scenario, self.account = scenario, account
        self.truth = Truth(account.share, account.slack)
        self.names = count()
        self.busy = 0.0  # seconds in which somebody held the lock
        self.transactions = self.lists = 0
        self.waits: list[float] = []  # of lists, from request to answer, less deciding
        self.sizes: list[int] = []  # of leases, at each transaction
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers, self._delays = count(), scenario.delays(draws)
        self._free_at = 0.0

    def at(self, when: float, work: Callable[..., None], *details: Any) -> None:
        heapq.heappush(self._queue, (when, next(self._numbers), work, details))

    def until(self, when: float) -> None:
        """Let everything happen that happens before."""
        while self._queue and self._queue[0][0] <= when:
            now, _, work, details = heapq.heappop(self._queue)
            work(now, *details)

    def message(
        self, now: float, replica: Replica, work: Callable[..., None], *details: Any
    ) -> None:
        """To or from a replica; where it has no network, later."""
        arrival = now + next(self._delays)
        begin, end = replica.cut
        if begin <= arrival < end:
            arrival += end - now
        self.at(arrival, work, replica, replica.name, *details)

    def transaction(self, now: float, lists: int = 0) -> float:
        """Wait for the lock, and hold it; the time when it is over."""
        length = (self.scenario.lock_ms + self.scenario.list_ms * lists) / 1000
        self._free_at = max(now, self._free_at) + length
        self.busy += length
        self.transactions += 1
        return self._free_at


# The two places where lists are recorded: together, or apart.


FASTEST = 8  # by how much a lease grows at most when it is used up early
Batch = list[tuple[float, int]]  # when each was asked for, and how much of the group it wants


class Together:
    """In the one database, as the service does: a batch is a transaction, and then answered."""

    def __init__(self, events: Events) -> None:
        self.events, self.scenario, self.account = events, events.scenario, events.account

    def arrive(self, now: float, replica: Replica, wanted: int) -> None:
        replica.waiting.append((now, wanted))
        if not replica.is_busy:
            self._begin(now, replica)

    def _begin(self, now: float, replica: Replica) -> None:
        waiting = replica.waiting
        batch = [waiting.popleft() for _ in range(min(self.scenario.batch, len(waiting)))]
        replica.is_busy = True
        self._decide(now, replica, batch)

    def _decide(self, now: float, replica: Replica, batch: Batch) -> None:
        share, length = self.account.share, self.scenario.length
        given = [replica.decide(share, length, wanted) for _, wanted in batch]
        then = now + self.scenario.deciding_ms / 1000
        self.events.message(then, replica, self._record, batch, given)

    def _record(
        self, now: float, replica: Replica, name: int, batch: Batch, given: list[int]
    ) -> None:
        """At the database; also if the replica has crashed since: then nobody is answered."""
        events, length = self.events, self.scenario.length
        end = events.transaction(now, len(batch))
        used = sum(given) * UNIT
        lately = used_lately(replica.lately, used)
        try:
            seen = self.account.settle(name, used, len(batch) * length * UNIT, lately, end)
        except (FencedError, OverdrawnError):
            if name == replica.name:
                events.message(end, replica, self._begin_anew, batch)
            return
        for (_, wanted), one in zip(batch, given, strict=True):
            events.truth.count(seen.window, length, wanted, one)
        events.lists += len(batch)
        events.sizes.append(seen.size)
        if name == replica.name:
            events.message(end, replica, self._answer, batch, seen, lately)

    def _answer(
        self, now: float, replica: Replica, name: int, batch: Batch, seen: Seen, lately: int
    ) -> None:
        if name != replica.name:
            return
        deciding = self.scenario.deciding_ms / 1000
        self.events.waits.extend(now - asked - deciding for asked, _ in batch)
        replica.see(seen)
        replica.lately, replica.is_busy = lately, False
        if replica.waiting:
            self._begin(now, replica)

    def _begin_anew(self, now: float, replica: Replica, name: int, batch: Batch) -> None:
        """It was taken for dead, or used more than a new window has: it has to open first."""
        if name == replica.name:
            self.events.message(now, replica, self._open, batch)

    def _open(self, now: float, replica: Replica, name: int, batch: Batch) -> None:
        end = self.events.transaction(now)
        if name != replica.name:
            return
        if name not in self.account.held:
            replica.name = next(self.events.names)
            self.account.join(replica.name)
        seen = self.account.settle(replica.name, 0, 0, replica.lately, end)
        self.events.message(end, replica, self._opened, batch, seen)

    def _opened(self, now: float, replica: Replica, name: int, batch: Batch, seen: Seen) -> None:
        if name == replica.name:
            replica.see(seen)
            self._decide(now, replica, batch)


class Apart:
    """With their replica, answered at once; the account hears of them with the next lease.

    A lease is void after some time without contact, before others can take it back: nothing else
    stops a replica that was taken for dead from using it.
    every: seconds between two reports at most.
    """

    def __init__(self, events: Events, every: float) -> None:
        self.events, self.scenario, self.account = events, events.scenario, events.account
        self.every = every

    def arrive(self, now: float, replica: Replica, wanted: int) -> None:
        length = self.scenario.length
        given = replica.decide(self.account.share, length, wanted)
        self.events.truth.count("always", length, wanted, given)
        self.events.lists += 1
        replica.new_used += given * UNIT
        replica.new_shown += length * UNIT
        since = now - replica.reported_at
        needs = is_low(replica.left, replica.size) and not replica.is_dry
        if not replica.is_busy and (needs or since >= self.every):
            replica.is_busy, replica.reported_at = True, now
            used, shown = replica.new_used, replica.new_shown
            pace = self.every / max(since, self.every / FASTEST)  # as if `every` were over
            lately = used_lately(replica.lately, round(pace * used))
            self.events.message(now, replica, self._report, used, shown, lately)

    def _report(
        self, now: float, replica: Replica, name: int, used: int, shown: int, lately: int
    ) -> None:
        end = self.events.transaction(now)
        if name != replica.name:
            return  # its end counts what it had shown
        try:
            seen = self.account.settle(name, used, shown, lately, end)
        except FencedError:
            used, shown = replica.new_used, replica.new_shown  # counted when it was taken for dead
            replica.name = next(self.events.names)
            self.account.join(replica.name)
            seen = self.account.settle(replica.name, 0, 0, lately, end)
        replica.new_used -= used
        replica.new_shown -= shown
        replica.is_expired = False
        self.events.sizes.append(seen.size)
        self.events.message(end, replica, self._reported, seen, lately)

    def _reported(self, _now: float, replica: Replica, name: int, seen: Seen, lately: int) -> None:
        if name != replica.name:
            return
        replica.is_busy = False
        if replica.is_expired:
            replica.reported_at = -self.every  # ask again
            return
        replica.see(seen)
        replica.left -= replica.new_used  # shown while the report was under way
        replica.used += replica.new_used
        replica.shown += replica.new_shown
        replica.lately, replica.is_dry = lately, is_low(seen.left, seen.size)


SIGNS = 5  # signs of life in a timeout
VOID = 0.8  # of the timeout: when a lease is void without contact
AGAIN = 0.1  # seconds, until a replica that has to leave looks whether it can


@dataclass(frozen=True)
class Outcome:
    """What one run has shown."""

    lists: int
    overshoot: float  # showings above the share after any list, at most
    unused: float  # part of the budget that was wanted
    transactions: float  # a second, under the lock
    utilisation: float  # of the lock
    wait_ms: float  # from request to answer, mean, less the time of deciding
    slow_ms: float  # the same, 99 of 100 are below
    lease: float  # showings, mean over transactions


class Fleet:
    """Replicas and their database.

    size: how large leases are.  every: seconds between reports, where lists are recorded apart.
    """

    def __init__(
        self, scenario: Scenario, size: SizeRule, seed: int = 0, *, every: float = 1.0
    ) -> None:
        self.scenario, self.draws = scenario, np.random.default_rng(seed)
        share, slack = round(UNIT * scenario.share), UNIT * scenario.slack
        self.account = Account(share, slack, Window.parse(scenario.window), size)
        self.events = Events(scenario, self.account, self.draws)
        self.recording: Together | Apart = Together(self.events)
        if scenario.recording is Recording.APART:
            if scenario.window != "always":
                raise ValueError("lists that are recorded apart are counted in one window only")
            self.recording = Apart(self.events, every)
        self.replicas = [Replica(next(self.events.names)) for _ in range(scenario.replicas)]

    def run(self) -> Outcome:
        for replica in self.replicas:
            self.account.join(replica.name)
        for replica in self.replicas:
            replica.see(self.account.settle(replica.name, 0, 0, 0, 0.0))
        happens = {
            "crash": self._crash,
            "cut": self._cut,
            "leave": self._leave,
            "join": self._join,
        }
        for when, who, kind in self.scenario.troubles(self.draws):
            self.events.at(when, happens[kind], self.replicas[who])
        for now, who, wanted in self.scenario.traffic(self.draws):
            self.events.until(now)
            replica = self._balanced(who)
            if replica is not None:
                self.recording.arrive(now, replica, wanted)
        self.events.until(self.scenario.seconds)
        return self._outcome()

    def _balanced(self, who: int) -> Replica | None:
        """The replica itself, or the next one that is up."""
        if self.replicas[who].is_up:
            return self.replicas[who]
        others = self.replicas[who:] + self.replicas[:who]
        return next((one for one in others if one.is_up), None)

    def _outcome(self) -> Outcome:
        events, seconds = self.events, self.scenario.seconds
        waits, truth = np.array(events.waits or [0.0]), events.truth
        return Outcome(
            events.lists,
            truth.worst / UNIT,
            truth.unused(),
            events.transactions / seconds,
            events.busy / seconds,
            1000 * float(waits.mean()),
            1000 * float(np.quantile(waits, 0.99)),
            float(np.mean(events.sizes or [0])) / UNIT,
        )

    # what goes wrong

    def _missed(self, now: float) -> float:
        """When somebody notices that a replica has been silent since now."""
        last_sign = now - self.draws.random() * self.scenario.timeout / SIGNS
        return last_sign + self.scenario.timeout + self.draws.random()

    def _crash(self, now: float, replica: Replica) -> None:
        if not replica.is_up:
            return
        name, used, shown = replica.name, replica.new_used, replica.new_shown
        replica.stop(next(self.events.names))
        self.events.at(max(now, self._missed(now)), self._reap, name, used, shown)
        self.events.at(now + self.scenario.restart, self._join, replica)

    def _reap(self, now: float, name: int, used: int, shown: int) -> None:
        self.events.transaction(now)
        self.account.end(name, used, shown)

    def _cut(self, now: float, replica: Replica) -> None:
        if not replica.is_up or now < replica.cut[1]:
            return
        end = now + self.scenario.cut
        replica.cut = (now, end)
        void, missed = now + VOID * self.scenario.timeout, self._missed(now)
        if void < end:
            self.events.at(min(void, missed), self._expire, replica, replica.name)
        if missed < end:
            self.events.at(missed, self._reap_cut, replica, replica.name)

    def _expire(self, _now: float, replica: Replica, name: int) -> None:
        if replica.name == name:
            replica.left, replica.is_expired = 0, True

    def _reap_cut(self, now: float, replica: Replica, name: int) -> None:
        """It goes on, and does not know that it was taken for dead."""
        if replica.name == name:
            self._reap(now, name, replica.new_used, replica.new_shown)
            replica.new_used = replica.new_shown = 0

    def _leave(self, now: float, replica: Replica) -> None:
        replica.is_up = False
        self._finish(now, replica, replica.name)

    def _finish(self, now: float, replica: Replica, name: int) -> None:
        """Leave in good order: what waits is answered first."""
        if replica.is_up or replica.name != name:
            return
        if replica.is_busy:
            self.events.at(now + AGAIN, self._finish, replica, name)
            return
        self._reap(now, name, replica.new_used, replica.new_shown)
        replica.stop(next(self.events.names))

    def _join(self, now: float, replica: Replica) -> None:
        if not replica.is_up and replica.name not in self.account.held:
            end = self.events.transaction(now)
            self.account.join(replica.name)
            replica.see(self.account.settle(replica.name, 0, 0, 0, end))
        replica.is_up = True
