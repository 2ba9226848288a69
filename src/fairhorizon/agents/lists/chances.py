"""Where the chances of items come from: the probability that a user takes an item next."""

from dataclasses import dataclass
from typing import Protocol as Interface

import torch
from torch import Tensor

from fairhorizon.policy.menus import Menus
from fairhorizon.policy.softmax import ItemPolicy
from fairhorizon.policy.views import ItemView


class Chances(Interface):
    """A view of the items, which makes menus, and the chances of the items on a menu."""

    @property
    def items(self) -> ItemView:
        """The items as menus show them."""

    def of(self, menus: Menus, users: Tensor, queues: Tensor) -> Tensor:
        """(b, C) the chance of each item on the menus of users in these states; 0 for no item."""


@dataclass(frozen=True)
class WeightedChances:
    """softmax(sum_e w_e z_e) over the menu, with the same weights in every state.

    The last signal of the items, their group, has no weight.
    """

    items: ItemView
    weights: tuple[float, ...]  # of all signals but the last

    def of(self, menus: Menus, users: Tensor, queues: Tensor) -> Tensor:
        row = torch.tensor([*self.weights, 0.0], device=queues.device)
        return softmax_chances(menus, row.expand(len(users), 1, -1))


def softmax_chances(menus: Menus, weights: Tensor) -> Tensor:
    """(b, C) softmax over each menu of the logits by one row of weights (b, 1, signals)."""
    open_items = menus.items >= 0
    return ItemPolicy.of(menus.logits(weights), open_items[:, None]).probs.squeeze(1)
