"""Limits with hardly any room never leave a list short, and are exceeded by one list at most."""

import numpy as np
import pytest

from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.allocation.limit_matrix import GroupRule
from fairhorizon.limits.place_rule import PlaceRule

SELLERS = 700
ITEMS = 2000


def owners() -> np.ndarray:
    """(n_items,) the seller of each item; every seller has one, the first ones have many."""
    weights = 1 / np.arange(1, SELLERS + 1)
    draws = np.random.default_rng(0).choice(SELLERS, ITEMS - SELLERS, p=weights / weights.sum())
    return np.concatenate([np.arange(SELLERS), draws])


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.05, 0.002])
@pytest.mark.parametrize("length", [1, 5, 10, 20])
def test_lists_are_full_and_no_seller_exceeds_its_share_by_more_than_a_list(share, length):
    owner = owners()
    guard = ExposureGuard([GroupRule(PlaceRule(share), owner == s) for s in range(SELLERS)])
    draw, counts, items = np.random.default_rng(1), np.zeros(SELLERS), np.arange(ITEMS)[None]
    for request in range(1, 301):
        values = draw.normal(size=(1, ITEMS))
        (shown,) = guard.serve_all(items, values, None, length)
        assert len(set(shown.tolist())) == length
        assert shown.min() >= 0
        counts += np.bincount(owner[shown], minlength=SELLERS)
        assert (counts <= share * request * length + length + 1e-9).all()
