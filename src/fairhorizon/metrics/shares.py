"""When a share of showings is kept: whole showings, and no fault of rounding counts.

Shares are floats, so a product with a number of showings misses the whole number it stands for:
0.28 * 25 = 7.000000000000001 and 0.29 * 100 = 28.999999999999996.
"""

import math

ROUNDING = 1e-9


def whole_showings(budget: float) -> int:
    """The most showings within a budget such as share * showings."""
    return math.floor(budget + ROUNDING)


def exceeds(rate: float, limit: float) -> bool:
    """Whether a rate is above its limit by more than rounding; NaN, the rate of nothing, is not."""
    return rate - limit > ROUNDING
