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
    that is diag(1/sigma², 2) in (mean, log sigma).

    u -> Jᵀu is linear, and its transpose is v -> Jv: both graphs are built once and reused by
    every product, so that no product computes the outputs again (forward mode would).
    """
    leaf = theta.detach().requires_grad_()
    z = outputs(leaf)
    u = torch.zeros_like(z, requires_grad=True)
    (pulled,) = torch.autograd.grad(z, leaf, u, create_graph=True)  # Jᵀu, as a function of u

    def product(v: Tensor) -> Tensor:
        (pushed,) = torch.autograd.grad(pulled, u, v, retain_graph=True)  # Jv
        (back,) = torch.autograd.grad(z, leaf, metric(pushed), retain_graph=True)
        return back + damping * v

    return product
