"""Lists of all users together under limits in the language of limits."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from fairhorizon.agents.lists.item_lists import NO_LIMIT, ItemLists
from fairhorizon.exposure.bound import BoundLimit
from fairhorizon.exposure.kept_by_lists import are_joint


def by_steps(limits: Sequence[BoundLimit], *, feedback: bool) -> bool:
    """Whether lists are made place after place by the step control: under several limits.

    The joint lists keep one limit on a group; one on the Gini index in whole lists only, not in
    those that are made with feedback.
    """
    return not are_joint(limits) or (feedback and any(one.limit.is_gini for one in limits))


def under_limits(lists: ItemLists, limits: Sequence[BoundLimit]) -> ItemLists:
    """The same chances, served under at most one limit on a group and one on the Gini index."""
    gini = next((one.limit.share for one in limits if one.limit.is_gini), None)
    group = next((one for one in limits if not one.limit.is_gini), None)
    if group is None:
        return replace(lists, share=NO_LIMIT, gini_limit=gini)
    members, share = torch.from_numpy(group.members).to(lists.sensitive), group.limit.share
    if group.limit.is_floor:
        members, share = ~members, 1 - share
    return replace(lists, sensitive=members, share=share, gini_limit=gini)
