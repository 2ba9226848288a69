"""What is to come after an answer: discounted likes, 0 for those who leave over it.

    W_1(s) = E[(1 - left) V(s') | s, like],    W_0(s) = E[(1 - left) V(s') | s, none]
    V(s) = p (1 + gamma W_1(s)) + (1 - p) gamma W_0(s)

Both are regressions on recorded answers, with those who left among them: a mean over those who
stayed would say that a disappointment does no harm. The state has an estimate of how much the user
likes in general; without it a like would mostly tell who likes a lot and stays anyway.
"""

import torch
from torch import Tensor, nn

from fairhorizon.agents.fcpo.outlook.standing import MOODS
from fairhorizon.policy.critics import Critic

ITERATIONS = 60  # of L-BFGS
HIDDEN = (12, 12)


class AfterAnswers(nn.Module):
    """W_0 and W_1: a critic each, of the mood and the chance of a like."""

    mean: Tensor
    spread: Tensor
    scale: Tensor

    def __init__(self, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.critics = nn.ModuleList(Critic(MOODS + 1, HIDDEN) for _ in range(2))
        self.register_buffer("mean", torch.zeros(MOODS + 1))
        self.register_buffer("spread", torch.ones(MOODS + 1))
        self.register_buffer("scale", torch.tensor(0.0))  # 0: nothing was learned yet

    @torch.no_grad()
    def forward(self, states: Tensor) -> Tensor:
        """(n, 2) likes to come after none and after a like."""
        known = (states - self.mean) / self.spread
        values = torch.stack([critic(known) for critic in self.critics], dim=1)
        return (values * self.scale).clamp(min=0)

    def fit(self, states: Tensor, liked: Tensor, to_come: Tensor) -> None:
        """Least squares; to_come: (n,) what each user liked later, discounted."""
        if not float(self.scale):
            self.mean.copy_(states.mean(0))
            self.spread.copy_(states.std(0).clamp(min=1e-3))
            self.scale.copy_(to_come.square().mean().sqrt().clamp(min=1e-3))
        known = (states - self.mean) / self.spread
        for answer, critic in enumerate(self.critics):
            assert isinstance(critic, Critic)
            own = liked == bool(answer)
            if own.any():
                rows = torch.arange(int(own.sum()))[:, None]
                targets = (to_come[own] / self.scale)[:, None]
                critic.fit(known[own], rows, targets, torch.ones(1), ITERATIONS)
