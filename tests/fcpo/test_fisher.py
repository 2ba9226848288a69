"""Fisher products against the explicit matrix, made in two other ways."""

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from fairhorizon.fcpo.cpo import conjugate_gradient, fisher_product

# torch 2.13 scripts functions of its own when it first takes a forward derivative.

STATES, INPUTS, HIDDEN, DIM = 4, 3, 5, 2
SIZE = INPUTS * HIDDEN + HIDDEN * 2 * DIM


def problem(seed: int):
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(STATES, INPUTS, generator=generator, dtype=torch.float64)
    theta = 0.5 * torch.randn(SIZE, generator=generator, dtype=torch.float64)
    vectors = torch.randn(3, SIZE, generator=generator, dtype=torch.float64)

    def outputs(parameters):
        """(STATES, 2 DIM): means and log standard deviations of a one-layer network."""
        first, second = parameters.split([INPUTS * HIDDEN, HIDDEN * 2 * DIM])
        hidden = torch.tanh(states @ first.view(INPUTS, HIDDEN))
        return hidden @ second.view(HIDDEN, 2 * DIM)

    return outputs, theta, vectors


def gaussian(outputs):
    mean, log_std = outputs.chunk(2, dim=1)
    return Independent(Normal(mean, log_std.exp()), 1)


def metric_at(outputs, theta):
    """diag(1/sigma², 2) of every state, divided by their number."""
    _, log_std = outputs(theta).chunk(2, dim=1)
    return torch.cat([torch.exp(-2 * log_std), 2 * torch.ones_like(log_std)], dim=1) / STATES


def test_equals_the_explicit_jacobian():
    outputs, theta, vectors = problem(0)
    weights = metric_at(outputs, theta)
    J = torch.func.jacrev(outputs)(theta).reshape(-1, SIZE)
    matrix = J.T @ torch.diag(weights.flatten()) @ J + 0.3 * torch.eye(SIZE, dtype=torch.float64)
    product = fisher_product(outputs, theta, lambda u: weights * u, damping=0.3)
    for v in vectors:
        torch.testing.assert_close(product(v), matrix @ v, rtol=1e-12, atol=1e-12)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func.hessian
def test_equals_the_hessian_of_the_divergence():
    outputs, theta, vectors = problem(1)
    present = gaussian(outputs(theta))

    def divergence(parameters):
        return kl_divergence(gaussian(outputs(parameters)), present).mean()

    hessian = torch.func.hessian(divergence)(theta)
    weights = metric_at(outputs, theta)
    product = fisher_product(outputs, theta, lambda u: weights * u, damping=0.0)
    for v in vectors:
        torch.testing.assert_close(product(v), hessian @ v, rtol=1e-10, atol=1e-12)


def test_damped_system_is_solved_through_products():
    outputs, theta, vectors = problem(2)
    weights = metric_at(outputs, theta)
    product = fisher_product(outputs, theta, lambda u: weights * u, damping=0.1)
    matrix = torch.stack([product(e) for e in torch.eye(SIZE, dtype=torch.float64)])
    torch.testing.assert_close(matrix, matrix.T, rtol=0, atol=1e-13)
    x = conjugate_gradient(product, vectors[0], iterations=3 * SIZE, tolerance=1e-24)
    torch.testing.assert_close(x, torch.linalg.solve(matrix, vectors[0]), rtol=1e-8, atol=1e-8)
