"""The large log: seeded, skewed, followed by rankers, and no cell per user and item."""

import tracemalloc

import numpy as np
import pytest

from fairhorizon.data import large as module
from fairhorizon.data.large import large_log
from fairhorizon.data.loading import is_named, load
from fairhorizon.data.splits import split
from fairhorizon.data.synthetic import market_of
from fairhorizon.errors import ConfigError
from fairhorizon.evaluation.short_term import evaluate
from fairhorizon.rankers import RANKERS
from fairhorizon.recommenders.ranked.model import Ranked


def test_same_seed_same_rows_and_the_name_gives_them():
    source = "synthetic-large:users=200,items=300,interactions=6000,seed=3"
    first, same, other = (load(source.replace("=3", f"={seed}")) for seed in (3, 3, 4))
    assert first.fingerprint() == same.fingerprint()
    assert first.fingerprint() == large_log(200, 300, 6000, seed=3).fingerprint()
    assert first.fingerprint() != other.fingerprint()
    assert first.name == source
    assert is_named(source)
    assert market_of(source) is None  # it has no truth beside it


def test_as_many_distinct_rows_as_wanted_in_time_order():
    log = large_log(1000, 3000, 50_000, seed=1)
    assert (log.n_users, log.n_items, len(log)) == (1000, 3000, 50_000)
    assert len(np.unique(log.users * 3000 + log.items)) == 50_000
    assert np.all(np.diff(log.timestamps) >= 0)
    by_user = np.lexsort((log.timestamps, log.users))
    within = np.diff(log.users[by_user]) == 0
    assert np.all(np.diff(log.timestamps[by_user])[within] > 0)  # no two rows of a user at a time
    assert np.ptp(log.timestamps) > 300 * 86_400


def test_popularity_and_activity_have_heavy_tails_and_every_item_has_rows():
    log = large_log(5000, 5000, 250_000, seed=0)
    counts, activity = np.sort(log.item_counts())[::-1], log.user_counts()
    assert counts[:1000].sum() / 250_000 == pytest.approx(0.8, abs=0.04)
    assert counts.min() >= 1
    assert activity.min() >= 10
    assert activity.max() > 8 * np.median(activity)
    few = large_log(5000, 5000, 50_000, seed=0)
    assert few.item_counts().min() == 1
    assert few.user_counts().min() == 5


def test_rows_are_drawn_in_blocks_of_users(monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ROWS", 100)
    log = large_log(50, 400, 1000, seed=2)
    assert len(log) == 1000
    assert log.user_counts().min() >= 10


def test_memory_grows_with_rows_not_with_users_times_items():
    """20,000 x 20,000 cells would be 400 MB as bytes; 100,000 rows are below 100 bytes each."""
    tracemalloc.start()
    large_log(20_000, 20_000, 100_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


def test_neighbours_tell_more_than_popularity_and_recent_ones_most():
    parts = split(large_log(600, 600, 24_000, seed=1))
    found = {}
    for name, settings in (
        ("popularity", {}),
        ("itemknn:recent", {}),
        ("itemknn:recent", {"half_life": None}),
    ):
        ranker = RANKERS[name]
        model = Ranked(ranker(ranker.config_class(**settings))).fit(parts)
        found[name, *settings] = evaluate(model, parts).metrics["ndcg@20"]
    assert found["itemknn:recent",] > 1.3 * found["popularity",]
    assert found["itemknn:recent",] > 1.1 * found["itemknn:recent", "half_life"]


def test_nobody_takes_more_than_half_of_the_items():
    log = large_log(4, 10, 400)
    assert log.user_counts().tolist() == [5, 5, 5, 5]


def test_text_ids_are_in_the_order_of_the_codes():
    log, plain = (large_log(30, 40, 300, text_ids=text) for text in (1, 0))
    assert log.item_ids.tolist()[:2] == ["sku-000000000000", "sku-000000000001"]
    assert log.user_ids.tolist() == sorted(log.user_ids.tolist())
    assert log.items.tolist() == plain.items.tolist()


@pytest.mark.parametrize("setting", ["users=0", "interactions=0", "seed=-1", "popularity_skew=-1"])
def test_impossible_logs(setting):
    with pytest.raises(ConfigError, match="synthetic-large needs"):
        load(f"synthetic-large:{setting}")
