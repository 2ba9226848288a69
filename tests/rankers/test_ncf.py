"""NCF: scores of all items are those of single pairs, and blocks of users and items are found."""

import numpy as np
import pytest
import torch
from torch import Tensor

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import Split, split
from fairhorizon.errors import ConfigError
from fairhorizon.histories import UserItems
from fairhorizon.rankers import ncf
from fairhorizon.rankers.ncf import Ncf, NcfConfig, NcfTraining, all_logits, logits

NO_QUEUE = torch.empty(0, 0, dtype=torch.long)


def blocks(n_users: int = 40, n_items: int = 30, each: int = 10) -> Split:
    """Even users take even items, odd users odd ones, `each` of them at random."""
    rng = np.random.default_rng(2)
    users = np.arange(n_users).repeat(each)
    picks = [rng.permutation(np.arange(u % 2, n_items, 2))[:each] for u in range(n_users)]
    times = np.tile(np.arange(each), n_users)
    return split(from_arrays(users, np.concatenate(picks), timestamps=times))


def naive_logit(p: dict[str, Tensor], user: int, item: int) -> Tensor:
    """NeuMF for one pair as He et al. write it: the MLP of the two vectors side by side."""
    hidden = torch.cat([p["mlp_users"][user], p["mlp_items"][item]])
    weight = torch.cat([p["first_users"], p["first_items"]])
    hidden = torch.relu(hidden @ weight + p["first_bias"])
    hidden = torch.relu(hidden @ p["weight0"] + p["bias0"])
    hidden = torch.relu(hidden @ p["weight1"] + p["bias1"])
    fused = torch.cat([p["gmf_users"][user] * p["gmf_items"][item], hidden])
    return fused @ torch.cat([p["fuse_gmf"], p["fuse_mlp"]]) + p["fuse_bias"][0]


@pytest.mark.parametrize("at_once", [1, 500, 2**20])
def test_scores_are_those_of_single_pairs(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many pairs are taken at once."""
    monkeypatch.setattr(ncf, "HIDDEN_AT_ONCE", at_once)
    config = NcfConfig(dim=5, widths=(6, 4, 3))
    generator = torch.Generator().manual_seed(0)
    shapes = ncf.initial_parameters(9, 8, config, generator)
    parameters = {
        name: torch.randn(tensor.shape, generator=generator) for name, tensor in shapes.items()
    }
    users = torch.tensor([4, 0, 8, 4])
    expected = torch.stack(
        [torch.stack([naive_logit(parameters, int(u), i) for i in range(8)]) for u in users]
    )
    assert torch.allclose(all_logits(parameters, users), expected, atol=1e-4)
    items = torch.tensor([[1, 1, 7], [0, 5, 2], [3, 3, 3], [6, 7, 0]])
    pairs = logits(parameters, users, items)
    assert torch.allclose(pairs, expected.gather(1, items), atol=1e-4)


def test_the_loss_is_cross_entropy_and_the_penalty_of_every_example() -> None:
    config = NcfConfig(dim=3, widths=(4, 3, 2), l2=0.2, negatives=1)
    generator = torch.Generator().manual_seed(1)
    training = NcfTraining(UserItems.from_log(blocks().train), config, generator)
    p = {name: tensor.detach() for name, tensor in training.parameters.items()}
    users, items = torch.tensor([3, 3]), torch.tensor([[1, 4], [5, 4]])
    expected = 0.0
    for user, (taken, other) in zip(users.tolist(), items.tolist(), strict=True):
        for item, sign in ((taken, 1), (other, -1)):
            expected += float(-torch.sigmoid(sign * naive_logit(p, user, item)).log()) / 4
            for kind in ("gmf", "mlp"):
                size = p[f"{kind}_users"][user].square().sum()
                size = size + p[f"{kind}_items"][item].square().sum()
                expected += 0.2 * float(size) / 4
    assert abs(float(training.loss(users, items).detach()) - expected) < 1e-5


def test_blocks_are_learned() -> None:
    config = NcfConfig(dim=4, widths=(8, 4), l2=0.001, batch=64, learning_rate=0.02)
    scores = Ncf(config, seed=0).fit(blocks()).scores(torch.arange(40), NO_QUEUE)
    own = (torch.arange(40)[:, None] + torch.arange(30)) % 2 == 0
    # the first ten of every user are of the user's own fifteen, but for one in twenty
    assert own.gather(1, scores.topk(10).indices).float().mean() > 0.95


def test_same_seed_same_bits_and_a_second_fit_starts_anew() -> None:
    parts, config = blocks(), NcfConfig(dim=3, widths=(4,), max_epochs=2, batch=50)
    users = torch.arange(40)
    ranker = Ncf(config, seed=1).fit(parts)
    first = ranker.scores(users, NO_QUEUE)
    assert torch.equal(ranker.fit(parts).scores(users, NO_QUEUE), first)
    assert torch.equal(Ncf(config, seed=1).fit(parts).scores(users, NO_QUEUE), first)
    assert not torch.equal(Ncf(config, seed=2).fit(parts).scores(users, NO_QUEUE), first)


def test_what_is_stored_scores_the_same() -> None:
    ranker = Ncf(NcfConfig(dim=3, max_epochs=2), seed=1).fit(blocks())
    stored = {name: tensor.clone() for name, tensor in ranker.tensors().items()}
    other = Ncf.from_parts(stored, ranker.description())
    users = torch.tensor([5, 0, 39])
    assert torch.equal(other.scores(users, NO_QUEUE), ranker.scores(users, NO_QUEUE))


def test_who_took_everything_is_no_example() -> None:
    taken = UserItems(torch.tensor([0, 3, 4]), torch.tensor([2, 0, 1, 1]), 3)
    training = NcfTraining(taken, NcfConfig(dim=2), torch.Generator().manual_seed(0))
    training.epoch()
    assert training.users.tolist() == [1]
    assert all(tensor.isfinite().all() for tensor in training.parameters.values())


def test_a_diverged_training_is_said() -> None:
    with pytest.raises(ConfigError, match="diverged"):
        Ncf(NcfConfig(dim=2, learning_rate=1e30, max_epochs=3)).fit(blocks())
