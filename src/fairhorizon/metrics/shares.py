"""Limits on shares of showings, in whole showings and tolerant of rounding.

Shares are floats, so a product with a number of showings may miss the exact whole number:
0.28 * 25 = 7.000000000000001 and 0.29 * 100 = 28.999999999999996.
"""

import math

# Far above the rounding of a product of doubles, far below what one showing in a million changes.
ROUNDING = 1e-9


def whole_showings(budget: float) -> int:
    """The largest number of showings within a budget such as share * showings."""
    return math.floor(budget + ROUNDING)


def rounded_up(budget: float) -> int:
    """The smallest number of showings that a budget such as share * places is within."""
    return math.ceil(budget - ROUNDING)


def exceeds(rate: float, limit: float) -> bool:
    """Whether a rate is above its limit by more than rounding; False for NaN."""
    # A comparison with NaN is False, so a rate that is not defined exceeds nothing.
    return rate - limit > ROUNDING
