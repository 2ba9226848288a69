"""The stored instances say what they claim: values and shares again, one showing at a time."""

import math

import numpy as np
import pytest
from baseline import Instance, StoredLimit, load, measured

PLACES_OF_LOG = [1 / math.log2(1 + k) for k in range(1, 21)]


def weight(limit: StoredLimit, place: int) -> float:
    """Of a place, from 0, by the definition."""
    if limit.first is not None and place >= limit.first:
        return 0.0
    if limit.weights == "none":
        return 1.0
    if limit.weights == "log":
        return PLACES_OF_LOG[place]
    return limit.weights[place] if place < len(limit.weights) else 0.0


def whole_lists(instance: Instance) -> list[list[int]]:
    return np.concatenate([instance.prefix, instance.lists], axis=1).tolist()


def by_hand(instance: Instance, limit: StoredLimit) -> float:
    """The share that the lists reach, by loops."""
    if limit.scope == "all":
        shown, of_group = instance.settled
        for row in whole_lists(instance):
            for place, item in enumerate(row):
                if item >= 0:
                    shown += weight(limit, place)
                    of_group += weight(limit, place) * bool(limit.members[item])
        return of_group / shown if shown else 0.0
    worst = 0
    length = len(whole_lists(instance)[0])
    first = length if limit.first is None else min(limit.first, length)
    for row in whole_lists(instance):
        real = [item for item in row[:first] if item >= 0]
        worst = max(worst, sum(limit.members[item] != limit.is_floor for item in real))
    return 1 - worst / first if limit.is_floor else worst / first


def test_value_and_shares_by_hand() -> None:
    for instance in load():
        if len(instance.items) > 40:
            continue
        value = shown = 0.0
        for user, row in enumerate(instance.lists.tolist()):
            items = instance.items[user].tolist()
            worth = dict(zip(items, instance.values[user].tolist(), strict=True))
            real = [item for item in row if item >= 0]
            assert row == real + [-1] * (instance.length - len(real))
            assert len(set(real)) == len(real)
            shown += len(real)
            value += sum(
                w * worth[item] for w, item in zip(instance.position_weights, real, strict=False)
            )
        found = measured(instance, instance.lists)
        for results in (found, instance.results):
            assert results.value == pytest.approx(value, abs=1e-9)
            assert results.shown == shown
            shares = [by_hand(instance, limit) for limit in instance.limits]
            assert results.shares == pytest.approx(shares, abs=1e-12)


def test_the_stored_results_keep_the_limits_below_their_bounds() -> None:
    for instance in load():
        found, stored = measured(instance, instance.lists), instance.results
        assert found.value == pytest.approx(stored.value, rel=1e-12)
        assert found.kept
        if stored.bound is not None:
            # values and bounds of the engine itself were exact to about 1e-7 of their size
            assert stored.value <= stored.bound * (1 + 1e-6)
        if instance.gini_limit is not None:
            assert found.gini <= instance.gini_limit + 1e-12


def test_lists_that_break_a_limit_are_seen() -> None:
    (instance,) = [one for one in load() if one.name == "ml-100k: popular<=0.4"]
    known = np.where(instance.items >= 0, instance.values, -np.inf)
    best = np.argsort(-known, axis=1, kind="stable")[:, : instance.length]
    free = measured(instance, np.take_along_axis(instance.items, best, axis=1))
    assert not free.kept
    assert free.shares[0] > 0.4
    assert free.value > instance.results.value
