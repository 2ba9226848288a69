"""The two policies: a Gaussian over W, and a softmax over items.

The softmax is P_k = softmax(W_k . features / temperature) over the candidates of a state. A list of
K is drawn without replacement, one item by each row of W in turn (Plackett-Luce). Probabilities,
KL divergence and Fisher matrix of both are exact.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.rankers.candidates import CLOSED, CandidateSet

Tensors = list[Tensor]


@dataclass(frozen=True)
class ItemPolicy:
    """P and its logarithm for a batch of steps, slot by slot; 0 for items not allowed."""

    log_probs: Tensor  # (b, K, C)
    probs: Tensor  # (b, K, C)

    @classmethod
    def from_logits(cls, logits: Tensor, allowed: Tensor) -> "ItemPolicy":
        """From logits (b, K, C) and the items allowed in each slot (b, K, C) bool."""
        logs = torch.log_softmax(logits.masked_fill(~allowed, CLOSED), dim=2)
        return cls(logs, logs.exp())

    def take(self, steps: Tensor) -> "ItemPolicy":
        return ItemPolicy(self.log_probs[steps], self.probs[steps])

    def log_prob_by_slot(self, chosen: Tensor) -> Tensor:
        """(b, K) log-probability of each item of the lists, given the items before it.

        chosen: (b, K) columns among the candidates; an empty slot, -1, has probability 1.
        """
        logs = self.log_probs.gather(2, chosen.clamp(min=0)[:, :, None]).squeeze(2)
        return logs.masked_fill(chosen < 0, 0.0)

    def log_prob(self, chosen: Tensor) -> Tensor:
        """(b,) of whole lists."""
        return self.log_prob_by_slot(chosen).sum(1)

    def kl_from(self, old: "ItemPolicy") -> Tensor:
        """(b,) KL(self || old), summed over the slots."""
        return (self.probs * (self.log_probs - old.log_probs)).sum((1, 2))

    def fisher(self, by_logits: Tensor) -> Tensor:
        """(diag P - P P') v for v (b, K, C): the Fisher matrix of a softmax in its logits."""
        weighted = self.probs * by_logits
        return weighted - self.probs * weighted.sum(2, keepdim=True)


def rows_of(outputs: Tensor, list_length: int) -> Tensor:
    """(m, K, features): W, the outputs of an actor with a softmax head."""
    return outputs.view(len(outputs), list_length, -1)


def allowed_by_slot(open_items: Tensor, chosen: Tensor) -> Tensor:
    """(b, K, C): open items (b, C) that are not in an earlier slot; chosen (b, K) places."""
    slots = [open_items]
    for earlier in chosen[:, :-1].unbind(1):
        slots.append(_close(slots[-1], earlier))
    return torch.stack(slots, dim=1)


def gumbel(like: Tensor, generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise: the best of logits + noise is a draw from their softmax."""
    # Away from 0, whose logarithm is not finite.
    uniform = torch.rand(like.shape, generator=generator).clamp_(min=1e-20).to(like)
    return -(-uniform.log()).log()


def draw(logits: Tensor, open_items: Tensor, generator: torch.Generator) -> Tensor:
    """(b, K) places among the candidates, by the Gumbel trick; -1 where nothing is open."""
    chosen = []
    for slot in logits.unbind(1):
        noisy = (slot + gumbel(slot, generator)).masked_fill(~open_items, -torch.inf)
        best, place = noisy.max(dim=1)
        place = place.masked_fill(best == -torch.inf, -1)
        chosen.append(place)
        open_items = _close(open_items, place)
    return torch.stack(chosen, dim=1)


def _close(open_items: Tensor, places: Tensor) -> Tensor:
    """The open items without these places (b,); -1 closes nothing."""
    at = places.clamp(min=0)[:, None]
    return open_items.scatter(1, at, open_items.gather(1, at) & (places < 0)[:, None])


def close_all(open_items: Tensor, chosen: Tensor) -> Tensor:
    """The open items without any of the chosen places (b, K)."""
    for places in chosen.unbind(1):
        open_items = _close(open_items, places)
    return open_items


def policy_at(
    candidates: CandidateSet,
    outputs: Tensor,
    states: Tensor,
    allowed: Tensor,
    temperature: float,
    charges: Tensor | None = None,
) -> ItemPolicy:
    """P = softmax((W_k . features - charge) / temperature) at some steps.

    outputs: (m, K features) of an actor in all m states.  states: (b,) the state of each step.
    allowed: (b, K, C) bool.  charges: (b, K, C) what the control takes off; None: nothing.
    """
    # Once per distinct state, then copied to the steps that are in it.
    logits = candidates.logits(rows_of(outputs, allowed.shape[1])).index_select(0, states)
    if charges is not None:
        logits = logits - charges.to(logits)
    return ItemPolicy.from_logits(logits / temperature, allowed)


def explored(values: Sequence[Tensor], temperature: float, generator: torch.Generator) -> Tensors:
    """Values (b, n_items) of each slot with noise that makes the best of them a draw from
    softmax(values / temperature), slot by slot."""
    return [slot + temperature * gumbel(slot, generator) for slot in values]


def propensities(values: Sequence[Tensor], lists: Tensor, temperature: float) -> Tensor:
    """(b, K) the chance of each item of the lists (b, K), given the items before it.

    values: (b, n_items) of each slot before the noise of `explored`, -inf for what is not open.

    The chance is exp(v_i / T) / sum_j exp(v_j / T) over the items j that are open and not in an
    earlier slot: a softmax for lists of one item, Plackett-Luce for longer ones. An empty slot, -1,
    is certain.
    """
    probabilities = []
    for k, slot in enumerate(values):
        earlier, item = lists[:, :k], lists[:, k : k + 1]
        # Items of earlier places leave the denominator: a list has no item twice.
        closed = slot.new_zeros(earlier.shape).masked_fill_(earlier >= 0, -torch.inf)
        left = slot.scatter_add(1, earlier.clamp(min=0), closed) / temperature
        logs = left.gather(1, item.clamp(min=0)) - left.logsumexp(1, keepdim=True)
        probabilities.append(logs.exp().masked_fill(item < 0, 1.0))
    return torch.cat(probabilities, dim=1)


_LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Proposal:
    """A batch of diagonal Gaussians over W, flattened to K d numbers a row."""

    mean: Tensor  # (m, K d)
    log_std: Tensor  # (m, K d)

    @classmethod
    def from_outputs(cls, outputs: Tensor) -> "Proposal":
        mean, log_std = outputs.chunk(2, dim=1)
        return cls(mean, log_std)

    def __getitem__(self, rows: Tensor) -> "Proposal":
        return Proposal(self.mean[rows], self.log_std[rows])

    def sample(self, generator: torch.Generator) -> Tensor:
        # Drawn on the CPU, so that a seed gives the same numbers on every device.
        noise = torch.randn(self.mean.shape, generator=generator).to(self.mean)
        return torch.addcmul(self.mean, noise, self.log_std.exp())

    def log_prob(self, sample: Tensor, rows: Tensor | None = None) -> Tensor:
        """Of each sample under its row; `rows` maps samples to rows if they differ."""
        mean, inverse = self.mean, torch.exp(-self.log_std)
        # Computed per state and looked up per sample: a state lasts for several steps.
        constant = self.log_std.sum(1) + 0.5 * _LOG_2PI * mean.shape[1]
        if rows is not None:
            mean, inverse, constant = (x.index_select(0, rows) for x in (mean, inverse, constant))
        return -0.5 * ((sample - mean) * inverse).square().sum(1) - constant

    def kl_from(self, old: "Proposal") -> Tensor:
        """KL(self || old), a row each."""
        inverse = torch.exp(-2 * old.log_std)
        spread = torch.exp(2 * self.log_std) * inverse
        shift = (self.mean - old.mean).square() * inverse
        return 0.5 * (spread + shift - 1 - 2 * (self.log_std - old.log_std)).sum(1)

    def fisher(self, weights: Tensor, tangent: Tensor) -> Tensor:
        """M v for M = diag(1/sigma², 2) in (mean, log sigma), each row with its weight."""
        d_mean, d_log_std = tangent.chunk(2, dim=1)
        scaled = torch.cat([d_mean * torch.exp(-2 * self.log_std), 2 * d_log_std], dim=1)
        return weights[:, None] * scaled
