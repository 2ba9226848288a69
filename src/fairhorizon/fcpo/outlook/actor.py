"""The policy of a recommender that looks ahead: what a like of a user is worth in a state.

    value(u, i) = worth(s_u) P(u likes i)

At first every like is worth 1, and the allocation under the limit is that of the moment. The price
of the limited group is one for all users; in likes of the moment it is price / worth(s), so it is a
function of the state: low for those whom a like keeps. A factor of all worths would be one of the
price as well, and change nothing: who uses them makes their mean 1 over the users of a step.
"""

import torch
from torch import Tensor, nn

from fairhorizon.lbfgs import minimise

BOUND = 2.0  # of the logarithm: who never gets a showing anyway could be worth less and less


class MoodActor(nn.Module):
    """worth(s), as an exponential: it is positive, and CPO learns by which factor it differs."""

    mean: Tensor
    spread: Tensor

    def __init__(self, state_size: int, hidden: tuple[int, int], seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            head = nn.Linear(hidden[1], 1)
            self.body = nn.Sequential(
                nn.Linear(state_size, hidden[0]),
                nn.Tanh(),
                nn.Linear(hidden[0], hidden[1]),
                nn.Tanh(),
                head,
            )
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        self.register_buffer("mean", torch.zeros(state_size))
        self.register_buffer("spread", torch.zeros(state_size))  # 0: no state was seen yet

    def forward(self, states: Tensor) -> Tensor:
        """(n, 1) the worth of a like."""
        return self._logarithm(states).exp()

    def _logarithm(self, states: Tensor) -> Tensor:
        known = (states - self.mean) / self.spread.clamp(min=1e-3)
        bounded: Tensor = BOUND * torch.tanh(self.body(known) / BOUND)
        return bounded

    @torch.no_grad()
    def worths(self, states: Tensor) -> Tensor:
        """(n, 1) the same as numbers, without a graph behind them."""
        outputs: Tensor = self(states)
        return outputs

    def fit(self, states: Tensor, logarithms: Tensor, iterations: int) -> None:
        """Least squares on logarithms (n,) of the worth, by L-BFGS from where it is."""
        minimise(
            self.parameters(),
            lambda: (self._logarithm(states).squeeze(1) - logarithms).square().mean(),
            iterations=iterations,
        )

    @torch.no_grad()
    def look_at(self, states: Tensor) -> None:
        """Fix the scale of states by the first that are seen: later, it would move the policy."""
        if not self.spread.any():
            self.mean.copy_(states.mean(0))
            self.spread.copy_(states.std(0).clamp(min=1e-3))
