"""Training windows and the softmax loss against plain loops; what training shares."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import split
from fairhorizon.errors import DataError
from fairhorizon.histories import UserItems
from fairhorizon.rankers import next_item
from fairhorizon.rankers.next_item import (
    LEAST_ROWS_AT_ONCE,
    STEADY,
    SequenceConfig,
    SequenceNetwork,
    SoftmaxLoss,
    WindowDropout,
    Windows,
    catalogue_sampler,
    next_item_scores,
    sampled_items,
    seeded,
    shuffled_batches,
    softmax_loss,
    train_network,
    training_windows,
)
from fairhorizon.rankers.training import ItemSample

N_ITEMS = 9


class MeanNetwork(SequenceNetwork):
    """The state after an item is the mean of all vectors up to it."""

    def states(self, sequences: Tensor) -> Tensor:
        sums = self.embedded(sequences).cumsum(1)
        return sums / torch.arange(1, sequences.shape[1] + 1)[:, None]


def history_of(sequences: list[list[int]], n_items: int = N_ITEMS) -> UserItems:
    indptr = torch.tensor([0, *np.cumsum([len(items) for items in sequences])])
    items = torch.tensor([item for items in sequences for item in items], dtype=torch.int64)
    return UserItems(indptr, items, n_items)


@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=5),
    st.integers(1, 5),
    st.integers(0, 4),
    st.randoms(use_true_random=False),
)
def test_every_item_but_the_first_is_a_target_once_after_its_true_history(
    lengths, stride, overlap, random
):
    """No item is repeated here, so that a target identifies its user and position."""
    items = iter(range(sum(lengths)))
    sequences = [[next(items) for _ in range(length)] for length in lengths]
    before = {items[at]: items[:at] for items in sequences for at in range(1, len(items))}
    length = stride + overlap
    shifts = torch.tensor([random.randrange(stride) for _ in lengths])
    windows = training_windows(history_of(sequences, sum(lengths)), length, stride, shifts)
    for inputs, targets in zip(windows.inputs.tolist(), windows.targets.tolist(), strict=True):
        for at, target in enumerate(targets):
            if target != sum(lengths):
                context, true = inputs[: at + 1], before.pop(target)
                assert true[-len(context) :] == context
                assert len(context) >= min(overlap + 1, len(true))
    assert not before


def test_windows_by_hand():
    """Two targets a window of three: user 0 is shifted by one, user 1 has nothing to guess."""
    history = history_of([[0, 1, 2, 3, 4], [7], [5, 6]])
    windows = training_windows(history, 3, 2, torch.tensor([1, 0, 0]))
    nothing = N_ITEMS
    assert windows.inputs.tolist() == [
        [0, nothing, nothing],
        [0, 1, 2],
        [1, 2, 3],
        [5, nothing, nothing],
    ]
    assert windows.targets.tolist() == [
        [1, nothing, nothing],
        [nothing, 2, 3],
        [nothing, nothing, 4],
        [6, nothing, nothing],
    ]


def test_the_loss_is_the_mean_over_targets_of_minus_log_softmax():
    torch.manual_seed(2)
    network = MeanNetwork(N_ITEMS, 3)
    torch.nn.init.normal_(network.bias)
    inputs = torch.tensor([[3, 1, 4], [8, 2, N_ITEMS]])
    targets = torch.tensor([[N_ITEMS, 4, 5], [2, N_ITEMS, N_ITEMS]])
    vectors, bias = network.items.detach().numpy(), network.bias.detach().numpy()
    losses = []
    for before, target in (([3, 1], 4), ([3, 1, 4], 5), ([8], 2)):
        state = sum(vectors[item] for item in before) / len(before)
        logits = [state @ vectors[item] + bias[item] for item in range(N_ITEMS)]
        losses.append(math.log(sum(map(math.exp, logits))) - logits[target])
    loss = softmax_loss(network, inputs, targets).item()
    assert loss == pytest.approx(np.mean(losses), rel=1e-5)


def test_loss_and_gradients_are_those_of_torch_over_several_chunks(monkeypatch):
    monkeypatch.setattr(next_item, "LOGITS_AT_ONCE", 1)
    generator = torch.Generator().manual_seed(0)
    rows = 2 * LEAST_ROWS_AT_ONCE + 7
    states, vectors, bias = (
        torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
        for shape in ((rows, 4), (N_ITEMS, 4), (N_ITEMS,))
    )
    targets = torch.randint(N_ITEMS, (rows,), generator=generator)
    ours = SoftmaxLoss.apply(states, vectors, bias, targets)
    theirs = torch.nn.functional.cross_entropy(states @ vectors.T + bias, targets)
    torch.testing.assert_close(ours, theirs)
    leaves = (states, vectors, bias)
    torch.testing.assert_close(
        torch.autograd.grad(3 * ours, leaves), torch.autograd.grad(3 * theirs, leaves)
    )


def test_huge_logits_do_not_overflow():
    """One right with certainty, one wrong by 2000: the mean is 1000."""
    vectors = torch.tensor([[1000.0], [-1000.0]])
    loss = SoftmaxLoss.apply(torch.ones(2, 1), vectors, torch.zeros(2), torch.tensor([0, 1]))
    assert float(loss) == 1000.0


def test_dropout_takes_the_same_coordinates_from_all_of_a_window_and_scales_the_rest():
    dropout, x = WindowDropout(0.75), torch.ones(50, 3, 40)
    with seeded(0):
        dropped = dropout(x)
    assert set(dropped.unique().tolist()) == {0.0, 4.0}
    assert torch.equal(dropped, dropped[:, :1].expand_as(x))
    kept = float((dropped[:, 0] > 0).float().mean())
    assert abs(kept - 0.25) < 0.04  # four standard errors of 2,000 draws
    assert torch.equal(dropout.eval()(x), x)


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.integers(0, N_ITEMS - 1), max_size=6), min_size=1, max_size=4),
    st.integers(1, 5),
    st.integers(0, 3),
)
def test_scores_are_of_the_last_items_whatever_the_padding(sequences, length, padding):
    torch.manual_seed(1)
    network = MeanNetwork(N_ITEMS, 3)
    torch.nn.init.normal_(network.bias)
    longest = max(1, *map(len, sequences))
    queue = history_of(sequences).last(longest + padding)
    scores = next_item_scores(network, queue, length)
    for row, items in zip(scores, sequences, strict=True):
        recent = items[-length:]
        state = network.items[recent].mean(0) if recent else torch.zeros(3)
        torch.testing.assert_close(row, (network.items @ state + network.bias).detach())


def test_the_sampled_loss_is_of_the_same_positions():
    """With all items in the sample it is the loss over all of them."""
    torch.manual_seed(3)
    network = MeanNetwork(N_ITEMS, 3)
    inputs = torch.tensor([[3, 1, 4], [8, 2, N_ITEMS]])
    targets = torch.tensor([[N_ITEMS, 4, 5], [2, N_ITEMS, N_ITEMS]])
    everything = ItemSample(torch.arange(N_ITEMS), torch.zeros(N_ITEMS))
    whole, sampled = (softmax_loss(network, inputs, targets, s) for s in (None, everything))
    torch.testing.assert_close(sampled, whole)


def windows_of(lengths: list[int], width: int) -> Windows:
    """Window w holds the given number of items w, and a target for each."""
    inputs = torch.full((len(lengths), width), N_ITEMS)
    for row, length in enumerate(lengths):
        inputs[row, :length] = row
    return Windows(inputs, inputs)


def test_up_to_the_threshold_a_batch_is_so_many_windows_as_they_are():
    windows = windows_of([1, 2, 3, 1, 1], width=4)
    with seeded(0):
        batches = list(shuffled_batches(windows, N_ITEMS, batch=2, stride=4))
    with seeded(0):
        order = torch.randperm(5)
    assert [inputs.shape for inputs, _ in batches] == [(2, 4), (2, 4), (1, 4)]
    assert torch.equal(torch.cat([inputs for inputs, _ in batches]), windows.inputs[order])


def test_of_a_large_catalogue_a_batch_holds_the_targets_of_full_windows(monkeypatch):
    """2 full windows have 8 targets; these have 2 each on average, so 4 of them make a batch."""
    monkeypatch.setattr(next_item, "LARGE_CATALOGUE", N_ITEMS - 1)
    lengths = [1, 2, 3, 2, 2, 2]
    with seeded(0):
        batches = list(shuffled_batches(windows_of(lengths, 4), N_ITEMS, batch=2, stride=4))
    assert [len(inputs) for inputs, _ in batches] == [4, 2]
    for inputs, targets in batches:
        windows = inputs[:, 0].tolist()
        assert inputs.shape[1] == max(lengths[window] for window in windows)
        assert (inputs < N_ITEMS).sum(1).tolist() == [lengths[window] for window in windows]
        assert torch.equal(inputs, targets)
    assert sorted(w for inputs, _ in batches for w in inputs[:, 0].tolist()) == [*range(6)]


@pytest.mark.parametrize(("threshold", "sampled"), [(N_ITEMS, False), (N_ITEMS - 1, True)])
def test_only_above_the_threshold_the_size_of_the_sample_matters(monkeypatch, threshold, sampled):
    recipe = replace(STEADY, all_items_at_most=threshold)
    users, steps = np.divmod(np.arange(12 * 6), 6)
    log = split(from_arrays(users, (users + steps) % N_ITEMS, timestamps=steps))
    vectors = []
    for size in (4, 5):
        monkeypatch.setattr(next_item, "SAMPLED_ITEMS", size)
        config = SequenceConfig(dim=2, max_epochs=2)
        trained = train_network(
            lambda: MeanNetwork(N_ITEMS, 2), config, log, recipe, seed=0, on_epoch=None
        )
        vectors.append(trained.items)
    assert torch.equal(*vectors) is not sampled
    assert vectors[0].isfinite().all()


def test_the_sample_is_a_seventh_of_a_medium_catalogue():
    """At least 512; of a large catalogue always 4096."""
    sizes = [sampled_items(n) for n in (1025, 1682, 3584, 3706, 7000, 8192, 8193, 100_000)]
    assert sizes == [512, 512, 512, 529, 1000, 1170, 4096, 4096]


def test_the_sampler_draws_from_medium_catalogues_only():
    for n_items, drawn in ((1024, None), (1025, 512), (7000, 1000)):
        sampler = catalogue_sampler(history_of([[0, 1, 2]], n_items), 1024)
        assert (None if sampler is None else len(sampler.draw().items)) == drawn


def test_where_nothing_follows_it_is_said():
    """Of two items a user, one is for validation: no second one to train on."""
    log = from_arrays(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 2]))
    with pytest.raises(DataError, match="no user has two training items"):
        train_network(
            lambda: MeanNetwork(3, 2), SequenceConfig(), split(log), STEADY, seed=0, on_epoch=None
        )


def test_the_global_generator_is_lent_and_given_back():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with seeded(1):
        first = torch.rand(3)
    assert torch.equal(torch.get_rng_state(), before)
    with seeded(1):
        assert torch.equal(torch.rand(3), first)
