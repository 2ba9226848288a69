"""What lists make of a limit, worked by hand."""

import json
from math import log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairhorizon.limits.language import Limit
from fairhorizon.limits.measured import LimitReached, Showings, limit_reached
from fairhorizon.limits.resolved import ResolvedLimit

GROUP = np.array([True, True, True, False, False, False, False, False])  # items 0, 1, 2 of 8
LISTS = np.array(
    [
        [0, 3, 1, 4],  # of the group: places 1 and 3
        [5, 6, 7, 2],  # place 4
        [3, 0, 1, 2],  # places 2, 3 and 4
        [4, 1, -1, -1],  # place 2 of two
        [-1, -1, -1, -1],  # no list
    ]
)  # 14 showings, 7 of the group


def reached(text: str, lists: np.ndarray = LISTS) -> LimitReached:
    return limit_reached(ResolvedLimit(Limit.parse(text), GROUP), lists)


def test_a_share_of_all_showings() -> None:
    found = reached("popular<=0.4")
    assert (found.limit, found.asked, found.is_floor) == ("popular<=0.4", 0.4, False)
    assert found.reached == 7 / 14
    assert found.excess == pytest.approx(0.1)
    assert (found.kept, found.broken, found.n_lists) == (False, None, 4)
    assert found.at == {1: 1 / 4}  # lists have four places
    # 1 + 1/2, 1/log2(5), 1/log2(3) + 1/2 + 1/log2(5), 1/log2(3) of all of these
    first, second, third, fourth = 1.0, 1 / log2(3), 1 / log2(4), 1 / log2(5)
    group = first + 2 * second + 2 * third + 2 * fourth
    everything = 4 * (first + second) + 3 * (third + fourth)
    assert found.weighed == pytest.approx(group / everything, abs=1e-15)
    assert found.lists_above == 1 / 4  # the third list, three where ceil(1.6) = 2 are allowed
    assert reached("popular<=0.5").kept
    assert reached("popular<=0.5").excess == 0


def test_places_and_weights() -> None:
    assert reached("popular<=0.4@2").reached == 3 / 8
    assert reached("popular<=0.4@2").kept
    assert reached("popular<=0.4@9").reached == 7 / 14
    assert reached("popular<=0.4;weights=2,1").reached == (2 + 1 + 1) / (4 * 2 + 4 * 1)
    by_log = reached("popular<=0.5;weights=log")
    assert by_log.reached == by_log.weighed
    assert by_log.kept
    assert by_log.excess == pytest.approx(by_log.reached - 0.5)
    one_place = reached("popular<=0.4@1;weights=log")
    assert one_place.reached == 1 / 4
    assert one_place.lists_above == 0  # ceil(0.4) = 1 of 1 place


def test_a_floor() -> None:
    found = reached("new>=0.6")
    assert (found.reached, found.is_floor, found.kept) == (0.5, True, False)
    assert found.excess == pytest.approx(0.1)
    # floor(0.6 * 4) = 2 of four: the second list has one; the fourth is short, with one other item
    assert found.lists_above == 1 / 4
    assert reached("new>=0.5").kept


def test_every_list() -> None:
    found = reached("popular<=0.5;scope=list")
    assert found.reached == 3 / 4
    assert (found.broken, found.n_lists, found.kept) == (1, 4, False)
    assert found.excess == 1 / 4  # one of four places too many
    assert found.lists_above == 1 / 4
    kept = reached("popular<=0.6;scope=list")
    assert (kept.reached, kept.broken, kept.kept, kept.excess) == (0.75, 0, True, 0)
    assert reached("popular<=0.9;scope=list").excess == -1 / 4
    of_three = reached("popular<=0.3@3;scope=list")  # 1 of 3 places
    assert (of_three.reached, of_three.broken) == (2 / 3, 2)
    floor = reached("new>=0.5;scope=list")
    assert (floor.reached, floor.broken, floor.excess) == (1 / 4, 1, 1 / 4)


def test_every_beginning_of_a_list() -> None:
    # at most 1, 1, 1, 2 of the first 1, 2, 3, 4
    found = reached("popular<=0.3;scope=prefix")
    assert found.broken == 2
    assert found.excess == pytest.approx(1 / 3)  # the first three places of list 1 and 3
    assert found.reached == 3 / 4  # of a whole list
    # at most 1, 1, 2, 2: the first and the third list keep it up to the third place
    assert reached("popular<=0.5;scope=prefix").broken == 1
    assert reached("popular<=0.5@3;scope=prefix").kept
    floor = reached("new>=0.5;scope=prefix")  # other items: at most 1, 1, 2, 2
    assert floor.broken == 1  # 5, 6 in the second list
    assert floor.excess == pytest.approx(1 / 2)


def test_the_gini_index() -> None:
    found = reached("gini<=0.3")
    counts = np.array([2, 3, 2, 2, 2, 1, 1, 1])
    expected = np.abs(counts[:, None] - counts).sum() / (2 * 8 * counts.sum())
    assert found.reached == pytest.approx(expected)
    assert found.kept == (expected <= 0.3)
    assert (found.weighed, found.lists_above, found.broken, found.at) == (None, None, None, {})


def test_shares_of_the_first_places() -> None:
    lists = np.array([[0, 3, 4, 5, 6, 1, 2, 7, -1, -1, -1, -1]])
    assert reached("popular<=0.4", lists).at == {1: 1, 5: 1 / 5, 10: 3 / 8}


def test_nothing_was_shown() -> None:
    nothing = np.full((3, 5), -1)
    for text in ("popular<=0.4", "new>=0.4", "new>=0.4;scope=list", "popular<=0.4;weights=log"):
        found = reached(text, nothing)
        assert (found.reached, found.kept, found.excess, found.n_lists) == (0, True, 0, 0)


def test_rounding_breaks_no_limit() -> None:
    lists = np.where(np.arange(100).reshape(10, 10) % 10 < 3, 0, 3)
    for text in ("popular<=0.3", "popular<=0.3;scope=list", "new>=0.3;scope=list"):
        assert reached(text, lists).kept


def test_json() -> None:
    content = reached("popular<=0.5;scope=list", np.array([[0, 3, 1, 4, 5, 6]])).to_json()
    assert json.loads(json.dumps(content)) == content
    assert content["at"] == {"1": 1.0, "5": 0.4}
    assert (content["limit"], content["broken"]) == ("popular<=0.5;scope=list", 0)


@given(
    st.lists(st.lists(st.integers(-1, 7), min_size=6, max_size=6), min_size=1, max_size=5),
    st.integers(0, 10),
    st.booleans(),
    st.integers(1, 7),
)
def test_lists_by_their_definition(
    rows: list[list[int]], tenths: int, is_floor: bool, first: int
) -> None:
    """Counted list by list and beginning by beginning, in whole numbers; gaps stay empty places."""
    sign = ">=" if is_floor else "<="
    places = min(first, 6)
    whole, beginnings, lists = 0, 0, 0
    for row in rows:
        flags = [item >= 0 and bool(GROUP[item]) != is_floor for item in row]
        tenth = 10 - tenths if is_floor else tenths
        over = [sum(flags[:k]) > -(-tenth * k // 10) for k in range(1, places + 1)]
        lists += any(item >= 0 for item in row)
        whole, beginnings = whole + over[-1], beginnings + any(over)
    for scope, broken in (("list", whole), ("prefix", beginnings)):
        text = f"new{sign}{tenths / 10}@{first};scope={scope}"
        found = limit_reached(
            ResolvedLimit(Limit.parse(text), GROUP), Showings.from_lists(np.array(rows))
        )
        assert (found.broken, found.kept, found.n_lists) == (broken, not broken, lists)


def test_violations_are_showings_too_many_or_too_few() -> None:
    """7 of 14 showings are of the group; by list see above."""
    assert reached("popular<=0.4").violations == 2  # 5.6 are allowed, so 2 of the 7 are too many
    assert reached("popular<=0.5").violations == 0
    assert reached("popular<=0.9").violations == 0
    assert reached("popular>=0.8").violations == 5  # 11.2 are asked for
    assert reached("popular<=0.3@2").violations == 1  # 3 of 8, 2.4 are allowed
    assert reached("popular<=0.25;weights=2,1").violations == 1  # weight 4 of 12, 3 is allowed
    by_list = reached("popular<=0.4;scope=list")
    assert (by_list.violations, by_list.broken) == (1, 1)
    assert reached("gini<=0.1").violations is None


def test_a_price_is_found_by_the_text_of_the_limit() -> None:
    bound = ResolvedLimit(Limit.parse("popular<=0.40"), GROUP)
    assert limit_reached(bound, LISTS, {"popular<=0.4": 0.25}).price == 0.25
    assert limit_reached(bound, LISTS, {"popular<=0.5": 0.25}).price is None
    assert limit_reached(bound, LISTS).price is None
