"""Recorded offers of which everything is known."""

import torch

from fairhorizon.fcpo.retention.policy import OfferedSteps

CHEAP, DEAR = 1.0, 4.0  # what a like is worth, in two kinds of states


def steps_of(worth: torch.Tensor, states: torch.Tensor) -> OfferedSteps:
    """Offers with probabilities 0.5 (group) and 0.3; a like is worth so much (n,), and the price of
    the group is that of the moment."""
    n = len(states)
    probabilities = torch.tensor([[0.5, 0.3]]).expand(n, 2)
    advantages = torch.stack(
        [probabilities * worth[:, None], torch.tensor([[1.0, 0.0]]).expand(n, 2)]
    )
    shown, moments = torch.arange(n) % 2 == 0, torch.zeros(n, dtype=torch.long)
    return OfferedSteps(
        states,
        probabilities,
        shown.float(),
        moments,
        torch.ones(n),
        torch.stack([advantages, advantages]),  # both halves agree
        torch.ones(n),
        torch.stack([worth - 1, torch.zeros(n)]).expand(2, 2, n),
    )
