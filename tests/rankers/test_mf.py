"""PMF finds a planted factorisation and stops on validation."""

import numpy as np
import pytest
import torch

from fairhorizon.data import Interactions, Split, split
from fairhorizon.errors import ConfigError
from fairhorizon.rankers.mf import Mf, MfConfig


def planted(noise: float) -> Split:
    """Ratings 3 + u.v of rank 2, every pair of 60 users and 50 items, in random order."""
    rng = np.random.default_rng(5)
    truth = 3 + rng.normal(size=(60, 2)) @ rng.normal(size=(2, 50))
    users, items = np.divmod(rng.permutation(60 * 50), 50)
    ratings = truth[users, items] + noise * rng.normal(size=len(users))
    return split(Interactions.from_arrays(users, items, ratings=ratings, timestamps=users * 0))


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
    log = Interactions.from_arrays(users[own], items[own])
    config = MfConfig(dim=4, l2=0.01, max_epochs=100, learning_rate=0.02, batch=256)
    pmf = Mf(config, seed=0).fit(split(log))
    scores = (pmf.user_vectors_ @ pmf.item_vectors_.T).numpy()
    same = np.add.outer(np.arange(80), np.arange(40)) % 2 == 0
    assert scores[same].mean() - scores[~same].mean() > 0.45
    assert 0.40 < pmf.validation_rmse_ < 0.46


def test_a_diverged_pretraining_is_said() -> None:
    with pytest.raises(ConfigError, match=r"diverged .*pmf\.learning_rate"):
        Mf(MfConfig(dim=2, learning_rate=1e30, max_epochs=3)).fit(planted(noise=0.1))
