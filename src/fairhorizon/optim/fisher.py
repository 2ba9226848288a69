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

    `outputs` maps the flat parameters to those of the distributions, J is its Jacobian, `metric`
    multiplies by M, the Fisher matrix of the distributions in their own parameters. For a Gaussian
    that is diag(1/sigma², 2) in (mean, log sigma). One Jacobian-vector and one vector-Jacobian
    product: no second derivative is taken.
    """
    pull_back: Callable[[Tensor], tuple[Tensor]] = torch.func.vjp(outputs, theta)[1]

    def product(v: Tensor) -> Tensor:
        push: Tensor = torch.func.jvp(outputs, (theta,), (v,))[1]
        (pulled,) = pull_back(metric(push))
        return pulled + damping * v

    return product
