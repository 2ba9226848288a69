"""A row per limit and method, over seeds: counted again from the lists of a study."""

import json
import math
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairhorizon.datasets import DataSpec, bound_limits
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.methods import Method
from fairhorizon.studies.level_search import methods_at_limits, run_levels
from fairhorizon.studies.levels import limit_rows
from fairhorizon.studies.long_results import run_limit_rows
from fairhorizon.studies.study import Study, study_limits

MARKET = DataSpec(source="synthetic:users=25,items=30,interactions_per_user=8")
TEXTS = ("popular<=0.3", "gini<=0.2")
SEEDS = (0, 1)


@pytest.fixture
def study(tmp_path: Path) -> Study:
    limits = bound_limits([Limit.parse(text) for text in TEXTS], MARKET, None)
    return Study(tmp_path, MARKET, ks=(5,), limits=tuple(limits))


def test_a_method_without_a_level_is_served_under_limits_that_it_keeps(study: Study) -> None:
    names = ("ease+control", "ease", "ease+lists@0.5")
    methods = [Method.parse(name) for name in names]
    study.run(methods, SEEDS)
    rows = study_limits(study, methods, SEEDS)
    assert [(row.limit, row.method) for row in rows] == [
        (text, name) for text in TEXTS for name in names
    ]
    popular = study.limits[0].members
    for row, method in zip(rows[:3], methods, strict=True):
        lists = [study.lists(method, seed) for seed in SEEDS]
        shares = [float(popular[some].mean()) for some in lists]
        assert row.reached == pytest.approx(np.mean(shares))
        assert row.kept == all(share <= 0.3 for share in shares)
        too_many = [int(popular[some].sum()) - math.floor(0.3 * some.size) for some in lists]
        assert row.violations == sum(max(0, number) for number in too_many)
        assert (row.n_lists, row.seeds) == (50, SEEDS)
        first = [float(popular[some[:, 0]].mean()) for some in lists]
        assert row.at == {1: pytest.approx(np.mean(first)), 5: pytest.approx(row.reached)}
    assert [row.kept for row in rows[:3]] == [True, False, False]
    assert all(row.violations is None for row in rows[3:])
    # under other limits a result is another one, and one that none is served under stays
    plain = Study(study.folder, MARKET, ks=(5,))
    assert plain.row(methods[0], 0) is None
    assert plain.row(methods[1], 0) is not None


def test_each_method_of_a_study_of_levels_has_its_limit(tmp_path: Path) -> None:
    study = Study(tmp_path, MARKET, ks=(5,))
    limits = [Limit.parse("popular<=0.3"), Limit.parse("popular<=0.01")]
    methods = [Method.parse("ease+lists"), Method.parse("popularity")]
    run_levels(study, methods, limits, SEEDS, tries=0)
    found = methods_at_limits(study, methods, limits, SEEDS, tries=0)
    rows = list(limit_rows(study, found, SEEDS))
    assert [(row.limit, row.method) for row in rows] == [
        *(("popular<=0.3", "ease+lists"), ("popular<=0.3", "popularity")),
        *(("popular<=0.01", "ease+lists"), ("popular<=0.01", "popularity")),
    ]
    assert [row.kept for row in rows] == [True, False, True, False]
    assert [row.reached is None for row in rows] == [False, True, False, True]
    made = [study.made(Method.parse("ease+lists@0.3"), seed) for seed in SEEDS]
    prices = [row.prices["popular<=0.3"] for row in made]
    assert rows[0].price == pytest.approx(np.mean(prices))
    assert min(prices) > 0
    assert json.loads(json.dumps(rows[0].to_json()))["at"] == {
        str(place): rows[0].at[place] for place in (1, 5)
    }


def test_long_runs_by_hand() -> None:
    """Two seeds of three steps, the first of which is the warm-up."""
    floor = ResolvedLimit(Limit.parse("shop=Corner>=0.3"), np.ones(4, bool))
    by_list = ResolvedLimit(Limit.parse("shop=Corner<=0.3;scope=list"), np.ones(4, bool))
    rates = {0: (0.9, 0.5, 0.4), 1: (0.2, 0.3, 0.2)}
    short = {0: (0.2, 0.1, -0.1), 1: (0.0, 0.0, 0.05)}  # below the floor
    steps = pl.DataFrame(
        [
            {
                **{"method": "fcpo", "seed": seed, "step": step + 1},
                "limited_rate": rates[seed][step],
                "price": [0.1, 0.2, 0.3 + seed][step],
                "notes": json.dumps(
                    {
                        "excess of shop=Corner>=0.3": short[seed][step],
                        "price of shop=Corner>=0.3": 2.0 + step,
                        "excess of shop=Corner<=0.3;scope=list": 0.25,
                    }
                ),
            }
            for seed in (0, 1)
            for step in range(3)
        ]
    )
    main = Limit.parse("popular<=0.4")
    first, second, third = run_limit_rows(steps, 1, main, [floor, by_list])
    assert (first.limit, first.method, first.seeds) == ("popular<=0.4", "fcpo", (0, 1))
    assert (first.reached, first.price) == (pytest.approx(0.3), pytest.approx(0.8))
    assert (first.violations, first.kept) == (1, False)  # seed 0 at step 2
    assert (second.limit, second.is_floor) == ("shop=Corner>=0.3", True)
    assert second.reached == pytest.approx((0.4 + 0.25) / 2)
    assert (second.violations, second.kept, second.price) == (2, False, 4.0)
    assert (third.reached, third.violations, third.price) == (None, 4, None)
    assert (third.n_lists, third.weighed, third.at) == (0, None, {})
    # without a step after the warm-up the end counts
    (last,) = run_limit_rows(steps, 3, main, [])
    assert (last.violations, last.kept) == (0, True)
