"""The first method against the others, user by user, at the end of long runs."""

from pathlib import Path

import numpy as np
import pytest

from fairhorizon.datasets import DataSpec
from fairhorizon.evaluation.long_term import LongRunSettings
from fairhorizon.methods import Method
from fairhorizon.studies.long_results import differences
from fairhorizon.studies.long_term import LongStudy, NamedMethod
from fairhorizon.studies.study import Study

MARKET = DataSpec(source="synthetic:users=60,items=80,interactions_per_user=20")
SETTINGS = LongRunSettings(steps=12, alpha_prime=0.3, warm_up=5)


def test_paired_over_users_with_the_mean_over_seeds() -> None:
    nobody = np.nan  # likes no item
    ndcg = {
        "a": [np.array([0.1, 0.3, 0.5, nobody]), np.array([0.3, 0.5, 0.9, nobody])],
        "b": [np.array([0.1, 0.2, 0.3, nobody]), np.array([0.1, 0.2, 0.3, nobody])],
    }
    (row,) = differences("a", ndcg, [0, 1])
    # users' means 0.2, 0.4, 0.7 less 0.1, 0.2, 0.3: differences 0.1, 0.2, 0.4
    assert row.difference == pytest.approx(0.7 / 3)
    half = 4.302652729911275 * np.std([0.1, 0.2, 0.4], ddof=1) / 3**0.5  # t(0.975, 2)
    assert (row.low, row.high) == pytest.approx((0.7 / 3 - half, 0.7 / 3 + half))
    assert (row.method, row.rival, row.seeds, row.users) == ("a", "b", (0, 1), 3)
    assert not row.is_shown
    (back,) = differences("b", ndcg, [0, 1])
    assert back.difference == pytest.approx(-0.7 / 3)


def test_without_values_of_the_method_nothing_is_compared() -> None:
    assert differences("a", {"b": [np.ones(2)]}, [0]) == []
    (row,) = differences("a", {"a": [np.ones(1)], "b": [np.zeros(1)]}, [0])
    assert (row.difference, row.low, row.high, row.is_shown) == (1.0, None, None, False)


def test_runs_store_the_ndcg_of_each_user(tmp_path: Path) -> None:
    long_study = LongStudy(Study(tmp_path, MARKET, ks=(1,)), SETTINGS)
    chosen = [NamedMethod.at_limit(Method.parse(name), 0.3) for name in ("ease", "popularity")]
    assert long_study.ndcg_of_users(chosen, [0, 1]) == {}  # before they are run
    long_study.run(chosen, [0, 1])
    ndcg = long_study.ndcg_of_users(chosen, [0, 1])
    result = long_study.result(chosen, [0, 1])
    for row in result.rows:
        of_seeds = [float(np.nanmean(run)) for run in ndcg[row.method]]
        assert np.mean(of_seeds) == pytest.approx(row.metrics["ndcg"].mean)
    (difference,) = result.differences
    means = [row.metrics["ndcg"].mean or 0.0 for row in result.rows]
    assert difference.difference == pytest.approx(means[0] - means[1])
    assert result.to_json()["differences"] == [difference.to_json()]


def test_a_run_of_an_older_version_is_left_out(tmp_path: Path) -> None:
    long_study = LongStudy(Study(tmp_path, MARKET, ks=(1,)), SETTINGS)
    names = ("popularity", "ease", "itemknn")
    chosen = [NamedMethod.at_limit(Method.parse(name), 0.3) for name in names]
    long_study.run(chosen, [0])
    for left_out, expected in (("ease", ["itemknn"]), ("popularity", [])):
        record = long_study.task(chosen[names.index(left_out)], 0).record()
        counts = record.counts()
        assert counts is not None
        np.savez_compressed(record.counts_file, allow_pickle=False, **vars(counts))
        assert record.of_users("ndcg") is None
        assert record.is_finished(12)
        assert [row.rival for row in long_study.result(chosen, [0]).differences] == expected
