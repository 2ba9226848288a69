"""The best list at given prices, and the candidates it needs: against brute force."""

import itertools

import numpy as np
import pytest

from fairhorizon.allocation import limit_matrix
from fairhorizon.allocation.best_lists import BestLists
from fairhorizon.allocation.candidates import (
    NEVER,
    Candidates,
    best_columns,
    best_of_each_class,
    undominated,
)
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights

WEIGHTS = 1 / np.log2(np.arange(2, 5))  # lists of 3


def problem(seed, by_place):
    draw = np.random.default_rng(seed)
    weights = PlaceWeights.LOG if by_place else PlaceWeights.NONE
    rules = [
        GroupRule(PlaceRule(0.4, bool(number % 2), weights=weights), draw.random(7) < 0.5)
        for number in range(3)
    ]
    limits = LimitMatrix.from_rules(rules, 3)
    values = draw.exponential(size=(4, 7))
    values[0, 3:] = NEVER
    candidates = Candidates(np.arange(7)[None], values)
    return BestLists(candidates, limits), draw.random(3)


def merit(best, user, items, prices):
    """By the definition, from the rules themselves."""
    total = 0.0
    for place, item in enumerate(items):
        total += WEIGHTS[place] * best.candidates.values[user, item] + best.bonus
        for price, one in zip(prices, best.limits.rules, strict=True):
            used = one.rule.place_weights(3)[place] * (one.members[item] - one.rule.share)
            total -= price * (-used if one.rule.is_floor else used)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("by_place", [False, True])
def test_no_list_has_more_merit(by_place):
    for seed in range(12):
        best, prices = problem(seed, by_place)
        lists, merits = best.at_prices(prices, 0.0)
        for user in range(4):
            there = np.flatnonzero(best.candidates.values[user] > NEVER)
            orders = itertools.permutations(there, 3)
            most = max(merit(best, user, items, prices) for items in orders)
            assert merits[user] == pytest.approx(most)
            assert merit(best, user, lists.at[user], prices) == pytest.approx(most)
            assert lists.worth[user] - lists.use[user] @ prices == pytest.approx(most)


def test_prices_above_the_bonus_shorten_lists():
    best, _ = problem(0, by_place=False)
    group = best.limits.rules[0].members
    lists, _ = best.at_prices(np.array([10 * best.bonus, 0.0, 0.0]), 0.0)
    shown = lists.at[lists.at >= 0]
    assert not group[shown].any()  # each of them costs more than a filled place is worth


def test_what_is_left_out_is_in_no_best_list():
    draw = np.random.default_rng(1)
    classes, values = draw.integers(0, 6, 200), draw.exponential(size=(30, 200))
    weights = 1 / np.log2(np.arange(2, 7))
    least = draw.random(6)
    most = least + 0.1
    kept = undominated(values, classes[None], least, most, weights)
    assert (kept >= 0).sum() < 0.5 * values.size
    for charge in (least, most, (least + most) / 2):
        for user in range(30):
            best = _best_set(values[user], charge[classes], weights)
            assert set(best) <= set(kept[user]), user


def _best_set(values, charges, weights):
    """Places in order of value, by a table over the candidates and the number taken."""
    order = np.argsort(-values)
    best = {0: (0.0, ())}
    for item in order:
        for count in sorted(best, reverse=True):
            if count < len(weights):
                total, items = best[count]
                total += weights[count] * values[item] - charges[item] + 100
                if count + 1 not in best or total > best[count + 1][0]:
                    best[count + 1] = (total, (*items, item))
    return best[len(weights)][1]


@pytest.mark.parametrize("n_classes", [3, 5, 60])
def test_the_best_of_each_class_are_those_of_a_sort(n_classes):
    """As many as a list has places; of equal values the first."""
    draw = np.random.default_rng(n_classes)
    kinds = np.append(np.arange(n_classes), draw.integers(0, n_classes, 300 - n_classes))
    values = draw.integers(0, 20, 300).astype(np.float64)
    values[draw.random(300) < 0.1] = NEVER
    groups = [GroupRule(PlaceRule(0.5), kinds == kind) for kind in range(n_classes)]
    limits = LimitMatrix.from_rules(groups, 3)
    assert limits.n_classes == n_classes
    expected = set()
    for kind in range(n_classes):
        own = np.flatnonzero((kinds == kind) & (values > NEVER))
        expected |= set(own[np.argsort(-values[own], kind="stable")[:3]].tolist())
    found = best_of_each_class(values, limits.of_item, limits)
    assert set(found.tolist()) == expected
    assert (np.diff(values[found]) <= 0).all()


@pytest.mark.parametrize("most", [0, 1, 5, 40, 60])
def test_of_equal_values_the_first_columns_are_taken(most):
    values = np.random.default_rng(2).integers(0, 6, (50, 40)).astype(np.float32)
    order = np.argsort(-values, axis=1, kind="stable")[:, :most]
    np.testing.assert_array_equal(best_columns(values, most), order)


@pytest.mark.parametrize("weights", [PlaceWeights.NONE, PlaceWeights.LOG])
def test_what_lists_use_of_each_limit_is_summed_alike_in_both_ways(weights, monkeypatch):
    """Densely, and by the counts of classes; against the rules themselves."""
    draw = np.random.default_rng(4)
    rules = [
        GroupRule(PlaceRule(0.3, bool(number % 2), weights=weights), draw.random(30) < 0.4)
        for number in range(5)
    ]
    limits = LimitMatrix.from_rules(rules, 6)
    lists = np.stack([draw.permutation(30)[:6] for _ in range(20)])
    lists[draw.integers(0, 6, 20)[:, None] < np.arange(6)] = -1
    classes = np.where(lists < 0, -1, limits.of_item[lists.clip(0)])
    expected = np.zeros((20, 5))
    for number, one in enumerate(rules):
        inside = (one.members[lists.clip(0)] - one.rule.share) * (lists >= 0)
        expected[:, number] = inside @ one.rule.place_weights(6) * (-1 if one.rule.is_floor else 1)
    np.testing.assert_allclose(limits.use(classes), expected, atol=1e-12)
    monkeypatch.setattr(limit_matrix, "DENSE_CELLS", 0)
    np.testing.assert_allclose(limits.use(classes), expected, atol=1e-12)
