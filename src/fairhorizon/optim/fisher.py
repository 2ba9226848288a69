"""Products with the Fisher matrix, without ever forming it."""

from collections.abc import Callable

import torch
from torch import Tensor


def fisher_product(
    outputs: Callable[[Tensor], Tensor],
    theta: Tensor,
    metric: Callable[[Tensor], Tensor],
    *,
    damping: float,
) -> Callable[[Tensor], Tensor]:
    """The function v -> (Jᵀ M J + damping I) v at theta.

    `outputs` maps the flat parameters to those of the distributions, J is its Jacobian, and `metric`
    multiplies by M, the Fisher matrix of the distributions in their own parameters. For a Gaussian
    that is diag(1/sigma², 2) in (mean, log sigma). One Jacobian-vector and one vector-Jacobian
    product: no second derivative is taken.
    """
    _, pull_back = torch.func.vjp(outputs, theta)

    def product(v: Tensor) -> Tensor:
        _, push = torch.func.jvp(outputs, (theta,), (v,))
        (pulled,) = pull_back(metric(push))
        return pulled + damping * v

    return product
