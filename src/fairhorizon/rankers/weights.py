"""The weights of a log as rankers use them."""

import numpy as np
import torch
from torch import Tensor

from fairhorizon.data.interactions import Interactions


def strengths(log: Interactions) -> Tensor | None:
    """(n,) how strong each row is, by its total weight; None for a log without weights.

    log(1 + w / median) divided by its mean. Damped, because quantities and times spent have long
    tails: a hundred pieces are a stronger sign than ten, but no ten times as strong. By the median,
    so that the unit (seconds or minutes, pieces or dozens) does not matter. With a mean of 1,
    settings such as a penalty keep their meaning.
    """
    totals = log.total_weights()
    if totals is None or not len(totals):
        return None
    typical = float(np.median(totals[totals > 0])) if totals.any() else 1.0
    damped = np.log1p(totals / typical)
    mean = float(damped.mean())
    return torch.from_numpy(damped / mean if mean else np.ones(len(damped)))


def strengths_by_user(log: Interactions) -> Tensor | None:
    """(n,) the same in the order of `UserItems.of(log)`: user by user, each in time order."""
    found = strengths(log)
    if found is None:
        return None
    return found[torch.from_numpy(np.argsort(log.users, kind="stable"))]
