"""The chance of a like, calibrated on answers: logistic in the policy's score and in the user.

    P(u likes i) = sigmoid(v . x_u + w s_ui + g 1[i in G0] - l lately_ui),    w > 0

So within a group the order of the policy's scores stays, and chances of users can be compared.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.fcpo.outlook.standing import USER_FEATURES

L2 = 1.0  # weight of the penalty, in units of one answer
LEAST_SLOPE = 0.02  # of the score: an item that the policy prefers is never less likely
ITERATIONS = 30
OF_ITEMS = ("score", "in_group", "lately")


@dataclass(frozen=True)
class Shown:
    """Items that were shown, one row each, and the answers."""

    of_users: Tensor  # (n, USER_FEATURES)
    of_items: Tensor  # (n, 3): score, in G0, showings of the kind lately
    liked: Tensor  # (n,) bool


class LikeChances:
    """Weights of the features; before the first fit there are none."""

    def __init__(self) -> None:
        self.weights = torch.zeros(0)

    @property
    def is_fitted(self) -> bool:
        return len(self.weights) > 0

    def fit(self, shown: Shown) -> None:
        """Maximum likelihood with a small penalty, by Newton's method."""
        x = torch.cat([shown.of_users, shown.of_items], dim=1).double()
        y, slope = shown.liked.double(), USER_FEATURES
        weights = _newton(x, y)
        if weights[slope] < LEAST_SLOPE:  # the others, given that slope
            rest = [n for n in range(x.shape[1]) if n != slope]
            weights[rest] = _newton(x[:, rest], y, LEAST_SLOPE * x[:, slope])
            weights[slope] = LEAST_SLOPE
        self.weights = weights.float()

    def of(self, of_users: Tensor, score: Tensor, in_group: Tensor, lately: Tensor) -> Tensor:
        """(b, n) chances; score: (b, n), the other two of a shape that fits to it."""
        user, (w, group, sated) = self.weights[:USER_FEATURES], self.weights[USER_FEATURES:]
        logits = (of_users @ user)[:, None] + group * in_group + sated * lately
        return torch.sigmoid(torch.addcmul(logits, score, w.expand(1, 1)))


def _newton(x: Tensor, y: Tensor, offset: Tensor | float = 0.0) -> Tensor:
    """Minimise  -log likelihood + L2/2 |w|^2  with logits x w + offset."""
    w = torch.zeros(x.shape[1], dtype=x.dtype)
    penalty = L2 * torch.eye(x.shape[1], dtype=x.dtype)
    for _ in range(ITERATIONS):
        p = torch.sigmoid(x @ w + offset)
        gradient = x.T @ (p - y) + penalty @ w
        step = torch.linalg.solve((x * (p * (1 - p))[:, None]).T @ x + penalty, gradient)
        w = w - step
        if step.abs().max() < 1e-8:
            break
    return w
