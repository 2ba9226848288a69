"""The Gini index that lists aim at, by hand; and limits that do not bind, which change nothing."""

import warnings
from dataclasses import replace
from typing import cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from fairhorizon.allocation.candidates import Candidates
from fairhorizon.allocation.engine import (
    Block,
    BlocksHere,
    Totals,
    allocate_over,
    gini_over,
)
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.data.splits import Split
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.fcpo.serving import ActorProbabilities
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.recommenders.lists.item_lists import NO_LIMIT, GiniTarget, ItemLists, accurate
from fairhorizon.recommenders.lists.probabilities import ItemProbabilities
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Protocol

# Four users and four items, one item a list. The first ranker shows everybody item 0, the second
# items 0 and 1 to two users each, the third another item to everybody.
FIRST_ITEMS = ([0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 3])
GINI = (3 / 4, 1 / 2, 0.0)
NO_GROUP = torch.zeros(4, dtype=torch.bool)


def ranked(ranker: int) -> Candidates:
    """The items of each user by the scores of a ranker."""
    values = np.zeros((4, 4))
    values[np.arange(4), FIRST_ITEMS[ranker]] = 1.0
    return Candidates.checked(np.tile(np.arange(4), (4, 1)), values)


def made(own: int) -> tuple[BlocksHere, Totals]:
    """Plain lists, which are those of one of the rankers."""
    tables = [ranked(own), *map(ranked, range(len(FIRST_ITEMS)))]
    limits = LimitMatrix.from_rules([GroupRule(NO_LIMIT, NO_GROUP.numpy())], 1)
    blocks = BlocksHere([Block(tables, limits)])
    return blocks, allocate_over(blocks, limits)


def aim(
    spread: GiniTarget,
    own: int,
    group: torch.Tensor = NO_GROUP,
    rule: PlaceRule = NO_LIMIT,
    price: float = 0.0,
) -> float | None:
    """The Gini index that lists aim at; own: the ranker that plain lists are of."""
    blocks, plain = made(own)
    probabilities = cast(ItemProbabilities, None)  # the lists are made already
    lists = ItemLists(probabilities, group, torch.ones(4), rule, spread)
    return lists._even(blocks, 1, replace(plain, prices=np.array([price])))


def test_the_gini_index_of_lists_by_hand() -> None:
    assert [gini_over(made(ranker)[0]) for ranker in range(3)] == pytest.approx(GINI)


@pytest.mark.parametrize(
    ("share", "rankers", "part", "expected"),
    [
        (1.0, None, 1.0, 0.0),  # the third ranker is even
        (1.0, None, 0.0, 3 / 4),  # not one step from the plain lists
        (1.0, None, 0.5, 3 / 8),
        (1.0, (0, 1), 1.0, 1 / 2),  # the third is not accurate
        (1.0, (0, 1), 0.5, 5 / 8),
        (0.9, (0, 1), 1.0, 0.45),
        (0.9, (0, 1), 0.5, 0.6),  # 0.75 - (0.75 - 0.45) / 2
        (0.9, (0,), 1.0, 0.675),
    ],
)
def test_an_aim_by_hand(
    share: float, rankers: tuple[int, ...] | None, part: float, expected: float
) -> None:
    gini_target = GiniTarget(share, rankers, part)
    assert aim(gini_target, own=0) == pytest.approx(expected)
    least = min(GINI[number] for number in gini_target.numbers(3))
    assert gini_target.between(GINI[0], least) == pytest.approx(expected)


def test_all_rankers_are_looked_at_or_those_that_are_named() -> None:
    assert list(GiniTarget(0.9).numbers(3)) == [0, 1, 2]
    assert list(GiniTarget(0.9, (0, 2)).numbers(3)) == [0, 2]


def test_where_accuracy_is_known_the_lists_are_a_measure_of_their_own() -> None:
    """Plain lists of Gini index 1/2 beside a ranker of 3/4."""
    aims = [aim(GiniTarget(0.9, rankers), own=1) for rankers in ((0,), (1,))]
    assert aims == pytest.approx([0.45, 0.45])


def test_lists_that_are_even_enough_are_left_as_they_are() -> None:
    for rankers, own in (((0, 1), 2), ((0,), 1)):
        assert aim(GiniTarget(1.0, rankers), own) == pytest.approx(GINI[own])


def test_rankers_are_held_to_a_share_that_binds() -> None:
    """Item 0 is the group, half of the lists may hold it: the first ranker shows others too."""
    group = torch.tensor([True, False, False, False])
    first, half = GiniTarget(1.0, (0,)), PlaceRule(0.5)
    limited = aim(first, 0, group, half, price=0.1)
    assert limited is not None
    assert limited < GINI[0]
    assert aim(first, 0, group, half, price=0.0) == pytest.approx(GINI[0])


def test_one_user_has_nothing_to_be_even_with() -> None:
    limits = LimitMatrix.from_rules([GroupRule(NO_LIMIT, NO_GROUP.numpy())], 1)
    alone = BlocksHere([Block([ranked(0).take_users(slice(1))] * 2, limits)])
    lists = ItemLists(
        cast(ItemProbabilities, None), NO_GROUP, torch.ones(1), NO_LIMIT, GiniTarget(0.9)
    )
    assert lists._even(alone, 1, allocate_over(alone, limits)) is None


def test_accurate_rankers_are_within_a_tenth_of_the_best() -> None:
    assert accurate((0.2, 0.1801, 0.1799, 0.0)) == (0, 1)
    assert accurate((0.1, 0.3)) == (1,)
    assert accurate((0.0, 0.0)) == (0, 1)
    assert accurate(()) is None


@pytest.fixture(scope="module")
def scenario(market: Split, strong_model: Fcpo) -> Scenario:
    return evaluation_scenario(market, strong_model.queue_length, Protocol.STANDARD)


@pytest.mark.parametrize("spread", [None, GiniTarget(0.97), GiniTarget(0.9, (0,), 0.5)])
def test_a_limit_that_does_not_bind_gives_the_lists_of_no_limit(
    spread: GiniTarget | None, strong_model: Fcpo, scenario: Scenario
) -> None:
    sensitive, length = strong_model.sensitive_, 8

    plain = ItemLists(
        ActorProbabilities(strong_model.policy_.actor),
        sensitive,
        strong_model.policy_.histories,
        NO_LIMIT,
        None,
    )

    def lists(share: float) -> NDArray[np.int64]:
        limited = replace(plain, rule=PlaceRule(share), spread=spread)
        return limited.rank(scenario, length).lists

    free, group = lists(1.0), sensitive.cpu().numpy()
    share = float(group[plain.rank(scenario, length).lists].mean())
    assert 0.3 < share < 0.95
    for loose in (share, (1 + share) / 2):
        np.testing.assert_array_equal(lists(loose), free)
    assert (lists(share / 2) != free).any()


def test_a_gini_limit_that_is_missed_is_warned_about_and_an_aim_is_not(
    strong_model: Fcpo, scenario: Scenario
) -> None:
    lists = ItemLists(
        ActorProbabilities(strong_model.policy_.actor),
        strong_model.sensitive_,
        strong_model.policy_.histories,
        PlaceRule(0.5),
        GiniTarget(0.1),
    )
    with pytest.warns(UserWarning, match="a Gini index of at most 0 were found"):
        replace(lists, gini_limit=0.0).rank(scenario, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        replace(lists, gini_limit=1.0).rank(scenario, 8)
