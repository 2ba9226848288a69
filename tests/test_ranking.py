"""Lists from scores against a plain sort, ties included."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from fairhorizon.ranking import best_lists, top

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
