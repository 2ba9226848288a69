"""The chances of items by a trained policy."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.policy.actor import Actor
from fairhorizon.policy.softmax import rows_of
from fairhorizon.policy.views import ItemView
from fairhorizon.rankers.candidates import CandidateSet
from fairhorizon.recommenders.lists.chances import softmax_chances


@dataclass(frozen=True)
class ActorChances:
    """softmax(W signals) over the menu, W by the actor, the mean over its rows."""

    actor: Actor

    @property
    def items(self) -> ItemView:
        return self.actor.items

    def of(self, menus: CandidateSet, users: Tensor, queues: Tensor) -> Tensor:
        outputs = self.actor(users, self.items.remember(queues))
        weights = rows_of(outputs, self.actor.list_length)
        if self.items.priced:
            # the price of the level, found for all users together, replaces the learned one
            weights = torch.cat([weights[..., :-1], torch.zeros_like(weights[..., -1:])], dim=2)
        return softmax_chances(menus, weights.mean(1, keepdim=True))
