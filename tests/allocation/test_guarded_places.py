"""The guard under rules that count by place, floors, and rules on every list."""

import itertools
import math
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from fairhorizon.allocation.request_guard import ExposureGuard
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhorizon.errors import ModelError
from fairhorizon.exposure.place_rule import PlaceRule, PlaceWeights
from fairhorizon.vocabulary import Scope

NEVER = -math.inf
LOG = PlaceWeights.LOG

anything = st.one_of(st.just(NEVER), st.floats(-1e6, 1e6), st.sampled_from([0.0, 1.0, 2.0]))
requests_of_any_kind = st.lists(
    st.tuples(st.lists(st.tuples(anything, st.booleans()), max_size=8), st.integers(0, 6)),
    max_size=10,
)
weights = st.one_of(
    st.just(LOG), st.tuples(st.floats(0.1, 3), st.floats(0, 3), st.floats(0, 3), st.floats(0, 3))
)
firsts = st.sampled_from([None, 1, 2, 3])
rules_on_all = st.builds(
    PlaceRule, st.floats(0, 1), st.booleans(), st.just(Scope.ALL), weights, firsts
)
rules_on_lists = st.builds(
    PlaceRule,
    st.floats(0, 1),
    st.booleans(),
    st.sampled_from([Scope.LIST, Scope.PREFIX]),
    st.just(PlaceWeights.NONE),
    firsts,
)


def serve(guard: ExposureGuard, values: list[float], group: list[bool], length: int) -> list[int]:
    return guard.serve(
        torch.arange(len(values)),
        torch.tensor(values, dtype=torch.float64),
        torch.tensor(group, dtype=torch.bool),
        length,
    ).tolist()


def limit(rule: PlaceRule) -> float:
    return 1 - rule.share if rule.is_floor else rule.share


def sound(items: list[int], values: list[float]) -> list[int]:
    """The items of a list: different ones that may be shown, nothing behind a gap."""
    real = [item for item in items if item >= 0]
    assert items == real + [-1] * (len(items) - len(real))
    assert len(set(real)) == len(real)
    assert all(values[item] > NEVER for item in real)
    return real


def longest(values, limited, length, rule, shown, of_limited) -> int:
    """By trying all patterns of lists that leave the limit kept."""
    have = [
        sum(v > NEVER and g == side for v, g in zip(values, limited, strict=True))
        for side in (False, True)
    ]
    best = 0
    for size in range(min(length, sum(have)) + 1):
        g = rule.place_weights(length)[:size]
        for pattern in itertools.product((False, True), repeat=size):
            if sum(pattern) > have[1] or size - sum(pattern) > have[0]:
                continue
            if of_limited + g[list(pattern)].sum() <= limit(rule) * (shown + g.sum()) + 1e-9:
                best = size
    return best


@settings(max_examples=80, deadline=None)
@given(requests_of_any_kind, rules_on_all, st.floats(0, 10), st.sampled_from([0.0, 0.1, 5.0]))
def test_the_weighed_share_is_kept_after_every_request(requests, rule, price, step):
    guard = ExposureGuard(rule, price=price, step=step)
    shown = of_limited = 0.0
    for candidates, length in requests:
        values, group = [v for v, _ in candidates], [g for _, g in candidates]
        limited = [g != rule.is_floor for g in group]
        size = longest(values, limited, length, rule, shown, of_limited)
        items = sound(serve(guard, values, group, length), values)
        assert len(items) == size
        g = rule.place_weights(max(length, 1))
        shown += g[:size].sum()
        of_limited += sum(g[place] for place, item in enumerate(items) if limited[item])
        assert of_limited <= limit(rule) * shown + 1e-8
        assert guard.shown == pytest.approx(shown, abs=1e-8)
        of_group = shown - of_limited if rule.is_floor else of_limited
        assert guard.sensitive == pytest.approx(of_group, abs=1e-8)
        assert 0 <= guard.price < math.inf


@settings(max_examples=80, deadline=None)
@given(requests_of_any_kind, rules_on_lists)
def test_every_list_keeps_its_caps(requests, rule):
    guard, shown = ExposureGuard(rule), 0
    for candidates, length in requests:
        values, group = [v for v, _ in candidates], [g for _, g in candidates]
        items = sound(serve(guard, values, group, length), values)
        shown += len(items)
        first = length if rule.first is None else min(rule.first, length)
        for k in range(1, first + 1) if rule.scope == Scope.PREFIX else [first]:
            limited = sum(group[item] != rule.is_floor for item in items[:k])
            assert limited <= math.ceil(limit(rule) * k - 1e-9)
    assert guard.shown == shown
    assert guard.price == 0


def test_by_hand():
    """Places count 2 and 1, half of which may be of the group: 1.5 of 3, then 3 of 6."""
    guard = ExposureGuard(PlaceRule(0.5, weights=(2, 1)), step=0)
    values, group = [5.0, 4.0, 2.0, 1.0], [True, True, False, False]
    assert serve(guard, values, group, 2) == [2, 0]
    assert (guard.shown, guard.sensitive) == (3, 1)
    assert serve(guard, values, group, 2) == [0, 2]  # 1 + 2 of 6
    assert (guard.shown, guard.sensitive) == (6, 3)
    floor = ExposureGuard(PlaceRule(0.5, True, weights=(2, 1)), step=0)
    assert serve(floor, [1.0, 5.0, 4.0], [True, False, False], 2) == [0, 1]
    assert (floor.shown, floor.sensitive) == (3, 2)
    assert ExposureGuard(PlaceRule(0.4)).rule == ExposureGuard(0.4).rule


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=7),
    st.integers(1, 4),
    st.floats(0, 1),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.floats(0, 5),
)
def test_a_list_is_the_best_at_the_price_or_the_best_within_the_room(
    candidates, length, share, price, shown
):
    """Against all orders of as many items."""
    rule = PlaceRule(share, weights=LOG)
    guard = ExposureGuard(rule, price=price, shown=shown, sensitive=share * shown / 2)
    before = guard.sensitive
    values, group = [float(v) for v, _ in candidates], [g for _, g in candidates]
    items = [item for item in serve(guard, values, group, length) if item >= 0]
    g = rule.place_weights(len(items) or 1)

    def value(order) -> float:
        return sum(w * values[i] for w, i in zip(g, order, strict=False))

    def use(order) -> float:
        return sum(w * group[i] for w, i in zip(g, order, strict=False))

    orders = list(itertools.permutations(range(len(candidates)), len(items)))
    room = share * guard.shown - before + 1e-7  # as much as sums of floats may differ
    wanted = max(value(order) - price * use(order) for order in orders)
    within = max(value(order) for order in orders if use(order) <= room)
    assert use(items) <= room
    at_the_price = value(items) - price * use(items) == pytest.approx(wanted, abs=1e-9)
    assert at_the_price or value(items) == pytest.approx(within, abs=1e-9)


def test_a_single_place_after_weighed_ones():
    """Of 1 counted showing 0.25 is of the group: with one more, 1.25 of 2 would be."""
    guard = ExposureGuard(PlaceRule(0.5, weights=LOG), shown=1.0, sensitive=0.25)
    assert serve(guard, [1.0], [True], 1) == [-1]
    assert (guard.shown, guard.sensitive) == (1, 0.25)
    assert serve(ExposureGuard(0.5, shown=1, sensitive=0), [1.0], [True], 1) == [0]


def test_a_floor_that_counts_alike():
    """At least half of all showings: of one place, of two."""
    guard = ExposureGuard(PlaceRule(0.5, is_floor=True), step=0)
    assert serve(guard, [1.0, 5.0], [True, False], 1) == [0]
    assert serve(guard, [1.0, 5.0], [True, False], 1) == [1]
    assert (guard.shown, guard.sensitive) == (2, 1)
    assert serve(guard, [5.0], [False], 1) == [-1]


def test_a_guard_above_the_share_waits():
    rule = PlaceRule(0.5, weights=LOG)
    guard = ExposureGuard(rule, shown=4.0, sensitive=3.5, step=0)
    lists = [serve(guard, [9.0, 2.0, 1.0], [True, False, False], 2) for _ in range(4)]
    assert lists[0] == [1, 2]  # 3.5 of 5.63
    assert 0 in lists[-1]
    assert guard.sensitive <= 0.5 * guard.shown


def requests(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    labels = torch.arange(40) < 15
    values = torch.randn((n, 40), generator=torch.Generator().manual_seed(3)) + labels
    return torch.arange(40).expand(n, 40), values, labels


@pytest.mark.parametrize(
    "rule",
    [
        PlaceRule(0.3, weights=LOG),
        PlaceRule(0.6, is_floor=True, weights=(3, 2, 1)),
        PlaceRule(0.3, scope=Scope.PREFIX),
    ],
)
def test_a_batch_is_its_requests_and_a_loaded_guard_goes_on(rule: PlaceRule, tmp_path: Path):
    items, values, labels = requests(40)
    batch, single = ExposureGuard(rule), ExposureGuard(rule)
    whole = batch.serve_all(items, values, labels, 6)
    rows = [single.serve(items[0], row, labels, 6) for row in values[:25]]
    single.save(tmp_path / "guard.json")
    loaded = ExposureGuard.load(tmp_path / "guard.json")
    assert loaded.rule == rule
    stored = ExposureGuard(rule)
    stored.restore(single.tensors())
    rest = [loaded.serve(items[0], row, labels, 6) for row in values[25:]]
    assert torch.equal(whole, torch.stack(rows + rest))
    assert torch.equal(whole[25:], stored.serve_all(items[25:], values[25:], labels, 6))
    assert loaded.__getstate__() == batch.__getstate__() == stored.__getstate__()


def test_a_file_with_another_rule_is_refused(tmp_path: Path):
    path = tmp_path / "guard.json"
    ExposureGuard(PlaceRule(0.4, weights=LOG), shown=1.5, sensitive=0.5).save(path)
    text = path.read_text(encoding="utf-8")
    for old, new, fault in (
        ('"weights": "log"', '"weights": [0]', "not all 0"),
        ('"weights": "log"', '"weights": "lgo"', "rule"),
        ('"shown": 1.5', '"shown": -1.5', "shown"),
        ('"share": 0.4', '"share": 0.3', "a rule of 0.4"),
    ):
        assert old in text
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(ModelError, match=fault):
            ExposureGuard.load(path)
    ExposureGuard(0.4).save(path)
    plain = path.read_text(encoding="utf-8")
    assert "rule" not in plain
    path.write_text(plain.replace('"shown": 0', '"shown": 0.5'), encoding="utf-8")
    with pytest.raises(ModelError, match="whole number"):
        ExposureGuard.load(path)


class Slow(ExposureGuard):
    """Lets other threads run between reading the counts and writing them."""

    def _learn(self, spread, excess):
        super()._learn(spread, excess)
        time.sleep(0.02)


@pytest.mark.parametrize("rule", [PlaceRule(0.4), PlaceRule(0.4, weights=LOG)])
def test_eight_threads_at_once_keep_the_share(rule: PlaceRule):
    """There is room for two lists of the group. Without the lock each of eight would fill it."""
    guard, lists = Slow(rule, step=0, shown=6), []
    values = torch.arange(12, 0, -1).double()
    labels = torch.arange(12) < 6
    start = threading.Barrier(8)

    def client() -> None:
        start.wait(20)
        lists.append(guard.serve(torch.arange(12), values, labels, 3))

    threads = [threading.Thread(target=client, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    shown = torch.stack(lists)
    counted = torch.from_numpy(rule.place_weights(3))
    assert shown.shape == (8, 3)
    assert guard.shown == pytest.approx(6 + float(((shown >= 0) * counted).sum()))
    assert guard.sensitive == pytest.approx(float((labels[shown] * counted).sum()))
    assert 0.35 * guard.shown < guard.sensitive <= 0.4 * guard.shown + 1e-9


def test_the_price_gives_the_budget_to_who_gains_the_most():
    """Every second request gains more by the group; the price learns it, the cap alone does not."""
    rng = np.random.default_rng(4)
    labels = torch.arange(20) < 8
    offers = (
        torch.from_numpy(rng.random((300, 20))) + 2.0 * labels * (torch.arange(300) % 2)[:, None]
    )
    w = 1 / torch.arange(2, 7).double().log2()
    totals = []
    for step in (0.0, 0.1):
        guard = ExposureGuard(PlaceRule(0.3, weights=LOG), step=step)
        lists = guard.serve_all(torch.arange(20).expand(300, 20), offers, labels, 5)
        totals.append(float((offers.gather(1, lists) @ w).sum()))
        assert guard.sensitive <= 0.3 * guard.shown + 1e-9
    assert totals[1] > 1.05 * totals[0]
