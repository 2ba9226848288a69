"""Recommenders over shards of users make the lists of one process, with the same numbers."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from fairhorizon.allocation.sharded.calls import ShardsHere

from fairhorizon.agents.base import Recommender
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.methods import Method, build
from fairhorizon.agents.served import Served
from fairhorizon.allocation import gini_price
from fairhorizon.data.splits import Split
from fairhorizon.environment.feedback import evaluation_scenario
from fairhorizon.exposure.bound import BoundLimit
from fairhorizon.exposure.groups import popular_group
from fairhorizon.exposure.limits import Limit
from fairhorizon.vocabulary import Protocol

LENGTH = 6


@pytest.fixture(autouse=True)
def few_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gini_price, "TRIALS", 2)


def fitted(name: str, market: Split) -> Recommender:
    return build(Method.parse(name), {}, seed=0).fit(market)


def limits(texts: Sequence[str], market: Split) -> list[BoundLimit]:
    popular = popular_group(market.train.item_counts())
    even = np.arange(len(popular)) % 2 == 0
    groups = {"popular": popular, "code": even, "gini": np.ones_like(popular)}
    return [
        BoundLimit(Limit.parse(text), groups[text.split("<")[0].split(">")[0].split("=")[0]])
        for text in texts
    ]


def same_over_shards(model: Recommender, market: Split, *, feedback: bool = False) -> None:
    scenario = evaluation_scenario(market, model.queue_length, Protocol.STANDARD)
    one = model.served(scenario, length=LENGTH, feedback=feedback)
    way = model.in_shards(feedback=feedback)
    assert way is not None
    parts = torch.arange(scenario.n_users).tensor_split([20, 37])
    shards = ShardsHere(
        [way.shard(scenario.only(rows), LENGTH, scenario.n_users) for rows in parts]
    )
    several = way.serve(shards, LENGTH)
    assert_same(several, one)


def assert_same(several: Served, one: Served) -> None:
    np.testing.assert_array_equal(several.lists, one.lists)
    for name in ("values", "scores"):
        mine, theirs = getattr(several, name), getattr(one, name)
        assert (mine is None) == (theirs is None)
        if mine is not None:
            np.testing.assert_array_equal(mine, theirs)
    assert dict(several.prices) == dict(one.prices)


@pytest.mark.parametrize("name", ["ease", "ease+quota@0.5", "popularity+penalty"])
def test_lists_that_depend_on_nobody_else(name: str, market: Split) -> None:
    model = fitted(name, market)
    same_over_shards(model, market)
    same_over_shards(model, market, feedback=True)


def test_joint_lists_of_a_ranker(market: Split) -> None:
    model = fitted("ease+lists@0.3", market)
    same_over_shards(model, market)


ASKED = [
    [],
    ["popular<=0.2"],
    ["code=even>=0.6"],
    ["popular<=0.3;scope=list"],
    ["popular<=0.3;weights=log"],
    ["popular<=0.4", "gini<=0.5"],
    ["popular<=0.3", "code=even>=0.55"],
]


@pytest.mark.parametrize("texts", ASKED, ids=" ".join)
def test_joint_lists_of_a_policy_under_limits(
    texts: list[str], strong_model: Fcpo, market: Split
) -> None:
    model = strong_model.under(limits(texts, market)) if texts else strong_model
    same_over_shards(model, market)


def test_a_limit_binds_in_these_lists(strong_model: Fcpo, market: Split) -> None:
    """Otherwise nothing would have to be agreed on."""
    model = strong_model.under(limits(["popular<=0.2"], market))
    scenario = evaluation_scenario(market, model.queue_length, Protocol.STANDARD)
    assert max(model.served(scenario, length=LENGTH).prices.values()) > 0


@pytest.mark.parametrize("name", ["popularity+foe", "popularity+pmmf", "popularity+control"])
def test_what_one_process_has_to_make(name: str, market: Split) -> None:
    assert fitted(name, market).in_shards() is None


def test_lists_with_feedback_are_made_in_one_place(strong_model: Fcpo) -> None:
    assert strong_model.in_shards(feedback=True) is None
