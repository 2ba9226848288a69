"""Lists under one limit that counts all showings alike: brute force, linear programs, by hand."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markets import ROUNDING, Market, discounts
from scipy import sparse
from scipy.optimize import linprog

from fairhorizon.allocation.candidates import NEVER, Candidates
from fairhorizon.allocation.engine import allocate
from fairhorizon.allocation.limit_matrix import GroupRule, LimitMatrix
from fairhorizon.allocation.one_limit import GroupAndRest, exchange_gains
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.limits.place_rule import PlaceRule

INF = np.inf


def random_instance(
    seed: int, *, users: int, columns: int, length: int, items: int = 12, whole: bool = False
) -> Market:
    """Some rows have gaps, some nothing outside the group; whole numbers bring many ties."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.permutation(items)[:columns] for _ in range(users)])
    group = rng.random(items) < rng.choice([0.3, 0.6])
    codes[rng.random(codes.shape) < 0.15] = -1
    if seed % 3 == 0:
        codes[0, ~group[codes[0]]] = -1
    values = rng.integers(0, 4, codes.shape) if whole else rng.random(codes.shape)
    return Market(codes, values.astype(np.float32), group, length)


def assert_keeps_in_order(market: Market, lists: np.ndarray, share: float) -> None:
    """The limit is kept, and every list is by falling value."""
    market.assert_keeps(PlaceRule(share), lists)
    for user, row in enumerate(lists.tolist()):
        value = market.values_by_item(user)
        shown = [value[item] for item in row if item >= 0]
        assert shown == sorted(shown, reverse=True)


def by_brute_force(market: Market, share: float, w: np.ndarray) -> tuple[int, float]:
    """The most showings that are possible, and the highest total with so many."""
    per_user = []
    for user in range(len(market.items)):
        options = [(v, market.group[item]) for item, v in market.values_by_item(user).items()]
        subsets = itertools.chain.from_iterable(
            itertools.combinations(options, n) for n in range(market.length + 1)
        )
        per_user.append(
            np.array(
                [
                    (
                        len(chosen),
                        sum(group for _, group in chosen),
                        w[: len(chosen)] @ sorted((v for v, _ in chosen), reverse=True),
                    )
                    for chosen in subsets
                ]
            )
        )
    sums = per_user[0]
    for other in per_user[1:]:
        sums = (sums[:, None] + other[None]).reshape(-1, 3)
    within = sums[sums[:, 1] <= share * sums[:, 0] + ROUNDING]
    longest = within[within[:, 0] == within[:, 0].max()]
    return int(longest[0, 0]), float(longest[:, 2].max())


@pytest.mark.parametrize("length", [2, 3])
@pytest.mark.parametrize("kind", ["discounts", "ones", "uneven"])
def test_no_other_lists_are_longer_or_worth_more(length: int, kind: str):
    uneven, ones = np.array([1.0, 1.0, 0.1])[:length], np.ones(length)
    weights = {"discounts": discounts(length), "ones": ones, "uneven": uneven}[kind]
    given_weights = None if kind == "discounts" else weights
    for seed, share in itertools.product(range(12), (0.0, 0.2, 0.5, 0.8, 1.0)):
        market = random_instance(seed, users=3, columns=4, length=length, whole=seed % 2 == 1)
        lists = market.solve(share, weights=given_weights).lists
        assert_keeps_in_order(market, lists, share)
        shown, best = by_brute_force(market, share, weights)
        assert market.showings(lists)[0] == shown
        assert market.total(lists, weights) == pytest.approx(best, abs=1e-6)


def linear_program(market: Market, share: float, weights: np.ndarray) -> float:
    """The highest expected total of random lists: x[u, i, k], item i of user u at place k."""
    b, columns = market.items.shape
    x = np.arange(b * columns * market.length).reshape(b, columns, market.length)
    values = market.values.astype(np.float64)[:, :, None] * weights
    once = sparse.csr_matrix(
        (np.ones(x.size), (np.repeat(np.arange(b * columns), market.length), x.ravel()))
    )
    places = x.transpose(0, 2, 1)
    full = sparse.csr_matrix(
        (np.ones(x.size), (np.repeat(np.arange(b * market.length), columns), places.ravel()))
    )
    group = market.group[market.items].ravel().repeat(market.length)
    solved = linprog(
        -values.ravel(),
        A_ub=sparse.vstack([once, sparse.csr_matrix(group.astype(float))]),
        b_ub=np.append(np.ones(b * columns), share * b * market.length),
        A_eq=full,
        b_eq=np.ones(b * market.length),
        method="highs",
    )
    assert solved.status == 0
    return float(-solved.fun)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.12, 0.33, 0.51, 1.0])
def test_the_linear_program_has_the_same_optimum_and_the_same_price(seed: int, share: float):
    """It may use the fraction of a place that is left of the budget, worth the price of a place."""
    rng = np.random.default_rng(seed)
    items = np.stack([rng.permutation(30)[:14] for _ in range(20)])
    group = np.arange(30) < 12
    # More for the group, or the limit would hardly bind.
    values = rng.exponential(size=items.shape) + 0.7 * group[items]
    market = Market(items, values.astype(np.float32), group, 3)
    found = market.solve(share)
    assert_keeps_in_order(market, found.lists, share)
    best = linear_program(market, share, discounts(3))
    fraction = share * 60 - int(share * 60 + ROUNDING)
    value = market.total(found.lists)
    assert value + found.prices[0] * fraction == pytest.approx(best, abs=1e-5)
    if share < 1:
        assert found.prices[0] > 0
        assert market.showings(found.lists)[1] == int(share * 60 + ROUNDING)


def two_users() -> Market:
    """Items 0 and 1 are the group."""
    items = np.array([[0, 2, 3, 4], [0, 1, 2, 3]])
    values = np.array([[0.9, 0.8, 0.8, 0.1], [0.9, 0.6, 0.3, 0.2]], dtype=np.float32)
    return Market(items, values, np.arange(5) < 2, 2)


def test_by_hand():
    """One place of four is for the group; all places weigh 1.

    User 0 would gain 0.9 - 0.8 by it; user 1 0.9 - 0.2, and by a second one 0.6 - 0.3.
    """
    found = two_users().solve(0.25, weights=np.ones(2))
    assert found.lists.tolist() == [[2, 3], [0, 2]]
    assert found.prices[0] == pytest.approx(0.3)  # of the first place refused: user 1's second
    assert found.spread_price == 0


def test_what_was_shown_before_counts_too():
    """The same users after four showings: the group may have two of all eight."""
    found = [
        two_users().solve(0.25, weights=np.ones(2), room=0.25 * 4 - of_group).lists.tolist()
        for of_group in (0, 1, 2, 3)
    ]
    nothing_left = [[2, 3], [2, 3]]
    assert found == [[[2, 3], [0, 1]], [[2, 3], [0, 2]], nothing_left, nothing_left]


def test_a_floor_is_a_limit_on_the_rest():
    rng = np.random.default_rng(4)
    items = np.stack([rng.permutation(20)[:10] for _ in range(15)])
    market = Market(items, rng.random(items.shape).astype(np.float32), np.arange(20) < 9, 4)
    others = Market(items, market.values, ~market.group, 4)
    for share in (0.0, 0.3, 0.62, 0.9):
        floor = market.solve(PlaceRule(share, is_floor=True))
        cap = others.solve(1 - share)
        assert floor.lists.tolist() == cap.lists.tolist()
        assert floor.prices == cap.prices
        shown, of_group = market.showings(floor.lists)
        assert of_group >= share * shown - ROUNDING


def test_who_has_nothing_but_the_group_comes_first_but_never_breaks_the_limit():
    items = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 0]])
    values = np.array([[0.3, 0.2, 0.1], [0.5, 0.4, 0.3], [0.1, 0.1, 0.9]], dtype=np.float32)
    market = Market(items, values, np.arange(8) < 3, 2)
    lists = {share: market.solve(share).lists.tolist() for share in (0.0, 0.2, 0.34, 0.5)}
    # User 0 has the group alone; of six showings two may be of it, of five one.
    assert lists[0.0] == [[-1, -1], [3, 4], [6, 7]]
    assert lists[0.2] == [[0, -1], [3, 4], [6, 7]]
    assert lists[0.34] == [[0, 1], [3, 4], [6, 7]]
    assert lists[0.5] == [[0, 1], [3, 4], [0, 6]]  # the third goes to whom it is worth the most


def test_the_extreme_shapes():
    group = np.array([True, False, False])
    nobody = Market(np.empty((0, 5), np.int64), np.empty((0, 5), np.float32), group, 3)
    assert nobody.solve(0.5, gini_limit=0.1).lists.shape == (0, 3)
    bare = Market(np.empty((2, 0), np.int64), np.empty((2, 0), np.float32), group, 2)
    assert bare.solve(0.5).lists.tolist() == [[-1, -1]] * 2
    nothing = Market(np.full((2, 3), -1), np.full((2, 3), np.nan, np.float32), group, 2)
    assert nothing.solve(0.5, gini_limit=0.0).lists.tolist() == [[-1, -1]] * 2
    short = Market(np.array([[0, 2]]), np.array([[3.0, -5.0]], np.float32), group, 4)
    assert short.solve(1.0).lists.tolist() == [[0, 2, -1, -1]]
    assert short.solve(0.0).lists.tolist() == [[2, -1, -1, -1]]


def test_many_equal_values_do_not_spend_the_budget_for_nothing():
    items = np.tile(np.arange(6), (10, 1))
    values = np.ones((10, 6), np.float32)
    found = Market(items, values, np.arange(6) < 3, 3).solve(0.4)
    assert found.lists.tolist() == [[3, 4, 5]] * 10
    assert found.prices[0] == 0
    found = Market(items, values, np.arange(6) < 4, 3).solve(0.4)
    assert int((found.lists < 4).sum()) == 10  # two outside the group, so one of it to each


def test_the_same_items_for_all_can_be_given_once():
    rng = np.random.default_rng(2)
    values, group = rng.random((9, 15)).astype(np.float32), np.arange(15) < 6
    values[0, 3] = -np.inf
    codes = np.arange(15)[None]
    limits = LimitMatrix.from_rules([GroupRule(PlaceRule(0.2), group)], 4)
    lists = [
        allocate(Candidates.checked(given, values), limits).lists
        for given in (codes, np.tile(codes, (9, 1)))
    ]
    np.testing.assert_array_equal(*lists)
    assert 3 not in lists[0][0]


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7])
def test_only_differences_of_values_count_where_lists_are_full(share: float):
    rng = np.random.default_rng(8)
    items = np.stack([rng.permutation(40)[:20] for _ in range(30)])
    values = rng.integers(0, 16, items.shape).astype(np.float32)
    group = np.arange(40) < 10
    assert (~group[items]).sum(1).min() >= 5
    market, shifted = (Market(items, shift + values, group, 5) for shift in (0, -64))
    one, other = market.solve(share), shifted.solve(share)
    assert market.total(other.lists) == pytest.approx(market.total(one.lists), abs=1e-6)
    assert other.prices[0] == pytest.approx(one.prices[0], abs=1e-6)


instances = st.builds(
    random_instance,
    st.integers(0, 10_000),
    users=st.integers(1, 7),
    columns=st.integers(1, 9),
    length=st.integers(1, 5),
    whole=st.booleans(),
)
shares = st.floats(0, 1)


@settings(max_examples=150)
@given(instances, shares, shares)
def test_a_larger_share_shows_no_less_of_the_group_and_is_worth_no_less(
    market: Market, one: float, other: float
):
    lists = [market.solve(share).lists for share in sorted((one, other))]
    for found, share in zip(lists, sorted((one, other)), strict=True):
        assert_keeps_in_order(market, found, share)
    tight, loose = (market.showings(found) for found in lists)
    assert tight <= loose
    assert tight[1] <= loose[1]
    assert market.total(lists[0]) <= market.total(lists[1]) + 1e-6


def sides_of(group: list[float], rest: list[float], length: int) -> GroupAndRest:
    """Of one user, from the values of either side."""
    values = np.full((1, 12), NEVER)
    values[0, : len(group)], values[0, 6 : 6 + len(rest)] = group, rest
    candidates, in_group = Candidates(np.arange(12)[None], values), np.arange(12)[None] < 6
    return GroupAndRest.from_candidates(candidates, in_group, length)


def test_gains_of_places_that_weigh_alike_by_hand():
    """Lists of 3 out of 9, 5, 2 and of 8, 4, 1: the first gains 9 - 1, the second 5 - 4."""
    group, rest = [9.0, 5, 2], [8.0, 4, 1]
    assert exchange_gains(sides_of(group, rest, 3)).tolist() == [[8, 1, -6]]
    assert exchange_gains(sides_of(group, rest, 2)).tolist() == [[5, -3]]
    short = sides_of([9.0, 5], [8.0], 3)
    assert exchange_gains(short).tolist() == [[9, 5, -INF]]  # without them the list is shorter
    assert short.forced.tolist() == [[True, True, False]]


VALUES = st.lists(st.integers(-9, 9).map(float), max_size=6)


@given(VALUES, VALUES, st.integers(1, 6))
def test_a_gain_is_the_difference_of_the_best_totals(members, others, length):
    """The total of the best list with c of the group, less that with c - 1."""
    size = min(length, len(members) + len(others))
    sides = sides_of(members, others, length)
    group, rest = sorted(members, reverse=True), sorted(others, reverse=True)
    (gains,), (forced,) = exchange_gains(sides), sides.forced
    for c in range(1, length + 1):
        if c > min(size, len(members)):
            assert gains[c - 1] == -INF
        elif size - c + 1 > len(others):
            assert forced[c - 1]
        else:
            more, less = (sum(group[:n]) + sum(rest[: size - n]) for n in (c, c - 1))
            assert gains[c - 1] == more - less


def test_refusals_name_the_fault():
    market = Market(np.array([[0, 1]]), np.array([[1.0, 2.0]], np.float32), np.arange(2) < 1, 2)
    with pytest.raises(ConfigError, match=r"share = 85 .* fraction"):
        market.solve(PlaceRule(85))
    with pytest.raises(ConfigError, match=r"gini_limit = -0\.1"):
        market.solve(1.0, gini_limit=-0.1)
    with pytest.raises(ConfigError, match="length = 0"):
        Market(market.items, market.values, market.group, 0).solve(1.0)
    for weights in ([1.0], [0.5, 1.0], [1.0, -1.0]):
        with pytest.raises(ConfigError, match="weights must"):
            market.solve(1.0, weights=weights)
    for wrong in (np.nan, np.inf):
        with pytest.raises(ModelError, match="not a finite number"):
            Market(market.items, np.array([[wrong, 1.0]]), market.group, 2).solve(1.0)
