"""Lists within what is left of leases: caps, prices and floors."""

import numpy as np
import pytest

from fairhorizon.allocation.candidates import NEVER, Offer, best_of_each_class
from fairhorizon.allocation.guard import ExposureGuard, GuardedList
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights

VALUES = np.array([9.0, 8.0, 7.0, 6.0, 5.0, 4.0])
EVEN = np.arange(6) % 2 == 0  # items 0, 2 and 4


class Leased:
    """A guard whose lists have one cap, whatever their length is."""

    def __init__(self, guard: ExposureGuard) -> None:
        self.guard = guard

    def decide(
        self, values: np.ndarray, room: np.ndarray, length: int, codes: np.ndarray | None = None
    ) -> GuardedList:
        return self.guard.decide(Offer(values, codes), lambda _: (room,), length)


def lists(*rules: GroupRule, step: float = 0.0) -> Leased:
    return Leased(ExposureGuard(rules, step=step))


def test_without_a_price_the_best_items_within_the_room_are_shown() -> None:
    some = lists(GroupRule(PlaceRule(0.4), EVEN))
    shown = {room: some.decide(VALUES, np.array([room]), 4).items.tolist() for room in (0, 1, 2, 9)}
    # three odd items are all that is left without any of the group: the list is shorter
    assert shown == {0: [1, 3, 5], 1: [0, 1, 3, 5], 2: [0, 1, 2, 3], 9: [0, 1, 2, 3]}


def test_what_may_not_be_shown_is_not() -> None:
    values = VALUES.copy()
    values[[0, 1, 3]] = NEVER
    some = lists(GroupRule(PlaceRule(0.4), EVEN))
    assert some.decide(values, np.array([np.inf]), 4).items.tolist() == [2, 4, 5]
    assert some.decide(np.full(6, NEVER), np.array([np.inf]), 4).items.tolist() == []


def test_places_count_by_their_weights() -> None:
    rule = GroupRule(PlaceRule(0.4, weights=PlaceWeights.LOG), EVEN)
    # 1 / log2(1 + k): 1, 0.63, 0.5. A room of 0.6 is that of the third place, not of the second
    shown = lists(rule).decide(VALUES, np.array([0.6]), 3).items.tolist()
    assert shown.index(0) == 2
    assert sorted(shown) == [0, 1, 3]


def test_a_price_rises_while_lists_want_more_than_the_share() -> None:
    some = lists(GroupRule(PlaceRule(0.25), EVEN), step=0.1)
    some.decide(VALUES, np.array([np.inf]), 4)
    spread = VALUES.std()  # of the eight best, which are all six
    # two of the four best are in the group: 0.5 of a list where 0.25 is asked for
    assert some.guard.prices == pytest.approx([0.1 * spread * 0.25])


def test_a_floor_has_no_cap_and_its_price_brings_it_about() -> None:
    odd = GroupRule(PlaceRule(0.75, is_floor=True), ~EVEN)
    some = lists(odd, step=0.5)
    first = some.decide(VALUES, np.array([np.inf]), 4).items
    for _ in range(50):
        last = some.decide(VALUES, np.array([np.inf]), 4).items
    assert (~EVEN[first]).mean() == 0.5
    assert (~EVEN[last]).mean() == 0.75


def test_without_rules_the_best_are_shown_and_the_next_best_are_spare() -> None:
    made = lists().decide(VALUES, np.zeros(0), 2)
    assert made.items.tolist() == [0, 1]
    assert made.spares(0, 2).tolist() == [2, 3]


def test_candidates_of_others_keep_their_codes() -> None:
    some = lists(GroupRule(PlaceRule(0.4), EVEN))
    codes = np.array([4, 5, 2, 3])
    values = np.array([1.0, 2.0, 4.0, 3.0])  # of the items 4, 5, 2, 3
    assert some.decide(values, np.array([1.0]), 3, codes).items.tolist() == [2, 3, 5]


@pytest.mark.parametrize("groups", [1, 2, 6])
@pytest.mark.parametrize("seed", range(5))
def test_the_best_of_each_class_are_those_of_a_sort_of_the_class(seed: int, groups: int) -> None:
    """Of many classes and of few, where some have nothing among the best of all."""
    draws = np.random.default_rng(seed)
    values = draws.integers(0, 30, 500).astype(np.float32)  # with many ties
    values[draws.random(500) < 0.1] = NEVER
    rules = [GroupRule(PlaceRule(0.5), draws.random(500) < share) for share in (0.04, 0.5) * 3]
    limits = LimitMatrix.from_rules(rules[:groups], 7)
    found = best_of_each_class(values, limits.of_item, limits)
    expected = []
    for kind in range(limits.n_classes):
        own = [i for i in range(500) if limits.of_item[i] == kind and values[i] > NEVER]
        expected += sorted(own, key=lambda i: -values[i])[:7]
    assert sorted(found) == sorted(expected)
    count = limits.members.sum(0)
    key = [(-values[i], count[limits.of_item[i]], i) for i in found]
    assert key == sorted(key)
