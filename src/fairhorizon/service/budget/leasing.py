"""How large a lease is and how much of it is handed out: whole units in, whole units out.

The ledger keeps accounts by these rules, and benchmarks/fleet.py simulates a thousand replicas that
do. The guarantee rests on `granted` alone: it holds for leases of any size (docs/guarantee.md).
"""

from fairhorizon.service.budget.units import UNIT, allowed

TIMES = 3  # a lease is so many times what was used lately between two transactions
KEPT = (9, 10)  # of what was used lately, from one transaction to the next


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
    return max(missing, min(size - left, allowed(share, shown, slack) - charged))
