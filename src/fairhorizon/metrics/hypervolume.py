"""Two objectives to maximise: the Pareto front of a set of points and its hypervolume.

points: (n, 2); a point with a NaN coordinate is left out.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def dominated_area(points: ArrayLike, reference: tuple[float, float] = (0, 0)) -> float:
    """Area of the union of the rectangles from the reference up to each point (hypervolume)."""
    p = _checked(points)
    x, y = (p[(p > reference).all(axis=1)] - reference).T
    order = np.argsort(-x)
    x, y = x[order], y[order]
    # From right to left: between x_(i+1) and x_(i) the union is as high as the highest of the i
    # points to the right. The last strip ends at the reference, which is 0 by now.
    return float(-np.diff(x, append=0) @ np.maximum.accumulate(y))


def pareto_front(points: ArrayLike) -> NDArray[np.bool_]:
    """(n,) True where no other point is at least as good in both and better in one."""
    p = _checked(points)
    # All pairs at once: a front has tens of points, so (n, n, 2) is small.
    own, other = p[:, None], p[None]
    beaten = np.all(other >= own, axis=2) & np.any(other > own, axis=2)  # (i, j): j beats i
    front: NDArray[np.bool_] = ~(np.any(beaten, axis=1) | np.any(np.isnan(p), axis=1))
    return front


def _checked(points: ArrayLike) -> NDArray[np.float64]:
    p = np.asarray(points, dtype=np.float64)
    if p.ndim != 2 or p.shape[1] != 2:
        raise ValueError(f"points have shape {p.shape}, expected (n, 2)")
    return p
