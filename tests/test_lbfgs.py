"""L-BFGS against problems with a known minimum."""

import torch

from fairhorizon.lbfgs import minimise


def test_least_squares_is_that_of_a_direct_solver():
    generator = torch.Generator().manual_seed(0)
    a = torch.randn(20, 4, generator=generator, dtype=torch.float64)
    b = torch.randn(20, generator=generator, dtype=torch.float64)
    x = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    minimise([x], lambda: (a @ x - b).square().sum(), iterations=100)
    exact = torch.linalg.lstsq(a, b[:, None]).solution.squeeze(1)
    torch.testing.assert_close(x.detach(), exact, rtol=0, atol=1e-6)


def test_the_banana_valley():
    """Rosenbrock: (1 - x)^2 + 100 (y - x^2)^2 is least at (1, 1); two tensors at once."""
    x = torch.tensor(-1.2, dtype=torch.float64, requires_grad=True)
    y = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    minimise([x, y], lambda: (1 - x).square() + 100 * (y - x.square()).square(), iterations=100)
    assert abs(x.item() - 1) < 1e-4
    assert abs(y.item() - 1) < 1e-4


def test_no_iterations_and_a_flat_loss_leave_the_parameters():
    x = torch.tensor([2.0], requires_grad=True)
    minimise([x], lambda: x.square().sum(), iterations=0)
    assert x.tolist() == [2.0]
    minimise([x], lambda: 0 * x.sum(), iterations=5)
    assert x.tolist() == [2.0]
