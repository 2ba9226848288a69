"""Limits that hold in effect: by the labels of now, by place, and in every list."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from fairhorizon.allocation.assignment import CLOSED, ItemClasses, SlotOffers
from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.groups import PopularItems, popular_group
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.limits.step_limits import PopularityLimit, ShareLimit, step_limit
from fairhorizon.vocabulary import Labels


def retrospective_share(exposure: Exposure) -> float:
    """Counted anew from the counts: of all showings, those of the items that are popular now."""
    popular = popular_group(exposure.counts)
    return exposure.shown[popular].sum() / exposure.shown.sum()


def long_market(
    limit: ShareLimit, *, seed: int, steps: int, b: int = 60, n: int = 80
) -> list[float]:
    """The retrospective share after every step; users prefer the items of the highest counts."""
    random, b, n = np.random.default_rng(seed), 60, 80
    history = np.sort(random.integers(5, 60, n))[::-1].copy()
    exposure, control = Exposure(history), OnlineControl([limit])
    scores = torch.from_numpy(random.normal(size=(b, n)) + np.linspace(2, -2, n)).float()
    shares = []
    for _ in range(steps):
        lists = control.choose(scores, exposure)
        scores = scores.scatter(1, lists, -torch.inf)
        exposure.add(lists)
        exposure.relabel()
        shares.append(retrospective_share(exposure))
    return shares


def test_room_by_hand():
    """Counts 9, 7, 7, 4, 1; two of five items are popular: 0 and 1, the first of the two sevens.

    Item 2 has the same count as the last of the group, item 1, and a larger index: it overtakes it
    with one more showing, so it has room for none. Item 3 may reach 7, item 4 too.
    """
    counts = np.array([9, 7, 7, 4, 1])
    group = PopularItems(0.4)(counts)
    assert group.tolist() == [True, True, False, False, False]
    room = PopularItems(0.4).room(counts, group, showings=5)
    assert room[2:].tolist() == [0, 3, 6]
    assert (room[:2] > 10**9).all()
    # with a smaller index it is in at an equal count: item 0 may reach 6, not 7
    swapped = np.array([4, 9, 7, 7, 1])
    group = PopularItems(0.4)(swapped)
    assert PopularItems(0.4).room(swapped, group, showings=1)[[0, 3, 4]].tolist() == [2, 0, 6]


def test_a_young_log_has_room_for_a_step_all_the_same():
    """Nothing was shown: each of eight items outside may be shown once, which is room for eight."""
    counts = np.zeros(10, dtype=np.int64)
    group = PopularItems(0.2)(counts)
    assert PopularItems(0.2).room(counts, group, showings=8)[2:].tolist() == [1] * 8
    assert PopularItems(0.2).room(counts, group, showings=9)[2:].tolist() == [2] * 8
    # three of them were shown: the others are raised to their level first
    counts[2:5] = 2
    group = PopularItems(0.2)(counts)
    assert group.nonzero()[0].tolist() == [2, 3]
    room = PopularItems(0.2).room(counts, group, showings=7)
    assert room[[0, 1, 4, 5, 6, 7, 8, 9]].tolist() == [1, 1, 0, 2, 2, 2, 2, 2]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([0.2, 0.3, 0.4, 0.6]))
def test_nobody_enters_the_group_who_keeps_to_the_room(seed, share):
    random = np.random.default_rng(seed)
    counts = random.integers(0, 30, 40)
    group = PopularItems(share)(counts)
    room = PopularItems(share).room(counts, group, showings=0)
    shown = np.where(group, random.integers(0, 5, 40), 0)
    shown[~group] = np.minimum(room[~group], random.integers(0, 40, 40)[~group])
    assert (PopularItems(share)(counts + shown) == group).all()
    # one more of an item that has used its room, while the group stands still, does enter
    full = np.where(group, 0, room)
    for item in np.flatnonzero(~group)[:5]:
        more = counts + full * (np.arange(40) == item)
        more[item] += 1
        assert PopularItems(share)(more)[item]


def test_the_retrospective_limit_is_held_not_recovered():
    """The same market with and without looking ahead, warm-up of 10 of 40 steps."""
    held = long_market(PopularityLimit(0.4, warm_up=10, labels="retrospective"), seed=3, steps=40)
    assert max(held[9:]) <= 0.4 + 1e-9
    recovered = long_market(
        PopularityLimit(0.4, warm_up=10, labels="retrospective", look_ahead=False),
        seed=3,
        steps=40,
    )
    assert max(recovered[9:]) > 0.45
    moment = long_market(PopularityLimit(0.4, warm_up=10), seed=3, steps=40)
    assert max(moment[9:]) > 0.45


@pytest.mark.parametrize("seed", range(6))
def test_it_is_held_from_the_first_step_without_a_warm_up(seed):
    shares = long_market(PopularityLimit(0.5, labels="retrospective"), seed=seed, steps=30)
    assert max(shares) <= 0.5 + 1e-9


def test_the_users_who_lose_most_keep_an_item_with_little_room():
    """One class; item 0 has room for two of four users, who all like it best."""
    scores = torch.tensor([[5.0, 1.0, 0.0], [5, 4, 0], [5, 3, 0], [5, 0, 2]])
    classes = ItemClasses.from_costs(np.zeros((0, 3)), scores.device)
    room = np.array([2, 9, 9])
    found = SlotOffers(scores, classes, remaining=room).assign(np.arange(4), np.zeros(0))
    assert found.items.tolist() == [0, 1, 1, 0]  # losses without it: 4, 1, 2, 3
    assert found.item_prices.tolist() == [2, 0, 0]  # the largest loss of a user who was refused


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31))
def test_room_costs_little_of_the_best_assignment(seed):
    """Against the linear program of the assignment, which is integral: at least 85 % in each of
    the markets, and no item beyond its room where all fit."""
    random = np.random.default_rng(seed)
    b, n = 12, 8
    values = random.random((b, n))
    room = random.integers(1, 4, n)
    if room.sum() < b:
        room[0] += b - room.sum()
    classes = ItemClasses.from_costs(np.zeros((0, n)), torch.device("cpu"))
    offers = SlotOffers(torch.from_numpy(values).float(), classes, remaining=room)
    items = offers.assign(np.arange(b), np.zeros(0)).items
    once = np.kron(np.eye(b), np.ones(n))
    most = np.kron(np.ones(b), np.eye(n))
    best = -linprog(-values.ravel(), A_ub=most, b_ub=room, A_eq=once, b_eq=np.ones(b)).fun
    assert values[np.arange(b), items].sum() >= 0.85 * best
    beyond = np.maximum(0, np.bincount(items, minlength=n) - room).sum()
    assert beyond <= 2  # users who were left with full items alone


def test_an_item_without_room_has_a_prohibitive_charge():
    exposure = Exposure(np.array([9, 7, 7, 4, 1]), PopularItems(0.4))
    control = OnlineControl([PopularityLimit(1.0, labels="retrospective")])
    control.choose(torch.zeros(3, 5), exposure)
    assert (control.charges.numpy() >= CLOSED).tolist() == [[False, False, True, False, False]]


def limited(text: str, members: list[bool]) -> ShareLimit:
    limit = step_limit(ResolvedLimit(Limit.parse(text), np.array(members)))
    assert isinstance(limit, ShareLimit)
    return limit


def lists_under(text: str, *, k: int, n: int = 40, b: int = 50, steps: int = 1) -> torch.Tensor:
    """Lists of users who all prefer the first half of the items, which the limit is on."""
    members = [item < n // 2 for item in range(n)]
    exposure = Exposure(np.zeros(n, dtype=np.int64), lambda _: np.zeros(n, dtype=bool))
    control = OnlineControl([limited(text, members)])
    generator = torch.Generator().manual_seed(5)
    scores = torch.randn(b, n, generator=generator) + 3 * torch.tensor(members)
    found = []
    for _ in range(steps):
        lists = control.choose([scores] * k, exposure)
        exposure.add(lists)
        found.append(lists)
    return torch.cat(found)


def test_places_are_weighed_in_the_control():
    lists = lists_under("genre=a<=0.3;weights=log", k=5)
    inside = (lists < 20).double()
    weights = torch.tensor([1 / math.log2(1 + place) for place in range(1, 6)]).double()
    share = float((inside * weights).sum() / (50 * weights.sum()))
    assert 0.3 - 0.02 < share <= 0.3 + 1e-9


def test_only_the_first_places_count_where_the_limit_says_so():
    inside = lists_under("genre=a<=0.2@2", k=4) < 20
    assert inside[:, :2].sum() == 0.2 * 100
    assert inside[:, 2:].all()


@pytest.mark.parametrize(
    ("text", "most"),
    [
        ("genre=a<=0.3;scope=list", [1, 2, 2, 2, 2]),  # ceil(0.3 * 5) = 2
        ("genre=a<=0.3;scope=prefix", [1, 1, 1, 2, 2]),  # ceil(0.3 k)
        ("genre=a<=0.5@2;scope=list", [1, 1, 2, 3, 4]),  # of the first two places, one
    ],
)
def test_limits_on_every_list(text, most):
    """All users would fill their lists with the group."""
    inside = (lists_under(text, k=5) < 20).cumsum(1)
    assert (inside == torch.tensor(most)).all()


def test_floors_on_every_list():
    """Users prefer the group; at least three of five are of the others."""
    n = 40
    others = limited("genre=b>=0.6;scope=list", [item >= 20 for item in range(n)])
    exposure = Exposure(np.zeros(n, dtype=np.int64), lambda _: np.zeros(n, dtype=bool))
    scores = torch.randn(30, n, generator=torch.Generator().manual_seed(1))
    scores[:, :20] += 4
    lists = OnlineControl([others]).choose([scores] * 5, exposure)
    assert ((lists >= 20).sum(1) == 3).all()
    assert ((lists >= 20).int() == torch.tensor([0, 0, 1, 1, 1])).all()  # as late as it may be


def test_labels_that_lag_are_those_of_some_steps_before():
    """Groups: {0} in step 1, {1} in step 2, {2} from step 3 on; all show item 1."""
    groups = iter([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1], [0, 0, 1]])
    exposure = Exposure(np.zeros(3, dtype=np.int64), lambda _: np.array(next(groups), bool), lag=2)
    seen = []
    for _ in range(4):
        seen.append(exposure.group(Labels.LAGGED).nonzero().squeeze(1).tolist())
        exposure.add(torch.tensor([[1], [1]]))
        exposure.relabel()
    assert seen == [[0], [0], [0], [1]]  # two steps before; at first, those of the beginning
    assert exposure.rate(Labels.LAGGED) == 2 / 8
    assert exposure.rate(Labels.MOMENT) == 2 / 8
    assert exposure.rate(Labels.FIRST) == 0
    assert exposure.rate(Labels.RETROSPECTIVE) == 0
    limit = ShareLimit(replace(Limit.popular(0.2), labels=Labels.LAGGED, lag=2))
    assert limit.costs(exposure).tolist() == [0, 0, 1]
    assert limit.budget(exposure, 2) == pytest.approx(0.2 * 10 - 2)


def test_an_exposure_goes_on_from_what_was_stored():
    random = np.random.default_rng(2)
    steps = [torch.from_numpy(random.integers(-1, 9, (5, 3))) for _ in range(8)]
    whole, part = (Exposure(np.arange(9), lag=3) for _ in range(2))
    for step, lists in enumerate(steps):
        for exposure in (whole, part):
            exposure.add(lists)
            exposure.relabel()
        if step == 4:
            stored = {name: value.clone() for name, value in part.tensors().items()}
            part = Exposure(np.arange(9), lag=3)
            part.restore(stored)
    for labels in Labels:
        assert part.rate(labels) == whole.rate(labels)
        assert part.group(labels).equal(whole.group(labels))
    assert (part.at_place == whole.at_place).all()
    assert part.lasting(np.array([5, 5, 5])).tolist() == whole.lasting(np.array([5, 5, 5])).tolist()


def test_what_was_too_much_once_is_kept_back_from_then_on():
    """Ten items, two popular; 12 of 20 showings were of these, where 10 may be: 2 too many."""
    exposure = Exposure(np.array([90, 80, *[5] * 8]), PopularItems(0.2))
    limit = PopularityLimit(0.5, labels="retrospective")
    control = OnlineControl([limit])
    exposure.add(torch.tensor([[0]] * 12 + [[2 + item % 8] for item in range(8)]))
    exposure.relabel()
    assert limit.overshoot(exposure) == 2
    scores = torch.zeros(20, 10)
    scores[:, :2] = 5.0  # all want the popular ones
    shown = [int((control.choose(scores, exposure) < 2).sum())]
    assert shown == [0.5 * 40 - 12 - 2]  # up to two below what the limit would allow
    exposure.add(torch.tensor([[0]] * 6 + [[2 + item % 8] for item in range(14)]))
    exposure.relabel()
    assert limit.overshoot(exposure) == 0
    assert int((control.choose(scores, exposure) < 2).sum()) == 0.5 * 60 - 18 - 2
    # another control of the same limits goes on with it, and under other labels nothing is kept
    again = OnlineControl([limit])
    again.restore(control.tensors())
    assert int((again.choose(scores, exposure) < 2).sum()) == 10
    assert PopularityLimit(0.5).overshoot(exposure) == 0
    assert int((OnlineControl([PopularityLimit(0.5)]).choose(scores, exposure) < 2).sum()) == 12
