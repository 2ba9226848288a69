"""The engine against the lists that the seven engines before it made (baseline.json)."""

import warnings

import numpy as np
import pytest
from baseline import Instance, Results, load, measured

from fairhorizon.allocation.candidates import Candidates
from fairhorizon.allocation.engine import allocate
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights
from fairhorizon.vocabulary import Scope

pytestmark = pytest.mark.usefixtures("all_steps_of_spreading")


def rule_of(limit) -> PlaceRule:
    weights = limit.weights if isinstance(limit.weights, tuple) else PlaceWeights(limit.weights)
    return PlaceRule(limit.share, limit.is_floor, Scope(limit.scope), weights, limit.first)


def lists_of(instance: Instance):
    """The lists of the engine, and their prices."""
    candidates = Candidates.checked(instance.items, instance.values)
    rules = [GroupRule(rule_of(one), one.members, one.name) for one in instance.limits]
    limits = LimitMatrix.from_rules(
        rules,
        instance.length,
        start=instance.prefix.shape[1],
        discounts=instance.position_weights,
    )
    room = np.zeros(len(rules))
    if len(rules) == 1:
        shown, inside = instance.settled
        room += limits.shares * shown - (shown - inside if rules[0].rule.is_floor else inside)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no lists with a Gini index")
        made = allocate(
            candidates, limits, room, gini_limit=instance.gini_limit, prefix=instance.prefix
        )
    return made.lists, tuple(made.prices)


def is_plain(instance: Instance) -> bool:
    """One limit on all showings, which count alike: there the engine is exact."""
    (first, *more) = instance.limits
    whole = instance.prefix.shape[1] + instance.length
    return not more and rule_of(first).is_plain(whole) and instance.gini_limit is None


def is_as_good_as_before(instance: Instance, now: Results, prices: tuple[float, ...]) -> None:
    """Limits that were kept are kept; at most 1 % of value is lost, nothing under one limit."""
    before = instance.results
    assert now.kept or not before.kept, instance.name
    assert now.shown >= before.shown
    if instance.gini_limit is not None:
        assert now.gini <= max(instance.gini_limit, before.gini + 2e-3)
    if is_plain(instance):
        assert now.value == pytest.approx(before.value, rel=1e-6)
        assert now.shares == pytest.approx(before.shares)
        assert prices == pytest.approx(before.prices, rel=1e-5, abs=1e-7)
    assert now.value >= before.value - 0.01 * abs(before.value)


def test_lists_are_as_good_as_before():
    """In total at most 0.1 % of value is lost."""
    before = now = 0.0
    for instance in load():
        lists, prices = lists_of(instance)
        results = measured(instance, lists)
        is_as_good_as_before(instance, results, prices)
        before, now = before + instance.results.value, now + results.value
    assert now >= 0.999 * before
