"""The weights of the rankers of a panel: those of the best softmax policy over them."""

import torch
from torch import Tensor

from fairhorizon.optim.lbfgs import minimise
from fairhorizon.policy.menus import SignalMenus
from fairhorizon.policy.softmax import CLOSED

RIDGE = 1e-3
ITERATIONS = 50


def weights_by_cross_entropy(menus: SignalMenus, liked: Tensor) -> tuple[float, ...]:
    """Maximum-likelihood weights of a softmax policy, for every signal but the last (the group).

    `liked` (m, C) marks what users liked later on. All users count equally, the problem is convex,
    and without any liked item all weights are 1.
    """
    some = liked.any(1)
    signals, targets = menus.signals[some, :, :-1], liked[some].float()
    targets = targets / targets.sum(1, keepdim=True)
    closed = menus.items[some] < 0
    n_signals = signals.shape[2]
    if not len(signals):
        return (1.0,) * n_signals
    weights = torch.zeros(n_signals, device=signals.device, requires_grad=True)

    def loss() -> Tensor:
        logits = (signals @ weights).masked_fill(closed, CLOSED)
        likelihood = (torch.log_softmax(logits, dim=1) * targets).sum(1).mean()
        return RIDGE * weights.square().sum() - likelihood

    minimise([weights], loss, iterations=ITERATIONS)
    return tuple(weights.detach().tolist())
