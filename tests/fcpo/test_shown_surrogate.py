"""The surrogate of the long run: exact in costs, unbiased in the rewards of shown items."""

import itertools
import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical, kl_divergence

from fairhorizon.fcpo.cpo import Surrogate
from fairhorizon.fcpo.rollouts import Choices, Trajectories
from fairhorizon.fcpo.surrogates import LARGEST_WEIGHT, shown_surrogate
from fairhorizon.rankers.candidates import ScoredCandidates

C, FEATURES, TEMPERATURE, EXPLORE = 4, 3, 0.6, 0.9
REWARDS = torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64)
COSTS = torch.tensor([[1.0, 0.0], [1.0, -1.0], [0.0, 0.0], [0.0, -1.0]], dtype=torch.float64)
CHARGES = torch.tensor([0.4, 0.4, 0.0, -0.2], dtype=torch.float64)


def numbers(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def one_step(place: int, propensity: float) -> Trajectories:
    """One user, one step, with candidate `place` shown."""
    return Trajectories(
        torch.zeros(1, dtype=torch.long),
        torch.zeros(1, 2, dtype=torch.long),
        torch.zeros(1, 1, dtype=torch.long),
        torch.zeros(1, 1, 0),
        torch.zeros(1, 1),
        torch.tensor([[[place]]]),
        REWARDS[place].view(1, 1),
        COSTS[place].view(1, 1, 2),
        Choices(
            ScoredCandidates(torch.arange(C)[None], numbers(1, 1, C, FEATURES)),
            COSTS[None],
            torch.ones(1, 1, C, dtype=torch.bool),
            torch.tensor([[[place]]]),
            charges=CHARGES[None, None],
            propensities=torch.tensor([[[propensity]]], dtype=torch.float64),
        ),
    )


def surrogate_of(place: int, propensity: float, outputs: Tensor, baseline: Tensor) -> Surrogate:
    batch = one_step(place, propensity)
    assert isinstance(batch.choices, Choices)
    got = torch.cat([REWARDS[place].view(1), COSTS[place]])
    return shown_surrogate(
        batch,
        batch.choices,
        outputs,
        (got - baseline).view(3, 1, 1),
        torch.ones(3, 1, dtype=torch.float64),
        temperature=TEMPERATURE,
    )


def probabilities(outputs: Tensor, temperature: float) -> Tensor:
    logits = numbers(1, 1, C, FEATURES)[0] @ outputs[0]
    return ((logits - CHARGES) / temperature).softmax(0)


def expected(outputs: Tensor) -> Tensor:
    """(3,) reward and costs of the policy."""
    return probabilities(outputs, TEMPERATURE) @ torch.cat([REWARDS[:, None], COSTS], dim=1)


def gradients(values: Tensor, leaf: Tensor) -> Tensor:
    return torch.stack([torch.autograd.grad(v, leaf, retain_graph=True)[0] for v in values])


def predicted(surrogate: Surrogate, outputs: Tensor) -> Tensor:
    found = surrogate.evaluate(outputs)
    return torch.cat([found.reward.view(1), found.costs])


def test_over_all_that_exploration_may_show_the_gradient_is_exact():
    outputs, baseline = numbers(2, 1, FEATURES), torch.tensor([0.3, 0.1, -0.2]).double()
    shown = probabilities(outputs, EXPLORE)
    leaf = outputs.clone().requires_grad_()
    total = torch.zeros(3, *outputs.shape, dtype=torch.float64)
    for place in range(C):
        surrogate = surrogate_of(place, float(shown[place]), outputs, baseline)
        total += shown[place] * gradients(predicted(surrogate, leaf), leaf)
    exact = gradients(expected(leaf), leaf)
    torch.testing.assert_close(total, exact)
    assert exact.abs().max() > 0.05


@pytest.mark.parametrize("place", range(C))
def test_costs_are_exact_whatever_was_shown(place: int):
    """Of a large step too; with the expected costs as baseline nothing of the sample is left."""
    present, other = numbers(3, 1, FEATURES), numbers(4, 1, FEATURES)
    before, after = expected(present), expected(other)
    surrogate = surrogate_of(place, 0.3, present, before)
    torch.testing.assert_close(predicted(surrogate, other)[1:], (after - before)[1:])
    assert (after - before)[1:].abs().min() > 0.01


@pytest.mark.parametrize("place", range(C))
def test_without_exploration_it_is_the_part_of_the_sum_that_is_known(place: int):
    present, other = numbers(3, 1, FEATURES), numbers(4, 1, FEATURES)
    baseline = torch.tensor([0.3, 0.0, 0.0]).double()
    surrogate = surrogate_of(place, 1.0, present, baseline)
    moved = probabilities(other, TEMPERATURE) - probabilities(present, TEMPERATURE)
    known = moved[place] * (REWARDS[place] - 0.3)
    assert float(surrogate.evaluate(other).reward) == pytest.approx(float(known))


def test_a_rare_item_has_a_largest_weight():
    """By the predicted reward, w (P_new / P - 1) with an advantage of 1."""
    outputs, baseline = numbers(3, 1, FEATURES), torch.zeros(3).double()
    other, present = numbers(4, 1, FEATURES), float(probabilities(outputs, TEMPERATURE)[0])
    ratio = float(probabilities(other, TEMPERATURE)[0]) / present
    for propensity, weight in ((0.5, 2 * present), (1e-6, LARGEST_WEIGHT)):
        surrogate = surrogate_of(0, propensity, outputs, baseline)
        reward = float(surrogate.evaluate(other).reward)
        assert reward == pytest.approx(weight * (ratio - 1))


B, T, M = 2, 2, 4


def several(slots: int) -> tuple[Trajectories, Tensor, Tensor, Tensor]:
    """Every step is a state of its own; one slot of one list is empty."""
    index = torch.tensor([[0, 2], [1, 3]])
    items = torch.tensor([[0, 1, 2, 3], [4, -1, 0, 2], [3, 1, 0, 2], [-1, 1, 2, 4]])
    open_items = (items >= 0)[index].clone()
    open_items[0, 1, 2] = False
    chosen = torch.tensor([[[3, 0], [1, 0]], [[0, 2], [2, -1]]])[:, :, :slots]
    states = index[:, :, None].expand(chosen.shape)
    costs = (numbers(10, M, C, 2) > 0).double()
    spent = costs[states, chosen.clamp(min=0)].masked_fill((chosen < 0)[..., None], 0).sum(2)
    record = Choices(
        ScoredCandidates(items, numbers(11, M, C, FEATURES)),
        costs,
        open_items,
        chosen,
        charges=numbers(12, M, slots, C),
        propensities=numbers(13, B, T, slots).sigmoid(),
    )
    batch = Trajectories(
        torch.arange(M),
        torch.zeros(M, 2, dtype=torch.long),
        index,
        torch.zeros(B, T, 0),
        torch.zeros(B, T),
        items[states, chosen.clamp(min=0)].where(chosen >= 0, -1),
        numbers(14, B, T),
        spent,
        record,
    )
    scale = torch.tensor([[1.0, 0.9], [1.0, 0.5], [1.0, 0.5]], dtype=torch.float64) / B
    return batch, numbers(15, 3, B, T), scale, numbers(16, M, slots * FEATURES)


def slot_policies(record: Choices, outputs: Tensor, b: int, t: int, state: int) -> list[Tensor]:
    slots = record.chosen.shape[2]
    rows, left, found = outputs[state].view(slots, FEATURES), record.open_items[b, t].clone(), []
    for slot in range(slots):
        logits = record.candidates.features[state] @ rows[slot] - record.charges[state, slot]
        found.append((logits / TEMPERATURE).masked_fill(~left, -torch.inf).softmax(0))
        if record.chosen[b, t, slot] >= 0:
            left[record.chosen[b, t, slot]] = False
    return found


@pytest.mark.parametrize("slots", [1, 2])
def test_equals_a_slow_loop(slots: int):
    batch, advantages, scale, outputs = several(slots)
    record = batch.choices
    surrogate = shown_surrogate(batch, record, outputs, advantages, scale, temperature=TEMPERATURE)
    changed = outputs + 0.3 * numbers(17, *outputs.shape)
    totals, divergence = [0.0] * 3, 0.0
    for b, t in itertools.product(range(B), range(T)):
        state = int(batch.state_index[b, t])
        new = slot_policies(record, changed, b, t, state)
        old = slot_policies(record, outputs, b, t, state)
        sampled = 0.0
        for k, place in enumerate(record.chosen[b, t].tolist()):
            some = old[k] > 0
            divergence += float(kl_divergence(Categorical(new[k][some]), Categorical(old[k][some])))
            if place >= 0:
                weight = float(old[k][place] / record.propensities[b, t, k])
                sampled += min(weight, LARGEST_WEIGHT) * float(new[k][place] / old[k][place] - 1)
        totals[0] += float(scale[0, t] * advantages[0, b, t]) * sampled
        for limit in range(2):
            costs = record.costs[state, :, limit]
            means = [sum(float(p @ costs) for p in policies) for policies in (old, new)]
            later = float(advantages[1 + limit, b, t]) - float(batch.costs[b, t, limit]) + means[0]
            change = later * sampled + means[1] - means[0]
            totals[1 + limit] += float(scale[1 + limit, t]) * change
    found = surrogate.evaluate(changed)
    assert float(found.reward) == pytest.approx(totals[0])
    assert found.costs.tolist() == pytest.approx(totals[1:])
    assert float(found.kl) == pytest.approx(divergence / (B * T))
    assert predicted(surrogate, outputs).abs().max() < 1e-14
    assert not math.isclose(totals[0], 0)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func.hessian
def test_its_metric_is_the_hessian_of_the_divergence():
    batch, advantages, scale, outputs = several(2)
    surrogate = shown_surrogate(
        batch, batch.choices, outputs, advantages, scale, temperature=TEMPERATURE
    )
    n = outputs.numel()
    hessian = torch.func.hessian(lambda z: surrogate.evaluate(z).kl)(outputs).reshape(n, n)
    metric = surrogate.sample(99, torch.Generator().manual_seed(0))
    assert sorted(metric.states.tolist()) == [0, 1, 2, 3]
    tangent = numbers(18, *outputs.shape)
    product = torch.zeros_like(outputs)
    product[metric.states] = metric.product(tangent[metric.states])
    torch.testing.assert_close(
        product.flatten(), hessian @ tangent.flatten(), rtol=1e-9, atol=1e-12
    )


def test_take_and_join_keep_records_with_their_steps():
    batch, *_ = several(2)
    rows = torch.tensor([1, 0, 1])
    taken = Trajectories.join([batch.take(rows), batch.take(torch.tensor([0]))])
    for new, old in enumerate([1, 0, 1, 0]):
        assert torch.equal(taken.choices.chosen[new], batch.choices.chosen[old])
        assert torch.equal(taken.choices.propensities[new], batch.choices.propensities[old])
        for t in range(T):
            ours, theirs = int(taken.state_index[new, t]), int(batch.state_index[old, t])
            for name in ("costs", "charges"):
                now, then = getattr(taken.choices, name), getattr(batch.choices, name)
                assert torch.equal(now[ours], then[theirs])
            assert torch.equal(
                taken.choices.candidates.items[ours], batch.choices.candidates.items[theirs]
            )
