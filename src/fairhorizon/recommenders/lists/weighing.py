"""The weights of the rankers of a panel: those of the best softmax policy over them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fairhorizon.optim.lbfgs import minimise
from fairhorizon.policy.menus import SignalMenus
from fairhorizon.policy.softmax import CLOSED

RIDGE = 1e-3
LEAST = 0.01  # lists never go against the order of what is weighed
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


def sharpened(weights: Sequence[float], menus: SignalMenus, liked: Tensor) -> tuple[float, ...]:
    """The weights times the one factor that makes what users liked most likely."""
    *signals, group = menus.signals.unbind(2)
    total = sum(weight * signal for weight, signal in zip(weights, signals, strict=True))
    assert isinstance(total, Tensor)
    (factor,) = weights_by_cross_entropy(
        SignalMenus(menus.items, torch.stack([total, group], dim=2)), liked
    )
    return tuple(max(LEAST, factor) * weight for weight in weights)
