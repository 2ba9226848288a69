"""Backtracking: the longest fraction of a step that is acceptable."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LineSearch:
    """The result; `fraction` 0: nothing was acceptable, theta is unchanged."""

    theta: Tensor
    fraction: float


def backtrack(
    theta: Tensor,
    step: Tensor,
    acceptable: Callable[[Tensor], bool],
    *,
    ratio: float,
    attempts: int,
) -> LineSearch:
    """Try theta + ratio^j step for j = 0, 1, ... (the repeat loop of the paper's Algorithm 1)."""
    fraction = 1.0
    for _ in range(attempts):
        candidate = theta + fraction * step
        if acceptable(candidate):
            return LineSearch(candidate, fraction)
        fraction *= ratio
    return LineSearch(theta, 0.0)
