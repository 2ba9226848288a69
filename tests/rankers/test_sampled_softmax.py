"""The sampled softmax against the whole one: probabilities, exact cases, means of many draws."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import cross_entropy

from fairhorizon.rankers.next_item import seeded
from fairhorizon.rankers.training import (
    ROWS_AT_ONCE,
    ItemSample,
    ItemSampler,
    inclusion_probabilities,
    sampled_softmax_loss,
)


def leaves(rows: int, n_items: int, scale: float = 1.0) -> list[Tensor]:
    """States, item vectors and bias, in double precision."""
    generator = torch.Generator().manual_seed(1)
    return [
        (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).requires_grad_()
        for shape in ((rows, 3), (n_items, 3), (n_items,))
    ]


def test_chances_by_hand() -> None:
    """Of weights 6 1 1 1 1 two items: the first is certain, the others share what is left."""
    weights = torch.tensor([1.0, 6, 1, 1, 1], dtype=torch.float64)
    assert inclusion_probabilities(weights, 2).tolist() == [0.25, 1, 0.25, 0.25, 0.25]
    assert inclusion_probabilities(weights, 5).tolist() == [1] * 5
    assert inclusion_probabilities(weights, 9).tolist() == [1] * 5


@settings(deadline=None)  # a first call may be slow
@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.integers(1, 45))
def test_chances_sum_to_the_size_and_grow_with_the_count(counts: list[int], size: int) -> None:
    chance = ItemSampler(torch.tensor(counts), size).chance
    assert float(chance.sum()) == pytest.approx(min(size, len(counts)))
    assert float(chance.min()) > 0
    assert float(chance.max()) <= 1
    in_order = chance[torch.tensor(counts).argsort()]
    assert (in_order.diff() >= -1e-12).all()


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=40), st.integers(1, 45), st.integers(0, 99)
)
def test_a_draw_holds_different_items_as_many_as_asked(
    counts: list[int], size: int, seed: int
) -> None:
    with seeded(seed):
        sample = ItemSampler(torch.tensor(counts), size).draw()
    assert len(sample.items) == len(sample.items.unique()) == min(size, len(counts))


def test_items_are_drawn_as_often_as_their_chance_says() -> None:
    sampler = ItemSampler(torch.tensor([100, 50, 20, 10, 5, 3, 2, 1, 0, 0]), 4)
    drawn, draws = torch.zeros(10), 800
    with seeded(0):
        for _ in range(draws):
            sample = sampler.draw()
            drawn[sample.items] += 1
            torch.testing.assert_close(
                sample.log_probability.exp().double(), sampler.chance[sample.items]
            )
    error = (sampler.chance * (1 - sampler.chance) / draws).sqrt()
    assert ((drawn / draws - sampler.chance).abs() <= 4 * error + 1e-9).all()


def test_of_all_items_it_is_the_softmax_loss_with_its_gradients() -> None:
    """In any order, over several chunks."""
    rows, n_items = 2 * ROWS_AT_ONCE + 5, 7
    parameters = leaves(rows, n_items)
    states, vectors, bias = parameters
    targets = torch.randint(n_items, (rows,), generator=torch.Generator().manual_seed(2))
    everything = ItemSample(torch.tensor([3, 0, 6, 1, 5, 2, 4]), torch.zeros(7).double())
    ours = sampled_softmax_loss(states, vectors, bias, targets, everything)
    theirs = cross_entropy(states @ vectors.T + bias, targets)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(
        torch.autograd.grad(3 * ours, parameters), torch.autograd.grad(3 * theirs, parameters)
    )


def test_the_loss_by_hand() -> None:
    """Sampled are items 0 (chance 1/2) and 2 (chance 1/4); the targets are 2 and 1.

    Row 0 leaves item 2 out of the sample, as it is its target: e^1 + 2 e^0.
    Row 1: e^0 + 2 e^2 + 4 e^-2.
    """
    vectors = torch.tensor([[1.0], [0.0], [-1.0]])
    states, targets = torch.tensor([[-1.0], [2.0]]), torch.tensor([2, 1])
    bias = torch.tensor([1.0, 0.0, 0.0])  # row 0: 0 0 1; row 1: 3 0 -2
    sample = ItemSample(torch.tensor([0, 2]), torch.tensor([0.5, 0.25]).log())
    e = torch.e
    expected = (
        torch.tensor([(e + 2) / e, 1 + 2 * e**3 + 4 * e**-2], dtype=torch.float64).log().mean()
    )
    loss = sampled_softmax_loss(states, vectors, bias, targets, sample)
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)


def test_the_sum_over_the_others_is_right_in_the_mean() -> None:
    """e^loss - 1 is that sum over e^target, which the sample estimates without bias."""
    states, vectors, bias = (tensor.detach() for tensor in leaves(1, 12))
    sampler, targets = ItemSampler(torch.arange(12), 5), torch.tensor([4])
    with seeded(3):
        odds = torch.stack(
            [
                sampled_softmax_loss(states, vectors, bias, targets, sampler.draw()).exp() - 1
                for _ in range(800)
            ]
        )
    exact = cross_entropy(states @ vectors.T + bias, targets).exp() - 1
    assert abs(float(odds.mean() - exact)) < 4 * float(odds.std()) / 800**0.5


def test_the_mean_gradient_is_that_of_the_softmax_loss() -> None:
    """Of 30 items 20 are sampled: what is left of the bias is a few per cent."""
    parameters = leaves(6, 30, scale=0.5)
    states, vectors, bias = parameters
    targets, sampler = torch.tensor([0, 7, 7, 29, 15, 3]), ItemSampler(torch.ones(30), 20)
    totals = [torch.zeros_like(parameter) for parameter in parameters]
    with seeded(4):
        for _ in range(600):
            loss = sampled_softmax_loss(states, vectors, bias, targets, sampler.draw())
            gradients = torch.autograd.grad(loss, parameters)
            totals = [t + g / 600 for t, g in zip(totals, gradients, strict=True)]
    exact = torch.autograd.grad(cross_entropy(states @ vectors.T + bias, targets), parameters)
    for mean, gradient in zip(totals, exact, strict=True):
        assert float((mean - gradient).norm() / gradient.norm()) < 0.03


def test_huge_logits_do_not_overflow() -> None:
    """The target is certain, or wrong by 2000."""
    vectors, states = torch.tensor([[1000.0], [-1000.0]]), torch.ones(2, 1)
    sample = ItemSample(torch.tensor([0, 1]), torch.zeros(2))
    loss = sampled_softmax_loss(states, vectors, torch.zeros(2), torch.tensor([0, 1]), sample)
    assert float(loss) == 1000.0


def test_a_sample_that_is_the_target_alone_has_nothing_to_tell() -> None:
    vectors, sample = torch.eye(3), ItemSample(torch.tensor([1]), torch.zeros(1))
    loss = sampled_softmax_loss(
        torch.ones(1, 3), vectors, torch.zeros(3), torch.tensor([1]), sample
    )
    assert float(loss) == 0.0
