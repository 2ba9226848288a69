"""Lists of all users together under limits in the language of limits."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from fairhorizon.agents.lists.item_lists import NO_LIMIT, ItemLists, ValuedLists
from fairhorizon.agents.served import Served
from fairhorizon.exposure.bound import BoundLimit
from fairhorizon.exposure.kept_by_lists import are_joint, are_several, of_gini
from fairhorizon.exposure.limit_rules import rule_of
from fairhorizon.exposure.step_limits import StepLimit, step_limit


def by_steps(limits: Sequence[BoundLimit], *, feedback: bool) -> bool:
    """Whether lists are made place after place by the step control.

    The joint lists keep one limit on a group that counts in any way, and in whole lists, not in
    those that are made with feedback, one on the Gini index or several on all showings.
    """
    if feedback:
        return not are_joint(limits) or bool(of_gini(limits))
    return not are_joint(limits) and not are_several(limits)


def step_limits(limits: Sequence[BoundLimit]) -> list[StepLimit]:
    """The limits as the step control keeps them in lists, where groups stay as they are."""
    return [step_limit(one, fixed=True) for one in limits]


def under_limits(lists: ItemLists, limits: Sequence[BoundLimit]) -> ItemLists:
    """The same chances, served under at most one limit on a group and one on the Gini index.

    As they are without any.
    """
    if not limits:
        return lists
    gini = next((one.limit.share for one in of_gini(limits)), None)
    group = next((one for one in limits if not one.limit.is_gini), None)
    if group is None:
        return replace(lists, rule=NO_LIMIT, gini_limit=gini)
    members = torch.from_numpy(group.members).to(lists.sensitive.device)
    return replace(lists, sensitive=members, rule=rule_of(group.limit), gini_limit=gini)


def served_lists(valued: ValuedLists, limits: Sequence[BoundLimit], level: str) -> Served:
    """Valued lists with the prices of the limits, or of the level where there are none."""
    made = valued.made
    on_group = [str(one) for one in limits if not one.limit.is_gini] if limits else [level]
    prices = dict.fromkeys(on_group, made.price)
    prices |= {str(one): made.spread_price for one in of_gini(limits)}
    return Served.of(made.lists, values=valued.values, scores=valued.chances, prices=prices)
