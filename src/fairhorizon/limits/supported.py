"""Which limits a method can keep in its lists."""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from fairhorizon.errors import ConfigError
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.vocabulary import Scope

# Outside the joint engine every limit has a price of its own that is searched for at every step.
MOST_LIMITS = 12  # at once where they are not all on all showings of a group
WHO_CAN = (
    "fcpo and NAME+control keep any limits, NAME+lists any on all showings, or one that counts in "
    "another way"
)


class SupportedLimits(StrEnum):
    """The limits that a method can keep in lists; each has its words for a message."""

    NONE = "no limit"
    OWN = "a largest share of all showings for the group that it was fitted for"
    JOINT = "limits on all showings of groups, or one on a group and one on the Gini index"
    ANY = "any limits"
    STEPS = "any limits, a few at once"


def check_supported(
    method: str, kept: SupportedLimits, limits: Sequence[ResolvedLimit], group: NDArray[np.bool_]
) -> None:
    """Refuse limits that the method, fitted for a group (n_items,), cannot make lists under."""
    if len(limits) > MOST_LIMITS and (not is_multi_limit(limits) or kept is SupportedLimits.STEPS):
        raise ConfigError(
            f"{len(limits)} limits at once: fcpo and NAME+lists keep any number on all showings of "
            f"groups, {method} at most {MOST_LIMITS} of these (give fewer; fairhorizon audit "
            "measures any number)"
        )
    # The one limit that a method was fitted for is kept by all methods that keep any.
    alone = kept is not SupportedLimits.NONE and own_share(limits, group) is not None
    can = kept in (SupportedLimits.ANY, SupportedLimits.STEPS) or (
        kept is SupportedLimits.JOINT and (is_single_limit(limits) or is_multi_limit(limits))
    )
    if limits and not alone and not can:
        asked = ", ".join(map(str, limits))
        raise ConfigError(f"{method} keeps {kept.value}, not {asked} ({WHO_CAN})")


def is_single_limit(limits: Sequence[ResolvedLimit]) -> bool:
    """At most one limit on a group, and at most one on the Gini index."""
    on_index = len(gini_limits(limits))
    return on_index <= 1 and len(limits) - on_index <= 1


def is_multi_limit(limits: Sequence[ResolvedLimit]) -> bool:
    """More than one, each on all showings of a group; places may be weighed."""
    on_showings = [one for one in limits if not one.limit.is_gini and one.limit.scope is Scope.ALL]
    return 1 < len(on_showings) == len(limits)


def kept_by_requests(limits: Sequence[ResolvedLimit]) -> bool:
    """Whether a guard keeps them over requests that come one after the other."""
    return is_multi_limit(limits) or (is_single_limit(limits) and not gini_limits(limits))


def gini_limits(limits: Sequence[ResolvedLimit]) -> list[ResolvedLimit]:
    """The limits on the Gini index."""
    return [one for one in limits if one.limit.is_gini]


def own_share(limits: Sequence[ResolvedLimit], group: NDArray[np.bool_]) -> float | None:
    """The largest share of all showings for the group, if that is the one limit; else None."""
    return limits[0].limit.share if len(limits) == 1 and _is_level(limits[0], group) else None


def level_under(limits: Sequence[ResolvedLimit], group: NDArray[np.bool_]) -> float:
    """The largest share of all showings that the limits leave to the group; 1: any."""
    return min((one.limit.share for one in limits if _is_level(one, group)), default=1.0)


def _is_level(bound: ResolvedLimit, group: NDArray[np.bool_]) -> bool:
    limit = bound.limit
    return limit.is_plain and not limit.is_floor and np.array_equal(bound.members, group)
