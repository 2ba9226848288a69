"""Transition, reward, cost and limits, worked by hand and against a slow loop."""

import numpy as np
import pytest
import torch

from fairhorizon.histories import TableSets
from fairhorizon.simulation.dynamics import State, advance, cost_limit
from fairhorizon.simulation.feedback import LoggedFeedback

N_ITEMS = 8
SENSITIVE = torch.tensor([True, True, False, False, False, False, True, False])  # 0, 1, 6


def state(queue: list[int], blocked: tuple[int, ...] = ()) -> State:
    mask = torch.zeros(1, N_ITEMS, dtype=torch.bool)
    mask[0, list(blocked)] = True
    return State(torch.tensor([3]), torch.tensor([queue]), TableSets(mask))


def show(start: State, items: list[int], liked: tuple[int, ...]):
    positive = torch.zeros(1, N_ITEMS, dtype=torch.bool)
    positive[0, list(liked)] = True
    return advance(start, torch.tensor([items]), LoggedFeedback(TableSets(positive)), SENSITIVE)


@pytest.mark.parametrize(
    ("queue", "items", "liked", "after", "reward", "cost"),
    [
        # K = 1
        ([2, 3, 4], [5], (5,), [3, 4, 5], 1, 0),
        ([2, 3, 4], [5], (6,), [2, 3, 4], 0, 0),
        ([2, 3, 4], [0], (), [2, 3, 4], 0, 1),
        ([8, 8, 4], [6], (6,), [8, 4, 6], 1, 1),  # 8 is "no item"
        ([2, 3, 4], [-1], (0,), [2, 3, 4], 0, 0),
        # K = 3
        ([2, 3, 4], [7, 5, 6], (5, 6, 7), [7, 5, 6], 3, 1),  # in list order
        ([2, 3, 4], [7, 5, 6], (6, 7), [4, 7, 6], 2, 1),
        ([2, 3, 4], [0, 1, 6], (), [2, 3, 4], 0, 3),
        ([4], [7, 5, 6], (5, 6, 7), [6], 3, 1),  # more hits than the queue holds
        ([3, 4], [7, 5, 6], (5, 6, 7), [5, 6], 3, 1),
        ([8, 8], [0, 5, 1], (1,), [8, 1], 1, 2),
        ([2, 3, 4], [5, 5, 5], (5,), [3, 4, 5], 1, 0),  # a repeat earns once
        ([2, 3, 4], [6, 7, 6], (6, 7), [4, 6, 7], 2, 2),  # and costs every time it is shown
        ([2, 3, 4], [-1, 0, 7], (0, 7), [4, 0, 7], 2, 1),  # an empty slot is not item 0
        ([2, 3, 4], [0, -1, -1], (0,), [3, 4, 0], 1, 1),
    ],
)
def test_one_list(queue, items, liked, after, reward, cost):
    outcome = show(state(queue), items, liked)
    assert outcome.state.users.tolist() == [3]
    assert outcome.state.queue.tolist() == [after]
    assert outcome.reward.tolist() == [reward]
    assert outcome.hits.sum().item() == reward
    assert outcome.cost.tolist() == [cost]
    shown = sorted({item for item in items if item >= 0})
    assert outcome.state.blocked[0].nonzero().flatten().tolist() == shown


def test_a_blocked_item_earns_nothing_and_costs_what_it_costs():
    outcome = show(state([2, 3], blocked=(6, 5)), [6, 5, 1], liked=(6, 5, 1))
    assert outcome.hits.tolist() == [[False, False, True]]
    assert outcome.reward.tolist() == [1]
    assert outcome.cost.tolist() == [2]
    assert outcome.state.queue.tolist() == [[3, 1]]
    assert outcome.state.blocked[0].nonzero().flatten().tolist() == [1, 5, 6]


def test_a_liked_item_earns_only_the_first_time():
    first = show(state([2, 3]), [5], liked=(5,))
    second = show(first.state, [5], liked=(5,))
    assert (first.reward.item(), second.reward.item()) == (1, 0)
    assert second.state.queue.tolist() == [[3, 5]]


def test_the_state_before_is_left_alone():
    before = state([2, 3], blocked=(4,))
    show(before, [5, -1], liked=(5,))
    assert before.queue.tolist() == [[2, 3]]
    assert before.blocked[0].nonzero().flatten().tolist() == [4]


def slow_step(queue, blocked, items, liked, sensitive):
    """The same by the word of the paper, one user and one item at a time."""
    queue, blocked, reward, cost = list(queue), set(blocked), 0, 0
    for item in items:
        if item < 0:
            continue
        cost += int(item in sensitive)
        if item in liked and item not in blocked:
            reward += 1
            queue = [*queue[1:], item]
        blocked.add(item)
    return queue, blocked, reward, cost


@pytest.mark.parametrize("list_length", [1, 3, 7])
@pytest.mark.parametrize("history", [1, 2, 5])
def test_a_random_batch_equals_the_slow_loop(list_length, history):
    rng = np.random.default_rng(10 * list_length + history)
    users, n_items, steps = 40, 9, 4
    queue = torch.from_numpy(rng.integers(0, n_items + 1, (users, history)))
    positive = torch.from_numpy(rng.random((users, n_items)) < 0.5)
    blocked = torch.from_numpy(rng.random((users, n_items)) < 0.2)
    sensitive = torch.from_numpy(rng.random(n_items) < 0.4)
    now = State(torch.arange(users), queue, TableSets(blocked))
    slow = [(queue[u].tolist(), set(blocked[u].nonzero().flatten().tolist())) for u in range(users)]
    guarded = set(sensitive.nonzero().flatten().tolist())
    for _ in range(steps):
        lists = torch.from_numpy(rng.integers(-1, n_items, (users, list_length)))
        outcome = advance(now, lists, LoggedFeedback(TableSets(positive)), sensitive)
        now = outcome.state
        for u in range(users):
            liked = set(positive[u].nonzero().flatten().tolist())
            line, seen, reward, cost = slow_step(*slow[u], lists[u].tolist(), liked, guarded)
            slow[u] = (line, seen)
            assert now.queue[u].tolist() == line
            assert set(now.blocked[u].nonzero().flatten().tolist()) == seen
            assert (outcome.reward[u].item(), outcome.cost[u].item()) == (reward, cost)


@pytest.mark.parametrize(
    ("alpha", "length", "gamma", "horizon", "limit"),
    [
        (0.4, 1, 1.0, 10, 4.0),
        (0.5, 3, 0.5, 3, 2.625),  # (1 + 1/2 + 1/4) 3/2
        (0.8, 5, 0.9, 2, 7.6),  # (1 + 0.9) 4
        (0.4, 2, 0.0, 10, 0.8),  # only the first step counts
        (1.0, 4, 1.0, 1, 4.0),
    ],
)
def test_cost_limit_by_hand(alpha, length, gamma, horizon, limit):
    assert cost_limit(alpha, length, gamma, horizon) == pytest.approx(limit, rel=1e-14)
