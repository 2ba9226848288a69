"""What the generators share: tastes, exposure, sellers, and draws from rows of weights."""

import numpy as np
from numpy.typing import NDArray

START, DAY = 1_600_000_000, 86_400  # seconds
YEAR = 365 * DAY


def taste_market(
    users: int, items: int, rng: np.random.Generator, *, dim: int = 3, skew: float = 0.7
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(users, items) the probability that a user likes an item, and (items,) Zipf exposure.

    The logit is p_u . q_i with E[(p.q)^2] = 9; exposure of the r-th item is r^-skew, at random.
    """
    scale = np.sqrt(3 / np.sqrt(dim))
    tastes, traits = rng.normal(0, scale, (users, dim)), rng.normal(0, scale, (items, dim))
    liked = 1 / (1 + np.exp(-(tastes @ traits.T)))
    exposure = rng.permutation(np.arange(1, items + 1) ** -skew)
    return liked, exposure / exposure.sum()


def drawn(weights: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """(n,) one column for every row of weights (n, m), with probability by weight."""
    cumulative = weights.cumsum(axis=1)
    points = rng.random(len(weights)) * cumulative[:, -1]
    return np.asarray((cumulative < points[:, None]).sum(axis=1), dtype=np.int64)


def sellers(items: int, rng: np.random.Generator) -> NDArray[np.object_]:
    """(items,) "big" has half of the items; ten small ones, s0 to s9, share the others."""
    codes = rng.integers(0, 20, items)
    return np.array(["big" if code > 9 else f"s{code}" for code in codes], dtype=object)
