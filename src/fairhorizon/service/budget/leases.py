"""Leases: how large they are, and what is left of those of one replica. Whole units in and out.

The ledger keeps accounts by these rules, and benchmarks/fleet.py simulates a thousand replicas that
do. The guarantee rests on `granted` alone: it holds for leases of any size (docs/guarantee.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairhorizon.metrics.shares import ROUNDING
from fairhorizon.service.budget.rules import UNIT, Rules, allowed, part_of
from fairhorizon.service.settings import Counts

TIMES = 3  # a lease is so many times what was used lately between two transactions
KEPT = (9, 10)  # of what was used lately, from one transaction to the next
Units = NDArray[np.int64]


class OverdrawnError(Exception):
    """Lists show more of a group than can be charged now: they have to be decided anew."""


def used_lately(before: int, used: int) -> int:
    """The most that a replica used of a group between two transactions; old ones fade."""
    kept, of = KEPT
    return max(used, before * kept // of)


def lease_size(slack: int, replicas: int, lately: int) -> int:
    """max(C / replicas, 3 * used lately), at least one showing.

    An equal part of the slack locks up none of the share; a replica that needs more than that has
    to hold more, or its lists are refused what nobody else uses. A multiple of what was used,
    because a lease that was used up says that more was wanted: it grows until it is enough.
    """
    return max(UNIT, slack // max(1, replicas), TIMES * lately)


def is_low(left: int, size: int) -> bool:
    """Whether it is time to ask for more: less than half of a lease is left."""
    return 2 * left < size


def granted(
    share: int, slack: int, *, charged: int, left: int, size: int, before: int, shown: int
) -> int:
    """Units that are added to a lease, and charged.

        charged + granted <= share * shown + C

    left: of the lease, after the lists that are recorded now. It is negative by what a lease does
    not cover, because a window has just begun. That has to be covered by what was shown `before`
    these lists: the limit holds after each of them, not only after all.
    """
    missing = max(0, -left)
    if missing > allowed(share, before, slack) - charged:
        raise OverdrawnError
    # As much as fills the lease, if the share and the slack allow it; at least what is missing.
    return max(missing, min(size - left, allowed(share, shown, slack) - charged))


@dataclass(eq=False)
class LeaseBalance:
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

    def copy(self) -> "LeaseBalance":
        """To spend from, until it is known that the lists are recorded."""
        return LeaseBalance(
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
            # Units per weight 1: the guard counts in showings.
            lease[rows] = np.maximum(0, self.left[rows]) / UNIT
            if limit.counts is Counts.SERVED:
                # As if this list were shown in full already: the share is of all showings after it.
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
        # Floors have no lease: nothing of theirs can run out.
        self.left -= np.where(self.rules.hard, inside, 0)
        self.used += inside
        self.shown += total[self.rules.owners]
