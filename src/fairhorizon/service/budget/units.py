"""Exposure in whole millionths of a showing: counts of replicas add up without any rounding."""

from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fairhorizon.limits.language import Limit
from fairhorizon.limits.limit_rules import rule_of

UNIT = 1_000_000  # one showing that counts 1


@lru_cache(maxsize=1024)
def place_units(limit: Limit, length: int) -> tuple[int, ...]:
    """What a showing at each place of a list counts under a limit."""
    return tuple(round(UNIT * weight) for weight in rule_of(limit).place_weights(length).tolist())


def share_units(limit: Limit) -> int:
    """The share of a limit in millionths; of more digits it is the stricter of the two next."""
    exact = UNIT * limit.share
    near = round(exact)
    if abs(exact - near) < 1e-6:
        return near
    return int(exact) + limit.is_floor


Total = TypeVar("Total", int, NDArray[np.int64])


def part_of(share: int, total: Total) -> Total:
    """share * total // UNIT, whose product would not fit 64 bits after some million showings."""
    return share * (total // UNIT) + share * (total % UNIT) // UNIT


def allowed(share: int, shown: int, slack: int) -> int:
    """share * shown + C, rounded down: how much of a group may have been shown."""
    return part_of(share, shown) + slack


def showings(units: int) -> float:
    """As people count them."""
    return units / UNIT
