"""The last layer of an actor: what it says of W, and so what is sampled."""

import math

import torch
from torch import nn

SMALL = 0.1  # times the usual first weights: every state begins nearly alike


class GaussianHead(nn.Linear):
    """Means, then log standard deviations, of W: a W is sampled and shows the best items by it."""

    def __init__(self, features: int, width: int, initial_std: float) -> None:
        super().__init__(features, 2 * width)
        with torch.no_grad():
            self.weight.mul_(SMALL)
            self.bias.zero_()
            self.bias[width:] = math.log(initial_std)


class SoftmaxHead(nn.Linear):
    """W alone: items are sampled, from softmax(W . signals / temperature)."""

    def __init__(self, features: int, width: int) -> None:
        super().__init__(features, width)

    @torch.no_grad()
    def reset_parameters(self) -> None:
        """As many numbers are drawn as for a Gaussian head: under one seed, actors and critics of
        both policies begin with the same numbers."""
        drawn = nn.Linear(self.in_features, 2 * self.out_features)
        self.weight.copy_(drawn.weight[: self.out_features] * SMALL)
        self.bias.zero_()
