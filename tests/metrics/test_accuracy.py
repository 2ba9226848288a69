import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from sklearn.metrics import ndcg_score

from fairhorizon.metrics.accuracy import f1, hit_matrix, mean_over_users, ndcg, recall

# three users, six items; user 1 has nothing relevant, user 2's list has two empty slots
LISTS = np.array([[3, 0, 5, 1], [0, 1, 2, 3], [4, -1, 2, -1]])
RELEVANT = csr_array(
    np.array([[1, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 1]], dtype=np.int64)
)
HITS = np.array([[1, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]], dtype=bool)
N_RELEVANT = np.array([3, 0, 2])


@st.composite
def problems(draw):
    """Random lists without repeats, some slots empty, and a dense 0/1 relevance matrix."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_users, n_items = draw(st.integers(1, 8)), draw(st.integers(1, 12))
    length = draw(st.integers(1, n_items))
    lists = np.argsort(rng.random((n_users, n_items)), axis=1)[:, :length]
    lists[rng.random(lists.shape) < draw(st.sampled_from([0.0, 0.3]))] = -1
    relevant = rng.random((n_users, n_items)) < draw(st.sampled_from([0.1, 0.5, 1.0]))
    return lists, relevant, draw(st.integers(1, length))


def test_hits_are_where_a_relevant_item_stands():
    np.testing.assert_array_equal(hit_matrix(LISTS, RELEVANT), HITS)
    np.testing.assert_array_equal(hit_matrix(LISTS, RELEVANT.astype(bool)), HITS)


def test_an_empty_slot_is_not_the_last_item_of_the_user_before():
    relevant = csr_array(np.array([[0, 0, 1], [1, 0, 0]]))
    np.testing.assert_array_equal(hit_matrix(np.array([[0], [-1]]), relevant), [[False], [False]])


def test_a_stored_zero_is_not_relevant():
    relevant = csr_array((np.array([0, 1]), ([0, 0], [0, 1])), shape=(1, 2))
    np.testing.assert_array_equal(hit_matrix(np.array([[0, 1]]), relevant), [[False, True]])


@pytest.mark.parametrize(
    ("metric", "k", "expected"),
    [
        (recall, 1, [Fraction(1, 3), math.nan, 0]),
        (recall, 4, [Fraction(2, 3), math.nan, Fraction(1, 2)]),
        (f1, 1, [Fraction(2, 4), math.nan, 0]),
        (f1, 4, [Fraction(4, 7), math.nan, Fraction(2, 6)]),
        (ndcg, 1, [1, math.nan, 0]),
        # user 0: ideal 1 + 1/log2(3) + 1/2; user 2: (1/2) / (1 + 1/log2(3))
        (ndcg, 4, [0.7653606369886217, math.nan, 0.30657359638272946]),
    ],
)
def test_hand_worked_values(metric, k, expected):
    np.testing.assert_allclose(metric(HITS, N_RELEVANT, k), np.array(expected, float), rtol=1e-14)


@given(problems())
def test_agrees_with_a_plain_loop_over_users(problem):
    lists, relevant, k = problem
    hits, n_relevant = hit_matrix(lists, csr_array(relevant)), relevant.sum(axis=1)
    for user, shown in enumerate(lists[:, :k].tolist()):
        wanted = set(np.flatnonzero(relevant[user]).tolist())
        h, n = len(wanted & set(shown)), len(wanted)
        dcg = sum(1 / math.log2(rank + 1) for rank, i in enumerate(shown, 1) if i in wanted)
        ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(k, n) + 1))
        expected = [h / n, 2 * h / (k + n), dcg / ideal] if n else [math.nan] * 3
        found = [metric(hits, n_relevant, k)[user] for metric in (recall, f1, ndcg)]
        np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize("n_relevant", [1, 3, 10, 40])
@pytest.mark.parametrize("k", [2, 5, 20])
def test_ndcg_agrees_with_sklearn(n_relevant, k):
    rng = np.random.default_rng(n_relevant * 100 + k)
    scores = rng.random((30, 50))
    relevant = np.argsort(rng.random((30, 50)), axis=1) < n_relevant
    lists = np.argsort(-scores, axis=1)[:, :20]
    found = ndcg(hit_matrix(lists, csr_array(relevant)), relevant.sum(axis=1), k)
    assert mean_over_users(found) == pytest.approx(ndcg_score(relevant, scores, k=k), rel=1e-12)


def test_users_without_relevant_items_do_not_weigh_in_the_mean():
    assert mean_over_users(recall(HITS, N_RELEVANT, 4)) == pytest.approx(7 / 12)
    assert math.isnan(mean_over_users(np.array([math.nan, math.nan])))


@pytest.mark.parametrize("k", [0, -1, 5])
@pytest.mark.parametrize("metric", [recall, f1, ndcg])
def test_k_must_fit_the_lists(metric, k):
    with pytest.raises(ValueError, match=f"k = {k} does not fit lists of length 4"):
        metric(HITS, N_RELEVANT, k)


def test_shapes_must_agree():
    with pytest.raises(ValueError, match=r"n_relevant has shape \(2,\), expected \(3,\)"):
        recall(HITS, N_RELEVANT[:2], 1)
    with pytest.raises(ValueError, match=r"lists have shape \(2, 4\), relevant items \(3, 6\)"):
        hit_matrix(LISTS[:2], RELEVANT)
    with pytest.raises(ValueError, match=r"lists have shape \(3,\), expected"):
        recall(HITS[:, 0], N_RELEVANT, 1)


@pytest.mark.parametrize("code", [6, -2])
def test_codes_outside_the_catalogue_are_refused(code):
    with pytest.raises(ValueError, match=f"item code {code}, the catalogue has 6 items"):
        hit_matrix(np.full((3, 1), code), RELEVANT)
