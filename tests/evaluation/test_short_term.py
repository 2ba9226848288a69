"""evaluate() on a recommender with known lists: metrics computed by hand."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import Split, split
from fairhorizon.errors import ConfigError, DataError, ModelError
from fairhorizon.evaluation.short_term import evaluate
from fairhorizon.metrics.spread import finite
from fairhorizon.metrics.summary import MeasuredLists
from fairhorizon.recommenders.base import RankedLists
from fairhorizon.simulation.feedback import Scenario
from fairhorizon.vocabulary import Mode, Protocol

A, B, C = range(3)


@pytest.fixture
def parts() -> Split:
    """a took 0 .. 9 (test 8 9), b 9 8 7 6 5 (test 5), c 3 (no test item)."""
    users = ["a"] * 10 + ["b"] * 5 + ["c"]
    items = [*range(10), 9, 8, 7, 6, 5, 3]
    times = list(range(16))
    return split(from_arrays(users, items, timestamps=times, name="toy"))


class Fixed:
    """Hands out given lists and remembers what it was asked for."""

    method, seed, alpha_prime, queue_length = "fixed", 7, 0.5, 2

    def __init__(self, lists: list[list[int]], fingerprint: str) -> None:
        self.lists, self.fingerprint_ = np.array(lists), fingerprint

    def rank(
        self, scenario: Scenario, *, length: int, feedback: bool = False, seed: int | None = None
    ) -> RankedLists:
        self.scenario, self.length, self.feedback, self.asked_seed = (
            scenario,
            length,
            feedback,
            seed,
        )
        return RankedLists(self.lists[:, :length].astype(np.int64))


#        a: 9 hits (rank 2); b: 5 hits (rank 1); c has no test item
LISTS = [[0, 9, 1, 2], [5, 0, 1, -1], [0, 1, 2, 3]]
POPULAR = np.arange(10) < 2  # items 0 and 1


def fixed(parts: Split, lists: list[list[int]] | None = None) -> Fixed:
    return Fixed(lists or LISTS, parts.train.fingerprint())


def test_the_metrics_by_hand(parts: Split) -> None:
    result = evaluate(fixed(parts), parts, ks=(2, 4), sensitive=POPULAR)
    second = 1 / math.log2(3)  # the gain of a hit at rank 2
    expected = {
        # recall: a 1/2, b 1/1; c has nothing to find and is left out
        "recall@2": 3 / 4,
        "f1@2": (2 / (2 + 2) + 2 / (2 + 1)) / 2,
        "ndcg@2": (second / (1 + second) + 1) / 2,
        # shown in the first two: 0 9 | 5 0 | 0 1 -> counts 3 1 0 0 0 1 0 0 0 1, sum 6.
        # Gini: sum |x_i - x_j| = 2 (3 * 2 + 6 * 3 + 3 * 6 * 1) = 84, over 2 n sum = 120
        "gini@2": 84 / 120,
        "popularity_rate@2": 4 / 6,
        "coverage@2": 4 / 10,
        "exposure_ratio@2": 4 / 2,
        "demographic_parity_gap@2": 4 / 2 - 2 / 8,
        "worst_off@2": (2 / 6) / (8 / 10),  # the eight others
        # alpha' K = 1: only c has two of the popular items
        "exact_k_violation@2": 1 / 3,
        "recall@4": 3 / 4,
        "f1@4": (2 / (4 + 2) + 2 / (4 + 1)) / 2,
        "ndcg@4": (second / (1 + second) + 1) / 2,
        "popularity_rate@4": 6 / 11,  # 0 1 | 0 1 | 0 1 of eleven items: b got three
        "coverage@4": 6 / 10,
        "exposure_ratio@4": 6 / 5,
        "exact_k_violation@4": 0.0,
    }
    for name, value in expected.items():
        assert result.metrics[name] == pytest.approx(value, rel=1e-12), name


def test_further_metrics_and_metrics_of_your_own(parts: Split) -> None:
    def third(measured: MeasuredLists, k: int) -> float:
        return float((measured.lists[:, :k] == 1).sum())

    model = fixed(parts)
    named = evaluate(model, parts, ks=[2, 4], sensitive=POPULAR, metrics=["mrr", "aclt"]).metrics
    assert named["mrr@2"] == pytest.approx((1 / 2 + 1) / 2)
    # items above 1 in the first four: 9 2 | 5 | 2 3
    assert named["aclt@4"] == pytest.approx((2 + 1 + 2) / 3)
    own = evaluate(model, parts, ks=[2, 4], sensitive=POPULAR, metrics={"third": third}).metrics
    assert (own["third@2"], own["third@4"]) == (1, 3)
    assert set(own) - set(evaluate(model, parts, ks=[2, 4]).metrics) == {"third@2", "third@4"}


def test_a_metric_by_a_column_of_the_log() -> None:
    log = from_arrays(list("aabb") * 5, [*range(5)] * 4, timestamps=range(20))
    colours = np.array(["red", "red", "red", "red", "blue"], dtype=object)
    parts = split(replace(log, attributes={"colour": colours}))
    found = evaluate(fixed(parts, [[0, 4], [4, 1]]), parts, ks=[2], metrics=["max_min:colour"])
    assert found.metrics["max_min:colour@2"] == pytest.approx((2 / 4) / (4 / 5))
    with pytest.raises(DataError, match="there is no column 'size'"):
        evaluate(fixed(parts, [[0, 4], [4, 1]]), parts, ks=[2], metrics=["max_min:size"])


def test_a_result_says_what_it_is(parts: Split) -> None:
    model = fixed(parts)
    result = evaluate(model, parts, ks=[3, 1], protocol="paper", mode="interactive", seed=11)
    content = {
        "dataset": "toy",
        "method": "fixed",
        "protocol": "paper",
        "mode": "interactive",
        "seed": 11,
        "alpha_prime": 0.5,
        "metrics": {name: finite(value) for name, value in result.metrics.items()},
        "by_history": result.by_history.to_json(),
    }
    assert result.by_history.k == 3
    # a and b have 7 and 3 training items, c has no test item; 5 of 8 9 5 is new
    assert [row.users for row in result.by_history.users] == [0, 0, 2]
    assert result.by_history.users[2].ndcg == result.metrics["ndcg@3"]
    assert result.to_json() == content
    assert result.row().to_json() == content | {"group": "popular"}
    assert result.row("seller = MegaMart").to_json()["group"] == "seller = MegaMart"
    assert {name.split("@")[1] for name in result.metrics} == {"1", "3"}
    assert np.array_equal(result.lists, model.lists[:, :3])
    assert (model.length, model.asked_seed) == (3, 11)
    assert evaluate(model, parts, ks=[1]).seed == 7  # else that of the fit


@pytest.mark.parametrize(("mode", "feedback"), [("one-shot", False), (Mode.INTERACTIVE, True)])
def test_only_the_interactive_mode_gives_feedback(parts: Split, mode: Any, feedback: bool) -> None:
    model = fixed(parts)
    evaluate(model, parts, ks=[2], mode=mode)
    assert model.feedback is feedback
    liked = model.scenario.positive  # the test items
    assert [liked.items[liked.indptr[u] : liked.indptr[u + 1]].tolist() for u in (A, B, C)] == [
        [8, 9],
        [5],
        [],
    ]


def test_the_protocol_says_what_is_excluded_and_the_state_is_the_end_of_the_past(
    parts: Split,
) -> None:
    model = fixed(parts)
    evaluate(model, parts, ks=[2], protocol=Protocol.STANDARD)
    past = model.scenario.excluded
    assert past is not None
    assert [
        sorted(past.items[past.indptr[u] : past.indptr[u + 1]].tolist()) for u in (A, B, C)
    ] == [
        [0, 1, 2, 3, 4, 5, 6, 7],
        [6, 7, 8, 9],
        [3],
    ]
    # The last two items before the test items, newest last; 10 fills an empty place.
    assert model.scenario.queue.tolist() == [[6, 7], [7, 6], [10, 3]]
    evaluate(model, parts, ks=[2], protocol="paper")
    assert model.scenario.excluded is None


def test_without_groups_the_popular_fifth_of_training_is_taken(parts: Split) -> None:
    # Training: a 0 .. 6, b 9 8 7. All counted once; of ten items, two: ties to the smaller id.
    result = evaluate(fixed(parts), parts, ks=[2])
    assert result.metrics["popularity_rate@2"] == pytest.approx(4 / 6)


def test_nothing_to_find_is_null_in_json(parts: Split) -> None:
    empty = Split(parts.train, parts.validation, parts.test.take(np.zeros(3, dtype=bool)))
    result = evaluate(fixed(parts, [[0, 1], [1, 0], [0, 1]]), empty, ks=[2], sensitive=POPULAR)
    assert math.isnan(result.metrics["recall@2"])
    assert math.isinf(result.metrics["exposure_ratio@2"])
    metrics = result.to_json()["metrics"]
    assert metrics["recall@2"] is None
    assert metrics["exposure_ratio@2"] is None
    assert metrics["popularity_rate@2"] == 1.0


def test_a_model_of_other_data_is_refused(parts: Split) -> None:
    with pytest.raises(ModelError, match=r"fitted on other data than toy \(fit it again\)"):
        evaluate(Fixed(LISTS, "0123456789abcdef"), parts)


@pytest.mark.parametrize("ks", [[], [0], [-1, 5], [11]])
def test_lists_that_cannot_be_are_refused(parts: Split, ks: list[int]) -> None:
    with pytest.raises(ConfigError, match="at least 1 and at most the 10 items"):
        evaluate(fixed(parts), parts, ks=ks)


@pytest.mark.parametrize("wrong", [{"protocol": "fair"}, {"mode": "slow"}])
def test_an_unknown_protocol_or_mode_is_refused(parts: Split, wrong: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="is not a valid"):
        evaluate(fixed(parts), parts, ks=[1], **wrong)  # type: ignore[arg-type]
