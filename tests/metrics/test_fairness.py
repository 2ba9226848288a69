import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.metrics import auc

from fairhorizon.metrics.fairness import (
    coverage,
    demographic_parity_gap,
    exact_k_violation_rate,
    exposure_counts,
    exposure_ratio,
    gini,
    lists_above,
    lorenz_curve,
    popularity_rate,
    share_within_every_list,
    weighed_share,
    worst_off_share,
)

POPULAR = np.array([True, True, False, False, False])
LISTS = np.array([[0, 1, 2, 3], [1, 0, 3, -1], [4, 1, -1, -1]])
COUNTS = np.array([2, 3, 1, 2, 1])  # of LISTS

some_counts = arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 10**6))
seeds = st.integers(0, 2**32 - 1)


def double_sum(g):
    """The paper's equation as it is printed."""
    g = g.astype(np.float64)
    return np.abs(g[:, None] - g[None, :]).sum() / (2 * g.size**2 * g.mean())


def test_counts_cover_the_catalogue_and_leave_out_empty_slots():
    np.testing.assert_array_equal(exposure_counts(LISTS, 5, 4), COUNTS)
    np.testing.assert_array_equal(exposure_counts(LISTS, 7, 1), [1, 1, 0, 0, 1, 0, 0])
    assert exposure_counts(LISTS, 5, 4).dtype == np.int64


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([1, 1, 1, 1], 0),
        ([0, 0, 0, 8], 3 / 4),
        ([1, 3], 1 / 4),
        ([3, 0, 1], 1 / 2),  # |differences| 3, 2, 1, each twice: 12 / (18 * 4/3)
        ([7], 0),
        ([0, 0, 0], 0),
    ],
)
def test_gini_by_hand(counts, expected):
    assert gini(np.array(counts)) == pytest.approx(expected, rel=1e-14, abs=0)


@given(some_counts.filter(lambda counts: counts.any()))
def test_gini_is_the_double_sum(counts):
    assert gini(counts) == pytest.approx(double_sum(counts), rel=1e-12, abs=0)


def test_gini_is_the_double_sum_where_counts_hardly_differ():
    counts = np.array([10**9, 10**9 + 1, 10**9 + 1, 10**9 + 3])
    # pairs differ by 1, 1, 3, 0, 2, 2
    assert gini(counts) == pytest.approx(2 * 9 / (2 * 4 * (4 * 10**9 + 5)), rel=1e-12, abs=0)


@given(some_counts, st.integers(2, 1000))
def test_gini_does_not_depend_on_scale(counts, scale):
    assert gini(counts * scale) == pytest.approx(gini(counts), rel=1e-12, abs=0)


@given(some_counts)
def test_gini_is_the_area_between_lorenz_curve_and_diagonal(counts):
    catalogue, exposure = lorenz_curve(counts)
    assert (catalogue[0], exposure[0], catalogue[-1], exposure[-1]) == (0, 0, 1, 1)
    assert 1 - 2 * auc(catalogue, exposure) == pytest.approx(gini(counts), abs=1e-12)


def test_lorenz_curve_by_hand():
    catalogue, exposure = lorenz_curve(np.array([5, 0, 1, 2]))
    np.testing.assert_allclose(catalogue, [0, 1 / 4, 1 / 2, 3 / 4, 1])
    np.testing.assert_allclose(exposure, [0, 0, 1 / 8, 3 / 8, 1])


@given(seeds)
def test_permuting_items_within_a_group_changes_no_fairness_number(seed):
    rng = np.random.default_rng(seed)
    lists = rng.integers(-1, 5, size=(6, 4))
    new_code = np.append(np.append(rng.permutation(2), 2 + rng.permutation(3)), -1)
    permuted = new_code[lists]
    before, after = (exposure_counts(found, 5, 3) for found in (lists, permuted))
    assert popularity_rate(permuted, POPULAR, 3) == popularity_rate(lists, POPULAR, 3)
    assert gini(after) == gini(before)
    assert coverage(after) == coverage(before)
    assert exposure_ratio(after, POPULAR) == exposure_ratio(before, POPULAR)


@given(seeds)
def test_popularity_rate_agrees_with_a_plain_loop(seed):
    lists = np.random.default_rng(seed).integers(-1, 5, size=(6, 4))
    lists[0, 0] = 2
    shown = [item for row in lists[:, :3].tolist() for item in row if item >= 0]
    assert popularity_rate(lists, POPULAR, 3) == sum(item < 2 for item in shown) / len(shown)


def test_group_numbers_by_hand():
    assert popularity_rate(LISTS, POPULAR, 4) == 5 / 9
    assert popularity_rate(LISTS, POPULAR, 1) == 2 / 3
    assert coverage(np.array([0, 3, 1, 0, 1])) == 3 / 5
    assert exposure_ratio(COUNTS, POPULAR) == 5 / 4
    assert demographic_parity_gap(COUNTS, POPULAR) == pytest.approx(5 / 2 - 4 / 3)
    assert demographic_parity_gap(COUNTS, ~POPULAR) == pytest.approx(4 / 3 - 5 / 2)


def test_the_worst_off_provider_by_hand():
    """5 of 9 showings for 2 of 5 items, 4 for 3; a third provider has 1 of 9 for 1 of 5."""
    assert worst_off_share(COUNTS, POPULAR) == pytest.approx((4 / 9) / (3 / 5))
    assert worst_off_share(COUNTS, ~POPULAR) == worst_off_share(COUNTS, POPULAR)
    counts, providers = np.array([3, 2, 2, 1, 1]), np.array([7, 7, 4, 4, 9])
    assert worst_off_share(counts, providers) == pytest.approx((1 / 9) / (1 / 5))
    assert worst_off_share(np.array([3, 1, 2, 2, 2]), providers) == pytest.approx(1)  # parity
    assert worst_off_share(np.array([3, 2, 0, 0, 1]), providers) == 0
    assert worst_off_share(counts, np.zeros(5, dtype=int)) == 1  # nobody to be compared with
    with pytest.raises(ValueError, match=r"providers \(4,\)"):
        worst_off_share(counts, providers[:4])


@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_worst_off_with_more_than_their_share(seed):
    rng = np.random.default_rng(seed)
    counts, providers = rng.integers(0, 9, 50), rng.integers(0, 4, 50)
    by_loop = min(
        counts[providers == one].sum() / counts.sum() / (providers == one).mean()
        for one in range(4)
    )
    assert worst_off_share(counts, providers) == pytest.approx(by_loop)
    assert by_loop <= 1


def test_numbers_that_do_not_exist():
    assert math.isnan(worst_off_share(np.zeros(5), POPULAR))
    nothing = np.full((2, 3), -1)
    assert math.isnan(popularity_rate(nothing, POPULAR, 3))
    assert exact_k_violation_rate(nothing, POPULAR, 0.0, 3) == 0
    assert math.isnan(exact_k_violation_rate(nothing[:0], POPULAR, 0.5, 3))
    assert exposure_ratio(np.array([2, 1, 0, 0, 0]), POPULAR) == math.inf
    assert math.isnan(exposure_ratio(np.zeros(5), POPULAR))
    assert math.isnan(demographic_parity_gap(COUNTS, np.ones(5, dtype=bool)))


@pytest.mark.parametrize(
    ("alpha_prime", "k", "expected"),
    [
        (0.5, 4, 0),  # G0 holds 2, 2, 1 of the slots; 2 are allowed
        (0.4, 4, 2 / 3),
        (0.5, 2, 2 / 3),
        (0.0, 2, 1),
        (1.0, 1, 0),
    ],
)
def test_exact_k_violations_by_hand(alpha_prime, k, expected):
    assert exact_k_violation_rate(LISTS, POPULAR, alpha_prime, k) == expected


@pytest.mark.parametrize("k", [5, 10, 20, 25, 100])
def test_a_list_right_at_the_limit_does_not_violate_it(k):
    popular = np.arange(2 * k) < k
    for allowed in range(1, k):
        at_limit = np.append(np.arange(allowed), np.arange(k, 2 * k - allowed))[None, :]
        above = np.append(np.arange(allowed + 1), np.arange(k, 2 * k - allowed - 1))[None, :]
        # alpha' as it comes out of alpha: the product with k is off by some last digits
        alpha = allowed / (k - allowed)
        for alpha_prime in (allowed / k, alpha / (1 + alpha), allowed / k + 1e-10):
            assert exact_k_violation_rate(at_limit, popular, alpha_prime, k) == 0
            assert exact_k_violation_rate(above, popular, alpha_prime, k) == 1


def test_bad_input_is_refused():
    with pytest.raises(ValueError, match="k = 5 does not fit lists of length 4"):
        exposure_counts(LISTS, 5, 5)
    with pytest.raises(ValueError, match="k = 0 does not fit lists of length 4"):
        popularity_rate(LISTS, POPULAR, 0)
    with pytest.raises(ValueError, match="item code 4, the catalogue has 4 items"):
        exposure_counts(LISTS, 4, 4)
    with pytest.raises(ValueError, match="item code 4, the catalogue has 4 items"):
        popularity_rate(LISTS, POPULAR[:4], 4)
    with pytest.raises(ValueError, match=r"counts have shape \(5,\), groups \(4,\)"):
        exposure_ratio(COUNTS, POPULAR[:4])
    with pytest.raises(ValueError, match=r"counts have shape \(0,\)"):
        gini(np.array([]))
    with pytest.raises(ValueError, match="finite and not negative"):
        gini(np.array([1, -1]))
    with pytest.raises(ValueError, match="finite and not negative"):
        gini(np.array([1, math.nan]))
    with pytest.raises(ValueError, match=r"alpha_prime = 1\.5 is not a share"):
        exact_k_violation_rate(LISTS, POPULAR, 1.5, 4)


def test_a_weighed_share_by_hand():
    # of LISTS, 0 and 1 are popular: places 1, 2 of the first two lists and 2 of the third
    log = [1 / math.log2(1 + place) for place in (1, 2, 3, 4)]
    total = 3 * log[0] + 3 * log[1] + 2 * log[2] + log[3]
    expected = (2 * log[0] + 3 * log[1]) / total
    assert weighed_share(LISTS, POPULAR, 4) == pytest.approx(expected, rel=1e-14)
    assert weighed_share(LISTS, POPULAR, 1) == pytest.approx(2 / 3)
    given = np.array([2.0, 0.0, 1.0, 0.0])
    assert weighed_share(LISTS, POPULAR, 4, given) == pytest.approx(4 / (6 + 2))
    assert weighed_share(LISTS, POPULAR, 4, np.ones(4)) == popularity_rate(LISTS, POPULAR, 4)
    assert math.isnan(weighed_share(np.full((2, 3), -1), POPULAR, 3))
    with pytest.raises(ValueError, match=r"weights have shape \(4,\), expected \(3,\)"):
        weighed_share(LISTS, POPULAR, 3, given)


def test_lists_above_a_share_rounded_up_by_hand():
    # 2, 2 and 1 popular items in lists of 4
    assert lists_above(LISTS, POPULAR, 0.25, 4) == pytest.approx(2 / 3)
    assert lists_above(LISTS, POPULAR, 0.26, 4) == 0  # ceil(1.04) = 2
    assert lists_above(LISTS, POPULAR, 0.0, 4) == 1
    assert lists_above(LISTS, POPULAR, 0.5, 2) == pytest.approx(2 / 3)
    assert math.isnan(lists_above(LISTS[:0], POPULAR, 0.5, 2))
    with pytest.raises(ValueError, match="share = 2"):
        lists_above(LISTS, POPULAR, 2, 4)


def test_the_share_that_every_list_is_within_by_hand():
    """At most 2 of 4 in a list: ceil(s * 4) is 2 for any s above 1/4."""
    assert share_within_every_list(LISTS, POPULAR, 4) == pytest.approx(1 / 4, abs=1e-8)
    # the first two places of the first list are popular: ceil(s * 2) is 2 for s above 1/2
    prefixes = share_within_every_list(LISTS, POPULAR, 4, prefixes=True)
    assert prefixes == pytest.approx(1 / 2, abs=1e-8)
    assert share_within_every_list(LISTS[2:], ~POPULAR, 2, prefixes=True) == pytest.approx(
        0, abs=1e-8
    )
    assert share_within_every_list(LISTS, np.zeros(5, bool), 4) == 0
    assert math.isnan(share_within_every_list(LISTS[:0], POPULAR, 4))


@given(seeds, st.integers(1, 99))
def test_lists_within_a_share_are_not_above_it(seed, percent):
    rng = np.random.default_rng(seed)
    lists = np.stack([rng.permutation(12)[:6] for _ in range(5)])
    group = rng.random(12) < 0.5
    share = percent / 100
    is_within = share_within_every_list(lists, group, 6) <= share
    assert is_within == (lists_above(lists, group, share, 6) == 0)
