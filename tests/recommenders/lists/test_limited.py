"""A fitted model under limits: which lists it makes, and that it stays as it was."""

import numpy as np
import pytest
from numpy.typing import NDArray

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.limits.language import Limit
from fairhorizon.limits.measured import limit_reached
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.recommenders.lists.item_lists import by_steps
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Protocol, Scope

LENGTH = 6


@pytest.fixture(scope="module")
def scenario(market: Split, strong_model: Fcpo) -> Scenario:
    return evaluation_scenario(market, strong_model.queue_length, Protocol.STANDARD)


def bound(model: Fcpo, *texts: str) -> list[ResolvedLimit]:
    """On popular items, and on every third item by the name of new."""
    thirds = np.arange(len(model.sensitive_)) % 3 == 0
    popular = model.sensitive_.cpu().numpy()
    return [ResolvedLimit(Limit.parse(t), popular if "popular" in t else thirds) for t in texts]


def lists(model: Fcpo, scenario: Scenario) -> NDArray[np.int64]:
    return model.recommend(scenario, length=LENGTH)


def test_a_plain_limit_on_its_group_is_its_level(strong_model: Fcpo, scenario: Scenario) -> None:
    before = lists(strong_model, scenario)
    limited = strong_model.with_limits(bound(strong_model, "popular<=0.2"))
    assert limited.alpha_prime == 0.2
    assert (lists(limited, scenario) == lists(strong_model.with_level(0.2), scenario)).all()
    assert (lists(strong_model, scenario) == before).all()
    assert (lists(strong_model.with_limits([]), scenario) == before).all()


@pytest.mark.parametrize(
    "texts",
    [
        ("new<=0.1",),
        ("new>=0.6",),
        ("new<=0.2@3",),
        ("new<=0.2;weights=log",),
        ("new<=0.3;scope=prefix",),
        ("popular<=0.25", "new<=0.2"),
        ("popular<=0.25", "new>=0.5"),
        ("popular<=0.25", "popular>=0.2", "new>=0.4"),
        ("popular<=0.25@3", "new>=0.5"),
        ("popular<=0.25;weights=log", "new<=0.3;scope=prefix"),
        ("popular<=0.3;scope=list", "new>=0.3;weights=1,0.5,0.2", "new<=0.4"),
        ("popular<=0.4@3;scope=list", "new>=0.5;scope=list"),
    ],
)
@pytest.mark.parametrize("feedback", [False, True])
def test_lists_keep_the_limits(
    texts: tuple[str, ...], feedback: bool, strong_model: Fcpo, scenario: Scenario
) -> None:
    limits = bound(strong_model, *texts)
    model = strong_model.with_limits(limits)
    shown = model.recommend(scenario, length=LENGTH, feedback=feedback)
    assert (shown >= 0).all()
    for one in limits:
        assert limit_reached(one, shown).kept


def test_the_limits_take_the_place_of_the_level(strong_model: Fcpo, scenario: Scenario) -> None:
    strict = strong_model.with_level(0.1)
    other = strict.with_limits(bound(strict, "new<=1"))
    assert other.alpha_prime == 1
    popular = strong_model.sensitive_.cpu().numpy()
    assert popular[lists(strict, scenario)].mean() <= 0.1 < popular[lists(other, scenario)].mean()
    assert strict.with_limits(bound(strict, "popular<=0.3", "new<=1")).alpha_prime == 0.3
    again = other.with_level(0.1)  # a level takes the place of the limits
    assert again.limits_ == ()
    assert (lists(again, scenario) == lists(strict, scenario)).all()


def test_users_who_are_served_alone(strong_model: Fcpo, scenario: Scenario) -> None:
    alone = strong_model.with_limits(bound(strong_model, "new<=0.1"))
    shown = alone.recommend_one_by_one(scenario, length=LENGTH)
    assert limit_reached(alone.limits_[0], shown).kept
    several = strong_model.with_limits(bound(strong_model, "new<=0.1", "gini<=0.2"))
    with pytest.raises(ConfigError, match=r"--one-by-one does not keep new<=0\.1, gini<=0\.2"):
        several.recommend_one_by_one(scenario, length=LENGTH)


def test_the_control_makes_lists_under_several_limits(strong_model: Fcpo) -> None:
    several = bound(strong_model, "new<=0.1", "popular<=0.2")
    gini = bound(strong_model, "new<=0.1", "gini<=0.2")
    assert [by_steps(several, feedback=feedback) for feedback in (False, True)] == [False, True]
    mixed = bound(strong_model, "new<=0.1", "popular<=0.2;scope=list")
    assert by_steps(mixed, feedback=False)
    assert [by_steps(gini, feedback=feedback) for feedback in (False, True)] == [False, True]
    assert not by_steps(several[:1], feedback=True)


def test_a_limit_as_a_rule() -> None:
    rules = {
        "new<=0.3": PlaceRule(0.3),
        "new>=0.3@5": PlaceRule(0.3, is_floor=True, first=5),
        "new<=0.3;weights=log": PlaceRule(0.3, weights=PlaceWeights.LOG),
        "new<=0.3;weights=1,0.5": PlaceRule(0.3, weights=(1.0, 0.5)),
        "new<=0.3;scope=prefix": PlaceRule(0.3, scope=Scope.PREFIX),
    }
    assert {text: PlaceRule.from_limit(Limit.parse(text)) for text in rules} == rules
