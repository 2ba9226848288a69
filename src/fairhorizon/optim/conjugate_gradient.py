"""Solve H x = b for a symmetric positive definite H that is given by its products."""

from collections.abc import Callable

from torch import Tensor


def conjugate_gradient(
    matvec: Callable[[Tensor], Tensor], b: Tensor, *, iterations: int, tolerance: float = 1e-10
) -> Tensor:
    """x with |Hx - b|² <= tolerance |b|², or the best after `iterations` products.

    Hestenes & Stiefel 1952.
    """
    x = b.new_zeros(b.shape)
    residual = b.clone()
    direction = residual
    squared = residual @ residual
    target = tolerance * float(squared)
    for _ in range(iterations):
        if float(squared) <= target:
            break
        product = matvec(direction)
        length = squared / (direction @ product)
        x = x + length * direction
        residual = residual - length * product
        previous, squared = squared, residual @ residual
        direction = residual + (squared / previous) * direction
    return x
