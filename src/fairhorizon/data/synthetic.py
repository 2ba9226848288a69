"""A seeded synthetic market with known relevance, for tests and for use without data."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.errors import ConfigError

CELLS = 4_000_000  # user-item cells held at once
START, YEAR = 1_600_000_000, 365 * 86_400  # seconds


@dataclass(frozen=True, eq=False)
class SyntheticMarket:
    """The log and the model it was drawn from."""

    interactions: Interactions
    tastes: NDArray[np.float64]  # (users, dim)
    traits: NDArray[np.float64]  # (items, dim)
    appeal: NDArray[np.float64]  # (items,) the same for all users
    exposure: NDArray[np.float64]  # (items,) probability to be seen, sums to 1

    @cached_property
    def relevance(self) -> NDArray[np.float64]:
        """True probability that a user likes an item, (users, items); large for a large market."""
        return _relevance(self.tastes, self.traits, self.appeal)


def _relevance(
    tastes: NDArray[np.float64], traits: NDArray[np.float64], appeal: NDArray[np.float64]
) -> NDArray[np.float64]:
    """1 / (1 + exp(-(p_u . q_i + a_i)))."""
    return np.asarray(1 / (1 + np.exp(-(tastes @ traits.T + appeal))), dtype=np.float64)


def synthetic(
    users: int = 500,
    items: int = 400,
    interactions_per_user: int = 60,
    *,
    dim: int = 8,
    popularity_skew: float = 1.0,
    seed: int = 0,
) -> SyntheticMarket:
    """Users see items by Zipf exposure, take them by taste: P(take) ~ exposure_i * relevance_ui.

    Tastes p and traits q are Gaussian with E[(p.q)^2] = 4; exposure of the r-th item is r^-skew.
    Users differ in activity (gamma-Poisson, the given mean, at least 1 and at most all items).
    The id of every user and item is its code, also of items without interactions.
    """
    if min(users, items, interactions_per_user, dim) < 1 or not popularity_skew >= 0:
        raise ConfigError(
            "a synthetic market needs users, items, interactions_per_user and dim of at least 1 "
            "and popularity_skew of at least 0"
        )
    if seed < 0:
        raise ConfigError(f"the seed must be at least 0, not {seed}")
    rng = np.random.default_rng(seed)
    scale = np.sqrt(2 / np.sqrt(dim))
    tastes, traits = rng.normal(0, scale, (users, dim)), rng.normal(0, scale, (items, dim))
    appeal = rng.normal(-1, 0.5, items)
    exposure = rng.permutation(np.arange(1.0, items + 1) ** -popularity_skew)
    exposure /= exposure.sum()
    activity = rng.poisson(interactions_per_user * rng.gamma(4, 1 / 4, users))
    sizes = np.clip(activity, 1, items)
    step = max(1, CELLS // items)
    chunks = []
    for start in range(0, users, step):
        here = slice(start, start + step)
        relevance = _relevance(tastes[here], traits, appeal)
        row, item = _draw(np.log(exposure) + np.log(relevance), sizes[here], rng)
        noisy = 1 + 4 * relevance[row, item] + rng.normal(0, 0.7, len(row))
        chunks.append((row + start, item, np.clip(np.round(noisy), 1, 5)))
    user, item, rating = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    arrival = rng.integers(0, YEAR, users)  # a user is active for 30 days from arrival on
    times = START + arrival[user] + rng.integers(0, 30 * 86_400, len(user))
    order = np.argsort(times, kind="stable")
    log = Interactions(
        users=user[order],
        items=item[order],
        user_ids=np.arange(users),
        item_ids=np.arange(items),
        ratings=rating[order],
        timestamps=times[order],
        name="synthetic",
    )
    return SyntheticMarket(log, tastes, traits, appeal, exposure)


def _draw(
    log_weights: NDArray[np.float64], sizes: NDArray[np.int64], rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For each row sizes[row] distinct columns by weight, as (row, column) pairs: Gumbel top-k."""
    keys = log_weights + rng.gumbel(size=log_weights.shape)
    most = int(sizes.max())
    if most < keys.shape[1]:
        best = np.argpartition(-keys, most - 1, axis=1)[:, :most]
    else:
        best = np.tile(np.arange(most), (len(keys), 1))
    best = np.take_along_axis(best, np.argsort(-np.take_along_axis(keys, best, 1), axis=1), 1)
    row, rank = np.nonzero(np.arange(most) < sizes[:, None])
    return row, best[row, rank]
