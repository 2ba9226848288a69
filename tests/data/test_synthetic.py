"""The synthetic market: seeded, skewed, and its log follows its truth."""

import importlib

import numpy as np
import pytest

from fairhorizon.data.loading import load
from fairhorizon.data.synthetic import synthetic, synthetic_market
from fairhorizon.errors import ConfigError


def test_same_seed_same_log():
    first, same, other = (synthetic(50, 40, 10, seed=seed) for seed in (3, 3, 4))
    assert first.interactions.fingerprint() == same.interactions.fingerprint()
    assert first.interactions.fingerprint() != other.interactions.fingerprint()


def test_sizes_order_and_distinct_pairs():
    log = synthetic(300, 200, 30, seed=1).interactions
    assert (log.n_users, log.n_items) == (300, 200)
    assert len(np.unique(log.users * 200 + log.items)) == len(log)
    assert np.all(np.diff(log.timestamps) >= 0)
    assert set(log.ratings.tolist()) <= {1, 2, 3, 4, 5}
    counts = log.user_counts()
    assert counts.min() >= 1
    assert counts.mean() == pytest.approx(30, rel=0.1)
    assert counts.std() > 10  # gamma-Poisson: sqrt(30 + 30^2 / 4) = 16


def test_log_follows_exposure_and_taste():
    market = synthetic(1000, 200, 20, seed=0)
    log = market.interactions
    counts = np.sort(log.item_counts())[::-1]
    assert counts[:40].sum() > 0.5 * counts.sum()
    assert np.corrcoef(market.exposure, log.item_counts())[0, 1] > 0.7
    assert market.relevance[log.users, log.items].mean() > 1.3 * market.relevance.mean()
    assert np.corrcoef(market.relevance[log.users, log.items], log.ratings)[0, 1] > 0.6
    assert market.exposure.sum() == pytest.approx(1)


def test_without_skew_exposure_is_even():
    assert np.ptp(synthetic(5, 50, 5, popularity_skew=0).exposure) == 0


def test_relevance_is_a_probability_and_of_the_stated_spread():
    market = synthetic(800, 300, 5, dim=6)
    assert market.relevance.shape == (800, 300)
    assert market.relevance.min() > 0
    assert market.relevance.max() < 1
    assert np.mean((market.tastes @ market.traits.T) ** 2) == pytest.approx(4, rel=0.1)


def test_chunks_cover_every_user(monkeypatch):
    module = importlib.import_module("fairhorizon.data.synthetic")
    monkeypatch.setattr(module, "CELLS", 70)  # 7 users at once
    log = synthetic(23, 10, 4).interactions
    assert log.user_counts().min() >= 1
    assert log.users.max() == 22


def test_more_interactions_than_items_takes_all_items():
    assert synthetic(4, 3, 1000).interactions.user_counts().tolist() == [3, 3, 3, 3]


@pytest.mark.parametrize(
    "setting", [{"users": 0}, {"items": 0}, {"dim": 0}, {"popularity_skew": -1.0}, {"seed": -1}]
)
def test_impossible_markets(setting):
    with pytest.raises(ConfigError):
        synthetic(**setting)


KINDS = ("synthetic-sparse", "synthetic-baskets", "synthetic-trends")


def tied(log) -> float:
    """The share of rows whose user has another row at the same time."""
    moments = log.users * 10**12 + log.timestamps
    _, inverse, counts = np.unique(moments, return_inverse=True, return_counts=True)
    return float((counts[inverse] > 1).mean())


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_of_log_are_seeded_in_time_order_and_follow_taste(kind):
    market = synthetic_market(f"{kind}:users=300,items=200,seed=3")
    log, same, other = (load(f"{kind}:users=300,items=200,seed={seed}") for seed in (3, 3, 4))
    assert log.fingerprint() == same.fingerprint() == market.interactions.fingerprint()
    assert log.fingerprint() != other.fingerprint()
    assert (log.n_users, log.n_items) == (300, 200)
    assert np.all(np.diff(log.timestamps) >= 0)
    assert len(np.unique(log.users * 200 + log.items)) == len(log)
    assert market.relevance[log.users, log.items].mean() > 1.3 * market.relevance.mean()
    assert market.exposure.sum() == pytest.approx(1)


def test_a_sparse_log_has_few_rows_per_user_and_days_as_times():
    log = load("synthetic-sparse")
    counts = log.user_counts()
    assert counts.mean() == pytest.approx(9, rel=0.05)
    assert np.median(counts) == pytest.approx(9 * np.log(2), abs=0.5)  # exponential activity
    assert log.timestamps.max() < 30_000  # days, not seconds
    assert 0.3 < tied(log) < 0.8


def test_baskets_share_a_time_and_are_sorted_by_item():
    log = load("synthetic-baskets")
    assert tied(log) > 0.9
    same = (np.diff(log.timestamps) == 0) & (np.diff(log.users) == 0)
    assert same.mean() > 0.7
    assert np.all(np.diff(log.items)[same] > 0)


def test_baskets_have_repeated_purchases_that_the_log_merges():
    """25 baskets of 8 items from a repertoire: far fewer distinct items than purchases."""
    counts = load("synthetic-baskets:users=300").user_counts()
    assert counts.mean() < 0.8 * 25 * 8


@pytest.mark.slow
def test_trends_come_and_go():
    """Attention halves every 45 days, so an item has nearly all of its rows within 7 half-lives
    of its first, and what is popular in one half-year is not in another."""
    log = load("synthetic-trends")
    halves = np.array_split(np.arange(len(log)), 4)
    early, late = (np.bincount(log.items[rows], minlength=800) for rows in (halves[0], halves[3]))
    assert np.corrcoef(early, late)[0, 1] < 0
    lasting = load("synthetic-trends:half_life=1e6")
    halves = np.array_split(np.arange(len(lasting)), 4)
    early, late = (
        np.bincount(lasting.items[rows], minlength=800) for rows in (halves[2], halves[3])
    )
    assert np.corrcoef(early, late)[0, 1] > 0.3


def test_an_impossible_half_life_is_refused():
    with pytest.raises(ConfigError, match="half_life must be above 0, not -1"):
        load("synthetic-trends:half_life=-1")
