"""The guard under several rules, floors, places that count by weight, and rules on every list."""

import numpy as np
import pytest

from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.allocation.limit_matrix import GroupRule
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights
from fairhorizon.vocabulary import Scope

LENGTH, ITEMS = 6, 40
GROUPS = np.stack([np.arange(ITEMS) < 20, np.arange(ITEMS) % 3 == 0, np.arange(ITEMS) >= 30])
WEIGHED = PlaceWeights.LOG
RULES = {
    "by place": [GroupRule(PlaceRule(0.3, weights=WEIGHED), GROUPS[0])],
    "first three": [GroupRule(PlaceRule(0.2, first=3), GROUPS[0])],
    "floor": [GroupRule(PlaceRule(0.4, is_floor=True), GROUPS[2])],
    "two caps": [GroupRule(PlaceRule(0.3), GROUPS[0]), GroupRule(PlaceRule(0.2), GROUPS[1])],
    "mixed": [
        GroupRule(PlaceRule(0.4, weights=WEIGHED), GROUPS[0]),
        GroupRule(PlaceRule(0.25), GROUPS[1]),
        GroupRule(PlaceRule(0.2, is_floor=True), GROUPS[2]),
    ],
}


def counted(rules, lists):
    """(m,) what each group has beyond its share in all lists, recounted; of a floor, less."""
    excess = []
    for one in rules:
        weights = one.rule.place_weights(LENGTH)
        inside = (one.members[np.maximum(lists, 0)] & (lists >= 0)) @ weights
        beyond = inside.sum() - one.rule.share * ((lists >= 0) @ weights).sum()
        excess.append(-beyond if one.rule.is_floor else beyond)
    return np.array(excess)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("slack", [0.0, None])
def test_every_rule_holds_after_every_request(name, slack):
    """There is always a full list within the shares, so no slack is ever used."""
    rules, draw = RULES[name], np.random.default_rng(1)
    guard, lists = ExposureGuard(rules, slack=slack), np.zeros((0, LENGTH), dtype=np.int64)
    for _ in range(120):
        values = draw.gamma(1.0, size=ITEMS) + GROUPS[0]
        made = guard.serve_all(np.arange(ITEMS)[None], values[None], None, LENGTH)
        assert len(set(made[0].tolist())) == LENGTH
        assert (made >= 0).all()
        lists = np.concatenate([lists, made])
        assert (counted(rules, lists) <= 1e-9).all()
    assert guard.excess == pytest.approx(counted(rules, lists), abs=1e-9)
    # the room is used where there is a demand for it
    assert counted(rules, lists).max() > -0.06 * lists.size


@pytest.mark.parametrize("scope", [Scope.LIST, Scope.PREFIX])
def test_a_rule_on_every_list_is_kept_by_each(scope):
    rule, draw = PlaceRule(0.25, scope=scope), np.random.default_rng(2)
    values = draw.gamma(1.0, size=(50, ITEMS)) + GROUPS[0]
    items = np.tile(np.arange(ITEMS), (50, 1))
    guard = ExposureGuard(rule)
    lists = guard.serve_all(items, values, GROUPS[0], LENGTH)
    inside = GROUPS[0][lists].cumsum(1)
    if scope is Scope.PREFIX:
        assert inside.max(0).tolist() == [1, 1, 1, 1, 2, 2]
    else:
        assert inside[:, -1].max() == 2
    assert (guard.shown, guard.sensitive) == (50 * LENGTH, inside[:, -1].sum())
    assert guard.price == 0.0
