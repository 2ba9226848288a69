import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fairhorizon.metrics import significance as module
from fairhorizon.metrics.significance import (
    holm,
    paired_bootstrap,
    paired_difference,
    paired_t_test,
)

RNG = np.random.default_rng(5)
NORMAL = RNG.normal(size=400)
SHIFTED = NORMAL + RNG.normal(0.12, 1, size=400)


def test_the_t_test_by_hand():
    # differences 1, 2, 3: t = 2 sqrt(3); with two degrees of freedom p = 1 - t / sqrt(t^2 + 2)
    assert paired_t_test([1, 2, 3], [0, 0, 0]) == pytest.approx(1 - math.sqrt(12 / 14))


def test_the_interval_of_a_difference_by_hand():
    # differences 1, 2, 3: s / sqrt(3) = 1 / sqrt(3), and t(0.975, 2) = 4.302653
    found = paired_difference([1, 2, 3, math.nan], [0, 0, 0, 1])
    half = 4.302653 / math.sqrt(3)
    assert (found.mean, found.users) == (2, 3)
    assert (found.low, found.high) == pytest.approx((2 - half, 2 + half), rel=1e-6)
    alone = paired_difference([1.0], [0.5])
    assert (alone.mean, alone.users) == (0.5, 1)
    assert math.isnan(alone.low)
    assert math.isnan(paired_difference([math.nan], [0.5]).mean)


@pytest.mark.parametrize("shift", [0.0, 0.1, 0.2])
def test_the_interval_excludes_0_where_the_t_test_is_below_5_percent(shift):
    found = paired_difference(SHIFTED + shift, NORMAL)
    excludes = not found.low <= 0 <= found.high
    assert excludes == (paired_t_test(SHIFTED + shift, NORMAL) < 0.05)


@pytest.mark.parametrize("n", [2, 3, 50, 400])
def test_the_t_test_is_scipys(n):
    first, second = NORMAL[:n], SHIFTED[:n]
    expected = stats.ttest_rel(first, second).pvalue
    assert paired_t_test(first, second) == pytest.approx(expected, rel=1e-10)
    assert paired_t_test(second, first) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("test", [paired_t_test, paired_bootstrap])
def test_a_user_without_a_value_is_left_out_of_both(test):
    first, second = NORMAL.copy(), SHIFTED.copy()
    first[3] = second[8] = math.nan
    kept = np.delete(np.arange(400), [3, 8])
    assert test(first, second) == test(NORMAL[kept], SHIFTED[kept])


def test_no_difference_and_one_difference_for_all():
    assert paired_t_test(NORMAL, NORMAL) == paired_bootstrap(NORMAL, NORMAL) == 1.0
    whole = np.arange(10.0)
    assert paired_t_test(whole + 1, whole) == 0.0
    assert paired_bootstrap(whole + 1, whole, samples=99) == 1 / 100


@pytest.mark.parametrize("test", [paired_t_test, paired_bootstrap])
def test_one_user_says_nothing(test):
    assert math.isnan(test([1.0, math.nan], [0.5, 2.0]))
    with pytest.raises(ValueError, match=r"values have shapes \(2,\) and \(3,\)"):
        test([1.0, 2.0], [1.0, 2.0, 3.0])


@pytest.mark.parametrize("shift", [0.0, 0.05, 0.1, 0.15])
def test_the_bootstrap_agrees_with_the_t_test_on_normal_differences(shift):
    difference = RNG.normal(size=600)
    difference += shift - difference.mean()
    p = paired_t_test(difference, np.zeros(600))
    # 10,000 resamples: a standard error of at most 0.005
    assert paired_bootstrap(difference, np.zeros(600)) == pytest.approx(p, abs=0.02)


def test_the_bootstrap_counted_out_by_hand():
    # differences 0 and 2: mean 1, centred -1 and 1; resamples have mean -1, 0, 0 or 1
    p = paired_bootstrap([0.0, 2.0], [0.0, 0.0], samples=40_000)
    assert p == pytest.approx(1 / 2, abs=0.01)


def test_the_bootstrap_is_one_for_a_seed_and_does_not_depend_on_the_chunks(monkeypatch):
    whole = paired_bootstrap(NORMAL, SHIFTED, samples=1001, seed=3)
    assert paired_bootstrap(NORMAL, SHIFTED, samples=1001, seed=3) == whole
    monkeypatch.setattr(module, "DRAWS_AT_ONCE", 4000)  # ten resamples a chunk, the last has one
    assert paired_bootstrap(NORMAL, SHIFTED, samples=1001, seed=3) == whole


@pytest.mark.parametrize("test", [paired_t_test, lambda a, b: paired_bootstrap(a, b, samples=200)])
def test_without_an_effect_p_is_uniform(test):
    rng = np.random.default_rng(11)
    p = [test(rng.normal(size=60), rng.normal(size=60)) for _ in range(400)]
    assert stats.kstest(p, "uniform").pvalue > 0.01
    assert np.mean(np.array(p) < 0.05) == pytest.approx(0.05, abs=0.03)


def test_holm_by_hand():
    # sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1: 0.02, 0.03, 0.06, 0.04 -> the last is raised
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.5, 0.6]), [1.0, 1.0])
    np.testing.assert_allclose(holm([0.02, math.nan, 0.01]), [0.02, math.nan, 0.02])
    assert holm([]).shape == (0,)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_rejects_what_the_step_down_procedure_rejects(p_values):
    """Holm (1979): go up the sorted p-values while p_(i) <= level / (m - i + 1)."""
    adjusted, order = holm(p_values), np.argsort(p_values, kind="stable")
    assert np.all(adjusted >= p_values)
    for level in (0.01, 0.05, 0.3):
        rejected = set()
        for step, test in enumerate(order):
            if p_values[test] * (len(p_values) - step) > level:
                break
            rejected.add(int(test))
        assert set(np.flatnonzero(adjusted <= level)) == rejected
