"""The Gini index that lists aim at, by hand; and limits that do not bind, which change nothing."""

from dataclasses import replace

import pytest
import torch
from fairhorizon.agents.lists.evenness import Evenness, accurate, gini_of_lists

from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.fcpo.serving.actor_chances import ActorChances
from fairhorizon.agents.lists.item_lists import NO_LIMIT, ItemLists
from fairhorizon.data.splits import Split
from fairhorizon.environment.feedback import Scenario, evaluation_scenario
from fairhorizon.exposure.place_rule import PlaceRule
from fairhorizon.policy.menus import SignalMenus
from fairhorizon.vocabulary import Protocol

# Four users and four items, one item a list. The first ranker shows everybody item 0, the second
# items 0 and 1 to two users each, the third another item to everybody.
FIRST_ITEMS = ([0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 3])
GINI = (3 / 4, 1 / 2, 0.0)
NO_GROUP = torch.zeros(4, dtype=torch.bool)


def menus() -> SignalMenus:
    items = torch.arange(4).expand(4, 4)
    signals = torch.zeros(4, 4, 4)  # users, items, three rankers and the group
    for ranker, chosen in enumerate(FIRST_ITEMS):
        signals[torch.arange(4), torch.tensor(chosen), ranker] = 1.0
    return SignalMenus(items, signals)


def plain(ranker: int) -> torch.Tensor:
    return torch.tensor(FIRST_ITEMS[ranker])[:, None]


def test_gini_of_lists_by_hand() -> None:
    assert [gini_of_lists(plain(ranker), 4) for ranker in range(3)] == pytest.approx(GINI)
    assert gini_of_lists(torch.tensor([[0, -1], [1, -1]]), 2) == pytest.approx(0)  # -1: no item


@pytest.mark.parametrize(
    ("share", "rankers", "part", "aim"),
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
    share: float, rankers: tuple[int, ...] | None, part: float, aim: float
) -> None:
    evenness = Evenness(share, rankers, part)
    assert evenness.aim(plain(0), menus(), NO_GROUP, 1, NO_LIMIT) == pytest.approx(aim)


def test_where_accuracy_is_known_the_lists_are_a_measure_of_their_own() -> None:
    """Plain lists of Gini index 1/2 beside a ranker of 3/4."""
    aims = [
        Evenness(0.9, rankers).aim(plain(1), menus(), NO_GROUP, 1, NO_LIMIT)
        for rankers in ((0,), (1,))
    ]
    assert aims == pytest.approx([0.45, 0.45])


def test_lists_that_are_even_enough_are_left_as_they_are() -> None:
    for rankers, own in (((0, 1), 2), ((0,), 1)):
        aim = Evenness(1.0, rankers).aim(plain(own), menus(), NO_GROUP, 1, NO_LIMIT)
        assert aim == pytest.approx(GINI[own])


def test_rankers_are_held_to_the_same_share_of_the_group() -> None:
    """Item 0 is the group, half of the lists may hold it: the first ranker shows others too."""
    group = torch.tensor([True, False, False, False])
    limited = Evenness(1.0, (0,)).aim(plain(0), menus(), group, 1, PlaceRule(0.5))
    assert limited < GINI[0]
    assert Evenness(1.0, (0,)).aim(plain(0), menus(), group, 1, NO_LIMIT) == pytest.approx(GINI[0])


def test_accurate_rankers_are_within_a_tenth_of_the_best() -> None:
    assert accurate((0.2, 0.1801, 0.1799, 0.0)) == (0, 1)
    assert accurate((0.1, 0.3)) == (1,)
    assert accurate((0.0, 0.0)) == (0, 1)
    assert accurate(()) is None


@pytest.fixture(scope="module")
def scenario(market: Split, strong_model: Fcpo) -> Scenario:
    return evaluation_scenario(market, strong_model.queue_length, Protocol.STANDARD)


@pytest.mark.parametrize("spread", [None, Evenness(0.97), Evenness(0.9, (0,), 0.5)])
def test_a_limit_that_does_not_bind_gives_the_lists_of_no_limit(
    spread: Evenness | None, strong_model: Fcpo, scenario: Scenario
) -> None:
    sensitive, length = strong_model.sensitive_, 8

    plain = ItemLists(
        ActorChances(strong_model.policy_.actor),
        sensitive,
        strong_model.policy_.histories,
        NO_LIMIT,
        None,
    )

    def lists(share: float) -> torch.Tensor:
        return replace(plain, rule=PlaceRule(share), spread=spread).one_shot(scenario, length)

    free = lists(1.0)
    share = float(sensitive[plain.one_shot(scenario, length)].double().mean())
    assert 0.3 < share < 0.95
    for loose in (share, (1 + share) / 2):
        assert torch.equal(lists(loose), free)
    assert not torch.equal(lists(share / 2), free)
