"""The critics V_omega (reward) and V_phi (cost): equations 16 and 17."""

import torch
from torch import Tensor, nn

from fairhorizon.lbfgs import minimise


class Critic(nn.Module):
    """The value of an encoded state, as a mean per step still to come.

    Episodes are finite, so a value depends on the steps left. The network predicts v(s), the mean
    per remaining (discounted) step; the value at step t of T is v(s) sum_{j < T-t} gamma^j, zero
    at the end of the horizon by construction.
    """

    def __init__(self, state_size: int, hidden: tuple[int, int]) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(state_size, hidden[0]),
            nn.Tanh(),
            nn.Linear(hidden[0], hidden[1]),
            nn.Tanh(),
            nn.Linear(hidden[1], 1),
        )

    def forward(self, states: Tensor) -> Tensor:
        """(m,) mean value per remaining step."""
        values: Tensor = self.body(states)
        return values.squeeze(1)

    def fit(
        self,
        states: Tensor,
        index: Tensor,
        targets: Tensor,
        remaining: Tensor,
        iterations: int,
    ) -> float:
        """Minimise the mean of (y_t - V(s_t))² by L-BFGS; the loss after it.

        states: (m, size) distinct states; index: (b, T) which of them each step is in;
        targets y: (b, T); remaining: (T,) discounted steps still to come.
        """
        before = [parameter.detach().clone() for parameter in self.parameters()]

        def loss() -> Tensor:
            values: Tensor = self(states)[index] * remaining
            return (targets - values).square().sum() / index.numel()

        minimise(self.parameters(), loss, iterations=iterations)
        with torch.no_grad():
            final = float(loss())
            if not final < float("inf"):  # a diverged fit is worse than none
                for parameter, old in zip(self.parameters(), before, strict=True):
                    parameter.copy_(old)
        return final
