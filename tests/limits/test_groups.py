"""Item groups by exposure and by attribute."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fairhorizon.errors import ConfigError, DataError
from fairhorizon.limits.groups import attribute_group, popular_group, recent_group


def test_highest_counts_with_ties_to_the_smaller_index():
    counts = np.array([3, 9, 3, 9, 3, 0, 0, 0, 0, 0])
    assert np.flatnonzero(popular_group(counts, 0.3)).tolist() == [0, 1, 3]


@pytest.mark.parametrize(
    ("items", "share", "size"),
    [(1682, 0.2, 336), (3706, 0.2, 741), (5, 0.5, 3), (3, 0.0, 0), (3, 1.0, 3), (0, 0.2, 0)],
)
def test_size_rounds_half_up(items, share, size):
    assert popular_group(np.zeros(items), share).sum() == size


def test_unsigned_counts_are_ordered_by_value():
    assert popular_group(np.array([0, 1, 2], dtype=np.uint8), 0.34).tolist() == [False, False, True]


@settings(deadline=None)
@given(
    arrays(np.int64, st.integers(1, 40), elements=st.integers(0, 5)),
    st.floats(0, 1),
    st.randoms(use_true_random=False),
)
def test_no_item_outside_is_more_popular_and_order_does_not_matter(counts, share, random):
    group = popular_group(counts, share)
    if group.any() and not group.all():
        assert counts[group].min() >= counts[~group].max()
    shuffled = np.array(random.sample(range(len(counts)), len(counts)))
    again = popular_group(counts[shuffled], share)
    assert sorted(counts[shuffled][again]) == sorted(counts[group])


@pytest.mark.parametrize(
    ("counts", "share"), [([1], -0.1), ([1], 1.1), ([1], np.nan), ([np.nan], 0.2), ([[1]], 0.2)]
)
def test_bad_share_or_counts(counts, share):
    with pytest.raises(ConfigError):
        popular_group(counts, share)


def test_attribute_values_split_at_bars():
    values = np.array(["Drama|Comedy", "War", "Comedy", "Dramatic"], dtype=object)
    assert attribute_group(values, ["Drama", "War"]).tolist() == [True, True, False, False]
    assert attribute_group(values, "Comedy").tolist() == [True, False, True, False]


def test_unknown_attribute_value_lists_the_known():
    with pytest.raises(DataError, match=r"'Horror' \(the values are Comedy, War\)"):
        attribute_group(["War", "Comedy"], {"Horror", "War"})


def test_recent_items_are_counted_back_from_the_newest_date():
    dates = np.array(
        ["2026-03-31", "2026-03-02", "2026-03-01", "", "2026-03-31T01:00+02:00", "2025-12-31"],
        dtype=object,
    )
    # 30 days up to March 31 begin after March 1; 1 a.m. in the zone +02:00 is still March 30.
    assert recent_group(dates, 30).tolist() == [True, True, False, False, True, False]
    assert recent_group(dates, 1).tolist() == [True, False, False, False, True, False]
    assert recent_group(["", ""], 30).tolist() == [False, False]


def test_what_is_no_date_is_named():
    with pytest.raises(DataError, match=r"'soon' is no date \(give it as in 2026-03-31\)"):
        recent_group(["2026-03-31", "soon"], 30)
