"""Limits on exposure: what the next step may show, by hand and by the definition of each limit."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairhorizon.errors import ConfigError
from fairhorizon.limits.counts import Exposure
from fairhorizon.limits.step_limits import (
    GiniLimit,
    GroupFloor,
    GroupLimit,
    PopularityLimit,
    marginal_gini,
)
from fairhorizon.metrics.fairness import gini
from fairhorizon.metrics.shares import whole_showings
from fairhorizon.vocabulary import Labels

COUNTS = st.lists(st.integers(0, 6), min_size=2, max_size=9)


def shown(*times: int, step: int | None = None) -> Exposure:
    """Item i was shown times[i] times; G0 is the first fifth of the items, of five the first.

    All in one step, or in steps of so many showings.
    """
    exposure = Exposure(np.arange(len(times))[::-1].copy())
    items = np.repeat(np.arange(len(times)), times)
    if len(items):
        for some in torch.from_numpy(items)[:, None].split(step or len(items)):
            exposure.add(some)
    return exposure


def double_sum(g: np.ndarray) -> float:
    """Equation 18 as it is written."""
    return float(np.abs(g[:, None] - g[None, :]).sum() / (2 * len(g) * g.sum()))


def test_popularity_by_hand():
    exposure = shown(3, 2, 1, 0, 4)  # 3 of 10 in G0
    limit = PopularityLimit(0.4)
    assert limit.costs(exposure).tolist() == [1, 0, 0, 0, 0]
    assert limit.budget(exposure, 5) == pytest.approx(0.4 * 15 - 3)
    assert limit.excess(exposure) == pytest.approx(0.3 - 0.4)
    assert PopularityLimit(0.2).excess(exposure) == pytest.approx(0.1)
    assert limit.limit_per_showing == 0.4


def test_the_budget_of_the_warm_up_may_be_spent_early():
    limit = PopularityLimit(0.4, warm_up=10)
    assert limit.budget(shown(0, 0, 0, 0, 0), 5) == pytest.approx(0.4 * 50)
    assert limit.budget(shown(20, 0, 0, 0, 5, step=5), 5) == pytest.approx(0)  # in 5 of 10
    assert limit.budget(shown(20, 0, 0, 0, 30, step=5), 5) == pytest.approx(0.4 * 55 - 20)


class Crowd:
    """Users who all want the group: each step shows as much of it as the limit allows."""

    def __init__(self, limit: PopularityLimit) -> None:
        self.limit = limit
        self.exposure = Exposure(np.zeros(2, dtype=np.int64), lambda _: np.array([True, False]))

    def step(self, users: int) -> int:
        """How many of these users are shown the group."""
        allowed = self.limit.budget(self.exposure, users)
        granted = min(users, max(0, whole_showings(allowed)))
        items = torch.tensor([0] * granted + [1] * (users - granted), dtype=torch.long)
        self.exposure.add(items[:, None])
        return granted

    @property
    def excess(self) -> float:
        """In showings."""
        return self.exposure.n_sensitive - self.limit.share * self.exposure.n_shown


def test_users_who_leave_one_by_one_are_lent_nothing_more():
    """40 users down to 4. The first step lends 40 - 16; the next two pay it back."""
    crowd = Crowd(PopularityLimit(0.4, warm_up=50))
    sizes = [*range(40, 4, -1), *[4] * 14]
    granted, excess = [], []
    for users in sizes:
        granted.append(crowd.step(users))
        excess.append(crowd.excess)
    assert granted[:4] == [40, 0, 6, 15]  # 0.4 * (40 + 39 + 38) = 46.8, with 37 more 61.6
    assert excess[:2] == pytest.approx([24, 40 - 0.4 * 79])
    assert max(excess[2:]) <= 1e-9
    assert crowd.exposure.n_sensitive == whole_showings(0.4 * sum(sizes))


def test_half_of_the_users_leave():
    """The other half would be lent 0.4 * 50 * 20 = 400 showings of the group on their own."""
    crowd = Crowd(PopularityLimit(0.4, warm_up=50))
    assert [crowd.step(40) for _ in range(5)] == [40] * 5
    assert [crowd.step(20) for _ in range(15)] == [0] * 15  # 200 / 0.4 is 500 showings
    assert [crowd.step(20) for _ in range(5)] == [8] * 5


def test_what_was_lent_before_anyone_left_takes_its_showings_to_pay_back():
    """20 steps of 40 users are those of users who stay; the 4 who are left pay back 2,000 / 4."""
    crowd = Crowd(PopularityLimit(0.4, warm_up=50))
    assert [crowd.step(40) for _ in range(20)] == [40] * 20
    assert crowd.excess == pytest.approx(0.4 * 0.6 * 50 * 40)  # the most that is ever lent
    assert [crowd.step(4) for _ in range(300)] == [0] * 300
    assert (crowd.exposure.n_shown, crowd.excess) == (2000, pytest.approx(0))
    assert sum(crowd.step(4) for _ in range(5)) == 8


def test_users_who_join_late_begin_no_new_warm_up():
    crowd = Crowd(PopularityLimit(0.4, warm_up=50))
    assert sum(crowd.step(4) for _ in range(60)) == 0.4 * 240
    assert crowd.step(40) == 0.4 * 40
    assert crowd.excess == pytest.approx(0)


SIZES = st.lists(st.integers(0, 30), min_size=1, max_size=40)


@given(SIZES, st.booleans(), st.sampled_from([0.0, 0.1, 0.4, 0.9, 1.0]), st.integers(0, 12))
def test_what_the_warm_up_lends_is_bounded_whoever_leaves(sizes, shrinking, share, warm_up):
    if shrinking:
        sizes = sorted(sizes, reverse=True)
    crowd = Crowd(PopularityLimit(share, warm_up))
    first = next((users for users in sizes if users), 0)
    left, before = False, 0.0
    for users, last in zip(sizes, [0, *sizes], strict=False):
        left = left or users < last
        crowd.step(users)
        shown, group = crowd.exposure.n_shown, crowd.exposure.n_sensitive
        assert group <= share * max(shown, warm_up * first) + 1e-9
        assert crowd.excess <= share * (1 - share) * warm_up * first + 1e-9
        if left:  # paid back by every showing, and nothing lent again
            assert crowd.excess <= max(0.0, before - share * users) + 1e-9
        before = crowd.excess


@given(st.integers(1, 30), st.sampled_from([0.0, 0.1, 0.4, 0.9, 1.0]), st.integers(0, 12))
def test_users_who_stay_have_the_whole_warm_up(users, share, warm_up):
    crowd = Crowd(PopularityLimit(share, warm_up))
    for step in range(1, 16):
        allowed = crowd.limit.budget(crowd.exposure, users) + crowd.exposure.n_sensitive
        assert allowed == pytest.approx(share * max(step, warm_up) * users)
        crowd.step(users)
        assert step < warm_up or crowd.excess <= 1e-9


def test_showings_keep_the_label_of_their_moment():
    labels = np.array([True, False, False])
    exposure = Exposure(np.zeros(3, dtype=np.int64), lambda _: labels)
    exposure.add(torch.tensor([[0], [0], [1], [2]]))
    labels = np.array([False, True, False])
    exposure.relabel()
    limit = PopularityLimit(0.5)
    assert limit.costs(exposure).tolist() == [0, 1, 0]
    assert limit.budget(exposure, 4) == 0.5 * 8 - 2
    assert limit.excess(exposure) == 0
    exposure.add(torch.tensor([[0], [1], [1], [1]]))
    assert (exposure.n_sensitive, exposure.in_group[Labels.FIRST].sum()) == (2 + 3, 2 + 1)


def test_group_limit_and_floor_by_hand():
    exposure = shown(3, 2, 1, 0, 4)
    members = torch.tensor([False, True, True, True, False])  # 3 of 10
    limit, floor = GroupLimit("drama", members, 0.2), GroupFloor("acme", members, 0.4)
    assert limit.costs(exposure).tolist() == [0, 1, 1, 1, 0]
    assert floor.costs(exposure).tolist() == [0, -1, -1, -1, 0]
    assert limit.budget(exposure, 10) == pytest.approx(0.2 * 20 - 3)
    assert GroupLimit("drama", members, 0.2, warm_up=5).budget(exposure, 10) == pytest.approx(7)
    assert floor.budget(exposure, 10) == pytest.approx(3 - 0.4 * 20)
    assert limit.excess(exposure) == pytest.approx(0.1)
    assert floor.excess(exposure) == pytest.approx(0.1)
    assert (limit.limit_per_showing, floor.limit_per_showing) == (0.2, -0.4)


@settings(max_examples=50)
@given(COUNTS, st.integers(1, 8), st.sampled_from([0.0, 0.2, 0.35, 0.5, 1.0]))
def test_a_step_within_the_budget_keeps_the_limit_and_one_beyond_breaks_it(counts, step, share):
    exposure = shown(*counts)
    first = torch.arange(len(counts)) == 0
    for constraint in (
        PopularityLimit(share),
        GroupLimit("first", first, share),
        GroupFloor("first", first, share),
    ):
        start, costs = shown(*counts), constraint.costs(exposure)
        if not costs.any():  # two items have no popular one
            continue
        for inside in range(step + 1):
            items = torch.tensor([0] * inside + [1] * (step - inside))
            after = shown(*counts)
            after.add(items[:, None])
            kept = float(costs[items].sum()) <= constraint.budget(start, step) + 1e-9
            assert kept == (constraint.excess(after) <= 1e-9)


@given(COUNTS.filter(any))
def test_marginal_gini_is_the_derivative(counts):
    """By central differences; where an item has equals, midway between up and down."""
    g = np.array(counts)
    small = 1e-5
    for item, cost in enumerate(marginal_gini(g)):
        up, down = g.astype(float), g.astype(float)
        up[item] += small
        down[item] -= small
        assert cost == pytest.approx((double_sum(up) - double_sum(down)) / (2 * small), abs=1e-4)
    assert marginal_gini(g) @ g == pytest.approx(0, abs=1e-12)  # showing as before keeps G


def test_gini_limit_by_hand():
    exposure = shown(1, 0, 3, 0)
    limit = GiniLimit(0.5)
    # ranks 3, 1.5, 4, 1.5: G = (1 * 1 + 3 * 3) / 16, and costs ((1, -2, 3, -2) / 4 - G) / 4
    assert limit.costs(exposure).tolist() == pytest.approx([-3 / 32, -9 / 32, 1 / 32, -9 / 32])
    assert limit.excess(exposure) == pytest.approx(0.125)
    assert limit.budget(exposure, 4) == pytest.approx(-0.125)
    assert limit.limit_per_showing == 0
    # the second of four steps of warm-up: half of the way from 1 down to 0.5
    assert GiniLimit(0.5, warm_up=4).budget(exposure, 4) == pytest.approx(0.75 - 0.625)
    # the second step after a warm-up of one: down at the limit, and no lower
    assert GiniLimit(0.5, warm_up=1).budget(exposure, 4) == pytest.approx(0.5 - 0.625)


@given(COUNTS)
def test_the_index_is_that_of_the_metrics(counts):
    exposure = shown(*counts)
    left = GiniLimit(0.3).budget(exposure, 1)
    assert left == pytest.approx(0.3 - gini(exposure.shown), abs=1e-12)


def test_a_few_showings_cost_what_they_add():
    exposure = shown(*np.random.default_rng(0).permutation(np.arange(50) * 20))
    limit, items = GiniLimit(0.5), torch.tensor([[3], [7], [7], [20]])
    expected = gini(exposure.shown) + float(limit.costs(exposure)[items].sum())
    exposure.add(items)
    assert gini(exposure.shown) == pytest.approx(expected, abs=1e-6)


def test_before_anything_is_shown():
    nothing = shown(0, 0, 0)
    everyone = torch.ones(3, dtype=torch.bool)
    assert GiniLimit(0.4).costs(nothing).tolist() == [0, 0, 0]
    for constraint in (PopularityLimit(0.4), GiniLimit(0.4), GroupFloor("all", everyone, 0.4)):
        assert constraint.excess(nothing) == 0


def test_what_cannot_be_a_limit():
    with pytest.raises(ConfigError, match="'popularity' must lie between 0 and 1, not 40"):
        PopularityLimit(40)
    with pytest.raises(ConfigError, match="warm-up of 'gini' cannot be -1"):
        GiniLimit(0.4, warm_up=-1)
    with pytest.raises(ConfigError, match=r"'drama' must be True or False for each of 3 items"):
        GroupFloor("drama", torch.ones(2, dtype=torch.bool), 0.1).costs(shown(1, 1, 1))
