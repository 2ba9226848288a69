"""What rankers that are trained in epochs share: early stopping, negative items, a sampled softmax.

Training stops by the validation items, never by the test items. The softmax over a large catalogue
is estimated from a sample of it (Bengio & Senecal 2008), which a whole batch shares (Jean et al.
2015, "On Using Very Large Target Vocabulary ..."). An item with inclusion probability q stands for
1 / q items, so its logit is raised by -log q: the log-Q correction.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

from fairhorizon.data.splits import Split
from fairhorizon.errors import ConfigError, DataError
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
        history, held_out = UserItems.from_log(split.train), UserItems.from_log(split.validation)
        # Without validation items each user's last training item takes their place; `known` is the
        # log without it.
        if not len(held_out.items):
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
            # Half of the ties count as ranked above: constant scores earn nothing.
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
        # A comparison with NaN is False: a diverged epoch is never the best.
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


MASK_AT_MOST = 2**27  # pairs of a user and an item: 128 MiB


class NegativeSampler:
    """Draws uniformly from the items that a user has not taken.

    First any item is drawn; if the user has taken it, the draw is repeated among the others alone,
    which is exact but slower. Let p_0 < p_1 < ... be a user's items. Before p_k there
    are p_k - k others, so the r-th of the others (from 0) is r + #{k: p_k - k <= r}. One sorted
    array holds the p_k - k of all users. Where a mask of all pairs would be too large, every draw
    is made that way.
    """

    def __init__(self, taken: UserItems) -> None:
        counts = taken.indptr.diff()
        users = torch.arange(taken.n_users).repeat_interleave(counts)
        keys = (users * taken.n_items + taken.items).sort().values  # p_k, user after user
        within = torch.arange(len(keys)) - taken.indptr[:-1][users]  # k
        self.n_items = taken.n_items
        self._taken: Tensor | None = None  # (n_users * n_items,) bool
        if taken.n_users * taken.n_items <= MASK_AT_MOST:
            self._taken = taken.mask(torch.arange(taken.n_users)).flatten()
        self.room = taken.n_items - counts  # (n_users,) number of others
        # Rows of users are laid out one behind the other; a span larger than any value keeps them
        # apart.
        self._span = taken.n_items + 1  # p_k - k <= n_items - 1, r <= n_items - 1
        self._first = taken.indptr[:-1]
        self._others_before = keys - users * taken.n_items - within + users * self._span

    def can_draw(self, users: Tensor) -> Tensor:
        """Which of the users have not taken every item."""
        return self.room[users] > 0

    def examples(self, taken: UserItems) -> tuple[Tensor, Tensor]:
        """Each user and taken item, without users who took all items: they have no negatives."""
        users = torch.arange(taken.n_users).repeat_interleave(taken.indptr.diff())
        useful = self.can_draw(users)
        if not useful.any():
            raise DataError(
                "every user took all items or none, so there are no negative examples",
                remedy="use a ranker that needs no negative examples, such as popularity",
            )
        return users[useful], taken.items[useful]

    def draw(self, users: Tensor, generator: torch.Generator) -> Tensor:
        """An item for each entry of `users`, in any order and with repeats; sorted is fastest."""
        if len(users) and not self.can_draw(users).all():
            raise DataError("a user has taken every item: there is no negative example to draw")
        if self._taken is None:
            return self._draw_among_others(users, generator)
        items = torch.randint(self.n_items, users.shape, generator=generator)
        # Rejected draws are replaced by exact ones, so no loop of rejections is needed.
        again = self._taken[users * self.n_items + items].nonzero().squeeze(1)
        items[again] = self._draw_among_others(users[again], generator)
        return items

    def _draw_among_others(self, users: Tensor, generator: torch.Generator) -> Tensor:
        uniform = torch.rand(len(users), generator=generator, dtype=torch.float64)
        # The r-th of the others, r uniform; then as many places on as taken items come before it.
        nth = (uniform * self.room[users]).long()
        taken = torch.searchsorted(self._others_before, users * self._span + nth, right=True)
        return nth + taken - self._first[users]


PROBABILITY_EXPONENT = 0.5  # of how often an item was taken
ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class ItemSample:
    """Distinct items, each with the logarithm of its inclusion probability."""

    items: Tensor  # (m,)
    log_probability: Tensor  # (m,)


class ItemSampler:
    """Draws `size` distinct items, item i with a probability q_i that grows with its count.

    q_i = min(1, c (count_i + 1)^0.5) with c such that they sum to `size`: popular items, which have
    most of the softmax, have q_i = 1. The draw is systematic (Madow 1949): on a line where item i
    takes up a stretch of length q_i, in random order, every whole step from a random start hits
    an item. So q_i is exact and no item comes twice.
    """

    def __init__(self, counts: Tensor, size: int) -> None:
        self.chance = inclusion_probabilities((counts.double() + 1) ** PROBABILITY_EXPONENT, size)
        self._certain = (self.chance >= 1).nonzero().squeeze(1)
        self._others = (self.chance < 1).nonzero().squeeze(1)
        self._log_probability = self.chance.log().float()

    def draw(self) -> ItemSample:
        """A sample, by torch's global generator."""
        others = self._others[torch.randperm(len(self._others))]
        ends = self.chance[others].cumsum(0)
        # Points u, u + 1, u + 2, ... on a line of length size - (number of certain items).
        hits = torch.rand((), dtype=torch.float64) + torch.arange(round(float(ends[-1:].sum())))
        # Clamped, as the last point may lie beyond the end by rounding.
        hit = torch.searchsorted(ends, hits, right=True).clamp(max=len(others) - 1)
        items = torch.cat([self._certain, others[hit]])
        return ItemSample(items, self._log_probability[items])


def inclusion_probabilities(weights: Tensor, size: int) -> Tensor:
    """min(1, c weight) with c such that they sum to `size`; all 1 if there are at most `size`."""
    if size >= len(weights):
        return torch.ones_like(weights)
    falling = weights.sort(descending=True).values
    rest = falling.flip(0).cumsum(0).flip(0)  # of the weights from here on
    # With the j largest certain, c = (size - j) / rest_j. The first j for which c weight_j <= 1 is
    # the one: no further item would be drawn with a probability above 1.
    scales = (size - torch.arange(len(weights))) / rest
    fits = (scales * falling <= 1).nonzero()[0]
    return (scales[fits] * weights).clamp(max=1)


class SampledSoftmaxLoss(torch.autograd.Function):
    """Mean over rows of log(e^t + sum of e^(x V' + b)) - t, t = x . target vector + target bias.

    A row's own target may be in the sample; it is left out of the sum there. As in the loss over
    all items, gradients are made with the logits, a few rows at a time.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,  # (rows, dim)
        vectors: Tensor,  # (m, dim) of the sample
        bias: Tensor,  # (m,) corrected
        own_vectors: Tensor,  # (rows, dim) of each row's target
        own_bias: Tensor,  # (rows,)
        own: Tensor,  # (rows,) where the target is in the sample, m where it is not
    ) -> Tensor:
        by_x, by_vectors, by_bias = torch.empty_like(x), *map(torch.zeros_like, (vectors, bias))
        at_own = (x * own_vectors).sum(1) + own_bias
        by_own = torch.empty_like(at_own)
        loss = x.new_zeros(())
        for begin in range(0, len(x), ROWS_AT_ONCE):
            rows = slice(begin, begin + ROWS_AT_ONCE)
            some, target = x[rows], at_own[rows, None]
            logits = torch.addmm(bias, some, vectors.T)
            twice = (own[rows] < len(bias)).nonzero().squeeze(1)
            # The target has its own term e^t, so its copy in the sample is left out of the sum.
            logits[twice, own[rows][twice]] = -torch.inf
            # The largest exponent is taken out of all terms, so that none overflows.
            highest = torch.maximum(logits.amax(1, keepdim=True), target)
            share = logits.sub_(highest).exp_()
            target = target - highest
            total = share.sum(1, keepdim=True) + target.exp()
            loss += (total.log() - target).sum()
            share /= total
            by_own[rows] = (target.exp() / total - 1).squeeze(1)
            torch.mm(share, vectors, out=by_x[rows])
            by_vectors.addmm_(share.T, some)
            by_bias += share.sum(0)
        by_x.addcmul_(by_own[:, None], own_vectors)
        gradients = (by_x, by_vectors, by_bias, by_own[:, None] * x, by_own)
        ctx.save_for_backward(*(gradient / len(x) for gradient in gradients))
        return loss / len(x)

    @staticmethod
    def backward(ctx: Any, *by_loss: Tensor) -> tuple[Tensor | None, ...]:
        return (*(gradient * by_loss[0] for gradient in ctx.saved_tensors), None)


def sampled_softmax_loss(
    x: Tensor, vectors: Tensor, bias: Tensor, targets: Tensor, sample: ItemSample
) -> Tensor:
    """An estimate of the mean of -log softmax(x V' + b)[target]; exact if all items are sampled.

    The sum over the other items is estimated without bias; the gradient is that of the logarithm
    of the estimate, whose bias goes with its variance.
    """
    m = len(sample.items)
    # Where each target stands in the sample; m for "not in it".
    place = torch.full((len(vectors),), m)
    place[sample.items] = torch.arange(m)
    rows = torch.cat([sample.items, targets])
    sampled, own = embedding(rows, vectors).split([m, len(targets)])
    sampled_bias, own_bias = bias[rows].split([m, len(targets)])
    loss: Tensor = SampledSoftmaxLoss.apply(  # type: ignore[no-untyped-call]
        x, sampled, sampled_bias - sample.log_probability, own, own_bias, place[targets]
    )
    return loss
