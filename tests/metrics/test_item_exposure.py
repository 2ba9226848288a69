"""Expected exposure, attention-weighted rank fairness, parity of groups, popularity, diversity."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy as scipy_entropy
from sklearn.metrics.pairwise import cosine_distances

from fairhorizon.metrics.diversity import intra_list_diversity
from fairhorizon.metrics.expected_exposure import expected_exposure
from fairhorizon.metrics.fairness import entropy, worst_off_share
from fairhorizon.metrics.group_parity import equal_opportunity, statistical_parity
from fairhorizon.metrics.item_groups import exposure_matrix, membership, shared_membership
from fairhorizon.metrics.popularity_bias import (
    average_popularity,
    novelty,
    tail_count,
    tail_share,
)
from fairhorizon.metrics.rank_fairness import attention_weighted_rank_fairness

POPULAR = np.array([True, True, False, False])
GROUPS = membership(POPULAR)  # the tail, the popular
LISTS = np.array([[0, 2], [1, 0], [3, -1]])
EMPTY_LIST = np.array([[-1, -1]])
seeds = st.integers(0, 2**32 - 1)


def random_lists(rng, n_users=6, n_items=9, k=5):
    """Lists without repeats, and dense matrices of relevant and of taken items."""
    lists = np.argsort(rng.random((n_users, n_items)), axis=1)[:, :k]
    return lists, rng.random((n_users, n_items)) < 0.3, rng.random((n_users, n_items)) < 0.3


# ---- Groups as a matrix


def test_items_of_several_values_belong_to_each_in_equal_parts():
    parts = shared_membership([{"b", "a"}, set(), {"b"}])
    np.testing.assert_array_equal(parts.toarray(), [[0.5, 0.5], [0, 0], [0, 1]])
    np.testing.assert_array_equal(GROUPS.toarray(), [[0, 1], [0, 1], [1, 0], [1, 0]])


def test_exposure_of_a_place_goes_to_its_item():
    found = exposure_matrix(LISTS, np.array([1.0, 0.5]), 4).toarray()
    np.testing.assert_array_equal(found, [[1, 0, 0.5, 0], [0.5, 1, 0, 0], [0, 0, 0, 1]])


# ---- Expected exposure


def test_expected_exposure_by_hand():
    # 3 items, the first two relevant, two places with weights 1 and 1/2. Target: 1.5 / 2 = 0.75 for
    # each relevant item and 0 for the other.
    relevant = csr_array([[1, 1, 0]])
    one = expected_exposure(np.array([[0, 2]]), relevant, 2, patience=0.5)
    assert one.disparity[0] == pytest.approx(1 + 0.25)
    assert one.relevance[0] == pytest.approx(0.75)
    assert one.loss[0] == pytest.approx(0.25**2 + 0.75**2 + 0.5**2)
    # Drawn with both orders of the relevant items, exposure is the target.
    both = expected_exposure(np.array([[[0, 1]], [[1, 0]]]), relevant, 2, patience=0.5)
    assert both.loss[0] == pytest.approx(0, abs=1e-15)
    assert both.disparity[0] == both.relevance[0] == pytest.approx(2 * 0.75**2)


def test_the_places_after_the_relevant_items_are_for_the_others():
    # One relevant item of three: its target is 1, that of each other 0.5 / 2.
    found = expected_exposure(np.array([[1, 0]]), csr_array([[1, 0, 0]]), 2, patience=0.5)
    assert found.loss[0] == pytest.approx((0.5 - 1) ** 2 + (1 - 0.25) ** 2 + 0.25**2)
    groups = membership(np.array([0, 0, 1]))
    by_group = expected_exposure(
        np.array([[1, 0]]), csr_array([[1, 0, 0]]), 2, members=groups, patience=0.5
    )
    assert by_group.disparity[0] == pytest.approx(1.5**2)
    assert by_group.relevance[0] == pytest.approx(1.5 * 1.25)
    assert by_group.loss[0] == pytest.approx((1.5 - 1.25) ** 2 + 0.25**2)


@given(seeds)
def test_expected_exposure_is_the_mean_over_ideal_lists_that_were_drawn(seed):
    # The target by drawing: the relevant items in a random order, then the others.
    rng = np.random.default_rng(seed)
    lists, relevant, _ = random_lists(rng, n_users=2, n_items=5, k=3)
    found = expected_exposure(lists, csr_array(relevant), 3)
    weights = 0.85 ** np.arange(3)
    for user, (shown, wanted) in enumerate(zip(lists, relevant, strict=True)):
        if not wanted.any():
            assert math.isnan(found.loss[user])
            continue
        n = int(wanted.sum())
        places = np.append(weights, [0, 0])
        target = np.where(wanted, places[:n].mean(), places[n:].mean() if n < 5 else 0)
        exposure = np.zeros(5)
        exposure[shown] = weights
        assert found.loss[user] == pytest.approx(((exposure - target) ** 2).sum(), abs=1e-12)
        assert found.relevance[user] == pytest.approx(exposure @ target)


@given(seeds)
def test_single_items_as_groups_are_items(seed):
    lists, relevant, _ = random_lists(np.random.default_rng(seed))
    alone = expected_exposure(lists, csr_array(relevant), 4)
    grouped = expected_exposure(lists, csr_array(relevant), 4, members=membership(np.arange(9)))
    for name in ("disparity", "relevance", "loss"):
        np.testing.assert_allclose(getattr(alone, name), getattr(grouped, name), atol=1e-12)


def test_patience_is_a_probability():
    with pytest.raises(ValueError, match="patience = 0 is not"):
        expected_exposure(LISTS, csr_array((3, 4)), 2, patience=0)


# ---- Attention-weighted rank fairness


def test_awrf_by_hand():
    second = 1 / math.log2(3)
    found = attention_weighted_rank_fairness(LISTS, GROUPS, 2)
    # The catalogue is half popular. The second list is popular alone: m = (1/4, 3/4).
    apart = (math.log2(4 / 3) + (math.log2(2) + math.log2(2 / 3)) / 2) / 2
    assert found[1] == found[2] == pytest.approx(1 - apart)
    popular = 1 / (1 + second)
    theirs = jensenshannon([popular, 1 - popular], [0.5, 0.5], base=2) ** 2
    assert found[0] == pytest.approx(1 - theirs)
    assert math.isnan(attention_weighted_rank_fairness(EMPTY_LIST, GROUPS, 2)[0])


def test_awrf_is_1_where_attention_is_as_the_target():
    alike = np.array([0.5, 0.5])
    found = attention_weighted_rank_fairness(np.array([[0, 2]]), GROUPS, 2, weights=alike)
    assert found[0] == 1
    target = np.array([0.0, 1.0])  # all of it to the popular
    found = attention_weighted_rank_fairness(LISTS, GROUPS, 1, target=target)
    np.testing.assert_allclose(found, [1, 1, 0])


# ---- RSP and REO


def test_parity_of_groups_by_hand():
    # taken: user 0 item 1, user 2 items 2 and 3. Left: popular 6 - 1, tail 6 - 2; shown 3 and 2.
    taken = csr_array([[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1]])
    chances = np.array([3 / 5, 2 / 4])
    assert statistical_parity(LISTS, taken, GROUPS, 2) == pytest.approx(
        chances.std() / chances.mean()
    )
    # relevant: popular 3, of which 2 are shown; tail 2, of which 1.
    relevant = csr_array([[1, 1, 1, 0], [0, 1, 0, 1], [0, 0, 0, 0]])
    chances = np.array([2 / 3, 1 / 2])
    assert equal_opportunity(LISTS, relevant, GROUPS, 2) == pytest.approx(
        chances.std() / chances.mean()
    )


def test_parity_is_0_at_equal_chances_and_nan_without_any():
    nothing = csr_array((3, 4), dtype=np.int64)
    assert statistical_parity(np.array([[0], [2]]), nothing[:2], GROUPS, 1) == 0
    assert math.isnan(equal_opportunity(LISTS, nothing, GROUPS, 2))
    assert math.isnan(statistical_parity(LISTS, nothing, membership(np.ones(4, int)), 2))


@given(seeds)
def test_parity_agrees_with_loops_over_users(seed):
    lists, relevant, taken = random_lists(np.random.default_rng(seed))
    groups = np.arange(9) % 3
    rsp, reo = [], []
    for group in range(3):
        items = np.flatnonzero(groups == group)
        shown = [set(items) & set(one[:4]) for one in lists]
        left = sum(int((~had[items]).sum()) for had in taken)
        rsp.append(sum(map(len, shown)) / left)
        hit = sum(int(wanted[list(one)].sum()) for one, wanted in zip(shown, relevant, strict=True))
        wanted = int(relevant[:, items].sum())
        reo.append(hit / wanted if wanted else math.nan)
    reo = np.array(reo)[~np.isnan(reo)]
    members = membership(groups)
    expected = np.std(rsp) / np.mean(rsp)
    assert statistical_parity(lists, csr_array(taken), members, 4) == pytest.approx(expected)
    found = equal_opportunity(lists, csr_array(relevant), members, 4)
    if len(reo) > 1 and reo.any():
        assert found == pytest.approx(reo.std() / reo.mean())
    else:
        assert math.isnan(found)


# ---- Popularity of lists


def test_popularity_of_lists_by_hand():
    counts = np.array([8, 4, 1, 0])
    np.testing.assert_allclose(average_popularity(LISTS, counts, 2), [4.5, 6, 0])
    np.testing.assert_allclose(tail_share(LISTS, POPULAR, 2), [0.5, 0, 1])
    np.testing.assert_allclose(tail_count(LISTS, POPULAR, 2), [1, 0, 1])
    # -log2 of 8/16, 4/16, 1/16; item 3, which nobody took, counts as taken once
    np.testing.assert_allclose(novelty(LISTS, counts, 16, 2), [(1 + 4) / 2, (2 + 1) / 2, 4])


def test_an_empty_list_has_no_popularity():
    counts = np.arange(4)
    for found in (
        average_popularity(EMPTY_LIST, counts, 2),
        tail_share(EMPTY_LIST, POPULAR, 2),
        tail_count(EMPTY_LIST, POPULAR, 2),
        novelty(EMPTY_LIST, counts, 5, 2),
    ):
        assert np.isnan(found).all()


# ---- Diversity and entropy


def test_diversity_by_hand():
    # items 0 and 1 are the same, 2 is at 45 degrees to them, 3 has no vector
    vectors = csr_array([[1.0, 0.0], [2.0, 0.0], [1.0, 1.0], [0.0, 0.0]])
    lists = np.array([[0, 1, -1], [0, 2, 1], [0, 3, 1], [2, -1, -1]])
    found = intra_list_diversity(lists, vectors, 3)
    away = 1 - math.sqrt(0.5)
    np.testing.assert_allclose(found, [0, (2 * away + 0) / 3, 2 / 3, math.nan], atol=1e-12)


@given(seeds)
def test_diversity_is_the_mean_over_pairs_of_sklearn(seed):
    rng = np.random.default_rng(seed)
    lists, vectors, _ = random_lists(rng)
    vectors = vectors.T.astype(float)  # (9, 6)
    found = intra_list_diversity(lists, csr_array(vectors), 4)
    apart = cosine_distances(vectors)
    for user, shown in enumerate(lists[:, :4]):
        pairs = apart[np.ix_(shown, shown)][np.triu_indices(4, 1)]
        assert found[user] == pytest.approx(pairs.mean(), abs=1e-12)


def test_entropy_by_hand_and_as_scipy():
    assert entropy(np.array([2, 2, 2])) == pytest.approx(1)
    assert entropy(np.array([0, 5, 0])) == 0
    assert entropy(np.array([1, 1, 0, 0])) == pytest.approx(1 / 2)
    counts = np.array([5, 0, 2, 9])
    assert entropy(counts) == pytest.approx(scipy_entropy(counts) / math.log(4))
    assert math.isnan(entropy(np.zeros(3)))


def test_the_worst_off_of_providers_that_share_items():
    # a: item 0 and half of item 1, b: the other half and item 2; item 3 has no provider
    parts = shared_membership([{"a"}, {"a", "b"}, {"b"}, set()])
    counts = np.array([4, 2, 1, 9])
    assert worst_off_share(counts, parts) == pytest.approx((2 / 7) / (1.5 / 3))
