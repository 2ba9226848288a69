"""Backtracking stops at the first acceptable fraction, and leaves no trace when there is none."""

import pytest
import torch

from fairhorizon.fcpo.cpo import backtrack


@pytest.mark.parametrize(
    ("ratio", "bound", "fraction", "tries"),
    [(0.5, 5.0, 1.0, 1), (0.5, 1.0, 0.25, 3), (0.5, 0.9, 0.125, 4), (0.1, 1.0, 0.1, 2)],
)
def test_takes_the_longest_acceptable_fraction(ratio, bound, fraction, tries):
    theta, step, tried = torch.tensor([1.0, 2.0]), torch.tensor([4.0, 0.0]), []

    def acceptable(candidate):
        tried.append(candidate)
        return float(candidate[0] - 1) <= bound

    found, taken = backtrack(theta, step, acceptable, ratio=ratio, attempts=10)
    assert taken == pytest.approx(fraction, rel=1e-15)
    torch.testing.assert_close(found, theta + fraction * step)
    assert found is tried[-1]  # the very parameters that were accepted
    assert len(tried) == tries
    assert theta.tolist() == [1.0, 2.0]


def test_failure_leaves_theta_bit_for_bit():
    theta = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    before, tried = theta.clone(), []

    def acceptable(candidate):
        tried.append(candidate)
        return False

    found, taken = backtrack(theta, torch.full((1000,), 0.1), acceptable, ratio=0.5, attempts=7)
    assert taken == 0.0
    assert len(tried) == 7
    assert found.data_ptr() == theta.data_ptr()
    assert torch.equal(found.view(torch.int32), before.view(torch.int32))


def test_a_nan_is_never_acceptable():
    theta, step = torch.ones(2), torch.tensor([1.0, torch.nan])
    found, taken = backtrack(theta, step, lambda x: float(x.sum()) > 0, ratio=0.5, attempts=5)
    assert taken == 0.0
    assert found.tolist() == [1.0, 1.0]
