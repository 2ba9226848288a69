"""Exploration: the recorded probabilities are those with which items are shown."""

from collections import Counter

import numpy as np
import pytest

from fairhorizon.allocation.guard import GuardedList
from fairhorizon.service.replica.list_builder import explored

CHOSEN = GuardedList(
    at=np.array([0, 1]),
    codes=np.array([10, 11, 20, 21, 22]),
    values=np.array([5.0, 4.0, 3.0, 2.0, 1.0]),
    kinds=np.array([0, 1, 0, 1, 0]),
)


def test_shares_of_draws_are_the_recorded_probabilities() -> None:
    draws, n = np.random.default_rng(0), 20_000
    seen: Counter[tuple[int, int]] = Counter()
    said: dict[tuple[int, int], float] = {}
    for _ in range(n):
        one = explored(CHOSEN, 0.6, draws)
        for place, (item, chance) in enumerate(
            zip(one.items.tolist(), one.propensities, strict=True)
        ):
            seen[place, item] += 1
            said[place, item] = chance
    # place 0: the chosen one or two others of its class; place 1: the chosen one or one other
    assert said == pytest.approx(
        {(0, 10): 0.8, (0, 20): 0.1, (0, 22): 0.1, (1, 11): 0.85, (1, 21): 0.15}
    )
    for key, chance in said.items():
        assert seen[key] / n == pytest.approx(chance, abs=0.012)


def test_the_classes_of_places_stay() -> None:
    draws = np.random.default_rng(1)
    kind = {10: 0, 20: 0, 22: 0, 11: 1, 21: 1}
    for _ in range(200):
        assert [kind[item] for item in explored(CHOSEN, 1.0, draws).items.tolist()] == [0, 1]


def test_an_empty_list_stays_empty() -> None:
    nothing = GuardedList(*(np.empty(0, dtype=np.int64) for _ in range(4)))
    one = explored(nothing, 1.0, np.random.default_rng(0))
    assert one.items.tolist() == []
    assert one.propensities == []
