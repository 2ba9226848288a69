"""The surrogates of CPO (equation 3): predicted changes of return and cost on a batch.

One for each kind of trajectories: W was sampled, items were sampled in training, items were shown
in a long run. All take advantages per step (1 + constraints, b, T), the reward's first, and a scale
(1 + constraints, T), discounts over the number of trajectories, and predict changes of the expected
discounted return per trajectory.
"""

import torch
from torch import Tensor

from fairhorizon.fcpo.cpo import Fisher, Predicted, Surrogate
from fairhorizon.fcpo.policies import ItemPolicy, Proposal, allowed_by_slot, policy_at, rows_of
from fairhorizon.fcpo.rollouts import Choices, Trajectories
from fairhorizon.rankers.candidates import CandidateSet


# ---- W was sampled -------------------------------------------------------------------------------
#     change of return     sum_t gamma^t (P_new(W_t) / P(W_t) - 1) A_t,    mean of trajectories
#
# With M alternatives to every W, what a step brings at once is estimated from all M + 1, each
# against the mean of the others; what comes later is known of the W whose list was shown alone.
# With r_m what W_m brings at once and W_0 the one shown, a step has
#
#     1/M sum_m (ratio_m - 1) (r_m - mean r)  +  (ratio_0 - 1) (A - (r_0 - mean r))
def gaussian_surrogate(
    batch: Trajectories, outputs: Tensor, advantages: Tensor, scale: Tensor
) -> Surrogate:
    """A step is weighted by the probability ratio of its W.

    outputs: (m, 2 K d) of the present actor in the states of the batch.
    """
    present, others = Proposal.from_outputs(outputs), batch.alternatives
    steps = batch.state_index.flatten()  # (b T,) the state of each step
    visits = torch.bincount(steps, minlength=len(outputs)).to(outputs)  # (m,) of each state
    # W of all steps, (b T, K d), with their weights, (1 + constraints, b T)
    drawn = [(batch.proposals.flatten(0, 1), (advantages * scale[:, None]).flatten(1))]
    if others is not None:
        shown = torch.stack([batch.rewards, batch.costs[:, :, 0]])[..., None]
        signals = torch.cat([shown, torch.stack([others.rewards, others.costs])], dim=3)
        at_once = (signals - signals.mean(3, keepdim=True)) * scale[:, None, :, None]
        count = others.rewards.shape[2]
        # Of the shown W: A - (r_0 - mean) + (r_0 - mean) / M, as in the formula above.
        first, *further = at_once.flatten(1, 2).unbind(2)
        proposals, weights = drawn[0]
        drawn = [(proposals, weights - first + first / count)]
        sampled = others.proposals.flatten(0, 1).unbind(1)
        drawn += [(W, at_once / count) for W, at_once in zip(sampled, further, strict=True)]

    log_probs = [present.log_prob(proposals, steps) for proposals, _ in drawn]
    if others is None:
        # Trajectories of an earlier policy are weighted by importance, truncated at 1.
        importance = torch.exp(log_probs[0] - batch.log_probs.flatten()).clamp(max=1)
        drawn = [(proposals, weights * importance) for proposals, weights in drawn]

    def evaluate(outputs: Tensor) -> Predicted:
        new = Proposal.from_outputs(outputs)
        parts = [
            weights @ torch.expm1(new.log_prob(proposals, steps) - log_prob)
            for (proposals, weights), log_prob in zip(drawn, log_probs, strict=True)
        ]
        reward, *costs = torch.stack(parts).sum(0)
        return Predicted(reward, torch.stack(costs), new.kl_from(present) @ visits / len(steps))

    def sample(size: int, generator: torch.Generator) -> Fisher:
        # Distinct states, each with the share of the steps that were in it.
        states = torch.randperm(len(visits), generator=generator)[:size].to(steps)
        shares = visits[states] / visits[states].sum()
        policy = present[states]
        return Fisher(states, lambda tangent: policy.fisher(shares, tangent))

    return Surrogate(evaluate, sample)


def softmax_fisher(
    states: Tensor, candidates: CandidateSet, policy: ItemPolicy, temperature: float
) -> Fisher:
    """(diag P - P P') / temperature² in the logits of sampled steps.

    states: (s,) of the steps; candidates and policy: of the same steps.
    """

    def product(tangent: Tensor) -> Tensor:
        rows = rows_of(tangent, policy.log_probs.shape[1])
        by_logits = policy.fisher(candidates.logits(rows) / temperature)
        return candidates.pull(by_logits).flatten(1) / (temperature * len(tangent))

    return Fisher(states, product)


# ---- Items were sampled in training --------------------------------------------------------------
# Immediate reward and cost are known for all candidates. So the immediate part is the exact
# expectation over the candidates, slot by slot, and only what comes later is estimated from the
# sample:
#
#     sum_k sum_i (P_new(i) - P(i)) r_i  +  (P_new(list) / P(list) - 1) (A - (r - E_P r))
def softmax_surrogate(
    batch: Trajectories,
    choices: Choices,
    outputs: Tensor,
    advantages: Tensor,
    scale: Tensor,
    *,
    temperature: float,
    attention: Tensor,
) -> Surrogate:
    """Exact in what a list brings at once, estimated in what comes later.

    outputs: (m, K features) of the present actor.  attention: (K,) what each slot counts.
    """
    assert choices.liked is not None
    steps = batch.state_index.flatten()
    chosen = choices.chosen.flatten(0, 1)
    allowed = allowed_by_slot(choices.open_items.flatten(0, 1), chosen)

    present = policy_at(choices.candidates, outputs, steps, allowed, temperature)
    log_probs = present.log_prob(chosen)
    scale = scale.repeat(1, len(batch))  # (1 + constraints, b T), steps of a trajectory together
    immediate = torch.stack([choices.liked, choices.costs[:, :, 0]]).float()[:, steps]
    gains = immediate[:, :, None, :] * attention[:, None]  # (2, b T, K, C)
    expected = (present.probs * gains).sum((2, 3))
    signals = torch.stack([batch.rewards, batch.costs[:, :, 0]]).flatten(1)
    weights = (advantages.flatten(1) - (signals - expected)) * scale

    def evaluate(outputs: Tensor) -> Predicted:
        new = policy_at(choices.candidates, outputs, steps, allowed, temperature)
        change = torch.expm1(new.log_prob(chosen) - log_probs)
        at_once = torch.einsum("bkc,sbkc->sb", new.probs - present.probs, gains)
        reward, *costs = weights @ change + (scale * at_once).sum(1)
        return Predicted(reward, torch.stack(costs), new.kl_from(present).mean())

    def sample(size: int, generator: torch.Generator) -> Fisher:
        some = torch.randperm(len(steps), generator=generator)[:size].to(steps)
        states = steps[some]
        candidates = choices.candidates.take(states)
        return softmax_fisher(states, candidates, present.take(some), temperature)

    return Surrogate(evaluate, sample)


# ---- Items were shown in a long run: users answer only to what they are shown --------------------
# The policy is P_k = softmax((W_k . features - charge) / temperature) over the candidates of a
# step, the charge being what the control takes off an item by its prices, which are part of the
# environment.
#
#     change of a cost     sum_i (P_new - P)(i) c_i over all candidates: labels, so costs, are known
#     change of reward     w (P_new(a) / P(a) - 1) A for the item a shown,  w = P(a) / mu(a)
#
# mu(a) is the recorded propensity. The second is unbiased where mu > 0 for every item; for an item
# that nothing is known of, the advantage counts as 0. Without exploration mu = 1, w = P(a), and the
# change of reward is (P_new - P)(a) A: the sum over candidates, cut down to the item that was
# shown.

LARGEST_WEIGHT = 10.0  # so that an item shown by a rare chance does not outweigh all others


def shown_surrogate(
    batch: Trajectories,
    choices: Choices,
    outputs: Tensor,
    advantages: Tensor,
    scale: Tensor,
    *,
    temperature: float,
) -> Surrogate:
    """Exact in the costs of a step, estimated from shown items in rewards and in what comes later.

    Each slot of a list is a choice given the slots before it, as each step is given those before.

    outputs: (m, K features) of the present actor.
    """
    assert choices.charges is not None
    assert choices.propensities is not None
    steps = batch.state_index.flatten()
    chosen = choices.chosen.flatten(0, 1)
    allowed = allowed_by_slot(choices.open_items.flatten(0, 1), chosen)
    charges = choices.charges[steps]
    item_costs = choices.costs[steps].to(outputs)  # (b T, C, limits)

    def cost_of_lists(probs: Tensor) -> Tensor:
        """(limits, b T) by the (differences of) probabilities (b T, K, C)."""
        return torch.einsum("bkc,bcl->lb", probs, item_costs)

    present = policy_at(choices.candidates, outputs, steps, allowed, temperature, charges)
    log_probs = present.log_prob_by_slot(chosen)
    propensities = choices.propensities.flatten(0, 1).to(outputs)
    importance = (log_probs.exp() / propensities).clamp(max=LARGEST_WEIGHT)
    scale = scale.repeat(1, len(batch))  # (1 + limits, b T)
    rewards, costs = advantages.flatten(1).split([1, len(advantages) - 1])
    # The immediate cost is in the sum over candidates; the sample keeps what comes later.
    at_once = batch.costs.flatten(0, 1).T - cost_of_lists(present.probs)
    weights = torch.cat([rewards, costs - at_once]) * scale

    def evaluate(outputs: Tensor) -> Predicted:
        new = policy_at(choices.candidates, outputs, steps, allowed, temperature, charges)
        ratios = torch.expm1(new.log_prob_by_slot(chosen) - log_probs)
        reward, *later = weights @ (importance * ratios).sum(1)
        at_once = (scale[1:] * cost_of_lists(new.probs - present.probs)).sum(1)
        return Predicted(reward, torch.stack(later) + at_once, new.kl_from(present).mean())

    def sample(size: int, generator: torch.Generator) -> Fisher:
        some = torch.randperm(len(steps), generator=generator)[:size].to(steps)
        states = steps[some]
        candidates = choices.candidates.take(states)
        return softmax_fisher(states, candidates, present.take(some), temperature)

    return Surrogate(evaluate, sample)
