"""Hit rate, MRR, MAP and precision: by hand, and beside implicit, scikit-learn and LensKit."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.metrics import average_precision_score

from fairhorizon.metrics.accuracy import (
    average_precision,
    hit_matrix,
    hit_rate,
    mean_over_users,
    ndcg,
    precision,
    recall,
    reciprocal_rank,
)
from fairhorizon.metrics.fairness import exposure_counts, gini

# user 1 has nothing relevant; the others have 3, 2 and 1 relevant items
HITS = np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0]], dtype=bool)
N_RELEVANT = np.array([3, 0, 2, 1])


@pytest.mark.parametrize(
    ("metric", "k", "expected"),
    [
        (hit_rate, 1, [0, math.nan, 1, 0]),
        (hit_rate, 2, [1, math.nan, 1, 0]),
        (reciprocal_rank, 1, [0, math.nan, 1, 0]),
        (reciprocal_rank, 4, [Fraction(1, 2), math.nan, 1, 0]),
        (precision, 2, [Fraction(1, 2), math.nan, 1, 0]),
        (precision, 4, [Fraction(2, 4), math.nan, Fraction(2, 4), 0]),
        # user 0: (1/2 + 2/4) / min(4, 3); at 2: (1/2) / min(2, 3)
        (average_precision, 4, [Fraction(1, 3), math.nan, 1, 0]),
        (average_precision, 2, [Fraction(1, 4), math.nan, 1, 0]),
    ],
)
def test_hand_worked_values(metric, k, expected):
    np.testing.assert_allclose(metric(HITS, N_RELEVANT, k), np.array(expected, float), rtol=1e-14)


def random_problem(seed, n_relevant):
    """Scores of 40 users for 50 items, and a matrix of relevant items, `n_relevant` each."""
    rng = np.random.default_rng(seed)
    relevant = np.argsort(rng.random((40, 50)), axis=1) < n_relevant
    return rng.random((40, 50)), relevant


class Ranked:
    """A model as implicit's evaluation asks for."""

    def __init__(self, lists):
        self.lists = lists

    def recommend(self, users, rows, N):  # noqa: ARG002  # as implicit calls it
        return self.lists[users, :N].astype(np.int32), None


@pytest.mark.parametrize("n_relevant", [1, 4, 12])
@pytest.mark.parametrize("k", [1, 5, 10])
def test_map_and_ndcg_agree_with_implicit(n_relevant, k):
    from implicit.evaluation import ranking_metrics_at_k  # slow to import

    scores, relevant = random_problem(seed=n_relevant, n_relevant=n_relevant)
    lists = np.argsort(-scores, axis=1)
    test = csr_matrix(relevant.astype(np.float32))
    theirs = ranking_metrics_at_k(
        Ranked(lists), csr_matrix(test.shape, dtype=np.float32), test, K=k, show_progress=False
    )
    hits, n = hit_matrix(lists, csr_array(relevant)), relevant.sum(axis=1)
    assert mean_over_users(average_precision(hits, n, k)) == pytest.approx(theirs["map"], rel=1e-6)
    assert mean_over_users(ndcg(hits, n, k)) == pytest.approx(theirs["ndcg"], rel=1e-6)
    if n_relevant >= k:
        # Its precision divides by min(k, n), which is ours where everybody has k relevant items.
        ours = mean_over_users(precision(hits, n, k))
        assert ours == pytest.approx(theirs["precision"], rel=1e-6)


@pytest.mark.parametrize("n_relevant", [1, 7, 30])
def test_average_precision_of_whole_rankings_agrees_with_sklearn(n_relevant):
    scores, relevant = random_problem(seed=100 + n_relevant, n_relevant=n_relevant)
    hits = hit_matrix(np.argsort(-scores, axis=1), csr_array(relevant))
    found = average_precision(hits, relevant.sum(axis=1), 50)
    theirs = [average_precision_score(*user) for user in zip(relevant, scores, strict=True)]
    np.testing.assert_allclose(found, theirs, rtol=1e-12)


# Values of LensKit 2025.8.1 (RecipRank, AveragePrecision, Hit, Precision, NDCG with
# LogRankWeight(offset=1), ListGini) for these lists and relevant items, of 8 items.
LISTS = np.array([[7, 2, 0, 5, 3], [1, 4, 6, 0, 2], [3, 5, 7, 1, 0], [6, 2, 4, 5, 1]])
RELEVANT = [[2, 5, 6], [0], [1, 2, 4, 6], [6, 2, 4, 5, 1, 0, 3]]
LENSKIT = {
    (reciprocal_rank, 3): [0.5, 0, 0, 1],
    (reciprocal_rank, 5): [0.5, 0.25, 0.25, 1],
    (average_precision, 1): [0, 0, 0, 1],
    (average_precision, 3): [0.16666666666666666, 0, 0, 1],
    (average_precision, 5): [0.3333333333333333, 0.25, 0.0625, 1],
    (hit_rate, 3): [1, 0, 0, 1],
    (hit_rate, 5): [1, 1, 1, 1],
    (precision, 3): [0.3333333333333333, 0, 0, 1],
    (precision, 5): [0.4, 0.2, 0.2, 1],
    (ndcg, 3): [0.2960819109658653, 0, 0, 1],
    (ndcg, 5): [0.49818925746641285, 0.43067655807339306, 0.16812753627111748, 1],
}


@pytest.mark.parametrize(("metric", "k"), LENSKIT)
def test_agrees_with_lenskit(metric, k):
    relevant = csr_array([[item in wanted for item in range(8)] for wanted in RELEVANT])
    n_relevant = np.array([len(wanted) for wanted in RELEVANT])
    found = metric(hit_matrix(LISTS, relevant), n_relevant, k)
    np.testing.assert_allclose(found, LENSKIT[metric, k], rtol=1e-14)


@pytest.mark.parametrize(("k", "theirs"), [(1, 0.5), (3, 0.16666666666666666), (5, 0.1)])
def test_the_gini_index_agrees_with_lenskit(k, theirs):
    assert gini(exposure_counts(LISTS, 8, k)) == pytest.approx(theirs, rel=1e-12)


def test_precision_and_recall_share_their_hits():
    n = N_RELEVANT[[0, 2]]
    h = HITS[[0, 2]]
    np.testing.assert_allclose(precision(h, n, 4) * 4, recall(h, n, 4) * n)
