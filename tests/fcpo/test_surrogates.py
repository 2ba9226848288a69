"""The surrogates of both policies: exact gradients by enumeration, slow loops, Hessians."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, Normal, kl_divergence

from fairhorizon.fcpo.config import FcpoConfig, attention_of
from fairhorizon.fcpo.cpo import Surrogate
from fairhorizon.fcpo.policies import Proposal, draw
from fairhorizon.fcpo.rollouts import Alternatives, Choices, Trajectories
from fairhorizon.fcpo.surrogates import gaussian_surrogate, softmax_surrogate
from fairhorizon.rankers.candidates import ScoredCandidates

C, FEATURES, TEMPERATURE = 4, 3, 0.6
LIKED = torch.tensor([True, False, True, False])
SENSITIVE = torch.tensor([True, True, False, False])


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one_state(chosen: Tensor, attention: Tensor) -> tuple[Trajectories, Choices]:
    """b trajectories of one step in the same state, with all candidates open."""
    b = len(chosen)
    items = torch.tensor([[5, 1, 0, 3]])
    record = Choices(
        candidates=ScoredCandidates(items, numbers(1, 1, C, FEATURES)),
        liked=LIKED[None],
        costs=SENSITIVE[None, :, None],
        open_items=torch.ones(b, 1, C, dtype=torch.bool),
        chosen=chosen[:, None],
    )
    batch = Trajectories(
        state_users=torch.zeros(1, dtype=torch.long),
        state_queues=torch.zeros(1, 2, dtype=torch.long),
        state_index=torch.zeros(b, 1, dtype=torch.long),
        proposals=torch.zeros(b, 1, 0),
        log_probs=torch.zeros(b, 1),  # not looked at: it is on-policy
        lists=items[0][chosen][:, None],
        rewards=(LIKED[chosen].double() @ attention)[:, None],
        costs=(SENSITIVE[chosen].double() @ attention)[:, None, None],
        choices=record,
    )
    return batch, record


def surrogate_of(
    chosen: Tensor, outputs: Tensor, attention: Tensor, *, baseline: Tensor
) -> Surrogate:
    batch, record = one_state(chosen, attention)
    features = torch.stack([batch.rewards, batch.costs[..., 0]])
    return softmax_surrogate(
        batch,
        record,
        outputs,
        features - baseline[:, None, None],
        torch.full((2, 1), 1 / len(chosen), dtype=torch.float64),
        temperature=TEMPERATURE,
        attention=attention,
    )


def probabilities_of(outputs: Tensor, slots: int) -> dict[tuple[int, ...], Tensor]:
    """Plackett-Luce by the definition, for autograd."""
    means = outputs[0].view(slots, FEATURES)
    logits = means @ numbers(1, 1, C, FEATURES)[0].T / TEMPERATURE
    probabilities = {}
    for chosen in itertools.permutations(range(C), slots):
        chance = torch.ones((), dtype=torch.float64)
        for slot, place in enumerate(chosen):
            left = [item for item in range(C) if item not in chosen[:slot]]
            chance = chance * logits[slot, left].softmax(0)[left.index(place)]
        probabilities[chosen] = chance
    return probabilities


def expected(outputs: Tensor, attention: Tensor) -> Tensor:
    """(2,) expected reward and cost of one list."""
    slots = len(attention)
    total = torch.zeros(2, dtype=torch.float64)
    for chosen, chance in probabilities_of(outputs, slots).items():
        places = list(chosen)
        gains = torch.stack([LIKED[places].double(), SENSITIVE[places].double()]) @ attention
        total = total + chance * gains
    return total


def exact_gradients(outputs: Tensor, attention: Tensor) -> Tensor:
    leaf = outputs.clone().requires_grad_()
    values = expected(leaf, attention)
    return torch.stack([torch.autograd.grad(v, leaf, retain_graph=True)[0] for v in values])


def gradients(surrogate: Surrogate, outputs: Tensor) -> Tensor:
    leaf = outputs.clone().requires_grad_()
    predicted = surrogate.evaluate(leaf)
    values = (predicted.reward, predicted.costs[0])
    return torch.stack([torch.autograd.grad(v, leaf, retain_graph=True)[0] for v in values])


def log_attention(slots: int) -> Tensor:
    return attention_of(FcpoConfig(list_length=slots, attention="log")).double()


def test_attention_by_slot():
    assert attention_of(FcpoConfig(list_length=3)).tolist() == [1, 1, 1]
    by_hand = torch.tensor([1, 1 / math.log2(3), 0.5], dtype=torch.float64)
    torch.testing.assert_close(log_attention(3), by_hand, rtol=1e-6, atol=0)


@pytest.mark.parametrize("place", range(C))
def test_any_sample_gives_the_exact_gradient(place: int):
    """One item a list: what a sample adds is only noise, and with this baseline not even that."""
    outputs, attention = numbers(2, 1, FEATURES), torch.ones(1, dtype=torch.float64)
    baseline = expected(outputs, attention)
    surrogate = surrogate_of(torch.tensor([[place]]), outputs, attention, baseline=baseline)
    found, exact = gradients(surrogate, outputs), exact_gradients(outputs, attention)
    torch.testing.assert_close(found, exact)
    assert exact.abs().max() > 0.05


@pytest.mark.parametrize("slots", [1, 2, 3])
def test_over_all_lists_the_gradient_is_exact(slots: int):
    """Each list by its probability: the effect of a slot on later ones is in the sample."""
    outputs, attention = numbers(3, 1, slots * FEATURES), log_attention(slots)
    total = torch.zeros(2, *outputs.shape, dtype=torch.float64)
    for chosen, chance in probabilities_of(outputs, slots).items():
        baseline = torch.tensor([0.3, -0.2], dtype=torch.float64)  # any
        surrogate = surrogate_of(torch.tensor([chosen]), outputs, attention, baseline=baseline)
        total += chance * gradients(surrogate, outputs)
    torch.testing.assert_close(total, exact_gradients(outputs, attention))


def test_samples_agree():
    slots, n = 2, 4000
    outputs, attention = numbers(4, 1, slots * FEATURES), log_attention(slots)
    logits = outputs[0].view(slots, FEATURES) @ numbers(1, 1, C, FEATURES)[0].T
    shape, generator = (n, slots, C), torch.Generator().manual_seed(7)
    chosen = draw(
        (logits / TEMPERATURE).expand(shape), torch.ones(n, C, dtype=torch.bool), generator
    )
    baseline = expected(outputs, attention)
    surrogate = surrogate_of(chosen, outputs, attention, baseline=baseline)
    error = gradients(surrogate, outputs) - exact_gradients(outputs, attention)
    assert error.abs().max() < 0.003  # of 0.47; from the sampled items alone it would be 0.03


def test_the_prediction_of_a_large_step_is_exact():
    """With one item a list the immediate part is exact for any policy, not just its gradient."""
    present, other = numbers(5, 1, FEATURES), numbers(6, 1, FEATURES)
    attention = torch.ones(1, dtype=torch.float64)
    before, after = expected(present, attention), expected(other, attention)
    surrogate = surrogate_of(torch.tensor([[1], [2]]), present, attention, baseline=before)
    predicted = surrogate.evaluate(other)
    assert float(predicted.reward) == pytest.approx(float(after[0] - before[0]))
    assert float(predicted.costs[0]) == pytest.approx(float(after[1] - before[1]))
    assert abs(float(after[0] - before[0])) > 0.05


# several states, trajectories and steps, with items that close on the way

B, T, M = 3, 2, 4


def several(slots: int) -> tuple[Trajectories, Choices, Tensor, Tensor, Tensor]:
    """Trajectories with made-up candidates; advantages and scales of reward and cost; outputs."""
    generator = torch.Generator().manual_seed(11)
    index = torch.tensor([[0, 0], [1, 3], [2, 2]])
    items = torch.tensor([[0, 1, 2, 3], [4, -1, 0, 2], [3, 1, 0, 2], [-1, 1, 2, 4]])
    record_candidates = ScoredCandidates(items, numbers(12, M, C, FEATURES))
    open_items = (items >= 0)[index].clone()
    open_items[0, 1, 2] = False  # shown in the first step
    outputs = numbers(13, M, slots * FEATURES)
    means = outputs.view(M, slots, FEATURES)
    logits = (record_candidates.logits(means) / TEMPERATURE)[index]
    chosen = draw(logits.flatten(0, 1), open_items.flatten(0, 1), generator).view(B, T, slots)
    record = Choices(
        record_candidates,
        liked=(liked := (torch.rand(M, C, generator=generator) < 0.4) & (items >= 0)),
        costs=((torch.rand(M, C, generator=generator) < 0.4) & (items >= 0))[:, :, None],
        open_items=open_items,
        chosen=chosen,
    )
    attention = log_attention(slots)
    states = index[:, :, None].expand(chosen.shape)
    places = chosen.clamp(min=0)
    batch = Trajectories(
        torch.arange(M),
        torch.zeros(M, 2, dtype=torch.long),
        index,
        torch.zeros(B, T, 0),
        torch.zeros(B, T),
        items[states, places],
        liked[states, places].double() @ attention,
        (record.costs[..., 0][states, places].double() @ attention)[..., None],
        record,
    )
    scale = torch.tensor([[1.0, 0.9], [1.0, 0.5]], dtype=torch.float64) / B
    return batch, record, numbers(14, 2, B, T), scale, outputs


def slot_policies(record: Choices, outputs: Tensor, b: int, t: int, state: int) -> list[Tensor]:
    """(C,) probabilities of every slot of a step, the earlier slots filled as they were."""
    slots = record.chosen.shape[2]
    means = outputs[state].view(slots, FEATURES)
    left = record.open_items[b, t].clone()
    found = []
    for slot in range(slots):
        logits = record.candidates.features[state] @ means[slot] / TEMPERATURE
        found.append(logits.masked_fill(~left, -torch.inf).softmax(0))
        left[record.chosen[b, t, slot]] = False
    return found


@pytest.mark.parametrize("slots", [1, 2])
def test_a_surrogate_equals_a_slow_loop(slots: int):
    batch, record, advantages, scale, outputs = several(slots)
    attention = log_attention(slots)
    surrogate = softmax_surrogate(
        batch,
        record,
        outputs,
        advantages,
        scale,
        temperature=TEMPERATURE,
        attention=attention,
    )
    changed = outputs + 0.3 * numbers(15, *outputs.shape)
    totals, divergence = [0.0, 0.0], 0.0
    for b, t in itertools.product(range(B), range(T)):
        state = int(batch.state_index[b, t])
        new = slot_policies(record, changed, b, t, state)
        old = slot_policies(record, outputs, b, t, state)
        chosen = record.chosen[b, t].tolist()
        ratio = math.prod(
            float(p[place] / q[place]) for p, q, place in zip(new, old, chosen, strict=True)
        )
        for p, q in zip(new, old, strict=True):
            some = q > 0
            divergence += float(kl_divergence(Categorical(p[some]), Categorical(q[some]))) / (B * T)
        for signal, table in enumerate((record.liked, record.costs[..., 0])):
            gains = table[state].double()
            value = float(advantages[signal, b, t])
            got = (batch.rewards, batch.costs[..., 0])[signal]
            means = sum(float(q @ gains) * float(a) for q, a in zip(old, attention, strict=True))
            value -= float(got[b, t]) - means
            after = sum(float(p @ gains) * float(a) for p, a in zip(new, attention, strict=True))
            at_once = after - means
            totals[signal] += float(scale[signal, t]) * (value * (ratio - 1) + at_once)
    predicted = surrogate.evaluate(changed)
    assert float(predicted.reward) == pytest.approx(totals[0])
    assert predicted.costs.tolist() == pytest.approx(totals[1:])
    assert float(predicted.kl) == pytest.approx(divergence)
    assert divergence > 0.01
    at_present = surrogate.evaluate(outputs)
    assert float(at_present.reward) == pytest.approx(0, abs=1e-15)
    assert float(at_present.costs[0]) == pytest.approx(0, abs=1e-15)
    assert float(at_present.kl) == 0


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func.hessian
def test_the_metric_of_a_softmax_is_the_hessian_of_the_divergence(slots: int):
    batch, record, advantages, scale, outputs = several(slots)
    surrogate = softmax_surrogate(
        batch,
        record,
        outputs,
        advantages,
        scale,
        temperature=TEMPERATURE,
        attention=log_attention(slots),
    )
    n = outputs.numel()
    hessian = torch.func.hessian(lambda z: surrogate.evaluate(z).kl)(outputs).reshape(n, n)
    metric = surrogate.sample(99, torch.Generator().manual_seed(0))  # all six steps
    assert sorted(metric.states.tolist()) == sorted(batch.state_index.flatten().tolist())
    tangent = numbers(16, *outputs.shape)
    product = metric.product(tangent[metric.states])
    summed = torch.zeros_like(outputs).index_add(0, metric.states, product)
    torch.testing.assert_close(summed.flatten(), hessian @ tangent.flatten(), rtol=1e-9, atol=1e-12)
    few = surrogate.sample(2, torch.Generator().manual_seed(0))
    assert torch.equal(few.states, metric.states[:2])


def gaussian_batch() -> tuple[Trajectories, Tensor]:
    """Trajectories of an earlier policy, and the outputs of the present one."""
    earlier, present = 0.3 * numbers(20, M, 6), 0.3 * numbers(21, M, 6)
    index = torch.tensor([[0, 0], [1, 3], [2, 2]])
    generator = torch.Generator().manual_seed(3)
    proposals = Proposal.from_outputs(earlier)[index.flatten()].sample(generator)
    log_probs = Proposal.from_outputs(earlier).log_prob(proposals, index.flatten())
    batch = Trajectories(
        torch.arange(M),
        torch.zeros(M, 2, dtype=torch.long),
        index,
        proposals.view(B, T, 3),
        log_probs.view(B, T),
        torch.zeros(B, T, 1, dtype=torch.long),
        torch.zeros(B, T),
        torch.zeros(B, T, 1),
    )
    return batch, present


def normal(outputs: Tensor, state: int) -> Independent:
    mean, log_std = outputs[state].chunk(2)
    return Independent(Normal(mean, log_std.exp()), 1)


def test_a_gaussian_surrogate_equals_a_slow_loop():
    batch, present = gaussian_batch()
    advantages = numbers(22, 3, B, T)  # of the reward and two costs
    scale = torch.tensor([[1.0, 0.9], [1.0, 0.5], [1.0, 0.5]], dtype=torch.float64) / B
    surrogate = gaussian_surrogate(batch, present, advantages, scale)
    changed = present + 0.1 * numbers(23, M, 6)
    totals, divergence = [0.0] * 3, 0.0
    for b, t in itertools.product(range(B), range(T)):
        state, sample = int(batch.state_index[b, t]), batch.proposals[b, t]
        new, old = normal(changed, state), normal(present, state)
        ratio = math.exp(float(new.log_prob(sample) - old.log_prob(sample)))
        importance = math.exp(float(old.log_prob(sample) - batch.log_probs[b, t]))
        divergence += float(kl_divergence(new, old)) / (B * T)
        for signal in range(3):
            weight = float(advantages[signal, b, t] * scale[signal, t]) * min(importance, 1.0)
            totals[signal] += weight * (ratio - 1)
    predicted = surrogate.evaluate(changed)
    assert float(predicted.reward) == pytest.approx(totals[0])
    assert predicted.costs.tolist() == pytest.approx(totals[1:])
    assert float(predicted.kl) == pytest.approx(divergence)
    at_present = surrogate.evaluate(present)
    assert float(at_present.reward) == 0
    assert at_present.costs.tolist() == [0, 0]
    assert float(at_present.kl) == pytest.approx(0, abs=1e-15)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func.hessian
def test_the_metric_of_a_gaussian_is_the_hessian_of_the_divergence():
    batch, present = gaussian_batch()
    scale = torch.ones(2, T, dtype=torch.float64)
    surrogate = gaussian_surrogate(batch, present, numbers(22, 2, B, T), scale)
    hessian = torch.func.hessian(lambda z: surrogate.evaluate(z).kl)(present).reshape(24, 24)
    metric = surrogate.sample(99, torch.Generator().manual_seed(0))
    assert sorted(metric.states.tolist()) == [0, 1, 2, 3]
    tangent = numbers(24, M, 6)
    product = torch.zeros_like(present)
    product[metric.states] = metric.product(tangent[metric.states])
    torch.testing.assert_close(
        product.flatten(), hessian @ tangent.flatten(), rtol=1e-9, atol=1e-12
    )


def test_alternatives_equal_a_slow_loop():
    """What a step brings at once by the mean of all W, what comes later by the one shown."""
    B, T, M, d = 3, 2, 4, 5
    outputs, moved = numbers(40, 4, 2 * d) / 2, numbers(41, 4, 2 * d) / 2
    index = torch.tensor([[0, 1], [2, 2], [3, 0]])
    rewards, costs = numbers(42, 2, B, T, M + 1)
    proposals = numbers(43, B, T, M + 1, d)
    batch = Trajectories(
        torch.arange(4),
        torch.zeros(4, 1, dtype=torch.long),
        index,
        proposals[:, :, 0],
        torch.zeros(B, T),  # not looked at: it is on-policy
        torch.zeros(B, T, 1, dtype=torch.long),
        rewards[..., 0],
        costs[:, :, :1],
        alternatives=Alternatives(proposals[:, :, 1:], rewards[..., 1:], costs[..., 1:]),
    )
    advantages, scale = numbers(44, 2, B, T), torch.tensor([[1.0, 0.9], [1.0, 0.5]]).double()
    found = gaussian_surrogate(batch, outputs, advantages, scale).evaluate(moved)

    expected = torch.zeros(2, dtype=torch.float64)
    for b, t in itertools.product(range(B), range(T)):
        old, new = (
            Independent(Normal(mean, log_std.exp()), 1)
            for mean, log_std in (o[index[b, t]].chunk(2) for o in (outputs, moved))
        )
        change = (new.log_prob(proposals[b, t]) - old.log_prob(proposals[b, t])).exp() - 1
        for signal, some in enumerate((rewards[b, t], costs[b, t])):
            for m in range(M + 1):  # each against the mean of the others
                others = (some.sum() - some[m]) / M
                part = change[m] * (some[m] - others) / (M + 1)
                expected[signal] += scale[signal, t] * part
            later = advantages[signal, b, t] - (some[0] - some.mean())
            expected[signal] += scale[signal, t] * change[0] * later
    assert float(found.reward) == pytest.approx(float(expected[0]))
    assert float(found.costs[0]) == pytest.approx(float(expected[1]))
