"""Lists from scores against a plain sort, ties included."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fairhorizon.metrics import accuracy
from fairhorizon.ranking import (
    best_lists,
    discount,
    first_best,
    first_highest,
    rows_at_once,
    some_at_a_time,
    top,
)

SCORES = st.sampled_from([-torch.inf, -1.5, 0.0, 0.5, 2.0])


@st.composite
def problems(draw):
    """Scores of three users, a group, a length that may exceed the catalogue, an allowance."""
    n = draw(st.integers(1, 8))
    rows = draw(st.lists(st.lists(SCORES, min_size=n, max_size=n), min_size=3, max_size=3))
    group = draw(st.lists(st.booleans(), min_size=n, max_size=n))
    return rows, group, draw(st.integers(1, 10)), draw(st.integers(0, 10))


def by_hand(row, group, length, allowance):
    """Best first, of equals the smaller item; a sensitive one only while the allowance lasts."""
    shown = []
    for item in sorted(range(len(row)), key=lambda item: (-row[item], item)):
        full = group[item] and sum(group[other] for other in shown) == allowance
        if row[item] > -torch.inf and not full:
            shown.append(item)
    return (shown + [-1] * length)[:length]


@given(problems())
def test_best_lists_take_the_best_that_the_allowance_lets_through(problem):
    rows, group, length, allowance = problem
    lists = best_lists(torch.tensor(rows), torch.tensor(group), length, allowance)
    assert lists.tolist() == [by_hand(row, group, length, allowance) for row in rows]


@given(problems())
def test_top_is_the_head_of_the_stable_sort(problem):
    rows, _, most, _ = problem
    scores = torch.tensor(rows)
    values, items = top(scores, most)
    expected = scores.sort(dim=1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :most])
    known = values > -torch.inf  # what is never shown may stand in any order
    assert torch.equal(items[known], expected.indices[:, :most][known])


def test_many_equal_scores_beyond_what_topk_keeps_in_order():
    scores = torch.zeros(2, 5000)
    scores[1, 4000:] = 1
    assert best_lists(scores, torch.zeros(5000, dtype=torch.bool), 3, 3).tolist() == [
        [0, 1, 2],
        [4000, 4001, 4002],
    ]


def test_the_first_of_equals_is_best():
    scores = torch.tensor([[1.0, 3, 3], [-math.inf, -math.inf, 0], [-math.inf] * 3])
    assert first_best(scores).tolist() == [1, 2, -1]
    assert first_highest(scores).tolist() == [1, 2, 0]


def test_the_discount_by_hand():
    assert discount(torch.tensor([1, 3, 7], dtype=torch.float64)).tolist() == [1, 0.5, 1 / 3]
    assert accuracy.discount(np.array([1, 3, 7])).tolist() == [1, 0.5, 1 / 3]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-15)])
def test_arrays_and_tensors_have_one_discount(dtype, tolerance):
    ranks = np.arange(1, 2000)
    found = discount(torch.from_numpy(ranks).to(dtype))
    assert found.dtype is dtype
    np.testing.assert_allclose(found.double(), accuracy.discount(ranks), rtol=tolerance)


def test_rows_at_once_have_at_most_so_many_cells():
    assert [rows_at_once(width, 10) for width in (0, 1, 3, 5, 6, 11)] == [10, 10, 3, 2, 1, 1]


def test_some_at_a_time_are_the_same_rows_of_every_table():
    tables = torch.arange(10).view(5, 2), torch.arange(15).view(5, 3), torch.arange(5)
    blocks = list(some_at_a_time(*tables, cells=5))
    assert [len(first) for first, _, _ in blocks] == [2, 2, 1]
    for table, parts in zip(tables, zip(*blocks, strict=True), strict=True):
        assert torch.equal(torch.cat(parts), table)
