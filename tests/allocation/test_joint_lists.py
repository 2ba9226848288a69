"""Lists under limits on exposure: brute force, linear programs, properties, known answers."""

import itertools
import warnings
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from fairhorizon.allocation.group_budget import Candidates, Spent
from fairhorizon.allocation.joint_lists import JointLists, joint_lists
from fairhorizon.allocation.spread_lists import marginal_values
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog
from torch import Tensor

from fairhorizon.errors import ConfigError, ModelError
from fairhorizon.exposure.place_rule import PlaceRule
from fairhorizon.metrics.fairness import gini

pytestmark = pytest.mark.usefixtures("all_steps_of_spreading")
ROUNDING = 1e-9


@dataclass(frozen=True)
class Instance:
    candidates: Candidates
    sensitive: Tensor
    length: int

    def solve(self, share: float, **options: object) -> JointLists:
        return joint_lists(
            self.candidates,
            self.sensitive,
            length=self.length,
            rule=PlaceRule(share),
            **options,  # type: ignore[arg-type]
        )

    def options(self, user: int) -> list[tuple[int, float, bool]]:
        """(item, value, in the group) of every candidate."""
        rows = zip(
            self.candidates.items[user].tolist(), self.candidates.values[user].tolist(), strict=True
        )
        return [(item, value, bool(self.sensitive[item])) for item, value in rows if item >= 0]


def random_instance(
    seed: int, *, users: int, columns: int, length: int, items: int = 12, whole: bool = False
) -> Instance:
    """Some rows have gaps, some nothing outside the group; whole numbers bring many ties."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.permutation(items)[:columns] for _ in range(users)])
    sensitive = rng.random(items) < rng.choice([0.3, 0.6])
    codes[rng.random(codes.shape) < 0.15] = -1
    if seed % 3 == 0:
        codes[0, ~sensitive[codes[0]]] = -1
    values = rng.integers(0, 4, codes.shape) if whole else rng.random(codes.shape)
    return Instance(
        Candidates(torch.from_numpy(codes), torch.from_numpy(values.astype(np.float32))),
        torch.from_numpy(sensitive),
        length,
    )


def discounts(length: int) -> Tensor:
    return 1 / torch.arange(2, length + 2, dtype=torch.float64).log2()


def total(instance: Instance, lists: Tensor, weights: Tensor) -> float:
    value = [{item: v for item, v, _ in instance.options(u)} for u in range(len(lists))]
    return sum(
        float(w) * value[u][item]
        for u, row in enumerate(lists.tolist())
        for w, item in zip(weights, row, strict=True)
        if item >= 0
    )


def showings(instance: Instance, lists: Tensor) -> tuple[int, int]:
    """All, and those of the group."""
    shown = lists[lists >= 0]
    return len(shown), int(instance.sensitive[shown].sum())


def assert_sound(instance: Instance, lists: Tensor, share: float) -> None:
    """Distinct candidates by falling value, gaps at the end, the limit kept."""
    assert lists.shape == (len(instance.candidates.items), instance.length)
    for user, row in enumerate(lists.tolist()):
        known = [item for item in row if item >= 0]
        assert row == known + [-1] * (instance.length - len(known))
        assert len(set(known)) == len(known)
        value = {item: v for item, v, _ in instance.options(user)}
        shown = [value[item] for item in known]
        assert shown == sorted(shown, reverse=True)
    n, of_group = showings(instance, lists)
    assert of_group <= share * n + ROUNDING


def by_brute_force(instance: Instance, share: float, weights: Tensor) -> tuple[int, float]:
    """The most showings that are possible, and the highest total with so many."""
    w, per_user = weights.numpy(), []
    for user in range(len(instance.candidates.items)):
        options = instance.options(user)
        subsets = itertools.chain.from_iterable(
            itertools.combinations(options, n) for n in range(instance.length + 1)
        )
        per_user.append(
            np.array(
                [
                    (
                        len(chosen),
                        sum(group for *_, group in chosen),
                        w[: len(chosen)] @ sorted((v for _, v, _ in chosen), reverse=True),
                    )
                    for chosen in subsets
                ]
            )
        )
    sums = per_user[0]
    for other in per_user[1:]:
        sums = (sums[:, None] + other[None]).reshape(-1, 3)
    within = sums[sums[:, 1] <= share * sums[:, 0] + ROUNDING]
    longest = within[within[:, 0] == within[:, 0].max()]
    return int(longest[0, 0]), float(longest[:, 2].max())


@pytest.mark.parametrize("length", [2, 3])
@pytest.mark.parametrize("kind", ["discounts", "ones", "uneven"])
def test_no_other_lists_are_longer_or_worth_more(length: int, kind: str):
    uneven = torch.tensor([1.0, 1.0, 0.1], dtype=torch.float64)[:length]
    ones = torch.ones(length, dtype=torch.float64)
    weights = {"discounts": discounts(length), "ones": ones, "uneven": uneven}[kind]
    given_weights = None if kind == "discounts" else weights
    for seed, share in itertools.product(range(12), (0.0, 0.2, 0.5, 0.8, 1.0)):
        instance = random_instance(seed, users=3, columns=4, length=length, whole=seed % 2 == 1)
        lists = instance.solve(share, position_weights=given_weights).lists
        assert_sound(instance, lists, share)
        shown, best = by_brute_force(instance, share, weights)
        assert showings(instance, lists)[0] == shown
        assert total(instance, lists, weights) == pytest.approx(best, abs=1e-6)


def linear_program(instance: Instance, share: float, weights: Tensor) -> float:
    """The highest expected total of random lists: x[u, i, k], item i of user u at place k."""
    b, columns = instance.candidates.items.shape
    x = np.arange(b * columns * instance.length).reshape(b, columns, instance.length)
    values = instance.candidates.values.double()[:, :, None] * weights
    once = sparse.csr_matrix(
        (np.ones(x.size), (np.repeat(np.arange(b * columns), instance.length), x.ravel()))
    )
    places = x.transpose(0, 2, 1)
    full = sparse.csr_matrix(
        (np.ones(x.size), (np.repeat(np.arange(b * instance.length), columns), places.ravel()))
    )
    group = instance.sensitive[instance.candidates.items].numpy().repeat(instance.length)
    solved = linprog(
        -values.numpy().ravel(),
        A_ub=sparse.vstack([once, sparse.csr_matrix(group.astype(float))]),
        b_ub=np.append(np.ones(b * columns), share * b * instance.length),
        A_eq=full,
        b_eq=np.ones(b * instance.length),
        method="highs",
    )
    assert solved.status == 0
    return float(-solved.fun)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("share", [0.12, 0.33, 0.51, 1.0])
def test_the_linear_program_has_the_same_optimum_and_the_same_price(seed: int, share: float):
    """It may use the fraction of a place that is left of the budget, worth the price of a place."""
    rng = np.random.default_rng(seed)
    items = torch.from_numpy(np.stack([rng.permutation(30)[:14] for _ in range(20)]))
    values = torch.from_numpy(rng.exponential(size=items.shape).astype(np.float32))
    sensitive = torch.arange(30) < 12
    values = values + 0.7 * sensitive[items]  # or the limit would hardly bind
    instance = Instance(Candidates(items, values), sensitive, 3)
    found = instance.solve(share)
    assert_sound(instance, found.lists, share)
    best = linear_program(instance, share, discounts(3))
    fraction = share * 60 - int(share * 60 + ROUNDING)
    value = total(instance, found.lists, discounts(3))
    assert value + found.price * fraction == pytest.approx(best, abs=1e-5)
    if share < 1:
        assert found.price > 0
        assert showings(instance, found.lists)[1] == int(share * 60 + ROUNDING)


def test_by_hand():
    """One place of four is for the group; all places weigh 1.

    User 0 would gain 0.9 - 0.8 by it; user 1 0.9 - 0.2, and by a second one 0.6 - 0.3.
    """
    items = torch.tensor([[0, 2, 3, 4], [0, 1, 2, 3]])
    values = torch.tensor([[0.9, 0.8, 0.8, 0.1], [0.9, 0.6, 0.3, 0.2]])
    sensitive = torch.arange(5) < 2
    found = joint_lists(
        Candidates(items, values),
        sensitive,
        length=2,
        rule=PlaceRule(0.25),
        position_weights=torch.ones(2),
    )
    assert found.lists.tolist() == [[2, 3], [0, 2]]
    assert found.price == pytest.approx(0.3)  # of the first place refused: user 1's second
    assert found.spread_price == 0


def test_what_was_shown_before_counts_too():
    """The same users after four showings: the group may have two of all eight."""
    items = torch.tensor([[0, 2, 3, 4], [0, 1, 2, 3]])
    values = torch.tensor([[0.9, 0.8, 0.8, 0.1], [0.9, 0.6, 0.3, 0.2]])
    found = [
        joint_lists(
            Candidates(items, values),
            torch.arange(5) < 2,
            length=2,
            rule=PlaceRule(0.25),
            position_weights=torch.ones(2),
            settled=Spent(4, of_group),
        ).lists.tolist()
        for of_group in (0, 1, 2, 3)
    ]
    nothing_left = [[2, 3], [2, 3]]
    assert found == [[[2, 3], [0, 1]], [[2, 3], [0, 2]], nothing_left, nothing_left]


def test_who_has_nothing_but_the_group_comes_first_but_never_breaks_the_limit():
    items = torch.tensor([[0, 1, 2], [3, 4, 5], [6, 7, 0]])
    values = torch.tensor([[0.3, 0.2, 0.1], [0.5, 0.4, 0.3], [0.1, 0.1, 0.9]])
    sensitive = torch.arange(8) < 3
    candidates = Candidates(items, values)
    lists = {
        share: joint_lists(candidates, sensitive, length=2, rule=PlaceRule(share)).lists.tolist()
        for share in (0.0, 0.2, 0.34, 0.5)
    }
    # user 0 has the group alone; of six showings two may be of it, of five one
    assert lists[0.0] == [[-1, -1], [3, 4], [6, 7]]
    assert lists[0.2] == [[0, -1], [3, 4], [6, 7]]
    assert lists[0.34] == [[0, 1], [3, 4], [6, 7]]
    assert lists[0.5] == [[0, 1], [3, 4], [0, 6]]  # the third goes to whom it is worth the most


def test_the_extreme_shapes():
    sensitive = torch.tensor([True, False, False])
    empty = Candidates(torch.empty(0, 5, dtype=torch.int64), torch.empty(0, 5))
    assert joint_lists(
        empty, sensitive, length=3, rule=PlaceRule(0.5), gini_limit=0.1
    ).lists.shape == (0, 3)
    bare = Candidates(torch.empty(2, 0, dtype=torch.int64), torch.empty(2, 0))
    assert (
        joint_lists(bare, sensitive, length=2, rule=PlaceRule(0.5)).lists.tolist() == [[-1, -1]] * 2
    )
    nobody = Candidates(torch.full((2, 3), -1), torch.full((2, 3), torch.nan))
    found = joint_lists(nobody, sensitive, length=2, rule=PlaceRule(0.5), gini_limit=0.0)
    assert found.lists.tolist() == [[-1, -1]] * 2
    short = Candidates(torch.tensor([[0, 2]]), torch.tensor([[3.0, -5.0]]))
    assert joint_lists(short, sensitive, length=4, rule=PlaceRule(1)).lists.tolist() == [
        [0, 2, -1, -1]
    ]
    assert joint_lists(short, sensitive, length=4, rule=PlaceRule(0)).lists.tolist() == [
        [2, -1, -1, -1]
    ]


def test_many_equal_values_do_not_spend_the_budget_for_nothing():
    items = torch.arange(6).expand(10, 6)
    candidates = Candidates(items, torch.ones(10, 6))
    found = joint_lists(candidates, torch.arange(6) < 3, length=3, rule=PlaceRule(0.4))
    assert found.lists.tolist() == [[3, 4, 5]] * 10
    assert found.price == 0
    found = joint_lists(candidates, torch.arange(6) < 4, length=3, rule=PlaceRule(0.4))
    assert int((found.lists < 4).sum()) == 10  # two outside the group, so one of it to each


@pytest.mark.parametrize("share", [0.1, 0.4, 0.7])
def test_only_differences_of_values_count_where_lists_are_full(share: float):
    rng = np.random.default_rng(8)
    items = torch.from_numpy(np.stack([rng.permutation(40)[:20] for _ in range(30)]))
    values = torch.from_numpy(rng.integers(0, 16, items.shape).astype(np.float32))
    sensitive = torch.arange(40) < 10
    assert int((~sensitive[items]).sum(1).min()) >= 5
    instance, shifted = (
        Instance(Candidates(items, shift + values), sensitive, 5) for shift in (0, -64)
    )
    one, other = instance.solve(share), shifted.solve(share)
    assert total(instance, other.lists, discounts(5)) == pytest.approx(
        total(instance, one.lists, discounts(5)), abs=1e-6
    )
    assert other.price == pytest.approx(one.price, abs=1e-6)


instances = st.builds(
    random_instance,
    st.integers(0, 10_000),
    users=st.integers(1, 7),
    columns=st.integers(1, 9),
    length=st.integers(1, 5),
    whole=st.booleans(),
)
shares = st.floats(0, 1)


@settings(deadline=None, max_examples=150)
@given(instances, shares, shares)
def test_a_larger_share_shows_no_less_of_the_group_and_is_worth_no_less(
    instance: Instance, one: float, other: float
):
    lists = [instance.solve(share).lists for share in sorted((one, other))]
    for found, share in zip(lists, sorted((one, other)), strict=True):
        assert_sound(instance, found, share)
    tight, loose = (showings(instance, found) for found in lists)
    assert tight <= loose
    assert tight[1] <= loose[1]
    w = discounts(instance.length)
    assert total(instance, lists[0], w) <= total(instance, lists[1], w) + 1e-6


@settings(deadline=None, max_examples=40)
@given(instances, shares, st.floats(0, 1))
def test_a_gini_limit_never_breaks_the_limit_of_the_group(
    instance: Instance, share: float, limit: float
):
    free = instance.solve(share)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # most of these limits are out of reach
        found = instance.solve(share, gini_limit=limit)
    assert_sound(instance, found.lists, share)
    assert showings(instance, found.lists)[0] == showings(instance, free.lists)[0]
    assert gini_of(instance, found.lists) <= max(limit, gini_of(instance, free.lists))
    w = discounts(instance.length)
    assert total(instance, found.lists, w) <= total(instance, free.lists, w) + 1e-6


def test_a_gini_limit_counts_what_was_shown_before():
    """Of 60 and 40 showings the group may have 40 in all, and had 30."""
    rng = np.random.default_rng(1)
    items = torch.arange(20).expand(20, 20)
    values = torch.from_numpy(rng.random((20, 20)).astype(np.float32)) + torch.linspace(1, 0, 20)
    instance = Instance(Candidates(items, values), torch.arange(20) < 10, 2)
    settled, limit = Spent(60, 30), 0.3
    free, found = (
        instance.solve(0.4, settled=settled, gini_limit=given).lists for given in (None, limit)
    )
    assert gini_of(instance, found) <= limit < gini_of(instance, free)
    assert showings(instance, free) == (40, 10)
    assert showings(instance, found) == (40, 10)


def gini_of(instance: Instance, lists: Tensor) -> float:
    counts = torch.bincount(lists[lists >= 0], minlength=len(instance.sensitive))
    return gini(counts.numpy())


def test_those_move_to_other_items_who_lose_the_least():
    """Item 0 is worth 1 to all 200 users, and everybody's own item a little less.

    The best way to a Gini index is that only the m users with the smallest loss leave item 0. One
    or two more than needed may do so, as users who are nearly alike leave one after the other.
    """
    b = 200
    losses = torch.linspace(0.001, 0.2, b)[torch.randperm(b, generator=torch.manual_seed(3))]
    items = torch.stack([torch.zeros(b, dtype=torch.int64), torch.arange(1, b + 1)], dim=1)
    instance = Instance(
        Candidates(items, torch.stack([torch.ones(b), 1 - losses], dim=1)),
        torch.zeros(b + 1, dtype=torch.bool),
        1,
    )
    for limit in (0.8, 0.3):
        found = instance.solve(1.0, gini_limit=limit)
        reached = [gini(np.array([b - m] + [1] * m + [0] * (b - m))) for m in range(b + 1)]
        fewest = next(m for m, value in enumerate(reached) if value <= limit)
        best = b - float(losses.sort().values[:fewest].sum())
        assert gini_of(instance, found.lists) <= limit
        value = total(instance, found.lists, discounts(1))
        assert best - 2 * float(losses.max()) <= value <= best + 1e-4
        assert found.spread_price > 0


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_gini_limit_that_can_be_reached_is_kept_at_a_small_loss(share: float):
    """Popular items are better for everybody, and everybody may be shown any 4 of the 60.

    The least that is possible is 0.1 where the group, 0.4 of the catalogue, may have a share of
    0.3, and 0 without a limit; popularity is 0.25 in the mean.
    """
    rng = np.random.default_rng(5)
    b, n = 90, 60
    popularity = np.linspace(0.5, 0, n)
    values = (popularity + rng.random((b, n))).astype(np.float32)
    items = torch.arange(n).expand(b, n)
    instance = Instance(Candidates(items, torch.from_numpy(values)), torch.arange(n) < 24, 4)
    free = instance.solve(share)
    before = gini_of(instance, free.lists)
    w = discounts(4)
    worth = [total(instance, free.lists, w)]
    for limit in (before - 0.05, 0.15):
        found = instance.solve(share, gini_limit=limit)
        assert_sound(instance, found.lists, share)
        assert limit - 0.05 < gini_of(instance, found.lists) <= limit
        worth.append(total(instance, found.lists, w))
    assert worth == sorted(worth, reverse=True)
    assert worth[-1] > worth[0] - 0.125 * b * float(w.sum())
    same = instance.solve(share, gini_limit=before)
    assert same.lists.equal(free.lists)
    assert same.spread_price == 0


def test_a_gini_limit_that_cannot_be_reached_is_said():
    candidates = Candidates(torch.zeros(3, 1, dtype=torch.int64), torch.ones(3, 1))
    with pytest.warns(UserWarning, match=r"at most 0\.5 were found; these have 0\.7500"):
        found = joint_lists(
            candidates,
            torch.zeros(4, dtype=torch.bool),
            length=1,
            rule=PlaceRule(1),
            gini_limit=0.5,
        )
    assert found.lists.tolist() == [[0]] * 3


def test_the_worth_of_an_item_counts_the_places_it_moves():
    values = torch.tensor([[6.0, 5, 4, 3, 2, 1, 0]])
    weights = torch.tensor([1, 0.5, 0.25])
    worth = marginal_values(values, torch.tensor([[5.0, 3, 1]]), weights)
    assert worth.tolist() == [[4.25, 3.25, 2.25, 1.25, 0.75, 0.25, 0]]
    ones = marginal_values(values, torch.tensor([[5.0, 3, -torch.inf]]), torch.ones(3))
    assert ones.equal(values)


def test_refusals_name_the_fault():
    candidates = Candidates(torch.tensor([[0, 1]]), torch.tensor([[1.0, 2.0]]))
    sensitive = torch.tensor([True, False])
    with pytest.raises(ConfigError, match=r"share = 85 .* fraction"):
        joint_lists(candidates, sensitive, length=1, rule=PlaceRule(85))
    with pytest.raises(ConfigError, match=r"gini_limit = -0\.1"):
        joint_lists(candidates, sensitive, length=1, rule=PlaceRule(1), gini_limit=-0.1)
    with pytest.raises(ConfigError, match="length = 0"):
        joint_lists(candidates, sensitive, length=0, rule=PlaceRule(1))
    for weights in ([1.0], [0.5, 1.0], [1.0, -1.0]):
        with pytest.raises(ConfigError, match="position_weights"):
            joint_lists(
                candidates,
                sensitive,
                length=2,
                rule=PlaceRule(1),
                position_weights=torch.tensor(weights),
            )
    with pytest.raises(ValueError, match="neither -1 nor one of the 1 items"):
        joint_lists(candidates, sensitive[:1], length=1, rule=PlaceRule(1))
    with pytest.raises(ValueError, match="shape"):
        joint_lists(
            Candidates(candidates.items, torch.ones(1, 3)), sensitive, length=1, rule=PlaceRule(1)
        )
    unknown = Candidates(candidates.items, torch.tensor([[torch.nan, 1.0]]))
    with pytest.raises(ModelError, match="not a finite number"):
        joint_lists(unknown, sensitive, length=1, rule=PlaceRule(1))
