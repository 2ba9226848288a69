"""Several rules hold after every request."""

import copy

import numpy as np
import pytest
import torch
from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.allocation.several.guard import RulesGuard
from fairhorizon.allocation.several.joint import lists_under_rules
from fairhorizon.allocation.several.terms import GroupRule

from fairhorizon.errors import ModelError
from fairhorizon.exposure.place_rule import PlaceRule, PlaceWeights

ITEMS = np.arange(60)
RULES = [
    GroupRule(PlaceRule(0.2), ITEMS < 20, "first<=0.2"),
    GroupRule(PlaceRule(0.3, is_floor=True), ITEMS % 3 == 0, "third>=0.3"),
    GroupRule(PlaceRule(0.25, is_floor=True), ITEMS >= 45, "last>=0.25"),
]


def offers(users, seed=0):
    draw = np.random.default_rng(seed)
    values = draw.exponential(size=(users, 60)) * np.where(ITEMS < 20, 3.0, 1.0)
    items = torch.from_numpy(np.tile(ITEMS, (users, 1)))
    return Candidates(items, torch.from_numpy(values.astype("f4")))


def beyond(rules, lists):
    """(requests, m) what is used of every rule after each request."""
    filled = lists >= 0
    columns = []
    for one in rules:
        weights = one.rule.place_weights(lists.shape[1])
        inside = one.members[np.maximum(lists, 0)] & filled
        excess = (weights * (inside - one.rule.share * filled)).sum(1).cumsum()
        columns.append(-excess if one.rule.is_floor else excess)
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("weights", [PlaceWeights.NONE, PlaceWeights.LOG])
def test_every_rule_holds_after_every_request(weights):
    rules = [
        GroupRule(PlaceRule(one.rule.share, one.rule.is_floor, weights=weights), one.members)
        for one in RULES
    ]
    lists = RulesGuard(rules).serve_all(offers(60), 8).numpy()
    assert (lists >= 0).all()
    assert (beyond(rules, lists) <= 1e-6).all()


def test_the_value_is_near_that_of_all_lists_together():
    guard, weights = RulesGuard(RULES), 1 / np.log2(np.arange(2, 10))
    lists = guard.serve_all(offers(200), 8)
    one_by_one = (offers(200).values.gather(1, lists).numpy() * weights).sum()
    together = lists_under_rules(offers(200), RULES, length=8)
    assert 0.95 * together.value < one_by_one <= together.bound
    assert guard.prices[0] == pytest.approx(together.prices[0], rel=0.2)


def test_where_rules_contradict_each_other_lists_are_empty():
    both = [
        GroupRule(PlaceRule(0.6, is_floor=True), ITEMS < 20, "a"),
        GroupRule(PlaceRule(0.6, is_floor=True), ITEMS >= 20, "b"),
    ]
    assert (RulesGuard(both).serve_all(offers(2), 4) == -1).all()


def test_a_user_with_the_limited_group_only_waits_for_room():
    only = Candidates(torch.arange(20)[None], torch.ones(1, 20))
    guard = RulesGuard(RULES[:1])
    assert guard.serve_all(only, 4).tolist() == [[-1, -1, -1, -1]]
    others = Candidates(torch.arange(20, 60)[None], torch.ones(1, 40))
    guard.serve_all(others, 8)  # 2 of 10 showings may now be of the group
    assert (guard.serve_all(only, 4) >= 0).sum() == 2


def test_a_restored_guard_continues(tmp_path):
    whole, first = RulesGuard(RULES), RulesGuard(RULES)
    expected = whole.serve_all(offers(20), 5)
    some = offers(20)
    first.serve_all(Candidates(some.items[:12], some.values[:12]), 5)
    first.save(tmp_path / "guard.json")
    second = RulesGuard(RULES).restore(tmp_path / "guard.json")
    rest = second.serve_all(Candidates(some.items[12:], some.values[12:]), 5)
    assert torch.equal(rest, expected[12:])
    assert second.shown == whole.shown == 100
    assert torch.equal(
        copy.deepcopy(second).serve_all(offers(3, 1), 5), second.serve_all(offers(3, 1), 5)
    )
    with pytest.raises(ModelError, match="the guard of other rules, first"):
        RulesGuard(RULES[1:]).restore(tmp_path / "guard.json")
    (tmp_path / "guard.json").write_text("{}", encoding="utf-8")
    with pytest.raises(ModelError, match="not the file of a guard"):
        RulesGuard(RULES).restore(tmp_path / "guard.json")
