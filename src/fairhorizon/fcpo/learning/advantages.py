"""Advantages of steps over a finite horizon; rewards and costs alike."""

import torch
from torch import Tensor


def discounts(gamma: float, horizon: int) -> Tensor:
    """(T,) gamma^t."""
    return gamma ** torch.arange(horizon)


def remaining(gamma: float, horizon: int) -> Tensor:
    """(T + 1,) discounted steps still to come: sum_{j < T-t} gamma^j, zero at the end."""
    ahead = torch.cumsum(discounts(gamma, horizon), 0).flip(0)
    return torch.cat([ahead, ahead.new_zeros(1)])


def temporal_difference_targets(signal: Tensor, values: Tensor, gamma: float) -> Tensor:
    """y_t = r_t + gamma V(s_{t+1}), below equations 16 and 17.

    signal: (b, T); values: (b, T + 1).
    """
    return signal + gamma * values[:, 1:]


def generalized_advantages(signal: Tensor, values: Tensor, gamma: float, lam: float) -> Tensor:
    """A_t = sum_l (gamma lambda)^l (y_{t+l} - V(s_{t+l}))  (Schulman et al. 2016).  (b, T)."""
    errors = temporal_difference_targets(signal, values, gamma) - values[:, :-1]
    advantages = torch.empty_like(errors)
    running = errors.new_zeros(len(errors))
    for t in reversed(range(errors.shape[1])):
        running = errors[:, t] + gamma * lam * running
        advantages[:, t] = running
    return advantages
