"""The softmax over a large catalogue, estimated from a sample of it (Bengio & Senecal 2008).

Jean et al. 2015 ("On Using Very Large Target Vocabulary ...") share one sample by a whole batch,
as is done here. An item with inclusion probability q stands for 1 / q items, so its logit is
raised by -log q: the log-Q correction.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import embedding

CHANCE_EXPONENT = 0.5  # of how often an item was taken
ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class ItemSample:
    """Distinct items, each with the logarithm of its inclusion probability."""

    items: Tensor  # (m,)
    log_chance: Tensor  # (m,)


class ItemSampler:
    """Draws `size` distinct items, item i with a probability q_i that grows with its count.

    q_i = min(1, c (count_i + 1)^0.5) with c such that they sum to `size`: popular items, which have
    most of the softmax, have q_i = 1. The draw is systematic (Madow 1949): on a line where item i
    takes up a stretch of length q_i, in random order, every whole step from a random start hits
    an item. So q_i is exact and no item comes twice.
    """

    def __init__(self, counts: Tensor, size: int) -> None:
        self.chance = inclusion_chances((counts.double() + 1) ** CHANCE_EXPONENT, size)
        self._certain = (self.chance >= 1).nonzero().squeeze(1)
        self._others = (self.chance < 1).nonzero().squeeze(1)
        self._log_chance = self.chance.log().float()

    def draw(self) -> ItemSample:
        """A sample, by torch's global generator."""
        others = self._others[torch.randperm(len(self._others))]
        ends = self.chance[others].cumsum(0)
        hits = torch.rand((), dtype=torch.float64) + torch.arange(round(float(ends[-1:].sum())))
        hit = torch.searchsorted(ends, hits, right=True).clamp(max=len(others) - 1)
        items = torch.cat([self._certain, others[hit]])
        return ItemSample(items, self._log_chance[items])


def inclusion_chances(weights: Tensor, size: int) -> Tensor:
    """min(1, c weight) with c such that they sum to `size`; all 1 if there are at most `size`."""
    if size >= len(weights):
        return torch.ones_like(weights)
    falling = weights.sort(descending=True).values
    rest = falling.flip(0).cumsum(0).flip(0)  # of the weights from here on
    # with the first j certain, c = (size - j) / rest_j; the first j for which c weight_j <= 1
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
            logits[twice, own[rows][twice]] = -torch.inf
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
    place = torch.full((len(vectors),), m)
    place[sample.items] = torch.arange(m)
    rows = torch.cat([sample.items, targets])
    sampled, own = embedding(rows, vectors).split([m, len(targets)])
    sampled_bias, own_bias = bias[rows].split([m, len(targets)])
    loss: Tensor = SampledSoftmaxLoss.apply(  # type: ignore[no-untyped-call]
        x, sampled, sampled_bias - sample.log_chance, own, own_bias, place[targets]
    )
    return loss
