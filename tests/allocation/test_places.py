"""Lists under one limit by place, in every list or prefix: solvers, brute force, by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markets import ROUNDING, Market, discounts, integer_optimum, random_market, random_rule

from fairhorizon.allocation.best_lists import BestLists
from fairhorizon.allocation.candidates import Candidates
from fairhorizon.allocation.engine import allocate
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.errors import ConfigError
from fairhorizon.limits.place_rule import PlaceRule, PlaceWeights
from fairhorizon.vocabulary import Scope

LOG = PlaceWeights.LOG
seeds, scopes = st.integers(0, 10_000), st.sampled_from(list(Scope))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_no_lists_within_a_weighed_limit_are_longer_or_worth_more(part: int):
    """Markets against the integer optimum; showings alike among them."""
    for seed in range(30 * part, 30 * part + 30):
        if seed == 41:
            continue  # the general solver would take half a minute
        market, rule = random_market(seed), random_rule(seed, Scope.ALL)
        room = [0.0, 0.0, 0.7][seed % 3]
        lists = market.solve(rule, room=room).lists
        if room == 0:
            market.assert_keeps(rule, lists)
        best = integer_optimum(market, rule, room)
        assert market.merit(lists) == pytest.approx(best, abs=1e-5), (seed, rule)


@pytest.mark.parametrize("scope", [Scope.LIST, Scope.PREFIX])
@pytest.mark.parametrize("part", range(2))
def test_lists_that_keep_a_rule_by_themselves_are_the_best(scope: Scope, part: int):
    for seed in range(20 * part, 20 * part + 20):
        market, rule = random_market(seed), random_rule(seed, scope)
        lists = market.solve(rule).lists
        market.assert_keeps(rule, lists)
        best = integer_optimum(market, rule)
        assert market.merit(lists) == pytest.approx(best, abs=1e-5), (seed, rule)


def by_brute_force(values, group, most, weights, prefix):
    """The longest list and the highest total of such, over all orders of all candidates.

    most: of the group up to each place, with `prefix` before the first; where these are too many,
    everything else may still be shown.
    """
    best = (0, 0.0)
    for size in range(1, len(weights) + 1):
        for order in itertools.permutations(range(len(values)), size):
            counted = prefix + np.cumsum(group[list(order)])
            if ((counted <= most[:size]) | ~group[list(order)]).all():
                best = max(best, (size, float(weights[:size] @ values[list(order)])))
    return best


@settings(max_examples=120)
@given(
    values=st.lists(st.integers(-3, 6), min_size=1, max_size=5),
    flags=st.lists(st.booleans(), min_size=5, max_size=5),
    share=st.sampled_from([0.0, 0.2, 0.34, 0.5, 0.75, 1.0]),
    is_floor=st.booleans(),
    scope=st.sampled_from([Scope.LIST, Scope.PREFIX]),
    first=st.sampled_from([None, 1, 2, 3]),
    length=st.integers(1, 4),
    before=st.lists(st.booleans(), max_size=2),
)
def test_the_better_of_the_next_two_items_makes_the_best_list_and_the_longest(
    values, flags, share, is_floor, scope, first, length, before
):
    """Of one user, also where the list has prefix; with values below 0 and ties."""
    rule = PlaceRule(share, is_floor, scope, first=first)
    n, start = len(values), len(before)
    # What the list begins with: item n in the group, item n + 1 outside.
    group = np.array([*flags[:n], True, False])
    prefix = np.array([[n if inside else n + 1 for inside in before]], dtype=np.int64)
    worth, weights = np.array(values, dtype=np.float64), discounts(start + length)[start:]
    candidates = Candidates.checked(np.arange(n)[None], worth[None])
    limits = LimitMatrix.from_rules(
        [GroupRule(rule, group)], length, start=start, discounts=weights
    )
    (found,) = allocate(candidates, limits, prefix=prefix).lists
    capped = group ^ is_floor
    most = (rule.mirrored() if is_floor else rule).most(start + length)[start + 1 :]
    inside = int(capped[prefix].sum())
    size, total = by_brute_force(worth, capped[:n], most, weights, inside)
    shown = found[found >= 0]
    assert len(set(shown.tolist())) == len(shown) == size
    assert ((inside + np.cumsum(capped[shown]) <= most[:size]) | ~capped[shown]).all()
    assert weights[:size] @ worth[shown] == pytest.approx(total, abs=1e-9)


def two_users() -> Market:
    """Items 0 and 1 are the group; each user has two of either side."""
    items = np.array([[0, 1, 2, 3], [0, 1, 2, 3]])
    values = np.array([[9.0, 8.0, 4.0, 3.0], [6.0, 5.0, 4.0, 3.0]], np.float32)
    return Market(items, values, np.arange(5) < 2, 4)


def test_prefixes_by_hand():
    """Of the first 1, 2, 3, 4 places at most 1, 1, 2, 2 may be of the group."""
    found = two_users().solve(PlaceRule(0.5, scope=Scope.PREFIX))
    assert found.lists.tolist() == [[0, 2, 1, 3]] * 2
    w = discounts(4)
    lost = [(8 - 4) * w[1] + (4 - 8) * w[2], (5 - 4) * w[1] + (4 - 5) * w[2]]
    assert found.prices[0] == pytest.approx(sum(lost) / 2)


@pytest.mark.parametrize(
    ("rule", "lists"),
    [
        (PlaceRule(0.25, scope=Scope.LIST), [[0, 2, 3, -1]] * 2),  # the rest is used up
        (PlaceRule(0.25, scope=Scope.LIST, first=2), [[0, 2, 1, 3]] * 2),
        (PlaceRule(0.0, scope=Scope.LIST, first=2), [[2, 3, 0, 1]] * 2),
        (PlaceRule(0.5, True, Scope.PREFIX), [[0, 1, 2, 3]] * 2),
        (PlaceRule(1.0, True, Scope.LIST, first=3), [[0, 1, -1, -1]] * 2),
        (PlaceRule(1.0), [[0, 1, 2, 3]] * 2),
    ],
)
def test_every_list_by_hand(rule: PlaceRule, lists: list[list[int]]):
    assert two_users().solve(rule).lists.tolist() == lists


def test_weighed_places_by_hand():
    """Places count 3, 2, 1, 0; of 12 the group may have 5. Both lists hold all four items.

    G for the group: user 0 gets 16.47 by GRRG, which counts 3, and 16.82 by GRGR, which counts 4;
    user 1 11.05 by RRGG, which counts 1, 11.44 by RGRG, which counts 2, and 12.18 by GRRG. The best
    with at most 5 are GRRG and RGRG, 27.91.
    """
    market = two_users()
    found = market.solve(PlaceRule(5 / 12, weights=(3, 2, 1)))
    assert found.lists.tolist() == [[0, 2, 3, 1], [2, 0, 3, 1]]
    assert market.total(found.lists) == pytest.approx(27.91, abs=0.005)


def test_a_limit_on_all_showings_is_kept_in_the_last_places_and_a_weighed_one_is_not():
    """The weakness that the weights are for: the group has most of the first places."""
    rng = np.random.default_rng(3)
    items = np.stack([rng.permutation(200)[:60] for _ in range(300)])
    group = np.arange(200) < 60
    values = (rng.random((300, 60)) + group[items]).astype(np.float32)
    market = Market(items, values, group, 20)

    def shares(rule: PlaceRule) -> tuple[float, float, float]:
        """Of the first 5 places, of all, and weighed."""
        inside, w = group[market.solve(rule).lists], discounts(20)
        return inside[:, :5].mean(), inside.mean(), (inside @ w).mean() / w.sum()

    alike, weighed = shares(PlaceRule(0.4)), shares(PlaceRule(0.4, weights=LOG))
    assert alike[0] > 0.99
    assert alike[1] == pytest.approx(0.4, abs=1e-3)
    assert alike[2] > 0.55
    assert weighed[2] == pytest.approx(0.4, abs=1e-6)
    assert weighed[0] < 0.75
    prefix, five = shares(PlaceRule(0.4, scope=Scope.PREFIX)), shares(PlaceRule(0.4, first=5))
    assert prefix[0] == 0.4
    assert five[0] == pytest.approx(0.4, abs=1e-3)
    floor = shares(PlaceRule(0.9, is_floor=True, weights=LOG))
    assert floor[2] >= 0.9 - ROUNDING


@settings(max_examples=60)
@given(seeds, seeds, scopes)
def test_a_rule_is_kept_whatever_comes(seed: int, other: int, scope: Scope):
    market, rule = random_market(seed), random_rule(other, scope)
    market.assert_keeps(rule, market.solve(rule).lists)


@pytest.mark.slow
@settings(max_examples=60)
@given(seeds, seeds, scopes)
def test_lists_that_are_filled_place_by_place_keep_the_rule_and_lose_nothing(
    seed: int, other: int, scope: Scope
):
    """Without news, the first places of a plan are those of the plan made after them."""
    market, rule = random_market(seed), random_rule(other, scope)
    w = discounts(market.length)
    prefix, items = market.items[:, :0], market.items
    for step in range(market.length):
        limits = LimitMatrix.from_rules(
            [GroupRule(rule, market.group)],
            market.length - step,
            start=step,
            discounts=w[step:],
        )
        plan = allocate(Candidates.checked(items, market.values), limits, prefix=prefix)
        column = plan.lists[:, :1]
        prefix = np.concatenate([prefix, column], axis=1)
        items = np.where(items == column, -1, items)
    best = market.solve(rule).lists
    if (best >= 0).all():
        market.assert_keeps(rule, prefix)
        # By place, the last of the room is settled to 0.1 % of the total only.
        close = 1e-5 if rule.is_plain(market.length) else 1e-3 * market.total(best)
        assert market.merit(prefix) == pytest.approx(market.merit(best), abs=close)


def test_many_users_are_near_the_dual_bound():
    """No lists are worth more than the dual at any price; all but 0.1 % of a value is closed."""
    rng = np.random.default_rng(2)
    items = np.stack([rng.permutation(300)[:40] for _ in range(400)])
    group = np.arange(300) < 100
    values = (rng.exponential(size=items.shape) + group[items]).astype(np.float32)
    market = Market(items, values, group, 10)
    found = market.solve(PlaceRule(0.3, weights=LOG))
    w, price = discounts(10), found.prices[0]
    unused = 0.3 * 400 * w.sum() - (group[found.lists] * w).sum()
    assert -ROUNDING < unused < 0.01
    best = BestLists(market.candidates, market.limits(PlaceRule(0.3, weights=LOG)))
    at_price, _ = best.at_prices(np.array([price]), 0.0)
    bound = (best.values(at_price.at) - price * at_price.use[:, 0]).sum()
    assert found.bound == pytest.approx(bound)
    assert bound - 1e-3 * values.max() < market.total(found.lists) < bound + 1e-6


def test_refusals_of_rules_name_the_remedy():
    for wrong in (-0.1, 40, float("nan")):
        with pytest.raises(ConfigError, match="give a fraction"):
            PlaceRule(wrong)
    with pytest.raises(ConfigError, match="take 1 or more"):
        PlaceRule(0.5, first=0)
    for weights in ((1.0, -1.0), (0.0, 0.0), (float("inf"),), ()):
        with pytest.raises(ConfigError, match="0 or more, not all 0"):
            PlaceRule(0.5, weights=weights)
    for scope in (Scope.LIST, Scope.PREFIX):
        with pytest.raises(ConfigError, match=f"scope={scope}.*weights=log.*leave the weights out"):
            PlaceRule(0.5, scope=scope, weights=LOG)


def test_what_places_count():
    assert PlaceRule(0.5, weights=(2, 1)).place_weights(4).tolist() == [2, 1, 0, 0]
    assert PlaceRule(0.5, first=2).place_weights(3).tolist() == [1, 1, 0]
    assert PlaceRule(0.5, weights=LOG).place_weights(3).tolist() == pytest.approx(discounts(3))
    assert PlaceRule(0.3, scope=Scope.LIST).most(10).tolist() == [0, 1, 2, *[3] * 8]
    assert PlaceRule(0.3, scope=Scope.PREFIX).most(5).tolist() == [0, 1, 1, 1, 2, 2]
    assert PlaceRule(0.5, scope=Scope.PREFIX, first=2).most(4).tolist() == [0, 1, 1, 2, 3]
    floor = PlaceRule(0.3, True, Scope.LIST)
    assert floor.mirrored().most(10)[10] == 7
    plain = [PlaceRule(0.4), PlaceRule(0.4, first=5), PlaceRule(0.4, weights=(1, 1))]
    assert [rule.is_plain(5) for rule in plain] == [True, True, False]
    assert [rule.is_plain(6) for rule in plain] == [True, False, False]
