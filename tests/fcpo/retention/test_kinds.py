"""What kinds users were shown lately, by hand."""

import pytest
import torch

from fairhorizon.fcpo.retention.state import FORGETTING, WINDOW, CategoryExposure

KINDS = torch.tensor([[1.0, 0.0], [0.75, 0.25], [0.0, 1.0]])  # of three items


def test_showings_fade_and_the_window_counts() -> None:
    kinds = CategoryExposure(KINDS, users=2)
    kinds.see(torch.tensor([[0], [2]]))
    kinds.see(torch.tensor([[1], [-1]]))
    f = FORGETTING
    assert kinds.lately.tolist() == [pytest.approx([f + 0.75, 0.25]), pytest.approx([0.0, f])]
    assert kinds.sated()[0].tolist() == pytest.approx(
        [f + 0.75, 0.75 * (f + 0.75) + 0.25 * 0.25, 0.25]
    )
    shares = kinds.features()[:, :, 1]
    assert shares.tolist() == [pytest.approx([2 / WINDOW, 0.0]), pytest.approx([0, 1 / WINDOW])]
    of_items = kinds.of_items(torch.tensor([[1, 2], [1, 2]]))
    assert of_items[:, :, 1].tolist() == [
        pytest.approx([2 / WINDOW, 0.0]),
        pytest.approx([0.0, 1 / WINDOW]),
    ]
    other = CategoryExposure(KINDS, users=2)
    other.restore(kinds.tensors())
    assert torch.equal(other.features(), kinds.features())


def test_unknown_kinds_say_nothing() -> None:
    kinds = CategoryExposure(None, users=2)
    kinds.see(torch.tensor([[0], [2]]))
    assert not kinds.are_known
    assert kinds.sated().tolist() == [[0.0]]
    assert kinds.of_items(torch.tensor([[0], [1]])).eq(0).all()
