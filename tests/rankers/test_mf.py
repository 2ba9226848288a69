"""MF finds a planted factorisation and planted biases, and stops on validation."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import Split, split
from fairhorizon.errors import ConfigError
from fairhorizon.rankers.mf import Mf, MfConfig
from fairhorizon.rankers.training import Validation

NO_QUEUE = torch.empty(0, 0, dtype=torch.long)


def planted(noise: float) -> Split:
    """Ratings 3 + u.v of rank 2, every pair of 60 users and 50 items, in random order."""
    rng = np.random.default_rng(5)
    truth = 3 + rng.normal(size=(60, 2)) @ rng.normal(size=(2, 50))
    users, items = np.divmod(rng.permutation(60 * 50), 50)
    ratings = truth[users, items] + noise * rng.normal(size=len(users))
    return split(from_arrays(users, items, ratings=ratings, timestamps=users * 0), ties="keep")


def test_the_error_comes_down_to_the_noise() -> None:
    parts = planted(noise=0.1)
    config = MfConfig(dim=2, l2=0.0, learning_rate=0.02, batch=256, max_epochs=200)
    pmf = Mf(config, seed=1).fit(parts)
    assert pmf.validation_rmse_ < 0.13
    users, items = torch.tensor(parts.test.users), torch.tensor(parts.test.items)
    predicted = pmf.mean_ + (pmf.user_vectors_[users] * pmf.item_vectors_[items]).sum(1)
    error = (predicted - torch.tensor(parts.test.ratings)).square().mean().sqrt()
    assert float(error) < 0.13


def test_same_seed_same_vectors_and_other_seed_others() -> None:
    parts = planted(noise=1.0)
    config = MfConfig(dim=3, max_epochs=2)
    first, again, other = (Mf(config, seed=seed).fit(parts) for seed in (1, 1, 2))
    assert torch.equal(first.item_vectors_, again.item_vectors_)
    assert not torch.equal(first.item_vectors_, other.item_vectors_)


def test_stops_when_validation_no_longer_improves_and_keeps_the_best() -> None:
    parts = planted(noise=2.0)  # noise is all there is to overfit with 20 dimensions
    short = MfConfig(dim=20, l2=0.0, learning_rate=0.05, batch=64, max_epochs=60, patience=2)
    long = short.model_copy(update={"patience": 1000})
    patient, impatient = Mf(long, seed=0).fit(parts), Mf(short, seed=0).fit(parts)
    assert patient.validation_rmse_ <= impatient.validation_rmse_
    users, items = torch.tensor(parts.validation.users), torch.tensor(parts.validation.items)
    predicted = impatient.mean_ + (
        impatient.user_vectors_[users] * impatient.item_vectors_[items]
    ).sum(1)
    kept = (predicted - torch.tensor(parts.validation.ratings)).square().mean().sqrt()
    assert abs(float(kept) - impatient.validation_rmse_) < 1e-6


def test_without_ratings_it_learns_what_happens() -> None:
    """Even users take even items, odd users odd ones.

    A random pair is one of these every second time: the best guess is 2/3 for them and 0 for the
    others, with an error of sqrt(1/6) = 0.408; a constant guess errs by 0.5.
    """
    users, items = np.divmod(np.random.default_rng(1).permutation(80 * 40), 40)
    own = users % 2 == items % 2
    log = from_arrays(users[own], items[own])
    config = MfConfig(dim=4, l2=0.01, max_epochs=100, learning_rate=0.02, batch=256)
    pmf = Mf(config, seed=0).fit(split(log))
    scores = (pmf.user_vectors_ @ pmf.item_vectors_.T).numpy()
    same = np.add.outer(np.arange(80), np.arange(40)) % 2 == 0
    assert scores[same].mean() - scores[~same].mean() > 0.45
    assert 0.40 < pmf.validation_rmse_ < 0.46


def test_a_diverged_pretraining_is_said() -> None:
    with pytest.raises(ConfigError, match=r"diverged .*pmf\.learning_rate"):
        Mf(MfConfig(dim=2, learning_rate=1e30, max_epochs=3)).fit(planted(noise=0.1))


def plain_pmf(parts: Split, config: MfConfig, seed: int) -> tuple[torch.Tensor, float]:
    """The loop of PMF in as few lines as it takes: the table of users and items, and the RMSE.

    FCPO's results hang on these bits, so that the ranker must do the very same arithmetic.
    """
    generator = torch.Generator().manual_seed(seed)
    n_users = parts.train.n_users
    (users, items, ratings), held_out = (
        (torch.tensor(x.users), torch.tensor(x.items), torch.tensor(x.ratings).float())
        for x in (parts.train, parts.validation)
    )
    mean = float(ratings.mean())
    table = torch.randn(n_users + parts.train.n_items, config.dim, generator=generator) * 0.1
    optimiser = torch.optim.Adam([table.requires_grad_()], lr=config.learning_rate)
    best, best_table, stale = float("inf"), table, 0
    while stale < config.patience:
        for rows in torch.randperm(len(users), generator=generator).split(config.batch):
            u, v = table[users[rows]], table[items[rows] + n_users]
            error = (ratings[rows] - mean - (u * v).sum(1)).square()
            optimiser.zero_grad()
            (error + config.l2 * (u.square() + v.square()).sum(1)).mean().backward()
            optimiser.step()
        u, v = table.detach()[held_out[0]], table.detach()[held_out[1] + n_users]
        rmse = float((held_out[2] - (mean + (u * v).sum(1))).square().mean().sqrt())
        stale = 0 if rmse < best - 1e-4 else stale + 1
        if not stale:
            best, best_table = rmse, table.detach().clone()
    return best_table, best


def test_with_the_settings_of_fcpo_it_is_pmf_to_the_bit() -> None:
    parts = planted(noise=1.0)
    config = MfConfig(learning_rate=0.02, batch=500, max_epochs=1000)
    expected, rmse = plain_pmf(parts, config, seed=4)
    reported: list[float] = []
    pmf = Mf(config, seed=4).fit(parts, on_epoch=lambda _, value: reported.append(value))
    assert torch.equal(torch.cat([pmf.user_vectors_, pmf.item_vectors_]), expected)
    assert pmf.validation_rmse_ == rmse
    assert rmse in reported


@pytest.mark.parametrize("centred", [True, False])
def test_planted_biases_are_found(centred: bool) -> None:
    """r_ui = 3 + b_u + b_i, both of mean 0: with l2 0, differences between items are the truth."""
    rng = np.random.default_rng(8)
    of_users, of_items = rng.normal(size=60), rng.normal(size=50)
    users, items = np.divmod(rng.permutation(60 * 50), 50)
    ratings = 3 + of_users[users] + of_items[items]
    parts = split(from_arrays(users, items, ratings=ratings, timestamps=users * 0), ties="keep")
    config = MfConfig(
        dim=1, biases=True, centred=centred, l2=0.0, learning_rate=0.05, batch=256, max_epochs=60
    )
    ranker = Mf(config, seed=0).fit(parts)
    scores = ranker.scores(torch.arange(60), NO_QUEUE).numpy()
    truth = 3 + of_users[:, None] + of_items
    assert np.abs(scores - truth).mean() < 0.05
    if centred:
        biases = ranker.item_biases_.numpy()
        assert np.abs((biases - biases.mean()) - (of_items - of_items.mean())).mean() < 0.1


def test_the_score_is_the_prediction_and_survives_storage() -> None:
    ranker = Mf(MfConfig(dim=3, biases=True, max_epochs=3), seed=1).fit(planted(noise=0.5))
    users = torch.tensor([7, 2])
    scores = ranker.scores(users, NO_QUEUE)
    by_hand = (
        ranker.mean_
        + float(ranker.user_biases_[7] + ranker.item_biases_[11])
        + float(ranker.user_vectors_[7] @ ranker.item_vectors_[11])
    )
    assert abs(float(scores[0, 11]) - by_hand) < 1e-5
    stored = {name: tensor.clone() for name, tensor in ranker.tensors().items()}
    other = Mf.from_parts(stored, ranker.description())
    assert torch.equal(other.scores(users, NO_QUEUE), scores)


def test_stopped_on_ndcg_it_keeps_the_epoch_with_the_best_lists() -> None:
    reported: list[float] = []
    parts = planted(noise=0.5)
    config = MfConfig(dim=3, stop="ndcg", learning_rate=0.02, batch=256)
    ranker = Mf(config, seed=0).fit(parts, on_epoch=lambda _, value: reported.append(value))
    kept = Validation(parts, 0).ndcg(ranker.scores)
    assert kept == max(reported)
    assert len(reported) - 1 - reported.index(max(reported)) == config.patience


def test_not_centred_an_item_that_few_rated_stays_below() -> None:
    """100 users rate item 0 with 3 and one rates item 1 with 5; pulled to 0, item 1 stays low."""
    filler = np.random.default_rng(0).integers(2, 30, size=(100, 6))
    users = np.concatenate([np.arange(100), [0], np.arange(100).repeat(6)])
    items = np.concatenate([np.zeros(100, int), [1], filler.ravel()])
    ratings = np.concatenate([np.full(100, 3.0), [5.0], np.full(600, 3.0)])
    times = np.concatenate([np.zeros(100), [0], np.tile(np.arange(1, 7), 100)])
    parts = split(from_arrays(users, items, ratings=ratings, timestamps=times))
    config = MfConfig(dim=4, l2=0.05, learning_rate=0.02, batch=64, max_epochs=8, patience=8)
    item_0_first = {}
    for centred in (True, False):
        config = config.model_copy(update={"centred": centred})
        scores = Mf(config, seed=0).fit(parts).scores(torch.arange(1, 100), NO_QUEUE)
        item_0_first[centred] = float((scores[:, 0] > scores[:, 1]).float().mean())
    assert item_0_first[False] > 0.95
    assert item_0_first[True] < 0.8


def test_rows_without_a_rating_are_left_out() -> None:
    parts = planted(noise=0.1)
    gaps = np.random.default_rng(0).random(len(parts.train)) < 0.3
    ratings = np.where(gaps, np.nan, parts.train.ratings)
    some = replace(parts, train=replace(parts.train, ratings=ratings))
    without = replace(parts, train=parts.train.take(~gaps))
    config = MfConfig(dim=4, max_epochs=3)
    one, other = Mf(config).fit(some), Mf(config).fit(without)
    assert torch.equal(one.item_vectors_, other.item_vectors_)
    assert one.mean_ == other.mean_
    assert one.validation_rmse_ == other.validation_rmse_


def test_a_training_log_without_any_rating_is_one_of_interactions() -> None:
    parts = planted(noise=0.1)
    none = replace(parts.train, ratings=np.full(len(parts.train), np.nan))
    config = MfConfig(dim=4, max_epochs=3)
    one = Mf(config).fit(replace(parts, train=none))
    other = Mf(config.model_copy(update={"target": "interaction"})).fit(parts)
    assert torch.equal(one.item_vectors_, other.item_vectors_)
    assert one.validation_rmse_ == other.validation_rmse_
