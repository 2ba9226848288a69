"""Conjugate gradients against a direct solver."""

import numpy as np
import pytest
import torch

from fairhorizon.fcpo.cpo import conjugate_gradient


def positive_definite(size: int, seed: int) -> np.ndarray:
    root = np.random.default_rng(seed).normal(size=(size, size))
    return root @ root.T + 0.5 * np.eye(size)


@pytest.mark.parametrize("size", [1, 2, 7, 30])
def test_equals_a_direct_solver(size):
    for seed in range(5):
        matrix = positive_definite(size, seed)
        b = np.random.default_rng(100 + seed).normal(size=size)
        product = torch.from_numpy(matrix).mv
        x = conjugate_gradient(product, torch.from_numpy(b), iterations=5 * size, tolerance=1e-26)
        np.testing.assert_allclose(x.numpy(), np.linalg.solve(matrix, b), rtol=1e-8, atol=1e-10)


def test_as_many_iterations_as_distinct_eigenvalues_suffice():
    rotation, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(12, 12)))
    matrix = rotation @ np.diag([1.0] * 5 + [4.0] * 6 + [9.0]) @ rotation.T
    b = np.random.default_rng(1).normal(size=12)
    x = conjugate_gradient(torch.from_numpy(matrix).mv, torch.from_numpy(b), iterations=3)
    np.testing.assert_allclose(x.numpy(), np.linalg.solve(matrix, b), rtol=1e-10, atol=1e-12)


def test_stops_at_the_tolerance():
    matrix, products = torch.from_numpy(positive_definite(30, 3)), []

    def product(v):
        products.append(v)
        return matrix @ v

    b = torch.from_numpy(np.random.default_rng(4).normal(size=30))
    x = conjugate_gradient(product, b, iterations=300, tolerance=1e-4)
    assert len(products) < 60
    assert float((matrix @ x - b).square().sum()) <= 1.001e-4 * float(b @ b)
    before_the_last = conjugate_gradient(product, b, iterations=len(products) - 1, tolerance=0.0)
    assert float((matrix @ before_the_last - b).square().sum()) > 1e-4 * float(b @ b)


def test_never_takes_more_products_than_allowed():
    matrix, products = torch.from_numpy(positive_definite(30, 5)), []

    def product(v):
        products.append(v)
        return matrix @ v

    conjugate_gradient(product, torch.ones(30, dtype=torch.float64), iterations=4)
    assert len(products) == 4


def test_nothing_to_solve_takes_no_product():
    def product(_):
        raise AssertionError("a zero right-hand side needs no product")

    assert conjugate_gradient(product, torch.zeros(3), iterations=10).tolist() == [0, 0, 0]
