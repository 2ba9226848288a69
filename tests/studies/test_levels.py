"""Levels are searched for rivals, rivals picked in their favour, ours held against the best."""

import math
import pickle
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import sem

from fairhorizon.datasets import DataSpec
from fairhorizon.errors import ConfigError
from fairhorizon.files import write_json
from fairhorizon.limits.language import Limit
from fairhorizon.methods import Method
from fairhorizon.metrics.significance import paired_t_test
from fairhorizon.studies.level_search import (
    NEAR,
    TRIES,
    MethodAtLimit,
    SearchTask,
    best_setting,
    is_ours,
    methods_at_limits,
    run_levels,
    tried,
)
from fairhorizon.studies.levels import (
    LEVELS,
    METHODS,
    GainRow,
    LevelRow,
    by_place,
    gains,
    is_without_cpo,
    level_rows,
    ndcg_of,
    parts_of,
)
from fairhorizon.studies.rows import StudyRow
from fairhorizon.studies.study import Study
from fairhorizon.vocabulary import Mode, Protocol

MARKET = DataSpec(source="synthetic:users=60,items=80,interactions_per_user=20")
TINY = {
    "fcpo": {
        **{"warm_start": ["ease", "itemknn"], "rounds": 0, "gru_hidden": 4},
        **{"pmf": {"dim": 4, "max_epochs": 2}, "actor_hidden": [4, 4], "critic_hidden": [4, 4]},
    }
}
K = 20
HALF = Limit.popular(0.5)
QUOTA, FOE, PENALTY = (Method("ease", name) for name in ("quota", "foe", "penalty"))


def methods(*names: str) -> list[Method]:
    return [Method.parse(name) for name in names]


def limits(*shares: float) -> list[Limit]:
    return [Limit.popular(share) for share in shares]


def result(rate: float | None, ndcg: float | None = 0.1, k: int = K) -> StudyRow:
    return row(Method("ease"), 0, {f"popularity_rate@{k}": rate, f"ndcg@{k}": ndcg})


def row(method: Method, seed: int, metrics: Mapping[str, float | None]) -> StudyRow:
    return StudyRow(
        dataset="d",
        method=str(method),
        protocol=Protocol.STANDARD,
        mode=Mode.ONE_SHOT,
        seed=seed,
        alpha_prime=1.0,
        metrics=metrics,
        settings={},
        seconds={"fit": 1.0, "evaluate": 1.0},
        notes=(),
    )


def search(
    method: Method, levels: list[float], rate: Callable[[float], float]
) -> list[tuple[Method, StudyRow]]:
    """With a rate that is a function of where the dial stands, and an NDCG that grows with it."""

    def measure(setting: Method) -> StudyRow:
        assert setting.level is not None
        value = rate(setting.level)
        return result(value, value)

    return list(tried(method, levels, K, measure))


def found(results: list[tuple[Method, StudyRow]], level: float) -> float | None:
    """The rate of the setting picked."""
    setting = best_setting(results, level, K)
    return dict(results)[setting].metrics[f"popularity_rate@{K}"] if setting else None


def test_the_methods_are_ours_and_all_rivals() -> None:
    ours, *rivals = methods(*METHODS)
    assert is_ours(ours)
    assert len(rivals) == 17 + 6
    assert not any(is_ours(method) for method in rivals)
    assert {method.reranker for method in rivals} == {
        *(None, "foe", "quota", "penalty", "lists"),
        *("pmmf", "fairco", "tfrom"),
    }
    assert not any(is_ours(method) for method in methods("fcpo:start", "fcpo:strong-start"))
    assert all(is_ours(method) for method in methods("fcpo:strong", "fcpo:paper"))
    assert {"stack+lists", "ease:recent+lists", "gru4rec+lists", "popularity+quota"} < set(METHODS)


@given(st.lists(st.integers(0, 20), min_size=21, max_size=21), st.integers(1, 100))
def test_the_quota_found_is_the_loosest_that_keeps_the_level(
    shown: list[int], percent: int
) -> None:
    """Against all 21 quotas of a list of 20; shown: popular items that a list has room for."""
    level = percent / 100
    rates = [min(n, most) / 20 for n, most in enumerate(sorted(shown))]
    results = search(QUOTA, [level], lambda share: rates[math.floor(share * 20 + 1e-9)])
    best = max(rate for rate in rates if rate <= level)
    picked = found(results, level)
    assert picked is not None
    assert best - NEAR <= picked <= level
    assert len(results) <= 1 + TRIES


@given(st.floats(0.5, 1), st.floats(0.2, 5), st.sampled_from(LEVELS))
def test_a_penalty_is_found_for_rates_of_any_decay(
    plain: float, decay: float, level: float
) -> None:
    """rate = plain exp(-decay weight), of which no weight but 0 may be the right one."""
    results = search(PENALTY, [level], lambda weight: plain * math.exp(-decay * weight))
    picked = found(results, level)
    assert picked is not None
    # a step of the dial is a thousandth, which takes up to 0.005 off the rate
    assert min(level, plain) - NEAR - 0.005 <= picked <= level


def test_a_share_of_exposure_that_means_more_of_the_list_is_turned_down() -> None:
    """As fairness of exposure over all candidates does: the rate of the list is steep in it."""
    results = search(FOE, list(LEVELS), lambda share: min(0.93, share**0.5 * 1.4))
    for level in LEVELS:
        assert level - 0.005 < (found(results, level) or 0) <= level
    settings = [setting.level for setting, _ in results]
    assert len(settings) == len(set(settings)) <= 3 + 3 * TRIES


def test_a_level_out_of_reach_is_left_alone_and_a_rate_below_it_is_the_plain_ranker() -> None:
    results = search(PENALTY, [0.37], lambda _: 0.5)
    assert found(results, 0.37) is None
    assert len(results) == 5 + 4  # 8, 16, 32, and 64, the heaviest
    results = search(QUOTA, [0.85], lambda share: min(share, 0.2))
    assert [setting.level for setting, _ in results] == [0.85, 1.0]
    nothing_shown = list(tried(Method("ease"), [0.5], K, lambda _: result(None)))
    assert best_setting(nothing_shown, 0.5, K) is None


def test_a_quota_of_a_list_of_thirty_has_a_name_that_means_the_same() -> None:
    quotas = list(
        tried(QUOTA, [n / 30 for n in range(1, 31)], 30, lambda _: result(1.0, k=30), tries=0)
    )
    named = [Method.parse(str(setting)).level for setting, _ in quotas]
    assert [math.floor(level * 30 + 1e-9) for level in named if level] == list(range(1, 31))


def test_of_the_settings_that_keep_the_level_the_most_accurate_is_picked() -> None:
    one, two, three, four = methods(*(f"ease+penalty@{n}" for n in (1, 2, 3, 4)))
    results = [
        *((one, result(0.6, 0.9)), (two, result(0.4, 0.2))),
        *((three, result(0.3, 0.3)), (four, result(0.2, None))),
    ]
    assert best_setting(results, 0.5, K) == three
    assert best_setting(results, 0.4, K) == three
    assert best_setting(results, 0.25, K) == four
    assert best_setting(results, 0.1, K) is None
    assert best_setting([(one, result(0.2, None)), (two, result(0.3, None))], 0.5, K) == two


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return Study(tmp_path / "study", MARKET, ks=(10,), settings=TINY)


def put(study: Study, method: Method, seed: int, rate: float, hits: int) -> None:
    """A result by hand: a user's list begins with so many of their test items, if there are."""
    test = study.dataset().split.test
    lists = []
    for user in range(test.n_users):
        wanted = test.items[test.users == user]
        rest = np.setdiff1d(np.arange(test.n_items), wanted)
        lists.append([*wanted[:hits], *rest][:10])
    metrics = {"popularity_rate@10": rate, "ndcg@10": 0.1 * hits, "gini@10": 0.5 + 0.1 * hits}
    file = study.row_file(method, seed)
    write_json(file, row(method, seed, metrics).to_json())
    np.save(file.with_suffix(".npy"), lists)


def compared(
    study: Study, at: list[MethodAtLimit], rows: list[LevelRow], seeds: list[int]
) -> list[GainRow]:
    return gains(at, rows, ndcg_of(study, seeds), parts_of(study), max(study.ks))


def test_rows_and_gains_by_hand(study: Study) -> None:
    ours, first, second = methods("fcpo:strong@0.5", "ease+quota@0.5", "ease+quota@0.4")
    other = Method("itemknn", "quota", 0.3)
    for seed in (0, 1):
        put(study, ours, seed, rate=0.5004 + 0.0002 * seed, hits=3)
        put(study, other, seed, rate=0.3, hits=1)
    put(study, first, 0, rate=0.5, hits=2)
    put(study, second, 1, rate=0.4, hits=2)
    at = [
        MethodAtLimit(HALF, Method("fcpo", preset="strong"), (ours, ours)),
        MethodAtLimit(HALF, Method("ease", "quota"), (first, second)),
        MethodAtLimit(HALF, Method("itemknn", "quota"), (other, other)),
        MethodAtLimit(HALF, Method("itemknn", "foe"), (None, other)),
    ]
    rows = level_rows(study, at, [0, 1])
    assert [row.method for row in rows] == [
        *("fcpo:strong", "ease+quota", "itemknn+quota", "itemknn+foe")
    ]
    assert [row.above for row in rows] == [1, 0, 0, 0]  # by 0.06 points, not by 0.04
    assert [row.best_rival for row in rows] == [False, True, False, False]
    assert [row.ours for row in rows] == [True, False, False, False]
    assert rows[1].settings == ("ease+quota@0.5", "ease+quota@0.4")
    assert rows[1].setting_levels == (0.5, 0.4)
    rates = rows[1].metrics["popularity_rate@10"]
    assert (rates.mean, rates.std) == pytest.approx((0.45, 0.1 / 2**0.5))
    assert rows[3].metrics == {}
    assert rows[3].settings == (None, "itemknn+quota@0.3")

    (gain,) = compared(study, at, rows, [0, 1])
    assert (gain.method, gain.rival, gain.level) == ("fcpo:strong", "ease+quota", 0.5)
    assert gain.gain == pytest.approx(0.5)  # 0.3 against 0.2
    assert gain.gini_difference == pytest.approx(0.1)
    assert gain.rate_difference == pytest.approx(0.5005 - 0.45)
    # NDCG of three and of two hits at the top, against a list that has all of a user's test items
    discounts = 1 / np.log2(np.arange(2, 12))
    test = study.dataset().split.test
    counts = [n for n in test.user_counts() if n]
    pair = [
        [discounts[: min(hits, n)].sum() / discounts[:n].sum() for n in counts] for hits in (3, 2)
    ]
    assert gain.users == len(counts)
    assert gain.t_test == pytest.approx(paired_t_test(*pair))
    assert gain.t_test_corrected == gain.t_test  # of one test
    differences = np.subtract(*pair)
    assert gain.difference == pytest.approx(differences.mean())
    interval = scipy.stats.t.interval(0.95, len(counts) - 1, gain.difference, sem(differences))
    assert (gain.low, gain.high) == pytest.approx(interval)
    assert gain.is_shown
    assert gain.best_rival
    assert not gain.without_cpo
    assert not gain.same_parts  # ease and itemknn, against five rankers
    assert compared(study, at[1:], rows[1:], [0, 1]) == []
    assert compared(study, at[:1], rows[:1], [0, 1]) == []


def test_shares_by_place_by_hand() -> None:
    """Of two lists of 10, one begins with its five popular items and one ends with two."""
    group = np.arange(20) < 10
    first = [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    second = [15, 16, 17, 18, 19, 10, 11, 12, 8, 9]
    places = by_place(np.array([first, second]), group, Limit.popular(0.4), 10)
    weights = 1 / np.log2(np.arange(2, 12))
    weighed = (weights[:5].sum() + weights[8:].sum()) / (2 * weights.sum())
    assert places == pytest.approx(
        {
            "popularity_rate@1": 0.5,
            "popularity_rate@5": 0.5,
            "popularity_rate@10": 7 / 20,
            "weighed_rate@10": weighed,
            "lists_above@10": 0.5,  # 5 are more than ceil(0.4 * 10)
        }
    )
    assert by_place(np.array([first, second]), group, HALF, 10)["lists_above@10"] == 0


def test_the_same_without_cpo_is_a_rival_that_is_always_compared(study: Study) -> None:
    ours, start, other = methods("fcpo@0.5", "fcpo:start@0.5", "ease+quota@0.5")
    for method, hits in ((ours, 2), (start, 2), (other, 3)):
        put(study, method, 0, rate=0.5, hits=hits)
    at = [MethodAtLimit(HALF, Method.parse(one.name), (one,)) for one in (ours, start, other)]
    rows = level_rows(study, at, [0])
    assert [row.ours for row in rows] == [True, False, False]
    assert [row.best_rival for row in rows] == [False, False, True]
    against_best, against_start = compared(study, at, rows, [0])
    assert (against_start.rival, against_best.rival) == ("fcpo:start", "ease+quota")
    assert (against_start.without_cpo, against_best.without_cpo) == (True, False)
    assert (against_start.difference, against_start.low, against_start.high) == (0, 0, 0)
    assert not against_start.is_shown
    assert against_best.is_shown
    assert (against_best.difference or 0) < 0
    assert against_best.same_parts  # fcpo:start is among the rivals
    put(study, other, 0, rate=0.5, hits=1)  # now the start is the best, and ease the best other
    rows = level_rows(study, at, [0])
    lines = compared(study, at, rows, [0])
    assert [(line.rival, line.best_rival, line.without_cpo) for line in lines] == [
        ("fcpo:start", True, True),
        ("ease+quota", False, False),
    ]
    strong, strong_start = methods("fcpo:strong", "fcpo:strong-start")
    plain = replace(study, settings={})
    assert is_without_cpo(strong_start, strong, parts_of(plain))
    assert not is_without_cpo(strong_start, Method("fcpo"), parts_of(plain))
    assert not is_without_cpo(strong, strong, parts_of(plain))


def test_no_setting_makes_the_start_train(study: Study) -> None:
    """`--set fcpo.rounds=5` is for those that train; other settings are for all."""
    tuned = replace(study, settings={"fcpo": {"rounds": 5, "horizon": 7}})
    names = ("fcpo", "fcpo:start", "fcpo:strong-start")
    settings = [tuned.build(method, seed=0).all_settings() for method in methods(*names)]
    assert [one["rounds"] for one in settings] == [5, 0, 0]
    assert [one["horizon"] for one in settings] == [7, 7, 7]
    fast, start = settings[:2]
    assert {name for name in fast if fast[name] != start[name]} == {"rounds"}


def test_all_levels_come_from_one_model_and_nothing_is_made_twice(study: Study) -> None:
    chosen = methods("fcpo:strong", "ease+quota", "ease+penalty", "popularity")
    levels, seeds = limits(0.6, 0.3), [0]
    heard: list[StudyRow] = []
    run_levels(study, chosen, levels, seeds, on_row=heard.append)
    models = sorted(path.name for path in study.folder.glob("models/fcpo*.safetensors"))
    assert [name.split("-seed")[0] for name in models] == ["fcpo-strong"]
    assert len(heard) == len(list(study.folder.glob("rows/*.json")))
    places = methods_at_limits(study, chosen, levels, seeds)
    assert [(one.limit, one.method) for one in places] == [
        (level, method) for level in levels for method in chosen
    ]
    rows = level_rows(study, places, seeds)
    for one in rows:
        if one.method == "popularity":  # which shows nothing else
            assert one.settings == (None,)
            continue
        assert 0 < (one.spread("popularity_rate@10").mean or 0) <= one.level + 5e-4
    ours = [row.spread("popularity_rate@10").mean or 0 for row in rows if row.ours]
    assert ours[0] > ours[1]
    found = compared(study, places, rows, seeds)
    assert [(gain.level, gain.limit) for gain in found] == [
        (0.6, "popular<=0.6"),
        (0.3, "popular<=0.3"),
    ]

    before = {path: path.stat().st_mtime_ns for path in study.folder.rglob("*.*")}
    again: list[StudyRow] = []
    run_levels(study, chosen, levels, seeds, on_row=again.append)
    assert {path: path.stat().st_mtime_ns for path in study.folder.rglob("*.*")} == before
    assert sorted(row.method for row in again) == sorted(row.method for row in heard)


@pytest.mark.slow
def test_limits_by_place_are_served_by_the_joint_lists_and_measured_of_all(study: Study) -> None:
    """Weighed by place and per list, beside a plain level."""
    texts = ("popular<=0.5", "popular<=0.5;weights=log", "popular<=0.5;scope=list")
    chosen, seeds = methods("fcpo:strong", "ease+lists", "ease+quota"), [0]
    asked = [Limit.parse(text) for text in texts]
    heard: list[StudyRow] = []
    run_levels(study, chosen, asked, seeds, on_row=heard.append)
    assert "fcpo:strong@0.5 (weighed by 1/log2(1 + place))" in [row.method for row in heard]
    assert len(list(study.folder.glob("models/fcpo*.safetensors"))) == 1
    rows = level_rows(study, methods_at_limits(study, chosen, asked, seeds), seeds)
    assert [row.limit for row in rows] == [text for text in texts for _ in chosen]
    plain, weighed, per_list = (
        {row.method: row for row in rows if row.limit == text} for text in texts
    )

    def value(row: LevelRow, metric: str) -> float:
        return row.spread(f"{metric}@10").mean or 0.0

    for name in ("fcpo:strong", "ease+lists"):
        # 600 showings: the largest weight of one of them is 0.4 % of all
        assert 0.5 - 0.004 < value(weighed[name], "weighed_rate") <= 0.5 + 1e-9
        assert value(plain[name], "weighed_rate") > 0.5 + 0.02  # which the plain level lets pass
        assert value(plain[name], "lists_above") > 0
        assert value(per_list[name], "lists_above") == 0
    assert value(weighed["ease+quota"], "weighed_rate") <= 0.5
    assert value(plain["ease+quota"], "weighed_rate") > 0.5
    assert weighed["ease+quota"].setting_levels[0] < plain["ease+quota"].setting_levels[0]
    assert [row.above for row in rows] == [0] * 9
    lines = compared(study, methods_at_limits(study, chosen, asked, seeds), rows, seeds)
    assert [line.limit for line in lines] == list(texts)

    before = {path: path.stat().st_mtime_ns for path in study.folder.rglob("*.*")}
    run_levels(study, chosen, asked, seeds)
    assert {path: path.stat().st_mtime_ns for path in study.folder.rglob("*.*")} == before


def test_a_search_can_be_sent_to_another_process(study: Study) -> None:
    task = SearchTask(study, (QUOTA,), tuple(limits(*LEVELS)), seed=0, tries=2)
    assert pickle.loads(pickle.dumps(task)) == task


def test_what_has_not_been_run_is_told(study: Study) -> None:
    with pytest.raises(ValueError, match=r"ease\+quota@0.5 has not been run with seed 0"):
        methods_at_limits(study, [Method("ease", "quota")], [HALF], [0])


def test_settings_that_bind_a_model_to_a_level_are_refused(tmp_path: Path) -> None:
    bound = Study(tmp_path, MARKET, settings={"fcpo": {"warm_start": [], "starts": "first"}})
    bound.check(methods("fcpo:paper@0.4"))
    with pytest.raises(ConfigError, match=r"fcpo@0.4: .* a model is trained for one level"):
        bound.check(methods("fcpo@0.4"))
