"""BPR: the written-out gradient is autograd's, and blocks of users and items are found."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import Split, split
from fairhorizon.errors import ConfigError
from fairhorizon.histories import UserItems
from fairhorizon.rankers.bpr import Bpr, BprConfig, BprTraining

NO_QUEUE = torch.empty(0, 0, dtype=torch.long)


def blocks(n_users: int = 40, n_items: int = 30, each: int = 10) -> Split:
    """Even users take even items, odd users odd ones, `each` of them at random."""
    rng = np.random.default_rng(2)
    users = np.arange(n_users).repeat(each)
    picks = [rng.permutation(np.arange(u % 2, n_items, 2))[:each] for u in range(n_users)]
    times = np.tile(np.arange(each), n_users)
    return split(from_arrays(users, np.concatenate(picks), timestamps=times))


def in_own_block(scores: Tensor) -> Tensor:
    """The mean score of a user's own block less that of the other, (n_users,)."""
    own = (torch.arange(scores.shape[0])[:, None] + torch.arange(scores.shape[1])) % 2 == 0
    return (scores * own).sum(1) / own.sum(1) - (scores * ~own).sum(1) / (~own).sum(1)


def training(parts: Split, config: BprConfig) -> BprTraining:
    return BprTraining(UserItems.from_log(parts.train), config, torch.Generator().manual_seed(3))


@pytest.mark.parametrize("biases", [True, False])
def test_the_gradient_is_that_of_autograd(biases: bool) -> None:
    """With users and items that come twice, and one that is positive here and negative there."""
    config = BprConfig(dim=4, l2=0.3, biases=biases, batch=5)
    state = training(blocks(), config)
    if biases:
        state.table[state.n_users :, -1] = torch.linspace(-1, 1, len(state.table) - state.n_users)
    users = torch.tensor([0, 0, 7, 3])
    i, j = torch.tensor([2, 2, 5, 1]) + state.n_users, torch.tensor([5, 9, 2, 4]) + state.n_users
    state.set_gradient(torch.stack([users, i, j]))

    table = state.table.detach().clone().requires_grad_()
    margins = (table[users] * (table[i] - table[j])).sum(1)
    sizes = sum(table[rows].square().sum(1) for rows in (users, i, j))
    (-margins.sigmoid().log() + 0.3 * sizes).mean().backward()
    assert table.grad is not None
    if biases:
        table.grad[: state.n_users, -1] = 0  # the users' 1 is no parameter
    assert state.table.grad is not None
    assert torch.allclose(state.table.grad, table.grad, atol=1e-6)
    touched = state.table.grad.abs().sum(1) > 1e-3
    assert set(touched.nonzero().flatten().tolist()) == {*users.tolist(), *i.tolist(), *j.tolist()}


def test_the_users_last_coordinate_stays_one() -> None:
    state = training(blocks(), BprConfig(dim=4, l2=0.1, batch=64, learning_rate=0.05, biases=True))
    for _ in range(3):
        state.epoch()
    assert torch.equal(state.table[: state.n_users, -1], torch.ones(state.n_users))
    assert state.table[state.n_users :, -1].abs().min() > 0


def test_blocks_are_learned() -> None:
    parts = blocks()
    config = BprConfig(dim=4, l2=0.001, batch=64, learning_rate=0.05)
    ranker = Bpr(config, seed=0).fit(parts)
    scores = ranker.scores(torch.arange(40), NO_QUEUE)
    assert in_own_block(scores).min() > 1


def test_popular_items_have_the_larger_bias() -> None:
    """Everyone takes items 0 to 4 and one of the other 20; without vectors that is all to learn."""
    users = np.arange(60).repeat(6)
    items = np.concatenate([[0, 1, 2, 3, 4, 5 + user % 20] for user in range(60)])
    parts = split(from_arrays(users, items, timestamps=users * 0), ties="keep")
    state = training(parts, BprConfig(dim=1, l2=0.0, batch=64, learning_rate=0.05, biases=True))
    for _ in range(30):
        state.epoch()
    biases = state.table[state.n_users :, -1]
    trained = torch.tensor(parts.train.item_counts()) >= 30
    assert trained.sum() >= 3
    assert biases[trained].min() > biases[~trained].max()


def test_same_seed_same_bits_and_a_second_fit_starts_anew() -> None:
    parts, config = blocks(), BprConfig(dim=3, max_epochs=3, batch=50)
    ranker = Bpr(config, seed=1).fit(parts)
    first = ranker.item_vectors_.clone()
    assert torch.equal(ranker.fit(parts).item_vectors_, first)
    assert torch.equal(Bpr(config, seed=1).fit(parts).item_vectors_, first)
    assert not torch.equal(Bpr(config, seed=2).fit(parts).item_vectors_, first)


def test_what_is_stored_scores_the_same() -> None:
    ranker = Bpr(BprConfig(dim=3, max_epochs=2), seed=1).fit(blocks())
    stored = {name: tensor.clone() for name, tensor in ranker.tensors().items()}
    other = Bpr.from_parts(stored, ranker.description())
    users = torch.tensor([5, 0, 39])
    assert torch.equal(other.scores(users, NO_QUEUE), ranker.scores(users, NO_QUEUE))


def test_who_took_everything_teaches_nothing_and_is_ranked_all_the_same() -> None:
    parts = blocks()
    everything = torch.cat([torch.arange(30), UserItems.from_log(parts.train).items])
    pointers = torch.cat([torch.tensor([0]), UserItems.from_log(parts.train).indptr + 30])
    taken = UserItems(pointers, everything, 30)  # user 0 took all, then come those of the blocks
    state = BprTraining(taken, BprConfig(dim=2, l2=0.0), torch.Generator().manual_seed(0))
    before = state.table[0].clone()
    state.epoch()
    assert 0 not in state.users
    assert torch.equal(state.table[0], before)
    assert state.table.isfinite().all()


def test_a_diverged_training_is_said() -> None:
    with pytest.raises(ConfigError, match="diverged"):
        Bpr(BprConfig(dim=2, learning_rate=1e30, max_epochs=3)).fit(blocks())
