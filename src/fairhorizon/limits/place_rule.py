"""What a limit on a group counts: all showings, every list, every prefix; alike or by place."""

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fairhorizon.errors import ConfigError
from fairhorizon.limits.language import Limit
from fairhorizon.metrics.accuracy import discount
from fairhorizon.metrics.shares import ROUNDING
from fairhorizon.vocabulary import Scope, Weighing

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


class PlaceWeights(StrEnum):
    """What a showing at place k counts, where no numbers are given."""

    NONE = "none"  # 1
    LOG = "log"  # 1 / log2(1 + k)


@dataclass(frozen=True)
class PlaceRule:
    """At most (a floor: at least) a share of the showings for a group, counted by place.

    With g_k the weight of place k, which is 0 behind the `first` places:

        all     sum of g_k over the group's places in all lists <= share * sum over filled places
        list    at most ceil(share * K) of the first K places of every list
        prefix  at most ceil(share * k) of the first k places of every list, k = 1, ..., K

    K is `first`, or the length that lists are asked for. A floor is the limit of 1 - share on all
    other items: at least floor(share * K) of K places, unless there are too few such items; then
    the list is shorter, as the limit takes precedence over the length.

    share: a fraction from 0 to 1.  is_floor: "at least" in place of "at most".
    weights: "none", "log", or the weights of places 1, 2, ...; places beyond these count 0.
    first: only so many places of each list count; None: all of them.
    """

    share: float
    is_floor: bool = False
    scope: Scope = Scope.ALL
    weights: PlaceWeights | tuple[float, ...] = PlaceWeights.NONE
    first: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(
                f"share = {self.share} is not between 0 and 1 (give a fraction, not %)"
            )
        if self.first is not None and self.first < 1:
            raise ConfigError(f"the first {self.first} places of a list (take 1 or more)")
        # From here on weights are checked, and there are none.
        if self.weights == PlaceWeights.NONE:
            return
        if self.scope != Scope.ALL:
            raise ConfigError(
                f"scope={self.scope} counts whole places, so weights={self._named_weights()} has no"
                " meaning (leave the weights out, or take scope=all)"
            )
        given = self.weights if isinstance(self.weights, tuple) else (1.0,)
        if not all(0 <= weight < math.inf for weight in given) or not any(given):
            raise ConfigError(
                f"weights={self._named_weights()}: places need weights of 0 or more, not all 0"
            )

    @classmethod
    def from_limit(cls, limit: Limit) -> Self:
        """The rule of a limit on a group."""
        by_place = {Weighing.NONE: PlaceWeights.NONE, Weighing.LOG: PlaceWeights.LOG}
        weights = by_place.get(limit.weighing, limit.weights)
        return cls(limit.share, limit.is_floor, limit.scope, weights, limit.first)

    def _named_weights(self) -> str:
        if isinstance(self.weights, tuple):
            return ",".join(f"{weight:g}" for weight in self.weights)
        return self.weights.value

    def at(self, share: float) -> "PlaceRule":
        """The same rule with another share."""
        return replace(self, share=share)

    def mirrored(self) -> "PlaceRule":
        """The same rule, said of all items outside the group."""
        return replace(self, share=1 - self.share, is_floor=not self.is_floor)

    def is_plain(self, length: int) -> bool:
        """Whether it counts all showings of lists of this length alike and together."""
        return self.scope == Scope.ALL and bool((self.place_weights(length) == 1).all())

    def place_weights(self, length: int) -> Floats:
        """(length,) g_k for k = 1, 2, ...; not to be written to."""
        return _place_weights(self, length)

    def most(self, length: int) -> Counts:
        """(length + 1,) how many of the first 0, 1, 2, ... places of a list the group may have.

        Of a limit; for a floor, ask the mirrored rule about all other items.
        """
        places: Counts = np.arange(length + 1)
        if self.scope == Scope.ALL:
            return places
        counted = length if self.first is None else min(self.first, length)
        # At most ceil(share k) of k places. ROUNDING: 0.28 * 25 is 7.000000000000001 in floats, and
        # 7 is what the rule allows.
        of_prefixes: Counts = np.ceil(self.share * places - ROUNDING).astype(np.int64)
        # Places behind the `first` are free for anything.
        behind: Counts = np.maximum(0, places - counted)
        if self.scope == Scope.LIST:
            most: Counts = np.minimum(places, of_prefixes[counted] + behind)
        else:
            most = of_prefixes[np.minimum(places, counted)] + behind
        return most

    def bounds(self, length: int) -> tuple[Counts, Counts]:
        """(length,) fewest and most items of the group among the first 1, 2, ... places of a list.

        A floor asks for what the limit on all other items leaves.
        """
        places: Counts = np.arange(1, length + 1)
        if not self.is_floor:
            return np.zeros_like(places), self.most(length)[1:]
        counted = length if self.first is None else min(self.first, length)
        # k places of which at most m are outside the group have at least k - m of the group.
        fewest = np.maximum(0, places - self.mirrored().most(length)[1:])
        return np.where(places <= counted, fewest, 0), places


@lru_cache(maxsize=256)  # lists of few users are asked for again and again
def _place_weights(rule: PlaceRule, length: int) -> Floats:
    ranks = np.arange(1, length + 1)
    if rule.weights == PlaceWeights.NONE:
        weights = np.ones(length)
    elif rule.weights == PlaceWeights.LOG:
        weights = discount(ranks)
    else:
        given = np.array(rule.weights[:length], dtype=np.float64)
        weights = np.pad(given, (0, length - len(given)))
    counted = np.where(ranks <= (length if rule.first is None else rule.first), weights, 0.0)
    # The cache hands the same array to everybody.
    counted.setflags(write=False)
    return counted
