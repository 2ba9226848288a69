"""The Gaussian over proposals against torch.distributions; the choice of items by hand."""

import math

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from fairhorizon.fcpo.networks import Actor, StateEncoder
from fairhorizon.fcpo.policies import Proposal

# torch 2.13 scripts functions of its own when it first takes a forward derivative.


def proposal(seed: int, rows: int = 7, width: int = 6) -> Proposal:
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randn(rows, 2 * width, generator=generator, dtype=torch.float64)
    return Proposal.from_outputs(0.7 * numbers)


def by_torch(ours: Proposal) -> Independent:
    return Independent(Normal(ours.mean, ours.log_std.exp()), 1)


def test_outputs_are_means_then_log_deviations():
    parts = Proposal.from_outputs(torch.arange(8.0).view(2, 4))
    assert parts.mean.tolist() == [[0, 1], [4, 5]]
    assert parts.log_std.tolist() == [[2, 3], [6, 7]]
    chosen = parts[torch.tensor([1, 1, 0])]
    assert chosen.mean.tolist() == [[4, 5], [4, 5], [0, 1]]
    assert chosen.log_std.tolist() == [[6, 7], [6, 7], [2, 3]]


def test_log_prob_and_divergence_equal_torch():
    new, old = proposal(0), proposal(1)
    sample = new.sample(torch.Generator().manual_seed(2))
    torch.testing.assert_close(new.log_prob(sample), by_torch(new).log_prob(sample))
    torch.testing.assert_close(new.kl_from(old), kl_divergence(by_torch(new), by_torch(old)))
    assert new.kl_from(old).min() > 0.1
    assert new.kl_from(new).abs().max() < 1e-14


def test_samples_have_the_mean_and_deviation_they_should():
    wide = Proposal(torch.tensor([[1.0, -2.0]]).repeat(40000, 1), torch.tensor([[-1.0, 0.5]]))
    sample = wide.sample(torch.Generator().manual_seed(0))
    deviations = torch.tensor([math.exp(-1), math.exp(0.5)])
    # five standard errors of a mean and of a standard deviation
    assert ((sample.mean(0) - torch.tensor([1.0, -2.0])).abs() < 5 * deviations / 200).all()
    assert ((sample.std(0) - deviations).abs() < 5 * deviations / 200 / math.sqrt(2)).all()
    again = wide.sample(torch.Generator().manual_seed(0))
    assert torch.equal(sample, again)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # torch.func.hessian
def test_fisher_is_the_hessian_of_the_divergence():
    old = proposal(3, rows=3, width=2)
    weights = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)

    def divergence(outputs):
        return weights @ Proposal.from_outputs(outputs).kl_from(old)

    outputs = torch.cat([old.mean, old.log_std], dim=1)
    hessian = torch.func.hessian(divergence)(outputs).reshape(12, 12)
    tangent = proposal(4, rows=3, width=2).mean.repeat(1, 2)
    expected = (hessian @ tangent.flatten()).view(3, 4)
    torch.testing.assert_close(old.fisher(weights, tangent), expected, rtol=1e-10, atol=1e-12)


ITEMS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [-1.0, 0.0], [2.0, -1.0]])


def actor(list_length: int, std: float = 1.0) -> Actor:
    torch.manual_seed(0)
    encoder = StateEncoder(torch.randn(3, 2), ITEMS, 4, 1)
    return Actor(encoder, list_length=list_length, hidden=(8, 8), initial_std=std)


def blocked(*rows: list[int]) -> torch.Tensor:
    mask = torch.zeros(len(rows), len(ITEMS), dtype=torch.bool)
    for row, items in zip(mask, rows, strict=True):
        row[items] = True
    return mask


def test_the_best_allowed_item_is_chosen():
    W = torch.tensor([[1.0, 0.0], [1.0, 0.0], [-1.0, -1.0], [-1.0, -1.0]])
    # scores (1, 0, 1, -1, 2) twice, (-1, -1, -2, 1, -1) twice
    mask = blocked([], [4, 2], [], [3, 0, 1, 4])
    before = mask.clone()
    # with everything else blocked the worst item, of score -2, is the best
    assert actor(1).choose(W, mask).tolist() == [[4], [0], [3], [2]]
    assert torch.equal(mask, before)


def test_the_padding_item_is_never_chosen():
    W = torch.tensor([[-3.0, 0.0]])  # scores -3, 0, -3, 3, -6; the padding would score 0
    assert actor(1).choose(W, blocked([3, 1])).tolist() == [[0]]


def test_lists_do_not_repeat():
    W = torch.tensor([[1.0, 0.0, 1.0, 0.0, 0.0, 1.0]])
    # rows score (1, 0, 1, -1, 2), the same again, and (0, 1, 1, 0, -1)
    assert actor(3).choose(W, blocked([])).tolist() == [[4, 0, 1]]
    assert actor(3).choose(W, blocked([4, 1])).tolist() == [[0, 2, 3]]


def test_empty_slots_where_nothing_is_left():
    W = torch.tensor([[1.0, 0.0, 0.0, 1.0, 1.0, 1.0]]).repeat(3, 1)
    lists = actor(3).choose(W, blocked([0, 1, 2, 3, 4], [0, 2, 3, 4], [0, 3, 4]))
    assert lists.tolist() == [[-1, -1, -1], [1, -1, -1], [2, 1, -1]]


def test_each_row_of_the_proposal_matrix_picks_by_its_own_scores():
    generator = torch.Generator().manual_seed(6)
    wide = actor(3)
    W = torch.randn(50, 6, generator=generator)
    mask = torch.rand(50, 5, generator=generator) < 0.3
    for row, allowed, chosen in zip(W, ~mask, wide.choose(W, mask).tolist(), strict=True):
        left = set(allowed.nonzero().flatten().tolist())
        for k, item in enumerate(chosen):
            scores = {i: float(ITEMS[i] @ row.view(3, 2)[k]) for i in left}
            assert item == (max(scores, key=scores.get) if scores else -1)
            left.discard(item)


def test_a_new_actor_proposes_nearly_the_same_everywhere():
    fresh = actor(2, std=0.3)
    outputs = Proposal.from_outputs(fresh(torch.arange(3), torch.tensor([[0, 1], [2, 3], [5, 4]])))
    assert outputs.mean.shape == (3, 4)
    assert outputs.mean.abs().max() < 0.2
    assert (outputs.log_std - math.log(0.3)).abs().max() < 0.2


def test_a_softmax_head_has_no_output_but_w():
    torch.manual_seed(0)
    encoder = StateEncoder(torch.randn(3, 2), ITEMS, 4, 1)
    fresh = Actor(encoder, list_length=2, hidden=(8, 8))
    outputs = fresh(torch.arange(3), torch.tensor([[0, 1], [2, 3], [5, 4]]))
    assert outputs.shape == (3, 4)
    assert fresh.head.weight.shape == (4, 8)
    outputs.square().sum().backward()
    assert (fresh.head.weight.grad.abs().sum(1) > 0).all()  # every output counts


def test_both_heads_begin_with_the_same_numbers():
    def begun(policy: str) -> tuple[Actor, torch.Tensor]:
        torch.manual_seed(7)
        encoder = StateEncoder(torch.ones(3, 2), ITEMS, 4, 1)
        options = {"list_length": 2, "hidden": (8, 6)}
        if policy == "softmax":
            fresh = Actor(encoder, **options)
        else:
            fresh = Actor(encoder, **options, initial_std=0.5)
        return fresh, torch.rand(3)  # what is drawn next, such as critics, is the same too

    (softmax, after), (gaussian, same) = begun("softmax"), begun("gaussian")
    assert torch.equal(after, same)
    assert torch.equal(softmax.head.weight, gaussian.head.weight[:4])
    assert torch.equal(softmax.head.bias, gaussian.head.bias[:4])
    for layer in (0, 2):
        assert torch.equal(softmax.body[layer].weight, gaussian.body[layer].weight)


@pytest.mark.parametrize("policy", ["softmax", "gaussian"])
def test_rows_that_an_actor_begins_with_or_settles_on(policy: str):
    torch.manual_seed(1)
    encoder = StateEncoder(torch.randn(3, 2), ITEMS, 4, 1)
    fresh = (
        Actor(encoder, list_length=2, hidden=(8, 8))
        if policy == "softmax"
        else Actor(encoder, list_length=2, hidden=(8, 8), initial_std=0.3)
    )
    states = torch.arange(3), torch.tensor([[0, 1], [2, 3], [5, 4]])
    with torch.no_grad():
        before = fresh(*states)
        fresh.start_with_weights([0.5, -2.0])
        moved = fresh(*states)[:, :4] - before[:, :4]
        torch.testing.assert_close(moved, torch.tensor([0.5, -2.0] * 2).expand(3, 4))
        fresh.fix_weights([3.0, 1.0])
        assert fresh(*states)[:, :4].tolist() == [[3.0, 1.0, 3.0, 1.0]] * 3
        assert torch.equal(fresh(*states)[:, 4:], before[:, 4:])  # a spread is left alone
