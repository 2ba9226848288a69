"""Whole lists and requests of a fitted model under several limits."""

import numpy as np
import pytest

from fairhorizon.allocation.conflicts import LimitsConflictError
from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.limits.language import Limit
from fairhorizon.limits.measured import limit_reached
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.rankers.ease import Ease
from fairhorizon.recommenders.lists import item_lists
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.rerank.lists import ListAllocation
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Protocol

LENGTH = 6


@pytest.fixture(scope="module")
def scenario(market: Split, strong_model: Fcpo) -> Scenario:
    return evaluation_scenario(market, strong_model.queue_length, Protocol.STANDARD)


def bound(n_items: int, *texts: str) -> list[ResolvedLimit]:
    """Groups that overlap: every n-th item."""
    members = {n: np.arange(n_items) % n == 0 for n in (2, 3, 5, 7)}
    return [
        ResolvedLimit(Limit.parse(text), members[int(text.split("=")[1][:1])]) for text in texts
    ]


FOUR = ("n=2<=0.4", "n=3>=0.35", "n=5>=0.3;weights=log", "n=7<=0.1@3")


def test_all_limits_hold_together_at_their_prices(strong_model: Fcpo, scenario: Scenario) -> None:
    limits = bound(80, *FOUR)
    served = strong_model.with_limits(limits).rank(scenario, length=LENGTH)
    assert (served.lists >= 0).all()
    assert all(limit_reached(one, served.lists).kept for one in limits)
    assert list(served.prices) == [str(one) for one in limits]
    assert max(served.prices.values()) > 0
    assert served.values is not None
    plain = strong_model.with_limits(bound(80, "n=2<=1", "n=3<=1")).rank(scenario, length=LENGTH)
    assert plain.values is not None
    weights = 1 / np.log2(np.arange(2, LENGTH + 2))
    assert (served.values @ weights).sum() < (plain.values @ weights).sum()
    assert set(plain.prices.values()) == {0.0}


def test_lists_of_a_ranker_keep_them_too(market: Split) -> None:
    limits = bound(market.train.n_items, *FOUR)
    model = Ranked(Ease(), ListAllocation()).fit(market)
    scenario = evaluation_scenario(market, model.queue_length, Protocol.STANDARD)
    lists = model.with_limits(limits).recommend(scenario, length=LENGTH)
    assert all(limit_reached(one, lists).kept for one in limits)
    with pytest.raises(ConfigError, match="keeps several limits in whole lists only"):
        model.with_limits(limits).recommend(scenario, length=LENGTH, feedback=True)


def test_requests_keep_all_limits_after_every_list(strong_model: Fcpo, scenario: Scenario) -> None:
    """A full list of six fits into each of these shares."""
    limits = bound(80, "n=2<=0.4", "n=3>=0.35", "n=5>=0.25")
    model = strong_model.with_limits(limits)
    guard = model.request_guard(LENGTH)
    assert isinstance(guard, ExposureGuard)
    served = model.rank_one_by_one(scenario, LENGTH, guard)
    assert (served.lists >= 0).all()
    for user in range(1, len(served.lists) + 1):
        assert all(limit_reached(one, served.lists[:user]).kept for one in limits), user
    assert served.prices == guard.prices_by_name()
    assert guard.shown == (served.lists >= 0).sum()


def test_limits_that_conflict_are_explained_before_serving(
    strong_model: Fcpo, scenario: Scenario
) -> None:
    model = strong_model.with_limits(bound(80, "n=2>=0.7", "n=2<=0.6"))
    message = (
        r"n=2>=0.7 and n=2<=0.6 cannot be kept together \(take at most 0.6 in n=2>=0.7, or at least"
        r" 0.7 in n=2<=0.6\)"
    )
    with pytest.raises(LimitsConflictError, match=message):
        model.recommend(scenario, length=LENGTH)
    with pytest.raises(LimitsConflictError, match=message):
        model.recommend_one_by_one(scenario, length=LENGTH)


def test_of_many_users_the_best_items_of_every_class_are_kept(
    strong_model: Fcpo, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = bound(80, *FOUR)
    everything = strong_model.with_limits(limits).rank(scenario, length=LENGTH)
    monkeypatch.setattr(item_lists, "VALUES_KEPT", 0)
    kept = strong_model.with_limits(limits).rank(scenario, length=LENGTH)
    np.testing.assert_array_equal(kept.lists, everything.lists)
    np.testing.assert_array_equal(kept.values, everything.values)
    np.testing.assert_array_equal(kept.scores, everything.scores)
    assert kept.prices == pytest.approx(everything.prices)
