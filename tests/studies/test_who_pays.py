"""Users by activity and by taste, and what a limit changes for them, worked by hand."""

from pathlib import Path

import numpy as np
import pytest

from fairhorizon.data.interactions import Interactions
from fairhorizon.datasets import DataSpec
from fairhorizon.files import write_json
from fairhorizon.limits.language import Limit
from fairhorizon.methods import Method
from fairhorizon.studies.level_search import MethodAtLimit
from fairhorizon.studies.levels import (
    ACTIVITY,
    TAIL,
    THIRDS,
    level_rows,
    ndcg_of,
    thirds,
    unlimited,
    unlimited_methods,
    user_traits,
    who_pays,
)
from fairhorizon.studies.rows import StudyRow
from fairhorizon.studies.study import Study
from fairhorizon.vocabulary import Mode, Protocol

MARKET = DataSpec(source="synthetic:users=60,items=80,interactions_per_user=20")
HALF = Limit.popular(0.5)
K = 10


def test_traits_by_hand() -> None:
    """User 0 took a popular item and two others, user 1 a popular one, user 2 nothing."""
    ids = np.arange(4)
    train = Interactions(np.array([0, 0, 0, 1]), np.array([0, 2, 3, 1]), ids[:3], ids)
    traits = user_traits(train, np.array([True, True, False, False]))
    assert traits[ACTIVITY].tolist() == [3, 1, 0]
    np.testing.assert_allclose(traits[TAIL], [2 / 3, 0, np.nan])


def test_thirds_by_hand() -> None:
    trait = np.array([5.0, 1.0, np.nan, 3.0, 3.0, 9.0, 2.0])
    counted = np.array([True, True, True, True, True, True, False])
    found = [third.tolist() for third in thirds(trait, counted)]
    assert found == [[1, 3], [4, 0], [5]]  # equal users by their codes
    assert [len(third) for third in thirds(np.arange(2.0), np.ones(2, bool))] == [1, 1, 0]


def test_what_a_method_is_without_a_limit() -> None:
    names = ("fcpo", "fcpo:start", "stack+lists", "ease+quota", "ease+penalty", "ease")
    found = [str(unlimited(Method.parse(name))) for name in names]
    assert found == [
        *("fcpo@1", "fcpo:start@1", "stack+lists@1", "ease+quota@1", "ease+penalty@0", "ease")
    ]
    assert unlimited(Method.parse("fcpo:paper")) is None  # it would be another training


def put(study: Study, method: Method, hits: list[int]) -> None:
    """A result by hand: the list of each user begins with so many of their test items."""
    test = study.dataset().split.test
    lists = []
    for user in range(test.n_users):
        wanted = test.items[test.users == user]
        rest = np.setdiff1d(np.arange(test.n_items), wanted)
        lists.append([*wanted[: hits[user]], *rest][:K])
    metrics = {"popularity_rate@10": 0.5, "ndcg@10": float(np.mean(hits)), "gini@10": 0.5}
    file = study.row_file(method, 0)
    where = {"dataset": "d", "protocol": Protocol.STANDARD, "mode": Mode.ONE_SHOT, "seed": 0}
    seconds = {"fit": 1.0, "evaluate": 1.0}
    row = StudyRow(
        **where,
        method=str(method),
        alpha_prime=1.0,
        metrics=metrics,
        settings={},
        seconds=seconds,
        notes=(),
    )
    write_json(file, row.to_json())
    np.save(file.with_suffix(".npy"), lists)


def test_the_most_active_pay_by_hand(tmp_path: Path) -> None:
    """Under the limit the most active third finds one item instead of two; the others the same."""
    study = Study(tmp_path / "study", MARKET, ks=(K,))
    split = study.dataset().split
    counts = split.test.user_counts()
    traits = user_traits(split.train, study.dataset().sensitive)
    assert traits[ACTIVITY].tolist() == split.train.user_counts().tolist()
    least, middle, most = thirds(traits[ACTIVITY], counts > 0)
    ours, rival = Method.parse("fcpo@0.5"), Method.parse("ease+quota@0.5")
    before = [2] * split.test.n_users
    after = [1 if user in most else 2 for user in range(split.test.n_users)]
    put(study, Method.parse("fcpo@1"), before)
    put(study, ours, after)
    put(study, rival, before)
    put(study, Method.parse("ease+quota@1"), before)
    at = [MethodAtLimit(HALF, Method.parse(one.name), (one,)) for one in (ours, rival)]
    rows = level_rows(study, at, [0])
    assert list(map(str, unlimited_methods(at, rows, K))) == ["fcpo@1", "ease+quota@1"]
    lines = who_pays(at, rows, ndcg_of(study, [0]), traits, K)
    assert [(line.method, line.trait, line.third) for line in lines] == [
        (name, trait, third)
        for name in ("fcpo", "ease+quota")
        for trait in (ACTIVITY, TAIL)
        for third in THIRDS
    ]
    paid = {line.third: line for line in lines if line.ours and line.trait == ACTIVITY}
    assert [paid[third].users for third in THIRDS] == [len(least), len(middle), len(most)]
    for third in ("least", "middle"):
        assert (paid[third].difference, paid[third].low, paid[third].high) == (0, 0, 0)
        assert not paid[third].is_shown
    discounts = 1 / np.log2(np.arange(2, 2 + K))
    ideal = np.array([discounts[: counts[user]].sum() for user in most])
    first = np.minimum(1, counts[most]) * discounts[0] / ideal
    both = np.array([discounts[: min(2, counts[user])].sum() for user in most]) / ideal
    assert paid["most"].without == pytest.approx(both.mean())
    assert paid["most"].limited == pytest.approx(first.mean())
    assert paid["most"].difference == pytest.approx((first - both).mean())
    assert paid["most"].is_shown
    assert paid["most"].smallest == traits[ACTIVITY][most].min()
    assert paid["most"].largest == traits[ACTIVITY][most].max()
    assert all(line.difference == 0 for line in lines if not line.ours)
