"""The online control: limits hold after every step, at the least loss of score."""

from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog

from fairhorizon.allocation.assignment import ItemClasses, SlotOffers, assign_classes
from fairhorizon.allocation.steps import OnlineControl
from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.limits.counts import Exposure, GrowingLists
from fairhorizon.limits.language import Limit
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.limits.step_limits import (
    GiniLimit,
    GroupFloor,
    GroupLimit,
    PopularityLimit,
    step_limit,
)
from fairhorizon.metrics.fairness import gini

NOTHING = -torch.inf
LIMIT_AND_FLOOR = np.array([[0.0, 0, 1, 1], [0, -1, 0, -1]])  # costs of four classes


class Labels:
    """G0 as the test wants it, whatever was shown."""

    def __init__(self, labels):
        self.now = np.array(labels, dtype=bool)

    def __call__(self, _):
        return self.now.copy()


def exposure_with(labels) -> Exposure:
    return Exposure(np.zeros(len(labels.now), dtype=np.int64), labels)


def exhaustive(values, costs, budgets):
    """The least total excess over whole budgets, and the best sum of scores with it."""
    budgets = np.floor(budgets + 1e-9)
    outcomes = []
    for choice in product(range(values.shape[1]), repeat=len(values)):
        score = values[np.arange(len(values)), choice].sum()
        if score > -np.inf:
            excess = (costs[:, list(choice)].sum(1) - budgets).clip(0).sum()
            outcomes.append((excess, -score))
    excess, loss = min(outcomes)
    return excess, -loss


def tables(b: int, n_classes: int):
    """Scores with many draws and gaps, but something for everybody."""
    cells = st.sampled_from([-np.inf, 0.0, 1.0, 2.0, 3.0, 2.5])
    rows = st.lists(cells, min_size=n_classes, max_size=n_classes).filter(
        lambda row: max(row) > -np.inf
    )
    return st.lists(rows, min_size=b, max_size=b).map(np.array)


@given(tables(5, 2), st.sampled_from([[0, 1], [-1, 0]]), st.floats(-6, 6))
def test_one_budget_is_kept_at_the_least_loss(values, costs, budget):
    """Against all ways to choose; who has one class alone gets it, and comes first."""
    costs, budgets = np.array([costs], dtype=float), np.array([budget])
    choice, (price,) = assign_classes(values, costs, budgets)
    excess, best = exhaustive(values, costs, budgets)
    assert max(0, costs[0, choice].sum() - np.floor(budget + 1e-9)) == excess
    assert values[np.arange(5), choice].sum() == best
    assert 0 <= price < np.inf


@pytest.mark.parametrize("cheap", [0.0, -1.0])
def test_the_price_is_the_gain_of_the_first_who_is_refused(cheap):
    """Under a limit on the second class, and under the same limit as a floor of the first."""
    costs = np.array([[cheap, cheap + 1]])
    gains = np.array([0.5, 3.0, -1.0, 2.0, 1.0])
    values = np.stack([np.zeros(5), gains], axis=1)
    for budget, price, dear in [(0, 3, []), (1, 2, [1]), (2.9, 1, [1, 3]), (4, 0, [0, 1, 3, 4])]:
        choice, prices = assign_classes(values, costs, np.array([budget + 5 * cheap]))
        assert prices == [price]
        assert choice.nonzero()[0].tolist() == dear
        assert (gains > price).nonzero()[0].tolist() == dear


@settings(max_examples=50)
@given(tables(5, 4), st.integers(-1, 5), st.integers(-6, 1))
def test_several_budgets_are_kept_where_they_can_be(values, limit, floor):
    """Against all ways to choose: the least excess; of two budgets, two users may be off."""
    budgets = np.array([limit, floor], dtype=float)
    choice, _ = assign_classes(values, LIMIT_AND_FLOOR, budgets)
    excess, best = exhaustive(values, LIMIT_AND_FLOOR, budgets)
    assert (LIMIT_AND_FLOOR[:, choice].sum(1) - budgets).clip(0).sum() == excess
    score = values[np.arange(5), choice].sum()
    assert best - 2 * 3 <= score <= best


@pytest.mark.parametrize(("m", "b"), [(2, 80), (3, 80), (2, 1500), (3, 1500)])
@pytest.mark.parametrize("seed", range(3))
def test_several_prices_are_those_of_the_linear_program(m, b, seed):
    """Strong duality: with the prices nobody can do better than the optimum that scipy finds."""
    generator = np.random.default_rng(seed)
    costs = np.array(list(product((0.0, 1.0), repeat=m))).T
    costs[-1] *= -1  # the last is a floor
    n_classes = costs.shape[1]
    # later users care more: a sample that is not like them must not matter
    values = generator.normal(size=(b, n_classes)) * np.linspace(1, 3, b)[:, None]
    budgets = np.floor([0.3 * b] * (m - 1) + [-0.7 * b])
    optimum = -linprog(
        -values.reshape(-1),
        A_ub=sparse.csc_array(np.tile(costs, b)),
        b_ub=budgets,
        A_eq=sparse.kron(sparse.eye_array(b), np.ones((1, n_classes))),
        b_eq=np.ones(b),
        method="highs-ds",
    ).fun
    choice, prices = assign_classes(values, costs, budgets)
    assert (prices >= 0).all()
    assert (prices > 0).any()
    assert (values - prices @ costs).max(1).sum() + prices @ budgets == pytest.approx(optimum)
    assert (costs[:, choice].sum(1) <= budgets).all()
    score = values[np.arange(b), choice].sum()
    assert optimum - m * np.ptp(values, axis=1).max() <= score <= optimum + 1e-9


def test_budgets_that_contradict_each_other_are_missed_by_the_least():
    """All of the group at most 2 times and at least 5 times: 3 short, however it is done."""
    values = np.random.default_rng(0).normal(size=(30, 2))
    costs = np.array([[0.0, 1.0], [0.0, -1.0]])
    choice, _ = assign_classes(values, costs, np.array([2.0, -5.0]))
    assert 2 <= choice.sum() <= 5


def test_lists_by_hand():
    """Item 0 is in G0, and of four showings one may be: the user who would lose the most has it."""
    scores = torch.tensor([[3, 1.0], [5, 1], [9, 8], [NOTHING, 0], [NOTHING, NOTHING]])
    exposure = exposure_with(Labels([True, False]))
    control = OnlineControl([PopularityLimit(0.25)])
    assert control.choose(scores, exposure).tolist() == [[1], [0], [1], [1], [-1]]
    assert control.prices == {"popularity": 2}
    free = OnlineControl([PopularityLimit(0.75)])
    assert free.choose(scores, exposure).tolist() == [[0], [0], [0], [1], [-1]]
    assert free.prices == {"popularity": 0}


def test_who_has_nothing_else_left_comes_first_and_may_break_the_limit():
    scores = torch.tensor([[0, NOTHING], [0, NOTHING], [7, 1.0], [9, 1]])
    exposure = exposure_with(Labels([True, False]))
    control = OnlineControl([PopularityLimit(0.25)])
    assert control.choose(scores, exposure).tolist() == [[0], [0], [1], [1]]
    assert control.prices == {"popularity": 8}


def test_without_limits_the_best_item_is_shown():
    scores = torch.randn(700, 900, generator=torch.Generator().manual_seed(0))
    lists = OnlineControl([]).choose(scores, exposure_with(Labels([False] * 900)))
    assert torch.equal(lists[:, 0], scores.argmax(1))


@pytest.mark.parametrize("kinds", ["popularity", "popularity and a floor", "gini"])
@pytest.mark.parametrize("length", [1, 2])
def test_at_the_charges_everybody_is_shown_the_best_that_is_left(kinds: str, length: int):
    generator = torch.Generator().manual_seed(length)
    exposure = exposure_with(Labels(np.arange(30) < 10))
    floor = GroupFloor("odd", torch.arange(30) % 2 == 1, 0.6)
    limits = {
        "popularity": [PopularityLimit(0.2)],
        "popularity and a floor": [PopularityLimit(0.2), floor],
        "gini": [GiniLimit(0.3)],
    }[kinds]
    control = OnlineControl(limits)
    for _ in range(3):  # a carried price needs a history
        noise = torch.randn(length, 200, 30, generator=generator)
        slots = list((noise + torch.linspace(1, 0, 30)).unbind(0))
        lists = control.choose(slots, exposure)
        exposure.add(lists)
    charges = control.charges
    assert charges.shape == (length, 30)
    assert charges.abs().max() > 0.1
    for k, scores in enumerate(slots):
        left = (scores - charges[k]).scatter(1, lists[:, :k], NOTHING)
        wrong = left.argmax(1) != lists[:, k]
        assert wrong.sum() <= len(limits)  # users at the margin of a budget
    if kinds == "popularity":  # the price of the limit, for the items of the group
        assert torch.equal(charges[:, 10:], torch.zeros(length, 20, dtype=torch.float64))
        assert float(charges[:, 0].mean()) == pytest.approx(control.prices["popularity"])


def test_without_a_limit_that_binds_nothing_is_charged():
    control = OnlineControl([PopularityLimit(1.0)])
    control.choose(torch.randn(5, 4), exposure_with(Labels([True, False, True, False])))
    assert torch.equal(control.charges, torch.zeros(1, 4, dtype=torch.float64))


@settings(max_examples=50)
@given(st.integers(0, 2**31), st.integers(1, 3))
def test_lists_of_several_slots(seed, length):
    """No item twice in a list, full while there are items, and the limit holds after the step."""
    generator = torch.Generator().manual_seed(seed)
    slots = torch.randn(length, 6, 8, generator=generator)
    slots[:, torch.rand(6, 8, generator=generator) < 0.3] = NOTHING
    slots[:, :, :3] = torch.randn(length, 6, 3, generator=generator)
    exposure = exposure_with(Labels([False] * 4 + [True] * 4))
    lists = OnlineControl([PopularityLimit(0.4)]).choose(list(slots), exposure)
    exposure.add(lists)
    assert exposure.n_shown == 6 * length
    assert exposure.n_sensitive <= 0.4 * exposure.n_shown
    assert all(len(set(row)) == length for row in lists.tolist())


def test_slots_by_hand():
    """The slots share the budget of two; a slot takes nothing that an earlier one took."""
    slots = [
        torch.tensor([[9.0, 8, 1, 0], [9.0, 5, 1, 0]]),
        torch.tensor([[9.0, 0, 4, 0], [9.0, 8, 7, 0]]),
    ]
    exposure = exposure_with(Labels([True, True, False, False]))
    lists = OnlineControl([PopularityLimit(0.5)]).choose(slots, exposure)
    # first slot: one of G0, both gain 8 by it, the first user has it; second: user 0 gains -4 by
    # item 1 of G0, user 1 gains 2 by item 0
    assert lists.tolist() == [[0, 2], [2, 0]]
    short = OnlineControl([]).choose([slots[0][:, :1], slots[1][:, :1]], exposure_of_one())
    assert short.tolist() == [[0, -1], [0, -1]]


@pytest.mark.parametrize("grows", [False, True])
@pytest.mark.parametrize(
    ("text", "lists"),
    [
        # one of the first two places; the third may be anything
        ("new<=0.5@2;scope=list", [[0, 2, 1], [0, 2, 1]]),
        ("new<=0.5;scope=list", [[0, 1, 2], [0, 1, 2]]),  # two of three places
        ("new<=0.3;scope=prefix", [[0, 2, 3], [0, 2, 3]]),
        ("new>=0.7;scope=list", [[0, 1, 2], [0, 1, 2]]),
        # at each place one of two users, at the third it has no weight
        ("new<=0.5;weights=1,0.5", [[0, 2, 1], [2, 0, 1]]),
    ],
)
def test_lists_by_place_by_hand(text: str, lists: list[list[int]], grows: bool):
    """Both users like the items in the order of their codes; 0 and 1 are of the group."""
    group = np.array([True, True, False, False])
    scores = torch.tensor([[9.0, 8, 7, 6], [8.0, 7, 6, 5]])
    control = OnlineControl([step_limit(ResolvedLimit(Limit.parse(text), group), fixed=True)])
    if not grows:
        shown = control.choose([scores] * 3, Exposure(np.zeros(4, np.int64), lambda _: group))
        assert shown.tolist() == lists
        return
    exposure = GrowingLists(group, n_users=2, length=3)
    for _ in range(3):
        taken = exposure.list_prefix(2)
        left = scores.scatter(1, taken, NOTHING) if taken.shape[1] else scores
        exposure.add(control.choose(left, exposure))
    assert exposure.lists.tolist() == lists


@pytest.mark.parametrize(
    ("room", "budget", "items"),
    [
        ([9, 9, 9], 2, [0, 0]),
        ([9, 9, 9], 0, [1, 1]),
        ([9, 1, 9], 0, [2, 1]),  # at the price of 4 the first user has item 0 for item 1
        ([9, 0, 9], 0, [2, 2]),
        ([9, 0, 0], 2, [0, 0]),
        ([9, 0, 0], 1, [0, 1]),  # what is full, where the budget allows nothing else
        ([9, 0, 1], 0, [1, 2]),
    ],
)
def test_items_that_are_full_are_the_last_resort(room: list[int], budget: int, items: list[int]):
    """Item 0 is of the group, the others are not."""
    scores = torch.tensor([[9.0, 5, 1], [8.0, 5, 2]])
    classes = ItemClasses.from_costs(np.array([[1.0, 0, 0]]), scores.device)
    offers = SlotOffers(scores, classes, remaining=np.array(room))
    shown = offers.assign(offers.rows_left(), np.array([float(budget)]))
    assert shown.items.tolist() == items


def exposure_of_one() -> Exposure:
    return exposure_with(Labels([False]))


@settings(max_examples=60)
@given(st.data())
def test_the_running_share_never_exceeds_the_limit(data):
    """Whatever the scores, and however labels change, while all have something outside G0."""
    seed = data.draw(st.integers(0, 2**31))
    share = data.draw(st.sampled_from([0.0, 0.1, 1 / 3, 0.4, 0.9]))
    warm_up = data.draw(st.integers(0, 4))
    random = np.random.default_rng(seed)
    b, n = int(random.integers(1, 8)), int(random.integers(2, 8))
    labels = Labels(np.zeros(n))
    exposure = exposure_with(labels)
    control = OnlineControl([PopularityLimit(share, warm_up)])
    for step in range(1, 9):
        labels.now = random.random(n) < random.random()
        labels.now[random.integers(n)] = False
        exposure.relabel()
        scores = torch.from_numpy(random.normal(size=(b, n))).float() + 2 * exposure.sensitive
        outside = (~exposure.sensitive).nonzero()[0]
        blocked = torch.from_numpy(random.random((b, n)) < 0.4)
        blocked[:, outside] = False
        exposure.add(control.choose(scores.masked_fill(blocked, NOTHING), exposure))
        if step >= warm_up:
            assert exposure.n_sensitive <= share * exposure.n_shown + 1e-9
    assert exposure.n_shown == 8 * b


def test_the_limit_is_kept_while_users_leave():
    """40 users, of whom one leaves after every step until there are 4; all want G0.

    A loan on the users of the moment would end the warm-up at 500 of 866 showings, 58 %.
    """
    exposure = exposure_with(Labels([True, False]))
    control = OnlineControl([PopularityLimit(0.4, warm_up=50)])
    shares = []
    for users in [*range(40, 4, -1), *[4] * 14]:
        exposure.add(control.choose(torch.tensor([[3.0, 1.0]]).expand(users, 2), exposure))
        shares.append(exposure.n_sensitive / exposure.n_shown)
    assert shares[:2] == [1, 40 / 79]
    assert max(shares[2:]) <= 0.4
    assert shares[-1] == pytest.approx(0.4, abs=1e-3)


def steps_broken_after_a_flip(limit, *, flip_at: int, steps: int) -> int:
    """100 users, 200 items, 50 labels flipped: steps until a step keeps to 0.4 of G0 again."""
    labels = Labels(np.arange(200) < 40)
    exposure = exposure_with(labels)
    scores = torch.randn(100, 200, generator=torch.Generator().manual_seed(1))
    scores += torch.linspace(3, -3, 200)
    control = OnlineControl([limit(exposure)])
    broken = []
    for step in range(steps):
        if step == flip_at:
            labels.now[15:65] ^= True  # 25 items of the popular group leave it, 25 others enter
            assert exposure.relabel().items == 50
        lists = control.choose(scores, exposure)
        broken.append(int(exposure.sensitive[lists].sum()) > 40)
        exposure.add(lists)
    assert not any(broken[:flip_at])
    return broken[flip_at:].index(False) if not all(broken[flip_at:]) else steps - flip_at


def test_reaction_to_fifty_flipped_labels():
    """Who sees the labels of the moment keeps the limit at once; who has those of the round's
    first step, as a re-ranker in a round of 100, breaks it until the round is over."""
    now = steps_broken_after_a_flip(lambda _: PopularityLimit(0.4), flip_at=40, steps=100)
    assert now == 0
    stale = steps_broken_after_a_flip(
        lambda exposure: GroupLimit("stale", exposure.sensitive.clone(), 0.4), flip_at=40, steps=100
    )
    assert stale == 60


def test_a_limit_and_a_floor_hold_together_at_every_step():
    """While exposure moves the popular group; without the control both are broken."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(60, 50, generator=generator) + torch.linspace(2, -2, 50)
    members = torch.arange(50) % 5 == 0
    scores[:, members] -= 1
    limits = [PopularityLimit(0.4), GroupFloor("acme", members, 0.3)]
    for kept_limits, kept in ((limits, True), ([], False)):
        exposure = Exposure(np.arange(50)[::-1].copy())
        control, churn = OnlineControl(kept_limits), 0
        for _ in range(60):
            drift = 0.1 * torch.randn(scores.shape, generator=generator)
            exposure.add(control.choose(scores + drift, exposure))
            if kept:
                assert max(limit.excess(exposure) for limit in limits) <= 1e-9
            churn += exposure.relabel().items
        assert churn > 0
        assert all((limit.excess(exposure) <= 1e-9) == kept for limit in limits)


def market(control: OnlineControl, scores: torch.Tensor, steps: int) -> tuple[list[float], float]:
    """The Gini index after every step and the mean score of what was shown."""
    exposure = Exposure(np.zeros(scores.shape[1], dtype=np.int64))
    indices, total = [], 0.0
    for _ in range(steps):
        lists = control.choose(scores, exposure)
        exposure.add(lists)
        indices.append(gini(exposure.shown))
        total += float(scores.gather(1, lists).mean())
    return indices, total / steps


def test_a_gini_limit_holds_after_the_warm_up():
    """200 users, 100 items; of logits and of their probabilities, at a moderate loss of score."""
    logits = torch.randn(200, 100, generator=torch.Generator().manual_seed(0))
    logits += torch.linspace(2, -2, 100)
    for scores in (logits, logits.softmax(1)):
        free, best = market(OnlineControl([]), scores, 60)
        assert min(free) > 0.75
        control = OnlineControl([GiniLimit(0.5, warm_up=15)])
        kept, score = market(control, scores, 60)
        assert max(kept[14:]) <= 0.5
        assert kept[-1] > 0.45  # no more than is asked for
        mean = float(scores.mean())
        assert (best - score) / (best - mean) < 0.2
        assert control.prices["gini"] > 0


def test_the_unit_of_the_scores_does_not_matter():
    scores = torch.randn(50, 40, generator=torch.Generator().manual_seed(3))
    scores += torch.linspace(2, -2, 40)
    runs = [
        market(OnlineControl([GiniLimit(0.4), PopularityLimit(0.3)]), scale * scores, 20)[0]
        for scale in (1, 1024)
    ]
    assert runs[0] == runs[1]


def test_a_price_that_is_no_longer_needed_goes():
    """First all want the same item, then each their own."""
    control, exposure = OnlineControl([GiniLimit(0.3)]), exposure_with(Labels([False] * 10))
    same = torch.rand(10, 10, generator=torch.Generator().manual_seed(0))
    same[:, 0] += 1
    for _ in range(10):
        exposure.add(control.choose(same, exposure))
    assert control.prices["gini"] > 0.1
    for _ in range(60):
        exposure.add(control.choose(10 * torch.eye(10), exposure))
    assert control.prices["gini"] == 0
    assert exposure.shown.argmin() != 0


def test_three_kinds_at_once():
    scores = torch.randn(80, 60, generator=torch.Generator().manual_seed(2))
    scores += torch.linspace(2, -2, 60)
    members = torch.arange(60) % 4 == 3
    limits = [
        PopularityLimit(0.3),
        GroupFloor("acme", members, 0.3),
        GiniLimit(0.5, warm_up=15),
    ]
    control, exposure = OnlineControl(limits), Exposure(np.arange(60)[::-1].copy())
    for step in range(1, 41):
        exposure.add(control.choose(scores, exposure))
        exposure.relabel()
        assert max(limit.excess(exposure) for limit in limits[:2]) <= 1e-9
        assert step < 15 or limits[2].excess(exposure) <= 1e-9


def test_a_restored_control_goes_on_as_the_saved_one():
    scores = torch.randn(50, 40, generator=torch.Generator().manual_seed(4))
    scores += torch.linspace(2, -2, 40)
    limits = [GiniLimit(0.4), PopularityLimit(0.3)]
    control, other = OnlineControl(limits), OnlineControl(limits)
    exposure = Exposure(np.zeros(40, dtype=np.int64))
    for _ in range(7):
        exposure.add(control.choose(scores, exposure))
    assert control.prices["gini"] > 0
    other.restore(control.tensors())
    assert other.prices == control.prices
    for _ in range(5):
        lists = control.choose(scores, exposure)
        assert torch.equal(other.choose(scores, exposure), lists)
        exposure.add(lists)


def test_mistakes():
    with pytest.raises(ConfigError, match="two limits are called 'popularity'"):
        OnlineControl([PopularityLimit(0.4), PopularityLimit(0.3)])
    with pytest.raises(ModelError, match="prices of 1 limits cannot be restored"):
        OnlineControl([]).restore(OnlineControl([PopularityLimit(0.4)]).tensors())
    with pytest.raises(ModelError, match="not a number"):
        OnlineControl([]).choose(torch.tensor([[0.0, torch.nan]]), exposure_with(Labels([0, 1])))
