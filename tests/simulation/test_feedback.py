"""Where episodes start, on a split small enough to read."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import split
from fairhorizon.histories import TableSets, UserItems
from fairhorizon.simulation.feedback import (
    LoggedFeedback,
    evaluation_scenario,
    random_cuts,
    serving_scenario,
    training_scenario,
    validation_scenario,
)
from fairhorizon.vocabulary import Protocol

N_USERS, N_ITEMS = 5, 12

rows = st.lists(
    st.tuples(st.integers(0, N_USERS - 1), st.integers(0, N_ITEMS - 1)), unique=True, max_size=40
)


def log_of(pairs: list[tuple[int, int]]) -> Interactions:
    """A log over fixed id maps, so that users and items may be without rows."""
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return Interactions(table[:, 0], table[:, 1], np.arange(N_USERS), np.arange(N_ITEMS))


def items_per_user(*logs: list[tuple[int, int]]) -> list[list[int]]:
    return [[item for log in logs for u, item in log if u == user] for user in range(N_USERS)]


@given(rows, st.integers(1, 6), st.integers(0, 2**31))
def test_random_cuts_leave_a_history_and_something_to_like(pairs, history, seed):
    sets = UserItems.from_log(log_of(pairs))
    cuts = random_cuts(sets, history, torch.Generator().manual_seed(seed))
    for cut, items in zip(cuts.tolist(), items_per_user(pairs), strict=True):
        if items:
            assert min(history, len(items) - 1) <= cut <= len(items) - 1
        else:
            assert cut == 0


def test_random_cuts_reach_every_moment():
    sets = UserItems.from_log(log_of([(0, item) for item in range(8)]))
    generator = torch.Generator().manual_seed(0)
    seen = {int(random_cuts(sets, 5, generator)[0]) for _ in range(100)}
    assert seen == {5, 6, 7}


# User "a" takes items 0..9 in order, "b" takes 9..0, "c" only 3, 4 and 5.
USERS = ["a"] * 10 + ["b"] * 10 + ["c"] * 3
ITEMS = [*range(10), *range(9, -1, -1), 3, 4, 5]
LOG = from_arrays(USERS, ITEMS, timestamps=[*range(10), *range(10), *range(3)])
# a: train 0-6, validation 7, test 8-9;  b: train 9-3, validation 2, test 1-0;  c: train 3-4, then 5
SPLIT = split(LOG)
EVERYONE = torch.arange(3)


def sets_of(mask: torch.Tensor) -> list[list[int]]:
    return [row.nonzero().flatten().tolist() for row in mask]


def test_training_starts_from_the_first_items():
    items = UserItems.from_log(SPLIT.train)
    scenario = training_scenario(items, 3, Protocol.STANDARD)
    assert scenario.n_users == 3
    state, feedback = scenario.begin(EVERYONE)
    assert state.users.tolist() == [0, 1, 2]
    assert state.queue.tolist() == [[0, 1, 2], [9, 8, 7], [10, 3, 4]]
    assert sets_of(feedback.positive) == [[3, 4, 5, 6], [3, 4, 5, 6], []]
    assert sets_of(state.blocked) == [[0, 1, 2], [7, 8, 9], [3, 4]]
    open_state, open_feedback = training_scenario(items, 3, Protocol.PAPER).begin(EVERYONE)
    assert not open_state.blocked.any()
    assert torch.equal(open_feedback.positive, feedback.positive)


def test_training_starts_from_given_cuts():
    items = UserItems.from_log(SPLIT.train)
    scenario = training_scenario(items, 3, Protocol.STANDARD, torch.tensor([5, 1, 0]))
    state, feedback = scenario.begin(EVERYONE)
    assert state.queue.tolist() == [[2, 3, 4], [10, 10, 9], [10, 10, 10]]
    assert sets_of(feedback.positive) == [[5, 6], [3, 4, 5, 6, 7, 8], [3, 4]]
    assert sets_of(state.blocked) == [[0, 1, 2, 3, 4], [9], []]


def test_evaluation_starts_from_the_last_items_before_the_test_items():
    state, feedback = evaluation_scenario(SPLIT, 3, Protocol.STANDARD).begin(EVERYONE)
    assert state.queue.tolist() == [[5, 6, 7], [4, 3, 2], [3, 4, 5]]
    assert sets_of(feedback.positive) == [[8, 9], [0, 1], []]
    assert sets_of(state.blocked) == [[*range(8)], [*range(2, 10)], [3, 4, 5]]


def test_validation_excludes_training_only():
    state, feedback = validation_scenario(SPLIT, 3, Protocol.STANDARD).begin(EVERYONE)
    assert state.queue.tolist() == [[4, 5, 6], [5, 4, 3], [10, 3, 4]]
    assert sets_of(feedback.positive) == [[7], [2], [5]]
    assert sets_of(state.blocked) == [[*range(7)], [*range(3, 10)], [3, 4]]


def test_under_protocol_paper_everything_may_be_recommended():
    for scenario_of, liked, queue in (
        (evaluation_scenario, [[8, 9], [0, 1], []], [[5, 6, 7], [4, 3, 2], [3, 4, 5]]),
        (validation_scenario, [[7], [2], [5]], [[4, 5, 6], [5, 4, 3], [10, 3, 4]]),
    ):
        state, feedback = scenario_of(SPLIT, 3, Protocol.PAPER).begin(EVERYONE)
        assert not state.blocked.any()
        assert sets_of(feedback.positive) == liked
        assert state.queue.tolist() == queue


def test_serving_goes_on_from_the_whole_log():
    state, feedback = serving_scenario(LOG, 2).begin(EVERYONE)
    assert state.queue.tolist() == [[8, 9], [1, 0], [4, 5]]
    assert sets_of(state.blocked) == [[*range(10)], [*range(10)], [3, 4, 5]]
    assert not feedback.positive.any()


def test_begin_takes_users_in_any_order_and_more_than_once():
    state, feedback = evaluation_scenario(SPLIT, 2, Protocol.STANDARD).begin(
        torch.tensor([1, 0, 1])
    )
    assert state.users.tolist() == [1, 0, 1]
    assert state.queue.tolist() == [[3, 2], [6, 7], [3, 2]]
    assert sets_of(feedback.positive) == [[0, 1], [8, 9], [0, 1]]


def test_a_log_is_worth_one_for_what_is_liked():
    _, audience = evaluation_scenario(SPLIT, 3, Protocol.STANDARD).begin(EVERYONE)
    lists = torch.tensor([[8, 3, -1], [0, 1, 9], [8, -1, 0]])  # liked: 8 and 9; 0 and 1; nothing
    for _ in range(2):
        assert audience.answer(lists).tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 0]]
        assert audience.relevance(lists).tolist() == [[1.0, 0, 0], [1, 1, 0], [0, 0, 0]]
        assert audience.relevance(lists).dtype == torch.float64
        assert audience.best(0, 3).tolist() == [[1.0, 1, 0], [1, 1, 0], [0, 0, 0]]
        assert audience.best(1, 2).tolist() == [[1.0], [1], [0]]
        assert audience.best(2, 4).tolist() == [[0.0, 0], [0, 0], [0, 0]]
        assert audience.total().tolist() == [2.0, 2, 0]
        assert audience.tensors() == {}
        audience.pass_time()  # and nothing of it changes
        audience.restore({})


@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=5))
def test_best_is_the_sorted_relevance(likes):
    audience = LoggedFeedback(TableSets(torch.tensor(likes)))
    everything = audience.relevance(torch.arange(6).expand(len(likes), 6))
    assert torch.equal(audience.best(0, 6), everything.sort(dim=1, descending=True).values)
    assert torch.equal(audience.total(), everything.sum(1))


@given(rows, st.lists(st.integers(0, N_USERS - 1), min_size=1, unique=True))
def test_a_scenario_of_some_users_starts_them_as_they_would(pairs, users):
    whole, rows_of_some = serving_scenario(log_of(pairs), 3), torch.tensor(users)
    some = whole.only(rows_of_some)
    expected, begun = whole.state(rows_of_some), some.state(torch.arange(len(users)))
    assert some.n_users == len(users)
    assert begun.users.tolist() == users
    assert torch.equal(begun.queue, expected.queue)
    assert torch.equal(begun.blocked, expected.blocked)
    again = some.only(torch.tensor([len(users) - 1]))
    assert again.state(torch.arange(1)).users.tolist() == users[-1:]
