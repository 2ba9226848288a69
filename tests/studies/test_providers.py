"""Exposure by rank and of providers, on a log and lists small enough to count by hand."""

import math
from pathlib import Path

import numpy as np
import pytest

from fairhorizon.data.recommendations import Recommendations, read_recommendations
from fairhorizon.datasets import Dataset, DataSpec
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.studies.audit import (
    ItemNotes,
    exposure_by_rank,
    exposure_of_providers,
    families_of,
    showings_of,
)

# Training counts of items 1 to 6: 3 2 1 1 0 0; item 1 is the popular one.
LOG = "user,item,timestamp\n" + "".join(
    f"{user},{item},{time}\n"
    for user, items in {"a": [1, 2, 3, 4, 5], "b": [1, 2, 4, 3, 6], "c": [1, 3]}.items()
    for time, item in enumerate(items)
)
# a: 1 5 6, b: 5 1, c: 1
LISTS = "user,item\na,1\na,5\na,6\nb,5\nb,1\nc,1\n"
SELLERS = np.array(["A", "A|B", "B", "C", "D", ""], dtype=object)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    (tmp_path / "log.csv").write_text(LOG)
    return DataSpec(source=str(tmp_path / "log.csv")).open()


@pytest.fixture
def shown(dataset: Dataset, tmp_path: Path) -> Recommendations:
    (tmp_path / "lists.csv").write_text(LISTS)
    return read_recommendations(tmp_path / "lists.csv", dataset.log)


def bound(text: str, *items: int) -> ResolvedLimit:
    return ResolvedLimit(Limit.parse(text), np.isin(np.arange(1, 7), items))


def test_each_group_at_each_rank(dataset: Dataset, shown: Recommendations) -> None:
    same = bound("popular<=0.5", 1)  # the limited group itself: not a second time
    limits = [same, bound("seller=D<=0.1", 5), bound("gini<=0.5", 1, 2, 3, 4, 5, 6)]
    found = exposure_by_rank(dataset, showings_of(shown), limits)
    assert found.showings == (3, 2, 1)
    popular, other, seller = found.groups
    assert [popular.group, other.group, seller.group] == ["popular", "other", "seller=D"]
    assert popular.shares == pytest.approx((2 / 3, 1 / 2, 0))
    assert other.shares == pytest.approx((1 / 3, 1 / 2, 1))
    assert seller.shares == pytest.approx((1 / 3, 1 / 2, 0))
    assert popular.of_exposure == 1 / 2
    assert found.share(popular, 1, 1) == 2 / 3
    assert found.share(popular, 2, 3) == pytest.approx(1 / 3)  # 1 of the 3 showings there
    assert found.share(popular, 1, 3) == popular.of_exposure


def test_providers_from_the_worst_off(dataset: Dataset, shown: Recommendations) -> None:
    notes = ItemNotes("seller", SELLERS)
    found = {one.provider: one for one in exposure_of_providers(dataset, shown, notes)}
    # of the log: A 5/7, B 3/7, C 1/7, D nothing; shown: A 3 times, D twice; B and C never
    assert list(found) == ["B", "C", "A", "D"]
    a = found["A"]
    assert (a.items, a.shown, a.best_rank) == (2, 3, 1)
    assert (a.of_exposure, a.from_training) == pytest.approx((1 / 2, 5 / 7))
    assert a.of_catalogue == pytest.approx(2 / 6)
    assert a.ratio == pytest.approx(7 / 10)
    assert (found["B"].ratio, found["B"].best_rank, found["B"].items) == (0, None, 2)
    assert (found["D"].shown, found["D"].best_rank) == (2, 1)
    assert math.isnan(found["D"].ratio)
    assert exposure_of_providers(dataset, shown, ItemNotes()) == ()


def test_limits_on_one_column_are_a_family() -> None:
    limits = [
        bound("seller=A>=0.1", 1),
        bound("seller=B>=0.1", 2),
        bound("seller=B>=0.2", 2),
        bound("seller=A,B>=0.1", 1, 2),
        bound("popular<=0.4", 1),
    ]
    assert families_of(limits) == [
        *("seller:each>=0.1", "seller:each>=0.1", "seller:each>=0.2"),
        *("seller=A,B>=0.1", "popular<=0.4"),
    ]
