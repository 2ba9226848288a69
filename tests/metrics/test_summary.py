import math

import numpy as np
import pytest
from scipy.sparse import csr_array

from fairhorizon.metrics.summary import summarise

LISTS = np.array([[0, 2], [1, 0], [0, -1]])
RELEVANT = csr_array(np.array([[0, 0, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]]))
POPULAR = np.array([True, False, False, False])

# at 1, shown: 0, 1, 0 -> counts 2, 1, 0, 0; at 2, shown: 0, 2, 1, 0, 0 -> counts 3, 1, 1, 0
EXPECTED = {
    "recall@1": (0 + 1) / 2,
    "f1@1": (0 + 2 / 2) / 2,
    "ndcg@1": (0 + 1) / 2,
    "gini@1": 14 / (2 * 16 * 3 / 4),
    "popularity_rate@1": 2 / 3,
    "coverage@1": 1 / 2,
    "exposure_ratio@1": 2,
    "demographic_parity_gap@1": 2 - 1 / 3,
    "worst_off@1": (1 / 3) / (3 / 4),
    "exact_k_violation@1": 2 / 3,
    "recall@2": (1 / 2 + 1) / 2,
    "f1@2": (2 / 4 + 2 / 3) / 2,
    "ndcg@2": (1 / (math.log2(3) + 1) + 1) / 2,
    "gini@2": 18 / (2 * 16 * 5 / 4),
    "popularity_rate@2": 3 / 5,
    "coverage@2": 3 / 4,
    "exposure_ratio@2": 3 / 2,
    "demographic_parity_gap@2": 3 - 2 / 3,
    "worst_off@2": (2 / 5) / (3 / 4),
    "exact_k_violation@2": 0,
}


@pytest.mark.parametrize("dtype", [np.int64, bool])
def test_every_metric_at_every_k_in_order(dtype):
    found = summarise(LISTS, RELEVANT.astype(dtype), POPULAR, ks=[1, 2], alpha_prime=0.5)
    assert list(found) == list(EXPECTED)
    assert found == pytest.approx(EXPECTED, rel=1e-14)
    assert all(type(value) is float for value in found.values())


def test_groups_must_cover_the_catalogue():
    with pytest.raises(ValueError, match=r"groups have shape \(3,\), relevant items \(3, 4\)"):
        summarise(LISTS, RELEVANT, POPULAR[:3], ks=[1], alpha_prime=0.5)


def test_a_stored_zero_counts_as_not_relevant():
    stored = RELEVANT.copy()
    stored.data[:] = 0
    found = summarise(LISTS, stored, POPULAR, ks=[2], alpha_prime=0.5)
    assert math.isnan(found["recall@2"])
    assert found["coverage@2"] == 3 / 4
