"""L-BFGS with a strong Wolfe line search, for small smooth problems on all data at once."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from fairhorizon.optim.parts import Sum, alone

MEMORY = 10  # past steps in the curvature estimate


def minimise(
    parameters: Iterable[Tensor],
    loss: Callable[[], Tensor],
    *,
    iterations: int,
    total: Sum = alone,
) -> None:
    """Minimise the loss, a function of the parameters, in place.

    Where `loss` is that of a part of the data, `total` sums it and its gradient over all parts.
    """
    parameters = list(parameters)
    optimiser = torch.optim.LBFGS(
        parameters, max_iter=iterations, history_size=MEMORY, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        own = [parameter.grad for parameter in parameters if parameter.grad is not None]
        whole, *gradients = total([value.detach(), *own])
        for gradient, summed in zip(own, gradients, strict=True):
            gradient.copy_(summed)
        return whole.item()

    optimiser.step(closure)
