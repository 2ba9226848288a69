"""Limits as the step control keeps them, place after place for all users at once."""

from collections.abc import Sequence

import torch

from fairhorizon.errors import ConfigError
from fairhorizon.exposure.bound import BoundLimit
from fairhorizon.exposure.step_limits import GiniLimit, GroupFloor, GroupLimit, StepLimit


def step_limits(bound: Sequence[BoundLimit], warm_up: int = 0) -> list[StepLimit]:
    """The limits, each on the items that are in its group at the beginning.

    warm_up: the step from which limits hold; floors hold from the first step on.
    """
    return [_step_limit(one, warm_up) for one in bound]


def _step_limit(bound: BoundLimit, warm_up: int) -> StepLimit:
    limit, name = bound.limit, str(bound)
    if limit.is_gini:
        return GiniLimit(limit.share, warm_up, name)
    if not limit.is_plain:
        raise ConfigError(
            f"{name}: the step control counts all showings of all lists alike (leave out places, "
            "weights and scope)"
        )
    members = torch.from_numpy(bound.members)
    if limit.is_floor:
        return GroupFloor(name, members, limit.share)
    return GroupLimit(name, members, limit.share, warm_up)
