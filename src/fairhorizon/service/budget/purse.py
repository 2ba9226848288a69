"""What one replica may still show: its leases, and what it last saw of the accounts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairhorizon.metrics.shares import ROUNDING
from fairhorizon.service.budget.limits import Rules
from fairhorizon.service.budget.units import UNIT, part_of
from fairhorizon.service.vocabulary import Counts

Units = NDArray[np.int64]


@dataclass(eq=False)
class Purse:
    """Leases of one replica; a row for every group of the rules, in their order.

    left: (m,) units of the lease that may still be shown.
    used, shown: (m,) units of the group and of everything in its window, as last seen.
    lately: (m,) units that were used between two transactions at most; old ones fade.
    """

    rules: Rules
    windows: list[int]  # of each limit
    names: list[str]  # of these windows
    accounts: Units  # (m,) ids
    left: Units
    used: Units
    shown: Units
    lately: Units
    prices: NDArray[np.float64]  # as last stored

    def copy(self) -> "Purse":
        """To spend from, until it is known that the lists are recorded."""
        return Purse(
            self.rules,
            list(self.windows),
            list(self.names),
            self.accounts.copy(),
            self.left.copy(),
            self.used.copy(),
            self.shown.copy(),
            self.lately.copy(),
            self.prices.copy(),
        )

    def caps(self, length: int) -> Sequence[NDArray[np.float64]]:
        """(m,) showings of each group that a list of this length may have, as far as possible.

        Within the lease, and as far as was seen within the share itself: the slack is for what
        other replicas show at the same time. Where no full list fits into the shares, showings are
        rounded up, and where that is not enough, the lease alone is the cap: it is a part of
        share * showings + C. What awaits confirmation keeps to the lease alone.
        """
        lease = np.full(len(self.rules), np.inf)
        share = np.full(len(self.rules), np.inf)
        for limit, rows in zip(self.rules.limits, self.rules.slices(), strict=True):
            if not limit.is_hard:
                continue
            lease[rows] = np.maximum(0, self.left[rows]) / UNIT
            if limit.counts is Counts.SERVED:
                total = self.shown[rows] + sum(limit.weights(length))
                share[rows] = (part_of(limit.share, total) - self.used[rows]) / UNIT
        within = np.minimum(lease, np.maximum(0.0, share))
        return within, np.minimum(lease, np.maximum(0.0, np.ceil(share - ROUNDING))), lease

    def weigh(self, codes: Units) -> tuple[Units, Units]:
        """(m,) units that a list of these items uses of each group, and (limits,) in all."""
        inside = np.zeros(len(self.rules), dtype=np.int64)
        total = np.zeros(len(self.rules.limits), dtype=np.int64)
        if not len(self.rules):
            return inside, total
        members = self.rules.members[:, codes]
        for number, (limit, rows) in enumerate(
            zip(self.rules.limits, self.rules.slices(), strict=True)
        ):
            weights = np.array(limit.weights(len(codes)), dtype=np.int64)
            inside[rows] = members[rows] @ weights
            total[number] = weights.sum()
        return inside, total

    def spend(self, codes: Units) -> None:
        """Count a list that was decided."""
        inside, total = self.weigh(codes)
        self.left -= np.where(self.rules.hard, inside, 0)
        self.used += inside
        self.shown += total[self.rules.owners]
