"""L-BFGS with a strong Wolfe line search, for small smooth problems on all data at once."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

MEMORY = 10  # past steps in the curvature estimate


def minimise(parameters: Iterable[Tensor], loss: Callable[[], Tensor], *, iterations: int) -> None:
    """Minimise the loss, a function of the parameters, in place."""
    # One call runs all iterations. The line search keeps it from diverging where curvature changes,
    # which plain L-BFGS steps do.
    optimiser = torch.optim.LBFGS(
        parameters, max_iter=iterations, history_size=MEMORY, line_search_fn="strong_wolfe"
    )

    def closure() -> float:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value.item()

    optimiser.step(closure)
