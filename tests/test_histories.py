"""Sets of items per user against plain loops."""

from itertools import pairwise

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairhorizon.data.interactions import Interactions
from fairhorizon.histories import SortedSets, TableSets, UserItems

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


def as_lists(sets: UserItems) -> list[list[int]]:
    bounds = sets.indptr.tolist()
    assert len(bounds) == N_USERS + 1
    return [sets.items[bounds[u] : bounds[u + 1]].tolist() for u in range(N_USERS)]


@given(rows, rows)
def test_rows_keep_time_order_within_and_across_logs(first, second):
    sets = UserItems.from_log(log_of(first), log_of(second))
    assert (sets.n_users, sets.n_items) == (N_USERS, N_ITEMS)
    assert as_lists(sets) == items_per_user(first, second)


@given(rows, st.lists(st.integers(0, N_USERS - 1), max_size=8))
def test_mask_and_counts_of_any_users(pairs, users):
    sets, wanted = UserItems.from_log(log_of(pairs)), torch.tensor(users, dtype=torch.int64)
    expected = items_per_user(pairs)
    mask = sets.mask(wanted)
    assert mask.shape == (len(users), N_ITEMS)
    assert sets.counts(wanted).tolist() == [len(expected[user]) for user in users]
    for row, user in zip(mask, users, strict=True):
        assert row.nonzero().flatten().tolist() == sorted(expected[user])


@given(rows, st.integers(1, 7))
def test_last_items_are_padded_in_front(pairs, n):
    queue = UserItems.from_log(log_of(pairs)).last(n)
    for row, items in zip(queue.tolist(), items_per_user(pairs), strict=True):
        newest = items[-n:]
        assert row == [N_ITEMS] * (n - len(newest)) + newest


@given(rows, st.lists(st.integers(0, 9), min_size=N_USERS, max_size=N_USERS))
def test_cut_parts_every_user_at_the_own_position(pairs, positions):
    early, late = UserItems.from_log(log_of(pairs)).cut(torch.tensor(positions))
    expected = items_per_user(pairs)
    both = list(zip(expected, positions, strict=True))
    assert as_lists(early) == [items[:position] for items, position in both]
    assert as_lists(late) == [items[position:] for items, position in both]


@given(rows, st.lists(st.integers(0, N_USERS - 1), max_size=7))
def test_only_some_users_in_their_order(pairs, users):
    some = UserItems.from_log(log_of(pairs)).only(torch.tensor(users, dtype=torch.int64))
    bounds, expected = some.indptr.tolist(), items_per_user(pairs)
    found = [some.items[a:b].tolist() for a, b in pairwise(bounds)]
    assert found == [expected[user] for user in users]
    assert some.n_items == N_ITEMS


@given(rows, st.lists(st.integers(0, N_USERS - 1), max_size=7), st.data())
def test_sets_by_sorted_keys_are_those_of_a_table(pairs, users, data):
    """Whatever is added and taken out, -1 for nothing, with items that are in every set."""
    sets, some = UserItems.from_log(log_of(pairs)), torch.tensor(users, dtype=torch.int64)
    never_shown = torch.zeros(N_ITEMS, dtype=torch.bool)
    never_shown[data.draw(st.integers(0, N_ITEMS - 1))] = data.draw(st.booleans())
    items = st.lists(st.integers(-1, N_ITEMS - 1), min_size=3, max_size=3)
    drawn = st.lists(items, min_size=len(users), max_size=len(users))
    lists = [torch.tensor(data.draw(drawn), dtype=torch.int64).view(-1, 3) for _ in range(3)]
    gone = lists[1].masked_fill(never_shown[lists[1].clamp(min=0)], -1)
    table = TableSets(sets.mask(some) | never_shown).with_items(lists[0]).without_items(gone)
    keys = (
        SortedSets.from_user_items(sets, some, N_ITEMS, never_shown)
        .with_items(lists[0])
        .without_items(gone)
    )
    assert keys.shape == table.shape
    assert torch.equal(keys.mask(), table.mask())
    assert torch.equal(keys.counts(), table.counts())
    assert torch.equal(keys.contains(lists[2]), table.contains(lists[2]))
    backwards = torch.arange(len(users)).flip(0)
    assert torch.equal(keys.mask(backwards), table.mask(backwards))
    assert torch.equal(keys.contains(lists[2], backwards), table.contains(lists[2], backwards))
