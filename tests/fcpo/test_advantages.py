"""Advantages over a finite horizon, by hand and by their two limits."""

import pytest
import torch

from fairhorizon.fcpo.learner import (
    discounts,
    generalized_advantages,
    remaining,
    temporal_difference_targets,
)

SIGNAL = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])
VALUES = torch.tensor([[2.0, 1.0, 4.0, 0.0], [1.0, 1.0, 1.0, 2.0]])


def random_batch(seed: int, users: int = 5, steps: int = 7):
    generator = torch.Generator().manual_seed(seed)
    signal = torch.randn(users, steps, generator=generator, dtype=torch.float64)
    return signal, torch.randn(users, steps + 1, generator=generator, dtype=torch.float64)


def test_discounts_and_what_remains():
    assert discounts(0.5, 4).tolist() == [1, 0.5, 0.25, 0.125]
    assert discounts(0.0, 3).tolist() == [1, 0, 0]
    assert remaining(0.5, 3).tolist() == [1.75, 1.5, 1, 0]
    assert remaining(1.0, 4).tolist() == [4, 3, 2, 1, 0]
    assert remaining(0.0, 2).tolist() == [1, 1, 0]


def test_what_remains_is_the_value_of_earning_one_a_step():
    """V_t = 1 + gamma V_{t+1} with V_T = 0."""
    ahead = remaining(0.9, 6)
    torch.testing.assert_close(ahead[:-1], 1 + 0.9 * ahead[1:])


def test_targets_by_hand():
    targets = temporal_difference_targets(SIGNAL, VALUES, 0.5)
    assert targets.tolist() == [[1.5, 2.0, 2.0], [0.5, 3.5, 2.0]]


def test_advantages_by_hand():
    # errors: (-0.5, 1, -2) and (-0.5, 2.5, 1); each step looks on with gamma lambda = 1/4
    advantages = generalized_advantages(SIGNAL, VALUES, 0.5, 0.5)
    assert advantages.tolist() == [[-0.375, 0.5, -2.0], [0.1875, 2.75, 1.0]]


@pytest.mark.parametrize("gamma", [0.0, 0.6, 1.0])
def test_lambda_zero_is_the_temporal_difference_error(gamma):
    signal, values = random_batch(0)
    errors = signal + gamma * values[:, 1:] - values[:, :-1]
    torch.testing.assert_close(generalized_advantages(signal, values, gamma, 0.0), errors)


@pytest.mark.parametrize("gamma", [0.0, 0.6, 1.0])
def test_lambda_one_is_the_return_less_the_value(gamma):
    signal, values = random_batch(1)
    values[:, -1] = 0  # nothing is earned after the end
    returns = torch.stack(
        [
            sum(gamma**j * signal[:, t + j] for j in range(signal.shape[1] - t))
            for t in range(signal.shape[1])
        ],
        dim=1,
    )
    advantages = generalized_advantages(signal, values, gamma, 1.0)
    torch.testing.assert_close(advantages, returns - values[:, :-1])


def test_true_values_leave_no_advantage():
    """One a step, always: nothing is better than expected, whatever lambda."""
    ahead = remaining(0.8, 5).double()
    for lam in (0.0, 0.5, 1.0):
        advantages = generalized_advantages(torch.ones(2, 5), ahead.expand(2, -1), 0.8, lam)
        assert advantages.abs().max() < 1e-6
