"""Exposure spread over the catalogue: a price on crowded items keeps a limit on the Gini index.

Lists are chosen by value - mu * log(1 + showings in the lists of others). If all users chose at
once, all would leave the same items for the same others, and return the next time. So the users
choose in parts, one after the other, as in a congestion game, which settles. Each part keeps the
limit of the group given what the others are shown. A part has users of every shard; what it leaves
and takes is summed over the shards.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fairhorizon.allocation.exact_sums import deviation, rounded
from fairhorizon.allocation.group_budget import Spent
from fairhorizon.allocation.sharded.bids import grant_places
from fairhorizon.allocation.sharded.calls import UserShards
from fairhorizon.allocation.sharded.showings import Change, together
from fairhorizon.metrics.fairness import gini

PARTS, MOST_PARTS = 32, 192  # of the users, who choose in turn
SWEEPS = 3  # over all parts at one price: enough for the lists to settle
SPREAD_USERS = 1024  # on whose values the standard deviation is estimated
TRIALS = 16  # of prices, at the most
FIRST_PRICE = 0.05  # on crowded items, in standard deviations of value
HIGH = 2.0  # above this price the search ends if a higher one does not help
CLOSE = 1e-3  # a Gini index this far below the limit is good enough
NARROW = 0.02  # relative distance of a sufficient and an insufficient price that ends the search


@dataclass(frozen=True)
class SpreadTrial:
    """What lists at one price on crowded items have come to."""

    price: float
    mu: float
    gini: float
    total: float  # sum of w v

    def merit(self, limit: float) -> tuple[bool, float]:
        """Orders trials: within the limit by the total, beyond it by the Gini index."""
        within = self.gini <= limit
        return within, self.total if within else -self.gini


class Spreading(ABC):
    """A price on crowded items moves users to other items of nearly the same value."""

    def __init__(self, shards: UserShards, users: list[int], n_items: int) -> None:
        """From lists that the shards have made; users: how many each of them has."""
        self.shards, self.n_users, self.sweeps = shards, sum(users), 0
        self.counts = np.zeros(n_items, dtype=np.int64)
        self.unsent = np.zeros_like(self.counts)
        before = np.cumsum([0, *users[:-1]]).tolist()
        depth = max(shards.tell("spread", [(first,) for first in before]))
        moments = shards.ask("deepen", depth, max(1, self.n_users // SPREAD_USERS))
        count, total, of_squares = (
            sum(getattr(one, name) for one in moments) for name in ("count", "total", "of_squares")
        )
        self.unit = deviation(total, of_squares, count) or 1.0

    def within(self, limit: float, price: float) -> SpreadTrial:
        """The shards keep the lists of the highest total within the limit, else the most even."""
        best, mu = self._trial(0.0, price), FIRST_PRICE
        lower = low = (0.0, best.gini)  # prices and their Gini indices: two that are too low
        high: tuple[float, float] | None = None  # and one that is sufficient
        for _ in range(TRIALS):
            for _ in range(SWEEPS):
                trial = self._trial(mu, self._sweep(mu))
                if trial.merit(limit) > best.merit(limit):
                    best = trial
                    self.shards.ask("keep")
            if trial.gini <= limit:
                high = (mu, trial.gini)
            else:
                lower, low = low, (mu, trial.gini)
            close = limit - CLOSE < trial.gini <= limit
            narrow = high is not None and high[0] - low[0] < NARROW * high[0]
            hopeless = high is None and mu > HIGH and lower[1] - low[1] < CLOSE
            if close or narrow or hopeless:
                break
            mu = _next_price(lower, low, high, limit - CLOSE / 2)
        return best

    def _sweep(self, mu: float) -> float:
        """All users choose again; the mean price of a place for the group."""
        # The higher the price the fewer choose at once, and never the same users together again.
        parts = int(min(max(PARTS, PARTS * mu), MOST_PARTS)) + self.sweeps % SWEEPS
        parts = min(parts, self.n_users)
        self.sweeps += 1
        return sum(self._choose(part, parts, mu * self.unit) for part in range(parts)) / parts

    @abstractmethod
    def _choose(self, part: int, parts: int, rate: float) -> float:
        """New lists for some users; the price of a place for the group."""

    def _leave(self, part: int, parts: int) -> Change:
        """Some users are shown nothing; what the shards have to know before these choose."""
        self._count(self.shards.ask("leave", part, parts))
        change = Change.of(self.unsent)
        self.unsent[:] = 0
        return change

    def _count(self, changes: list[Change]) -> None:
        change = together(changes, len(self.counts))
        self.counts += change
        self.unsent += change

    def _trial(self, mu: float, price: float) -> SpreadTrial:
        changes, totals = zip(*self.shards.ask("standing"), strict=True)
        self._count(list(changes))
        return SpreadTrial(price, mu, gini(self.counts), rounded(sum(totals)))


class PlainSpreading(Spreading):
    """Under a limit on all showings, which count alike."""

    def __init__(
        self, shards: UserShards, users: list[int], group: Tensor, share: float, settled: Spent
    ) -> None:
        super().__init__(shards, users, len(group))
        self.group, self.share, self.settled = group.cpu().numpy(), share, settled

    def _choose(self, part: int, parts: int, rate: float) -> float:
        change = self._leave(part, parts)
        others = Spent(
            self.settled.shown + int(self.counts.sum()),
            self.settled.of_group + int(self.counts[self.group].sum()),
        )
        return grant_places(self.shards, self.shards.ask("bid", change, rate), self.share, others)


def _next_price(
    lower: tuple[float, float],
    low: tuple[float, float],
    high: tuple[float, float] | None,
    aim: float,
) -> float:
    """Close to where the line through two prices and their Gini indices reaches the aim."""
    if high is not None:
        part = (low[1] - aim) / (low[1] - high[1])
        return low[0] + min(max(part, 0.1), 0.9) * (high[0] - low[0])
    fall = (lower[1] - low[1]) / (low[0] - lower[0])
    rise = (low[1] - aim) / fall if fall > 0 else torch.inf
    return min(max(low[0] + rise, 1.5 * low[0]), 8 * low[0])
