"""Shortlists give what whole rows of scores give, whatever happens to classes and users."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairhorizon.allocation import shortlists
from fairhorizon.allocation.item_classes import ItemClasses, Query
from fairhorizon.allocation.shortlisted import ShortlistedScores
from fairhorizon.allocation.shortlists import ClassShortlists
from fairhorizon.allocation.slot_scores import TableScores
from fairhorizon.histories import ItemSets, TableSets

USERS, ITEMS = 17, 40


class World:
    """Scores with ties, classes that move, users who change and are shown items."""

    def __init__(self, seed: int, kept: int) -> None:
        self.random = np.random.default_rng(seed)
        self.table = torch.zeros(USERS, ITEMS)
        self.rescored = 0
        self.lists = ClassShortlists(self.score, USERS, ITEMS)
        self.lists.kept = kept
        self.blocked: ItemSets = TableSets(self.drawn(USERS, ITEMS) < 0.2)
        self.costs = np.zeros((2, ITEMS))
        self.change(torch.arange(USERS))
        self.lists.forget()

    def drawn(self, *shape: int) -> Tensor:
        return torch.from_numpy(self.random.random(shape))

    def score(self, rows: Tensor) -> Tensor:
        self.rescored += len(rows)
        return self.table[rows].clone()

    def change(self, rows: Tensor) -> None:
        """New histories: few distinct scores, so that there are ties."""
        self.table[rows] = torch.floor(8 * self.drawn(len(rows), ITEMS) ** 2).float()
        self.lists.forget(rows)

    def move(self) -> None:
        """A few items enter or leave a group."""
        items = self.random.integers(0, ITEMS, 3)
        self.costs[self.random.integers(0, 2), items] = self.random.integers(0, 2, 3)

    @property
    def classes(self) -> ItemClasses:
        return ItemClasses.of(self.costs, torch.device("cpu"))

    def pair(self) -> tuple[ShortlistedScores, TableScores]:
        table = self.table.masked_fill(self.blocked.mask(), -torch.inf)
        return ShortlistedScores(self.lists, self.blocked), TableScores(table)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 6))
def test_the_control_is_told_the_same_as_by_the_table(seed: int, kept: int):
    world = World(seed, kept)
    for _ in range(6):
        world.move()
        classes, taken = (
            world.classes,
            torch.from_numpy(world.random.integers(-1, ITEMS, (USERS, 2))),
        )
        full = world.drawn(ITEMS) < 0.2
        users = world.random.choice(USERS, 9, replace=False)
        own = world.random.integers(0, len(classes.cheaper), 9)
        for handicap in (torch.zeros(ITEMS), world.drawn(ITEMS).float()):
            short, whole = (scores.left(handicap, taken) for scores in world.pair())
            for closed in (None, full):
                values, items = short.best_of_classes(classes, closed)
                right, best = whole.best_of_classes(classes, closed)
                assert torch.equal(values, right)
                assert torch.equal(items[right > -torch.inf], best[right > -torch.inf])
            value, item = short.best(users, own, classes, full)
            right_value, right_item = whole.best(users, own, classes, full)
            assert np.array_equal(value, right_value)
            assert np.array_equal(item[value > -np.inf], right_item[value > -np.inf])
        world.blocked = world.blocked.with_items(short.best_of_classes(classes, None)[1][:, :1])
        world.change(torch.from_numpy(world.random.choice(USERS, 2, replace=False)))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**31), st.integers(1, 3))
def test_the_best_few_of_each_class_are_those_of_the_table(seed: int, count: int):
    world = World(seed, 5)
    for _ in range(4):
        world.move()
        query = Query.of(world.classes, world.blocked)
        values, items = world.lists.best(query, count)
        table = world.pair()[1].table
        for user in range(USERS):
            for c in range(query.n_classes):
                of_class = [i for i in range(ITEMS) if query.of_item[i] == c]
                there = [i for i in of_class if table[user, i] > -torch.inf]
                right = sorted(there, key=lambda i: (-float(table[user, i]), i))[:count]
                here = values[user, c] > -torch.inf
                assert items[user, c][here].tolist() == right
                assert values[user, c][here].tolist() == table[user, right].tolist()
        world.blocked = world.blocked.with_items(items[:, 0, :1])


def test_a_user_is_scored_anew_only_where_the_shortlist_may_not_have_the_best():
    world = World(0, 10)
    query = Query.of(world.classes, world.blocked)
    world.lists.best(query)
    assert world.rescored == USERS
    for _ in range(3):  # three of ten are used up
        _, items = world.lists.best(query)
        world.blocked = world.blocked.with_items(items[:, 0, :1])
        query = Query.of(world.classes, world.blocked)
    assert world.rescored == USERS
    world.change(torch.tensor([4, 7]))
    world.lists.best(query)
    assert world.rescored == USERS + 2


def test_classes_of_old_times_are_dropped(monkeypatch: pytest.MonkeyPatch):
    """And whoever was scored then is scored anew."""
    monkeypatch.setattr(shortlists, "TIMES", 2)
    world = World(1, 40)
    for user in range(4):
        world.costs[0, user] = 1.0
        world.change(torch.tensor([user]))
        world.lists.best(Query.of(world.classes, world.blocked))
        assert len(world.lists.classes) <= 2
    assert world.rescored > USERS + 3


def test_stored_shortlists_need_no_scores():
    world = World(2, 5)
    query = Query.of(world.classes, world.blocked)
    before, other = world.lists.best(query), World(2, 5)
    other.lists.restore(world.lists.tensors())
    after = other.lists.best(query)
    assert other.rescored == 0
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
