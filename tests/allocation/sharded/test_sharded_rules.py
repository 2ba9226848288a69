"""Lists under several rules over shards of users are those of all users in one place."""

import itertools

import numpy as np
import pytest
import torch
from fairhorizon.allocation.several import joint, whole_lists
from fairhorizon.allocation.several.joint import lists_under, rules_over
from fairhorizon.allocation.several.terms import GroupRule, Terms
from fairhorizon.allocation.sharded.calls import ShardsHere
from fairhorizon.allocation.sharded.rules_shard import RulesShard

from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.exposure.place_rule import PlaceRule, PlaceWeights

LENGTH = 5


def problem(seed: int, users: int, items: int, *, whole: bool, weights: PlaceWeights):  # type: ignore[no-untyped-def]
    """Two limits and a floor on groups that overlap; whole numbers bring many ties."""
    rng = np.random.default_rng(seed)
    appeal = rng.random(items) ** 3
    values = rng.random((users, items)) + 2 * appeal
    values = np.ceil(3 * values) / 3 if whole else values
    values[rng.random(values.shape) < 0.05] = -np.inf
    popular = appeal >= np.quantile(appeal, 0.8)
    rules = [
        GroupRule(PlaceRule(0.4, weights=weights), popular),
        GroupRule(PlaceRule(0.3, is_floor=True), rng.random(items) < 0.4),
        GroupRule(PlaceRule(0.15), rng.random(items) < 0.25),
    ]
    codes = torch.arange(items).expand(users, -1)
    return Candidates(codes, torch.from_numpy(values).float()), Terms.of(rules, LENGTH)


def check(candidates: Candidates, terms: Terms, cuts: list[int]) -> None:
    one = lists_under(candidates, terms)
    ends = [0, *cuts, len(candidates.items)]
    shards = [
        RulesShard(Candidates(candidates.items[a:b], candidates.values[a:b]), terms)
        for a, b in itertools.pairwise(ends)
    ]
    made = rules_over(ShardsHere(shards), terms)
    assert torch.equal(torch.cat([shard.lists for shard in shards]), one.lists)
    assert (made.prices, made.value, made.bound) == (one.prices, one.value, one.bound)
    assert made.kept == one.kept
    assert made.kept
    assert max(made.prices) > 0


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("cuts", [[40], [0, 3, 100], [30, 60, 90, 120]])
def test_many_users_by_descent(cuts: list[int], whole: bool) -> None:
    check(*problem(3, 150, 40, whole=whole, weights=PlaceWeights.NONE), cuts)


def test_samples_of_users_are_the_same_over_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """First prices are found on every 7th and on every 4th user."""
    monkeypatch.setattr(joint, "SAMPLES", (20, 37))
    check(*problem(5, 150, 40, whole=False, weights=PlaceWeights.NONE), [33, 71])


def test_few_users_by_planes() -> None:
    """Up to 48 users the prices are those of the linear program."""
    check(*problem(4, 24, 30, whole=False, weights=PlaceWeights.NONE), [5, 5, 17])


def test_rules_that_count_by_place() -> None:
    check(*problem(6, 60, 24, whole=False, weights=PlaceWeights.LOG), [20, 45])


def test_a_program_over_all_lists_has_them_in_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_lists, "FEW_CELLS", 4000)
    check(*problem(8, 12, 20, whole=False, weights=PlaceWeights.NONE), [4, 9])
