"""Early stopping by the validation items, never by the test items."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError
from fairhorizon.histories import UserItems
from fairhorizon.ranking import discount, users_at_once
from fairhorizon.vocabulary import OnEpoch, Protocol

CUTOFF = 20
# These scores take less than ten seconds, an epoch of training on sparse data half a minute.
SCORES_IN_ALL = 2**28
FEWEST_USERS = 2048  # fewer are too noisy a sample, however many items there are


class Validation:
    """NDCG@20 of each user's validation item among the items that the protocol allows.

    For very many users times items, a fixed sample of the users is used.
    """

    def __init__(
        self, split: Split, queue_length: int, protocol: Protocol = Protocol.STANDARD
    ) -> None:
        history, held_out = UserItems.of(split.train), UserItems.of(split.validation)
        if not len(held_out.items):  # each user's last training item instead
            history, held_out = history.cut((history.indptr.diff() - 1).clamp(min=0))
        self.known, self.queue = history, history.last(queue_length)
        self.protocol = protocol
        self.users = torch.arange(history.n_users).repeat_interleave(held_out.indptr.diff())
        self.items = held_out.items
        at_most = max(FEWEST_USERS, SCORES_IN_ALL // history.n_items)
        if len(self.items) > at_most:
            shuffled = torch.randperm(len(self.items), generator=torch.Generator().manual_seed(0))
            sample = shuffled[:at_most].sort().values
            self.users, self.items = self.users[sample], self.items[sample]

    @torch.no_grad()
    def ndcg(self, scores: Callable[[Tensor, Tensor], Tensor]) -> float:
        """`scores` as in a ranker: (users, queue) -> (b, n_items); NaN if any is not finite."""
        total = 0.0
        for rows in torch.arange(len(self.users)).split(users_at_once(self.known.n_items)):
            users, items = self.users[rows], self.items[rows]
            values = scores(users, self.queue[users])
            if not values.isfinite().all():
                return math.nan
            wanted = values.gather(1, items[:, None])
            above, equals = values > wanted, values == wanted
            if self.protocol is Protocol.STANDARD:
                rankable = ~self.known.mask(users)
                above, equals = above & rankable, equals & rankable
            # half of the ties count as ranked first: constant scores earn nothing
            others = (equals.sum(1) - 1).clamp(min=0)
            rank = above.sum(1) + others / 2  # from 0
            total += float(discount(rank + 1).where(rank < CUTOFF, 0.0).sum())
        return total / len(self.users)


def train_until_stale(
    parameters: Mapping[str, Tensor],
    run_epoch: Callable[[], object],
    validate: Callable[[], float],
    *,
    max_epochs: int,
    patience: int,
    smallest_gain: float = 0.0,
    on_epoch: OnEpoch | None = None,
    remedy: str = "set a smaller learning_rate",
) -> dict[str, Tensor]:
    """The parameters, changed in place by `run_epoch`, as they were after the best epoch.

    Stops when `validate` has not risen by more than `smallest_gain` for `patience` epochs.
    """
    best, best_value, stale = {}, -math.inf, 0
    for epoch in range(1, max_epochs + 1):
        run_epoch()
        value = validate()
        if on_epoch is not None:
            on_epoch(epoch, value)
        if value > best_value + smallest_gain:
            best_value, stale = value, 0
            best = {name: tensor.detach().clone() for name, tensor in parameters.items()}
        else:
            stale += 1
            if stale >= patience:
                break
    if not best or not all(tensor.isfinite().all() for tensor in best.values()):
        raise ConfigError(f"the training diverged ({remedy})")
    return best
