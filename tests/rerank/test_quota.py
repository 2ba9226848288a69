"""The quota: no list has more of the group than q K, and none is better by score."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fairhorizon.ranking import best_lists
from fairhorizon.rerank.quota import Quota


@pytest.mark.parametrize(
    ("share", "length", "allowance"),
    [(0.4, 20, 8), (0.4, 5, 2), (0.6, 5, 3), (0.35, 10, 3), (0.28, 25, 7), (0, 10, 0), (1, 10, 10)],
)
def test_the_allowance_is_the_floor_of_q_k(share, length, allowance):
    assert Quota(share=share).allowance(length) == allowance


@given(
    st.lists(st.integers(-50, 50), min_size=7, max_size=7, unique=True),
    st.lists(st.booleans(), min_size=7, max_size=7),
    st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]),
)
def test_the_best_sum_of_scores_within_the_quota(scores, group, share):
    """Against all lists of four of seven items; full where that many can be shown."""
    most = Quota(share=share).allowance(4)
    (shown,) = best_lists(torch.tensor([scores]).float(), torch.tensor(group), 4, most).tolist()
    shown = [item for item in shown if item >= 0]
    size = min(4, group.count(False) + min(most, group.count(True)))
    allowed = [
        sum(scores[item] for item in items)
        for items in combinations(range(7), size)
        if sum(group[item] for item in items) <= most
    ]
    assert len(shown) == size
    assert sum(group[item] for item in shown) <= most
    assert sum(scores[item] for item in shown) == max(allowed)


def test_the_level_is_the_share():
    assert Quota().at_level(0.3) == Quota(share=0.3)
    assert Quota(share=0.3).share_limit(torch.tensor([True, False])) == 0.3
    with pytest.raises(ValidationError):
        Quota().at_level(1.2)
