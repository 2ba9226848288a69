"""What a replica may still show, also after very many showings."""

import numpy as np
import pytest

from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.service.budget.leases import LeaseBalance
from fairhorizon.service.budget.rules import UNIT, Rules, ServedLimit, Window
from fairhorizon.service.settings import Counts
from fleet_simulation import Replica


def balance(text: str, *, shown: int, used: int, left: int) -> LeaseBalance:
    """Of one limit on the items 0 to 2 of ten; counts in showings."""
    limit = Limit.parse(text)
    bound = ResolvedLimit(limit, np.arange(10) < 3)
    rules = Rules((ServedLimit(1, limit, Window(), Counts.SERVED, 20 * UNIT, (bound,)),))
    units = (np.array([number * UNIT], dtype=np.int64) for number in (left, used, shown))
    return LeaseBalance(
        rules, [1], ["always"], np.array([1]), *units, np.zeros(1, dtype=np.int64), np.zeros(1)
    )


def caps_of(text: str = "popular<=0.4", *, shown: int, used: int, left: int) -> list[float]:
    """What a list of ten may have of the group: preferably, rounded up, and at most."""
    caps = balance(text, shown=shown, used=used, left=left).caps(10)
    return [float(cap[0]) for cap in caps]


@pytest.mark.parametrize("shown", [100, 24_000_000, 10**11])
def test_the_room_is_what_the_share_and_the_lease_leave(shown: int) -> None:
    used = shown * 4 // 10 - 5
    # 0.4 of ten more showings is 4, and 5 were left
    assert caps_of(shown=shown, used=used, left=100) == [9.0, 9.0, 100.0]
    assert caps_of(shown=shown, used=used, left=3) == [3.0, 3.0, 3.0]
    # the share is used up: a full list that needs the group may still have what is leased
    assert caps_of(shown=shown, used=used + 20, left=3) == [0.0, 0.0, 3.0]


def test_showings_are_rounded_up_before_the_lease_is_used() -> None:
    """0.04 of ten showings is 0.4 of an item."""
    assert caps_of("popular<=0.04", shown=0, used=0, left=5) == [0.4, 1.0, 5.0]


def test_a_floor_has_no_cap() -> None:
    assert caps_of("popular>=0.4", shown=100, used=0, left=0) == [np.inf] * 3


def test_a_list_is_weighed_by_place_and_spent() -> None:
    some = balance("popular<=0.4;weights=log", shown=10, used=2, left=3)
    codes = np.array([5, 0, 7, 1])  # of the group at places 2 and 4
    inside, total = some.weigh(codes)
    assert inside.tolist() == [630_930 + 430_677]
    assert total.tolist() == [1_000_000 + 630_930 + 500_000 + 430_677]
    some.spend(codes)
    assert some.left.tolist() == [3 * UNIT - 1_061_607]
    assert some.used.tolist() == [2 * UNIT + 1_061_607]
    assert some.shown.tolist() == [10 * UNIT + 2_561_607]


def test_a_simulated_replica_decides_within_the_same_room() -> None:
    for left, used, shown in ((100, 35, 100), (3, 35, 100), (3, 60, 100), (7, 0, 0)):
        room, _, _ = caps_of(shown=shown, used=used, left=left)
        one = Replica(0, left=left * UNIT, used=used * UNIT, shown=shown * UNIT)
        assert one.decide(400_000, 10, 10) == min(10, room)
        assert one.left == (left - min(10, room)) * UNIT
