"""Lists under a limit on the Gini index: properties, and answers that are known."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markets import ROUNDING, Market, discounts, random_market, random_rule

from fairhorizon.allocation.spreading import marginal_values
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights
from fairhorizon.metrics.fairness import gini
from fairhorizon.vocabulary import Scope

pytestmark = pytest.mark.usefixtures("all_steps_of_spreading")
seeds = st.integers(0, 10_000)


@pytest.mark.slow
@settings(max_examples=40)
@given(seeds, seeds, st.sampled_from(list(Scope)), st.floats(0, 1))
def test_a_gini_limit_never_breaks_a_rule(seed: int, other: int, scope: Scope, limit: float):
    market, rule = random_market(seed), random_rule(other, scope)
    free = market.solve(rule)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # most of these limits are out of reach
        found = market.solve(rule, gini_limit=limit)
    market.assert_keeps(rule, found.lists)
    assert market.gini(found.lists) <= max(limit, market.gini(free.lists)) + ROUNDING
    assert market.merit(found.lists) <= market.merit(free.lists) + 1e-6
    if rule.is_plain(market.length):
        assert market.showings(found.lists)[0] == market.showings(free.lists)[0]


def popular_items(users: int, items: int, length: int, group: int) -> Market:
    """The first items are better for everybody, and everybody may be shown any."""
    rng = np.random.default_rng(5)
    values = (np.linspace(0.5, 0, items) + rng.random((users, items))).astype(np.float32)
    codes = np.tile(np.arange(items), (users, 1))
    return Market(codes, values, np.arange(items) < group, length)


def test_a_gini_limit_counts_what_was_shown_before():
    """Of 60 and 40 showings the group may have 40 in all, and had 30."""
    market, limit = popular_items(20, 20, 2, group=10), 0.3
    room = 0.4 * 60 - 30
    free, found = (market.solve(0.4, room=room, gini_limit=g).lists for g in (None, limit))
    assert market.gini(found) <= limit < market.gini(free)
    assert market.showings(free) == (40, 10)
    assert market.showings(found) == (40, 10)


def test_those_move_to_other_items_who_lose_the_least():
    """Item 0 is worth 1 to all 200 users, and everybody's own item a little less.

    The best way to a Gini index is that only the m users with the smallest loss leave item 0. One
    or two more than needed may do so, as users who are nearly alike leave one after the other.
    """
    b = 200
    losses = np.random.default_rng(3).permutation(np.linspace(0.001, 0.2, b))
    items = np.stack([np.zeros(b, dtype=np.int64), np.arange(1, b + 1)], axis=1)
    values = np.stack([np.ones(b), 1 - losses], axis=1).astype(np.float32)
    market = Market(items, values, np.zeros(b + 1, dtype=np.bool_), 1)
    for limit in (0.8, 0.3):
        found = market.solve(1.0, gini_limit=limit)
        reached = [gini(np.array([b - m] + [1] * m + [0] * (b - m))) for m in range(b + 1)]
        fewest = next(m for m, value in enumerate(reached) if value <= limit)
        best = b - np.sort(losses)[:fewest].sum()
        assert market.gini(found.lists) <= limit
        assert best - 2 * losses.max() <= market.total(found.lists) <= best + 1e-4
        assert found.spread_price > 0


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_gini_limit_that_can_be_reached_is_kept_at_a_small_loss(share: float):
    """The least that is possible is 0.1 where the group, 0.4 of the catalogue, may have a share of
    0.3, and 0 without a limit; popularity is 0.25 in the mean."""
    market = popular_items(90, 60, 4, group=24)
    free = market.solve(share)
    before = market.gini(free.lists)
    worth = [market.total(free.lists)]
    for limit in (before - 0.05, 0.15):
        found = market.solve(share, gini_limit=limit)
        market.assert_keeps(PlaceRule(share), found.lists)
        assert limit - 0.05 < market.gini(found.lists) <= limit
        worth.append(market.total(found.lists))
    assert worth == sorted(worth, reverse=True)
    assert worth[-1] > worth[0] - 0.125 * 90 * discounts(4).sum()
    same = market.solve(share, gini_limit=before)
    np.testing.assert_array_equal(same.lists, free.lists)
    assert same.spread_price == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule", [PlaceRule(0.3, weights=PlaceWeights.LOG), PlaceRule(0.3, scope=Scope.PREFIX)]
)
def test_lists_under_a_rule_by_place_can_be_spread(rule: PlaceRule):
    market = popular_items(90, 60, 4, group=24)
    free = market.solve(rule)
    before = market.gini(free.lists)
    found = market.solve(rule, gini_limit=before - 0.1)
    market.assert_keeps(rule, found.lists)
    assert before - 0.15 < market.gini(found.lists) <= before - 0.1
    assert 0.95 * market.total(free.lists) < market.total(found.lists) < market.total(free.lists)


def test_a_gini_limit_that_cannot_be_reached_is_said():
    market = Market(np.zeros((3, 1), np.int64), np.ones((3, 1)), np.zeros(4, np.bool_), 1)
    with pytest.warns(UserWarning, match=r"at most 0\.5 were found; these have 0\.7500"):
        found = market.solve(1.0, gini_limit=0.5)
    assert found.lists.tolist() == [[0]] * 3


def test_the_worth_of_an_item_counts_the_places_it_moves():
    values = np.array([[6.0, 5, 4, 3, 2, 1, 0]])
    worth = marginal_values(values, np.array([[5.0, 3, 1]]), np.array([1, 0.5, 0.25]))
    assert worth.tolist() == [[4.25, 3.25, 2.25, 1.25, 0.75, 0.25, 0]]
    ones = marginal_values(values, np.array([[5.0, 3, -np.inf]]), np.ones(3))
    assert ones.tolist() == values.tolist()
