"""The example of the introduction: by hand, against a search through all plans, and learned."""

from dataclasses import replace
from itertools import product
from math import comb

import numpy as np
import pytest

from fairhorizon.studies.six_items import (
    FCPO,
    OPTIMUM,
    Learning,
    SixItems,
    at_price,
    fcpo_row,
    fixed_parity,
    measured,
    myopic,
    optimal_at_price,
    rivals,
    train_fcpo,
    within_limit,
)

# A is popular, by one showing; B is clicked three times as often. One item is popular.
TWO = SixItems(("A", "B"), (0.2, 0.6), (1, 0), popular=1, steps=3, alpha_prime=1 / 3)
# three items, four showings: 81 plans
THREE = SixItems(("A", "B", "C"), (0.3, 0.8, 0.1), (3, 2, 1), popular=1, steps=4, alpha_prime=0.3)


def test_states_are_all_ways_to_have_shown_items() -> None:
    world = SixItems(steps=4)
    assert [len(shown) for shown in world.states] == [comb(step + 5, 5) for step in range(5)]
    for step, shown in enumerate(world.states):
        assert (shown.sum(1) == step).all()
        assert len(np.unique(shown, axis=0)) == len(shown)
    for step, following in enumerate(world.following):
        for state, item in product(range(len(following)), range(6)):
            after = world.states[step + 1][following[state, item]]
            assert (after - world.states[step][state]).tolist() == np.eye(6)[item].tolist()


def test_two_items_by_hand() -> None:
    """B is free twice: at one showing each A, the first, is popular. Then B costs, and A does not.

    At a third B can be shown all the time, at the cost of one showing. The myopic allocation spends
    it at the third step, where there is something to spend it on.
    """
    optimum = within_limit(TWO, OPTIMUM, optimal_at_price)
    assert optimum.clicks == pytest.approx(0.6)
    assert optimum.popular == pytest.approx(1 / 3)
    assert optimum.shares == pytest.approx((0, 1))
    assert optimum.popular_so_far == pytest.approx((0, 0, 1 / 3))
    step_by_step = measured(TWO, "myopic", myopic(TWO))
    assert step_by_step.clicks == pytest.approx(0.6)
    assert step_by_step.popular == pytest.approx(1 / 3)
    # at a fifth 3 / 5 of the third showings may be of B
    less = replace(TWO, alpha_prime=0.2)
    step_by_step = measured(less, "myopic", myopic(less))
    assert step_by_step.clicks == pytest.approx((0.6 + 0.6 + 0.6 * 0.6 + 0.4 * 0.2) / 3)
    assert step_by_step.popular_so_far == pytest.approx((0, 0, 0.2))
    # half of the showings to A, half to B: whichever is popular, half of the showings are of it
    parity = measured(TWO, "parity", fixed_parity(TWO))
    assert parity.clicks == pytest.approx(0.4)
    assert parity.shares == pytest.approx((0.5, 0.5))
    assert parity.popular == pytest.approx(0.5)
    assert parity.gini == pytest.approx(0)


def test_a_high_price_keeps_popular_items_away() -> None:
    """At the third step A, the other item, is shown in place of B."""
    row = measured(TWO, "price", at_price(TWO, 0.5))
    assert row.popular == 0
    assert row.clicks == pytest.approx((0.6 + 0.6 + 0.2) / 3)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.25, 0.3, 0.6])
def test_the_optimum_is_that_of_all_mixtures_of_plans(share: float) -> None:
    world = SixItems(THREE.names, THREE.clicks, THREE.before, popular=1, steps=4, alpha_prime=share)
    plans = []
    for plan in product(range(3), repeat=4):
        counts, clicks, popular = np.array(world.before), 0.0, 0
        for item in plan:
            popular += item == counts.argmax()
            clicks += world.clicks[item]
            counts[item] += 1
        plans.append((popular / 4, clicks / 4))
    best = _best_mixture(plans, share)
    row = within_limit(world, OPTIMUM, optimal_at_price)
    assert row.clicks == pytest.approx(best, abs=1e-6)
    assert row.popular <= share + 1e-6


def _best_mixture(plans: list[tuple[float, float]], share: float) -> float:
    """The most clicks of two plans, one of which keeps the limit, mixed to meet it."""
    found = 0.0
    for p, clicks in plans:
        if p > share:
            continue
        found = max(found, clicks)
        for q, more in plans:
            if q > share:
                weight = (share - p) / (q - p)
                found = max(found, (1 - weight) * clicks + weight * more)
    return found


def test_looking_ahead_pays_on_the_six_items() -> None:
    """The optimum has 14 % more clicks than the myopic allocation, 9 % more than one price."""
    parity, step_by_step, price, optimum = rivals(SixItems())
    assert optimum.clicks == pytest.approx(0.7189, abs=1e-4)
    assert step_by_step.clicks == pytest.approx(0.63, abs=1e-4)
    assert price.clicks == pytest.approx(0.66, abs=1e-4)
    assert parity.popular == pytest.approx(0.752, abs=1e-3)
    for row in (step_by_step, price, optimum):
        assert row.popular == pytest.approx(0.3, abs=1e-6)
    # A and B, which nobody wants much, keep D unpopular
    assert optimum.shares[0] + optimum.shares[1] > 0.25
    assert step_by_step.shares[0] + step_by_step.shares[1] == 0


def test_fcpo_learns_on_two_items() -> None:
    """Within a few rounds it shows B while B is free; the same seed gives the same policy."""
    learning = Learning(rounds=15, trajectories=200, hidden=(8, 8), delta=0.05)
    row = fcpo_row(TWO, 0, learning)
    assert row.policy == FCPO
    assert row.clicks > 0.53  # of 0.6
    assert row.popular < 1 / 3 + 0.02
    short = Learning(rounds=2, trajectories=50, hidden=(8, 8))
    for own, again in zip(train_fcpo(TWO, 1, short), train_fcpo(TWO, 1, short), strict=True):
        assert np.array_equal(own, again)


@pytest.mark.slow
def test_fcpo_finds_the_plan_from_clicks() -> None:
    """More clicks than any rule that looks at one step, within 4 % of the optimum, in the limit."""
    world = SixItems()
    *_, price, optimum = rivals(world)
    row = fcpo_row(world, 0)
    assert row.clicks > 1.03 * price.clicks
    assert row.clicks > 0.96 * optimum.clicks
    assert row.popular < world.alpha_prime + 0.005
