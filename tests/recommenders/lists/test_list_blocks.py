"""Lists over blocks of users keep the limits of all, at nearly the value of one block."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from fairhorizon.allocation.engine import BlocksHere
from fairhorizon.data.splits import Split
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.limits.groups import popular_group
from fairhorizon.limits.language import Limit
from fairhorizon.limits.measured import limit_reached
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.methods import Method, build
from fairhorizon.recommenders.base import BlockServing, RankedLists, Recommender
from fairhorizon.recommenders.lists.item_lists import ItemLists
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Protocol

LENGTH = 6
CUTS = [[30], [20, 37]]  # two blocks, and three


def fitted(name: str, market: Split) -> Recommender:
    return build(Method.parse(name), {}, seed=0).fit(market)


def limits(texts: Sequence[str], market: Split) -> list[ResolvedLimit]:
    popular = popular_group(market.train.item_counts())
    even = np.arange(len(popular)) % 2 == 0
    groups = {"popular": popular, "code": even, "gini": np.ones_like(popular)}
    return [
        ResolvedLimit(Limit.parse(text), groups[text.split("<")[0].split(">")[0].split("=")[0]])
        for text in texts
    ]


def states(model: Recommender, market: Split) -> Scenario:
    return evaluation_scenario(market, model.queue_length, Protocol.STANDARD)


def over_blocks(serving: BlockServing, scenario: Scenario, cuts: list[int]) -> RankedLists:
    """The lists of users who are cut into blocks."""
    parts = torch.arange(scenario.n_users).tensor_split(cuts)
    own = [serving.block(scenario.only(rows), LENGTH, scenario.n_users) for rows in parts]
    return serving.serve_blocks(BlocksHere(own), LENGTH)


def total(served: RankedLists) -> float:
    assert served.values is not None
    weights = 1 / np.log2(np.arange(2, LENGTH + 2))
    return float((np.nan_to_num(served.values) @ weights).sum())


@pytest.mark.parametrize("name", ["ease", "ease+quota@0.5", "popularity+penalty"])
@pytest.mark.parametrize("feedback", [False, True])
@pytest.mark.parametrize("cuts", CUTS)
def test_lists_that_depend_on_nobody_else(
    name: str, feedback: bool, cuts: list[int], market: Split
) -> None:
    model = fitted(name, market)
    scenario, serving = states(model, market), model.in_blocks(feedback=feedback)
    assert serving is not None
    one = model.rank(scenario, length=LENGTH, feedback=feedback)
    np.testing.assert_array_equal(over_blocks(serving, scenario, cuts).lists, one.lists)


@pytest.mark.parametrize("cuts", CUTS)
def test_lists_of_a_ranker(cuts: list[int], market: Split) -> None:
    model = fitted("ease+lists@0.3", market)
    scenario, serving = states(model, market), model.in_blocks()
    assert serving is not None
    one, several = model.rank(scenario, length=LENGTH), over_blocks(serving, scenario, cuts)
    popular = popular_group(market.train.item_counts())
    for served in (one, several):
        assert (served.lists >= 0).all()
        assert popular[served.lists].mean() <= 0.3
    assert total(several) == pytest.approx(total(one), rel=0.01)


ASKED = [
    ["popular<=0.2"],
    ["code=even>=0.6"],
    ["popular<=0.3;scope=list"],
    ["popular<=0.3;weights=log"],
    ["popular<=0.4", "gini<=0.6"],
    ["popular<=0.3", "code=even>=0.55"],
]


@pytest.mark.slow
@pytest.mark.parametrize("texts", ASKED, ids=" ".join)
@pytest.mark.parametrize("cuts", CUTS)
def test_lists_of_a_policy_under_limits(
    texts: list[str], cuts: list[int], strong_model: Fcpo, market: Split
) -> None:
    asked = limits(texts, market)
    model = strong_model.with_limits(asked)
    scenario, serving = states(model, market), model.in_blocks()
    assert serving is not None
    one, several = model.rank(scenario, length=LENGTH), over_blocks(serving, scenario, cuts)
    assert (several.lists >= 0).all()
    assert all(limit_reached(limit, several.lists).kept for limit in asked)
    assert list(several.prices) == list(one.prices) == [str(limit) for limit in asked]
    assert total(several) == pytest.approx(total(one), rel=0.01)


@pytest.mark.parametrize("text", ["popular<=0.2", "code=even>=0.6"])
@pytest.mark.parametrize("cuts", CUTS)
def test_one_plain_limit_costs_the_same_in_any_blocks(
    text: str, cuts: list[int], strong_model: Fcpo, market: Split
) -> None:
    """Without spread, users are tied by one price alone."""
    model = strong_model.with_limits(limits([text], market))
    lists, scenario = model.in_blocks(), states(model, market)
    assert isinstance(lists, ItemLists)
    plain = replace(lists, spread=None)
    one, several = plain.rank(scenario, LENGTH), over_blocks(plain, scenario, cuts)
    assert total(several) == pytest.approx(total(one), rel=1e-9)
    assert several.prices == pytest.approx(dict(one.prices), abs=1e-6)
    assert max(one.prices.values()) > 0  # otherwise nothing would have to be agreed on


@pytest.mark.parametrize("name", ["popularity+foe", "popularity+pmmf", "popularity+control"])
def test_what_one_process_has_to_make(name: str, market: Split) -> None:
    assert fitted(name, market).in_blocks() is None


def test_lists_with_feedback_are_made_in_one_place(strong_model: Fcpo) -> None:
    assert strong_model.in_blocks(feedback=True) is None
