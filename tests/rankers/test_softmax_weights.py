"""The one factor that makes weights as sharp as what users liked."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from fairhorizon.rankers.candidates import LEAST_FACTOR, RIDGE, ScoredCandidates, fit_temperature

WEIGHTS = (1.0, 0.5, 0.1)


def random_candidates(seed: int, pull: float) -> tuple[ScoredCandidates, torch.Tensor]:
    """30 users with 12 items each, some of them closed; likes follow the weighted sum."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(30, 12, 4))
    items = np.where(rng.random((30, 12)) < 0.2, -1, np.arange(12))
    total = pull * features[..., :3] @ np.array(WEIGHTS) + rng.gumbel(size=items.shape)
    total[items < 0] = -np.inf
    liked = np.argsort(np.argsort(-total, axis=1), axis=1) < rng.integers(1, 4, 30)[:, None]
    liked[:3] = False  # some like nothing
    return ScoredCandidates(
        torch.from_numpy(items), torch.from_numpy(features).float()
    ), torch.tensor(liked)


@pytest.mark.parametrize(("seed", "pull"), [(0, 1.0), (1, 3.0), (2, 0.3)])
def test_the_factor_is_that_of_the_largest_likelihood(seed: int, pull: float) -> None:
    candidate_set, liked = random_candidates(seed, pull)
    total = candidate_set.features.double().numpy()[..., :3] @ np.array(WEIGHTS)
    closed, likes = candidate_set.items.numpy() < 0, liked.numpy()

    def loss(factor: float) -> float:
        logits = np.where(closed, -np.inf, factor * total)
        logs = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        means = [row[its].mean() for row, its in zip(logs, likes, strict=True) if its.any()]
        return RIDGE * factor**2 - float(np.mean(means))

    best = minimize_scalar(loss, bounds=(0, 20), method="bounded", options={"xatol": 1e-9}).x
    found = fit_temperature(WEIGHTS, candidate_set, liked)
    assert found == pytest.approx([best * weight for weight in WEIGHTS], rel=2e-3)
    ratios = np.array(found) / np.array(WEIGHTS)
    assert ratios == pytest.approx(ratios[0], rel=1e-6)


def test_lists_never_go_against_the_order_of_the_weights() -> None:
    candidate_set, liked = random_candidates(3, -3.0)  # users like what the weights put last
    assert fit_temperature(WEIGHTS, candidate_set, liked) == pytest.approx(
        [LEAST_FACTOR * w for w in WEIGHTS]
    )


def test_without_anything_liked_weights_stay() -> None:
    candidate_set, liked = random_candidates(4, 1.0)
    assert fit_temperature(WEIGHTS, candidate_set, torch.zeros_like(liked)) == pytest.approx(
        WEIGHTS
    )
