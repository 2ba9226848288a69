"""How a long run keeps to its limit, step by step."""

import torch
from torch import Tensor

from fairhorizon.metrics.shares import exceeds


class LimitRecord:
    """How the running popularity rate, under the labels of the limit, keeps to it."""

    def __init__(self, alpha_prime: float, warm_up: int) -> None:
        self.alpha_prime, self.warm_up = alpha_prime, warm_up
        self.steps = 0  # since the warm-up
        self.broken = 0  # steps with a rate above the limit
        self.largest = 0.0  # overshoot

    def record(self, step: int, rate: float) -> dict[str, float]:
        """NaN, the rate when nothing was shown, breaks no limit."""
        violation = max(0.0, rate - self.alpha_prime)
        if step > self.warm_up:
            self.steps += 1
            self.broken += exceeds(rate, self.alpha_prime)
            self.largest = max(self.largest, violation)
        return {
            "violation": violation,
            "violation_share": self.broken / self.steps if self.steps else float("nan"),
            "largest_overshoot": self.largest,
        }

    def tensors(self) -> dict[str, Tensor]:
        return {
            "steps": torch.tensor(self.steps),
            "broken": torch.tensor(self.broken),
            "largest": torch.tensor(self.largest, dtype=torch.float64),
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        self.steps, self.broken = int(tensors["steps"]), int(tensors["broken"])
        self.largest = float(tensors["largest"])
