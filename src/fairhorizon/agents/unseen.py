"""Feedback that rankers have not seen, and how far it says each of them can be trusted.

A policy that learns from the very interactions its rankers were fitted on trusts them too much.
So the training log is divided once more, as the whole log was: rankers are fitted on the earlier
part, the policy learns from the later part, and then the rankers are fitted on all of it.
"""

import torch
from torch import Tensor

from fairhorizon.data import Split
from fairhorizon.data.splits import split
from fairhorizon.histories import UserItems
from fairhorizon.policy.menus import SignalMenus
from fairhorizon.policy.softmax import CLOSED

LATER = 5  # the last fifth of a training log, like the last fifth of the whole log for test
RIDGE = 1e-3
ITERATIONS = 50


def earlier_part(parts: Split) -> Split:
    """The training log with test and validation items of its own."""
    return split(parts.train, test_share=1 / LATER)


def where_unseen_begins(histories: UserItems) -> Tensor:
    """(n_users,) how many of a user's training items come before the later part.

    These are the test items of `earlier_part`. Of a short log without any, it is the last item,
    which rankers used for no more than to know when to stop.
    """
    counts = histories.indptr.diff()
    later = (counts // LATER).clamp(min=1)
    return torch.where(counts > 1, counts - later, counts)


def weights_by_cross_entropy(menus: SignalMenus, liked: Tensor) -> tuple[float, ...]:
    """A weight for every signal but the last, the group's: those of the best softmax policy.

    It makes what users liked later on, `liked` (m, C), most likely. Users count alike, the problem
    is convex, and where nobody liked anything all signals count 1.
    """
    some = liked.any(1)
    signals, targets = menus.signals[some, :, :-1], liked[some].float()
    targets = targets / targets.sum(1, keepdim=True)
    closed = menus.items[some] < 0
    n_signals = signals.shape[2]
    if not len(signals):
        return (1.0,) * n_signals
    weights = torch.zeros(n_signals, device=signals.device, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weights], max_iter=ITERATIONS, history_size=10, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        logits = (signals @ weights).masked_fill(closed, CLOSED)
        likelihood = (torch.log_softmax(logits, dim=1) * targets).sum(1).mean()
        return RIDGE * weights.square().sum() - likelihood

    def closure() -> float:
        optimiser.zero_grad()
        value = loss()
        value.backward()
        return value.item()

    optimiser.step(closure)
    return tuple(weights.detach().tolist())
