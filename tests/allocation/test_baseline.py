"""The stored instances say what they claim: values and shares again, one showing at a time."""

import math

import numpy as np
import pytest
from baseline import FILE, Instance, StoredLimit, load, measured, packed, times, unpacked

SMALL = [one for one in load() if len(one.items) <= 40]
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
    return np.concatenate([instance.begun, instance.lists], axis=1).tolist()


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


def test_the_file_is_small_and_has_every_kind_of_limit() -> None:
    instances = load()
    assert FILE.stat().st_size < 900_000
    assert len({one.name for one in instances}) == len(instances) >= 60
    limits = [limit for one in instances for limit in one.limits]
    assert {limit.scope for limit in limits} == {"all", "list", "prefix"}
    assert {limit.is_floor for limit in limits} == {True, False}
    assert {len(one.limits) for one in instances} == {1, 2, 3, 4, 5, 6}
    assert any(one.begun.size for one in instances)
    assert any(one.settled != (0, 0) for one in instances)
    assert {len(one.items) for one in instances if one.name.startswith("ml-")} == {500}


@pytest.mark.parametrize("instance", SMALL, ids=lambda one: one.name)
def test_value_and_shares_by_hand(instance: Instance) -> None:
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
    assert instance.results.value == pytest.approx(value, abs=1e-9)
    assert instance.results.shown == shown
    shares = [by_hand(instance, limit) for limit in instance.limits]
    assert instance.results.shares == pytest.approx(shares, abs=1e-12)


@pytest.mark.parametrize("instance", load(), ids=lambda one: one.name)
def test_the_stored_lists_have_the_stored_results(instance: Instance) -> None:
    found, stored = measured(instance, instance.lists), instance.results
    assert found.value == pytest.approx(stored.value, rel=1e-12)
    assert found.shares == pytest.approx(stored.shares, abs=1e-12)
    assert (found.kept, found.shown) == (stored.kept, stored.shown)
    assert found.gini == pytest.approx(stored.gini, abs=1e-12)
    assert stored.kept
    assert stored.prices is not None
    assert len(stored.prices) == len(instance.limits)
    assert min(stored.prices) >= 0
    if stored.bound is not None:
        # values and bounds of the engine itself were exact to about 1e-7 of their size
        assert stored.value <= stored.bound * (1 + 1e-6)
    if instance.gini_limit is not None:
        assert stored.gini <= instance.gini_limit


def test_lists_that_break_a_limit_are_seen() -> None:
    (instance,) = [one for one in load() if one.name == "ml-100k: popular<=0.4"]
    known = np.where(instance.items >= 0, instance.values, -np.inf)
    best = np.argsort(-known, axis=1, kind="stable")[:, : instance.length]
    free = measured(instance, np.take_along_axis(instance.items, best, axis=1))
    assert not free.kept
    assert free.shares[0] > 0.4
    assert free.value > instance.results.value


def test_what_is_no_candidate_or_shown_twice_is_refused() -> None:
    instance = next(one for one in SMALL if one.length >= 2 and (one.lists >= 0).all())
    foreign = instance.lists.copy()
    foreign[0, 0] = instance.n_items
    with pytest.raises(ValueError, match="no candidate"):
        measured(instance, foreign)
    twice = instance.lists.copy()
    twice[0, 1] = twice[0, 0]
    with pytest.raises(ValueError, match="twice"):
        measured(instance, twice)


@pytest.mark.parametrize("dtype", ["float32", "int16", "bool"])
def test_arrays_are_stored_exactly(dtype: str) -> None:
    array = (100 * np.random.default_rng(0).normal(size=(7, 5))).astype(dtype)
    found = unpacked(packed(array))
    assert found.dtype == array.dtype
    assert np.array_equal(found, array)


@pytest.mark.parametrize("data", ["ml-100k", "ml-1m"])
def test_times_are_ratios_to_bare_scores(data: str) -> None:
    ratios = times()[data]["ratios"]
    for what in ("one user", "request", "decision", "everybody"):
        for limits in ("one limit", "three limits", "by place"):
            one = ratios[f"{what}, {limits}"]
            assert one["ratio"] == pytest.approx(one["lists_ms"] / one["bare_ms"], rel=0.02)
