"""FCPO and a ranker behind the allocation, serving under rules that count by place."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from fairhorizon.data.splits import Split
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.limits.language import POPULAR, GroupOf, Limit
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.rankers.ease import Ease
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.rerank.lists import ListAllocation
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Protocol, Scope, Weighing

LENGTH = 8
RULES = (
    PlaceRule(0.2, weights=PlaceWeights.LOG),
    PlaceRule(0.2, first=3),
    PlaceRule(0.25, scope=Scope.LIST),
    PlaceRule(0.25, scope=Scope.PREFIX),
    PlaceRule(0.92, is_floor=True, weights=PlaceWeights.LOG),
)


def under(model: Fcpo, rule: PlaceRule) -> Fcpo:
    """The model under a limit on its group that counts as the rule does."""
    weighing = {PlaceWeights.NONE: Weighing.NONE, PlaceWeights.LOG: Weighing.LOG}[rule.weights]
    limit = Limit(
        GroupOf(POPULAR),
        rule.share,
        rule.is_floor,
        rule.first,
        scope=rule.scope,
        weighing=weighing,
    )
    return model.with_limits([ResolvedLimit(limit, model.sensitive_.cpu().numpy())])


@pytest.fixture(scope="module")
def scenario(market: Split, strong_model: Fcpo) -> Scenario:
    return evaluation_scenario(market, strong_model.queue_length, Protocol.STANDARD)


def assert_keeps(rule: PlaceRule, lists: np.ndarray, sensitive: torch.Tensor) -> None:
    assert (lists >= 0).all()
    group = sensitive.cpu().numpy()[lists]
    counted = rule.place_weights(LENGTH)
    share = (group @ counted).sum() / (counted.sum() * len(lists))
    if rule.scope == Scope.ALL:
        assert share >= rule.share - 1e-9 if rule.is_floor else share <= rule.share + 1e-9
        assert share == pytest.approx(rule.share, abs=0.02)  # and no more is given up than needed
        return
    for k in range(1, LENGTH + 1) if rule.scope == Scope.PREFIX else [LENGTH]:
        assert group[:, :k].sum(1).max() <= math.ceil(rule.share * k)


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("feedback", [False, True])
def test_fcpo_serves_under_a_rule(
    strong_model: Fcpo, scenario: Scenario, rule: PlaceRule, feedback: bool
):
    lists = under(strong_model, rule).recommend(scenario, length=LENGTH, feedback=feedback)
    assert_keeps(rule, lists, strong_model.sensitive_)
    assert strong_model.limits_ == ()


@pytest.mark.parametrize("rule", RULES)
def test_one_by_one_under_a_rule(strong_model: Fcpo, scenario: Scenario, rule: PlaceRule):
    lists = under(strong_model, rule).recommend_one_by_one(scenario, length=LENGTH)
    group = strong_model.sensitive_.numpy()[lists]
    if rule.scope != Scope.ALL:
        assert_keeps(rule, lists, strong_model.sensitive_)
        return
    counted = rule.place_weights(LENGTH)
    so_far, shown = (group @ counted).cumsum(), ((lists >= 0) @ counted).cumsum()
    excess = rule.share * shown - so_far if rule.is_floor else so_far - rule.share * shown
    # some users have too few items of the group for the floor: their lists are full all the same
    assert excess.max() <= (counted.sum() if rule.is_floor else 1e-8)
    assert (lists >= 0).all()


def test_a_rule_without_weights_is_the_level(strong_model: Fcpo, scenario: Scenario):
    at, plain = strong_model.with_level(0.3), under(strong_model, PlaceRule(0.3))
    for served in ("recommend", "recommend_one_by_one"):
        one, other = (getattr(model, served)(scenario, length=LENGTH) for model in (at, plain))
        assert np.array_equal(one, other)


def test_a_level_takes_the_place_of_rules(strong_model: Fcpo):
    placed = under(strong_model, PlaceRule(0.3, weights=PlaceWeights.LOG))
    assert placed.with_level(0.2).limits_ == ()


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_ranker_serves_under_a_rule(market: Split, rule: PlaceRule, tmp_path: Path):
    model = Ranked(Ease()).fit(market).reranked(ListAllocation(rule=rule))
    scenario = evaluation_scenario(market, model.queue_length, Protocol.STANDARD)
    lists = model.recommend(scenario, length=LENGTH)
    assert_keeps(rule, lists, model.sensitive_)
    model.save(tmp_path / "model")
    loaded = Ranked.load(tmp_path / "model")
    assert loaded.reranker == model.reranker
    assert np.array_equal(loaded.recommend(scenario, length=LENGTH), lists)
    assert model.alpha_prime == (1.0 if rule.is_floor else rule.share)
    assert model.with_level(0.5).reranker.place_rule == rule.at(0.5)
