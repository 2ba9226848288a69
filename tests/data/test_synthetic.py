"""The synthetic market: seeded, skewed, and its log follows its truth."""

import importlib

import numpy as np
import pytest

from fairhorizon.data.synthetic import synthetic
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
