"""Sums of floats that do not depend on the order of their terms.

A float is a whole number of units of 2^-1126. Sums of these are whole numbers, so parts of a sum
can be made in different places and added in any order; the result is rounded once, at the end.
"""

import math

import numpy as np
from numpy.typing import NDArray

UNIT = 1126  # 2^-UNIT: the last bit of a mantissa of 53 bits at the smallest exponent
LOW_BITS = 26  # of a mantissa, summed apart from the others: sums of 2^26 terms stay exact
AT_ONCE = 2**LOW_BITS


def exact_sum(values: NDArray[np.float64]) -> int:
    """The sum of finite floats in units of 2^-UNIT."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    return sum(_units(flat[start : start + AT_ONCE]) for start in range(0, len(flat), AT_ONCE))


def exact_sums(rows: NDArray[np.float64]) -> list[int]:
    """The sum of every column (b, m) in these units."""
    return [exact_sum(column) for column in rows.T]


def rounded(units: int, divisor: int = 1) -> float:
    """The float nearest to a sum, or to a part of it such as the mean."""
    return units / (divisor << UNIT)


def deviation(total: int, of_squares: int, count: int) -> float:
    """The standard deviation of numbers from their sum and the sum of their squares."""
    if not count:
        return math.nan
    return math.sqrt(((count * of_squares << UNIT) - total**2) / (count**2 << 2 * UNIT))


def _units(values: NDArray[np.float64]) -> int:
    if not len(values):
        return 0
    fractions, exponents = np.frexp(values)
    mantissas = np.ldexp(fractions, 53).astype(np.int64)
    first = int(exponents.min())
    exponents = exponents - first
    high, low = (
        np.bincount(exponents, part.astype(np.float64))
        for part in (mantissas >> LOW_BITS, mantissas & (2**LOW_BITS - 1))
    )
    return sum(
        ((int(more) << LOW_BITS) + int(less)) << (first + number + UNIT - 53)
        for number, (more, less) in enumerate(zip(high, low, strict=True))
    )
