"""Answers at once leave users where answers one by one do."""

import pytest
import torch

from fairhorizon.recommenders.responses import ResponseHistory, see_many


@pytest.mark.parametrize("width", [1, 3, 20])
@pytest.mark.parametrize("before", [0, 5])
def test_every_part_of_the_responses_is_the_same(width: int, before: int) -> None:
    draw = torch.Generator().manual_seed(width)
    users, history = 30, torch.arange(30)
    one_by_one, at_once = ResponseHistory(history), ResponseHistory(history)
    first = torch.rand(users, before, generator=draw) < 0.4
    for responses in (one_by_one, at_once):
        responses.see(torch.zeros(users, before).long(), first)
    counts = torch.randint(width + 1, (users,), generator=draw)
    shown = counts[:, None] > torch.arange(width)
    liked = (torch.rand(users, width, generator=draw) < 0.3) & shown
    one_by_one.see(torch.where(shown, 0, -1), liked)
    see_many(at_once, shown, liked)
    for name, expected in one_by_one.tensors().items():
        assert torch.allclose(at_once.tensors()[name], expected, atol=1e-6), name
        assert at_once.tensors()[name].dtype == expected.dtype
    assert torch.allclose(at_once.churn(), one_by_one.churn(), atol=1e-6)
