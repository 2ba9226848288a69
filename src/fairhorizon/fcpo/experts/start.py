"""An actor of a warm start begins with the weights of its panel."""

import torch

from fairhorizon.policy.actor import Actor
from fairhorizon.recommenders.lists.panel import Panel

NO_PRICE = 0.0


def start_from(actor: Actor, panel: Panel, initial_std: float) -> None:
    """Begin with the weights of the panel and no price."""
    actor.begin_with([*panel.weights, NO_PRICE])
    with torch.no_grad():
        # at first, the outputs should differ between states by no more than the noise
        actor.head.weight.mul_(initial_std)
