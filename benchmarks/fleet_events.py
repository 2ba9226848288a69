"""Events of a simulated fleet in the order of time, messages, and the queue before the lock."""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from fairhorizon.service.budget.rules import UNIT, part_of
from fleet_account import Account, Seen, Truth
from fleet_scenario import Scenario


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
