"""Is one method better than another, user by user? Two-sided p-values, and their correction.

first, second: (n_users,) the same metric of the same users under two methods; NaN: no value.
A user without a value under either method is left out of both.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import t as student
from scipy.stats import ttest_rel

CONFIDENCE = 0.95
DRAWS_AT_ONCE = 4_000_000  # users drawn, over all resamples of a chunk: 32 MB


def paired_t_test(first: ArrayLike, second: ArrayLike) -> float:
    """Student's paired t-test, by scipy.

    Without any difference p is 1; where all differ by the same amount, it is 0.
    """
    d = _differences(first, second)
    if d.size < 2:
        return float("nan")
    # scipy would divide 0 by 0 here.
    if np.ptp(d) == 0:  # no spread, so no t
        return 1.0 if d[0] == 0 else 0.0
    return float(ttest_rel(first, second, nan_policy="omit").pvalue)


@dataclass(frozen=True)
class MeanDifference:
    """A mean difference over users, and the interval that it lies in with 95 % confidence.

    NaN: there are fewer than two users.
    """

    mean: float
    low: float
    high: float
    users: int


def paired_difference(first: ArrayLike, second: ArrayLike) -> MeanDifference:
    """First minus second, with Student's interval: mean -+ t(0.975, n - 1) s / sqrt(n)."""
    d = _differences(first, second)
    if d.size < 2:
        mean = float(d.mean()) if d.size else float("nan")
        return MeanDifference(mean, float("nan"), float("nan"), d.size)
    mean, error = float(d.mean()), float(d.std(ddof=1)) / float(np.sqrt(d.size))
    half = float(student.ppf((1 + CONFIDENCE) / 2, d.size - 1)) * error
    return MeanDifference(mean, mean - half, mean + half, d.size)


def paired_bootstrap(
    first: ArrayLike, second: ArrayLike, *, samples: int = 10_000, seed: int = 0
) -> float:
    """Share of resamples under no difference whose mean difference is as large as the observed.

    Users are drawn with replacement from the differences less their mean (Efron and Tibshirani
    1993, section 16.4); p = (1 + count) / (1 + samples), which is never 0.
    """
    d = _differences(first, second)
    if d.size < 2:
        return float("nan")
    observed = d.mean()
    # Under the null hypothesis the mean difference is 0, so resamples come from shifted
    # differences.
    centred = d - observed
    rng = np.random.default_rng(seed)
    # All resamples at once would need samples * n_users indices: 80 GB for a million users.
    chunk = max(1, DRAWS_AT_ONCE // d.size)
    count = 0
    for start in range(0, samples, chunk):
        users = rng.integers(d.size, size=(min(chunk, samples - start), d.size))
        count += int((abs(centred[users].mean(axis=1)) >= abs(observed)).sum())
    # The observed sample counts as one of the resamples, so that p is never exactly 0.
    return (1 + count) / (1 + samples)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's (1979) step-down correction: the i-th smallest of m becomes max_{j<=i} (m-j+1) p_(j).

    At most 1 each; a NaN stays one and does not count as a test.
    """
    p = np.asarray(p_values, dtype=np.float64)
    adjusted = np.full(p.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    # The smallest p-value is multiplied by m, the next by m - 1, and so on.
    steps = np.arange(order.size, 0, -1) * p[order]
    # A hypothesis cannot be rejected while one with a smaller p-value is not: the running maximum.
    adjusted[order] = np.minimum(1, np.maximum.accumulate(steps))
    return adjusted


def _differences(first: ArrayLike, second: ArrayLike) -> NDArray[Any]:
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if a.ndim != 1 or a.shape != b.shape:
        raise ValueError(f"values have shapes {a.shape} and {b.shape}, expected (n_users,) twice")
    d = a - b
    return d[~np.isnan(d)]
