"""The best list at given prices, against brute force."""

import itertools

import numpy as np
import pytest
from fairhorizon.allocation.several.best_lists import NEVER, BestLists, Offers, undominated
from fairhorizon.allocation.several.terms import GroupRule, Terms

from fairhorizon.exposure.place_rule import PlaceRule, PlaceWeights

WEIGHTS = 1 / np.log2(np.arange(2, 5))  # lists of 3


def problem(seed, by_place):
    draw = np.random.default_rng(seed)
    weights = PlaceWeights.LOG if by_place else PlaceWeights.NONE
    rules = [
        GroupRule(PlaceRule(0.4, bool(number % 2), weights=weights), draw.random(7) < 0.5)
        for number in range(3)
    ]
    terms = Terms.of(rules, 3)
    values = draw.exponential(size=(4, 7))
    values[0, 3:] = NEVER
    return BestLists(Offers(values, terms.of_item[None]), terms, WEIGHTS), draw.random(3)


def merit(best, user, items, prices):
    """By the definition, from the rules themselves."""
    total = 0.0
    for place, item in enumerate(items):
        total += WEIGHTS[place] * best.offers.values[user, item] + best.bonus
        for price, one in zip(prices, best.terms.rules, strict=True):
            used = one.rule.place_weights(3)[place] * (one.members[item] - one.rule.share)
            total -= price * (-used if one.rule.is_floor else used)
    return total


@pytest.mark.parametrize("by_place", [False, True])
def test_no_list_has_more_merit(by_place):
    for seed in range(12):
        best, prices = problem(seed, by_place)
        lists, merits = best.at_prices(prices, np.zeros(3))
        for user in range(4):
            there = np.flatnonzero(best.offers.values[user] > NEVER)
            orders = itertools.permutations(there, 3)
            most = max(merit(best, user, items, prices) for items in orders)
            assert merits[user] == pytest.approx(most)
            assert merit(best, user, lists.at[user], prices) == pytest.approx(most)
            assert lists.worth[user] - lists.use[user] @ prices == pytest.approx(most)


def test_prices_above_the_bonus_shorten_lists():
    best, _ = problem(0, by_place=False)
    group = best.terms.rules[0].members
    lists, _ = best.at_prices(np.array([10 * best.bonus, 0.0, 0.0]), np.zeros(3))
    shown = lists.at[lists.at >= 0]
    assert not group[shown].any()  # each of them costs more than a filled place is worth


def test_what_is_left_out_is_in_no_best_list():
    draw = np.random.default_rng(1)
    classes, values = draw.integers(0, 6, 200), draw.exponential(size=(30, 200))
    offers = Offers(values, classes[None])
    weights = 1 / np.log2(np.arange(2, 7))
    least = draw.random(6)
    most = least + 0.1
    kept = undominated(offers, least, most, weights)
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
