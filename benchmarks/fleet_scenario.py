"""What a fleet of replicas is like, and the traffic it gets: everything that is drawn."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from scale_constants import LIST_MS, LOCK_MS

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
