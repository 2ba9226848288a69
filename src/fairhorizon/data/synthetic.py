"""Seeded synthetic markets with known relevance, for tests and for use without data.

Four kinds of log, because a method that suits one may fail on another:

    synthetic          users rate many items within a month, by taste and exposure alone
    synthetic-sparse   few rows per user, times in days
    synthetic-baskets  many rows at one time, bought again and again, sorted by item in a basket
    synthetic-trends   items come and go
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.large import large_log
from fairhorizon.errors import ConfigError, of_type

CELLS = 4_000_000  # cells of a matrix of users and items that are in memory at once
DAY = 86_400  # seconds
START, YEAR = 1_600_000_000, 365 * DAY


@dataclass(frozen=True, eq=False)
class SyntheticMarket:
    """A log and the truth that it was drawn from."""

    interactions: Interactions
    tastes: NDArray[np.float64]  # (users, dim)
    traits: NDArray[np.float64]  # (items, dim)
    appeal: NDArray[np.float64]  # (items,) the same for all users
    exposure: NDArray[np.float64]  # (items,) probability to be seen, sums to 1

    @cached_property
    def relevance(self) -> NDArray[np.float64]:
        """(users, items) the true probability of a like; as large as the market."""
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
    """Users see items by Zipf exposure and take them by taste: P(take) ~ exposure_i * relevance_ui.

    Tastes p and traits q are Gaussian with E[(p.q)^2] = 4; exposure of the r-th item is r^-skew.
    The number of items per user is gamma-Poisson with the given mean, at least 1 and at most all
    items. The id of every user and item is its code, also of items without interactions.
    """
    _check(users, items, interactions_per_user, dim, popularity_skew=popularity_skew, seed=seed)
    rng = np.random.default_rng(seed)
    tastes, traits, appeal, exposure = _truth(users, items, dim, popularity_skew, rng)
    activity = rng.poisson(interactions_per_user * rng.gamma(4, 1 / 4, users))
    sizes = np.clip(activity, 1, items)
    step = max(1, CELLS // items)
    chunks = []
    for start in range(0, users, step):
        here = slice(start, start + step)
        relevance = _relevance(tastes[here], traits, appeal)
        # Weights are products, so their logarithms add up; Gumbel noise then draws without
        # replacement.
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


def sparse(
    users: int = 3000,
    items: int = 2500,
    interactions_per_user: int = 9,
    *,
    dim: int = 4,
    popularity_skew: float = 0.8,
    seed: int = 0,
) -> SyntheticMarket:
    """Few items per user, taken on a handful of days, with days as times.

    A user has two days for every three items, so that many rows share user and time, and their
    order within a day means nothing. The number of items per user is exponential: half of the users
    take at most two thirds of the mean.
    """
    _check(users, items, interactions_per_user, dim, popularity_skew=popularity_skew, seed=seed)
    rng = np.random.default_rng(seed)
    tastes, traits, appeal, exposure = _truth(users, items, dim, popularity_skew, rng)
    sizes = np.clip(rng.poisson(interactions_per_user * rng.gamma(1, 1, users)), 1, items)
    user, item = _draw_all(tastes, traits, appeal, np.log(exposure), sizes, rng)
    arrival = rng.integers(0, 365, users)
    days = np.maximum(1, 2 * sizes // 3)
    visit = (rng.random(len(user)) * days[user]).astype(np.int64)  # which of the user's days
    gaps = rng.integers(1, 30, (users, int(days.max()))).cumsum(axis=1)
    times = START // DAY + arrival[user] + gaps[user, visit]
    return SyntheticMarket(
        _log("synthetic-sparse", user, item, times, users, items), tastes, traits, appeal, exposure
    )


def baskets(
    users: int = 500,
    items: int = 1200,
    baskets_per_user: int = 25,
    basket_size: int = 8,
    *,
    dim: int = 4,
    popularity_skew: float = 0.7,
    seed: int = 0,
) -> SyntheticMarket:
    """Households that buy baskets of distinct items, with many of the same items in later baskets.

    All rows of a basket have one time and are sorted by item, as tills write them: their order
    means nothing. The log has each item of a household once, at its first purchase.
    """
    _check(
        users,
        items,
        baskets_per_user,
        basket_size,
        dim,
        popularity_skew=popularity_skew,
        seed=seed,
    )
    rng = np.random.default_rng(seed)
    tastes, traits, appeal, exposure = _truth(users, items, dim, popularity_skew, rng)
    visits = np.maximum(1, rng.poisson(baskets_per_user * rng.gamma(4, 1 / 4, users)))
    shopper = np.repeat(np.arange(users), visits)
    sizes = np.clip(rng.poisson(basket_size, len(shopper)), 1, items)
    basket, item = _draw_all(tastes[shopper], traits, appeal, np.log(exposure), sizes, rng)
    # Without replacement: no two baskets are bought at the same hour, so a time is a basket.
    when = START + rng.choice(2 * YEAR // 3600, len(shopper), replace=False) * 3600
    by_till = np.lexsort((item, when[basket]))
    basket, item = basket[by_till], item[by_till]
    firsts = np.sort(np.unique(shopper[basket] * items + item, return_index=True)[1])
    basket, item = basket[firsts], item[firsts]
    log = _log("synthetic-baskets", shopper[basket], item, when[basket], users, items)
    return SyntheticMarket(log, tastes, traits, appeal, exposure)


def trends(
    users: int = 800,
    items: int = 800,
    interactions_per_user: int = 40,
    *,
    half_life: float = 45.0,
    dim: int = 4,
    popularity_skew: float = 0.6,
    seed: int = 0,
) -> SyntheticMarket:
    """Items come and go: the exposure of an item halves every `half_life` days after its launch.

    exposure_i(t) = rank_i^-skew 2^(-(t - launch_i) / half_life), 0 before the launch. Launches are
    spread evenly over two years before the end. The stored exposure is that at the end of the log.
    """
    _check(users, items, interactions_per_user, dim, popularity_skew=popularity_skew, seed=seed)
    if not half_life > 0:
        raise ConfigError(f"half_life must be above 0, not {half_life}")
    rng = np.random.default_rng(seed)
    tastes, traits, appeal, exposure = _truth(users, items, dim, popularity_skew, rng)
    days = 2 * 365.0
    launch = rng.random(items) * days
    sizes = np.maximum(1, rng.poisson(interactions_per_user * rng.gamma(4, 1 / 4, users)))
    user = np.repeat(np.arange(users), sizes)
    arrival = rng.random(users) * (days - 200) + 60
    time = arrival[user] + rng.random(len(user)) * 140  # a user is active for 140 days
    chosen = np.empty(len(user), dtype=np.int64)
    step = max(1, CELLS // items)
    for start in range(0, len(user), step):
        here = slice(start, start + step)
        relevance = _relevance(tastes[user[here]], traits, appeal)
        # Gumbel-max: the largest of log-weights with Gumbel noise is a draw by weight.
        weights = np.log(relevance) + _attention(exposure, launch, time[here, None], half_life)
        chosen[here] = np.argmax(weights + rng.gumbel(size=weights.shape), axis=1)
    order = np.argsort(time, kind="stable")
    user, item, time = user[order], chosen[order], time[order]
    firsts = np.sort(np.unique(user * items + item, return_index=True)[1])
    times = START + (time[firsts] * DAY).astype(np.int64)
    at_end = np.exp(_attention(exposure, launch, np.array([[days]]), half_life)[0])
    return SyntheticMarket(
        _log("synthetic-trends", user[firsts], item[firsts], times, users, items),
        tastes,
        traits,
        appeal,
        at_end / at_end.sum(),
    )


def _attention(
    exposure: NDArray[np.float64],
    launch: NDArray[np.float64],
    time: NDArray[np.float64],
    half_life: float,
) -> NDArray[np.float64]:
    """(rows, items) logarithm of exposure at times (rows, 1), in days; -inf before the launch."""
    age = time - launch
    faded = np.log(exposure) - np.log(2) * age / half_life
    return np.where(age >= 0, faded, -np.inf)


def _check(*sizes: int, popularity_skew: float, seed: int) -> None:
    if min(sizes) < 1 or not popularity_skew >= 0:
        raise ConfigError(
            "a synthetic market needs users, items and all other sizes of at least 1 "
            "and popularity_skew of at least 0"
        )
    if seed < 0:
        raise ConfigError(f"the seed must be at least 0, not {seed}")


Truth = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def _truth(users: int, items: int, dim: int, skew: float, rng: np.random.Generator) -> Truth:
    """Tastes, traits, appeal and exposure: E[(p.q)^2] = 4, exposure of the r-th item r^-skew."""
    scale = np.sqrt(2 / np.sqrt(dim))
    tastes, traits = rng.normal(0, scale, (users, dim)), rng.normal(0, scale, (items, dim))
    appeal = rng.normal(-1, 0.5, items)
    exposure = rng.permutation(np.arange(1.0, items + 1) ** -skew)
    return tastes, traits, appeal, exposure / exposure.sum()


def _log(
    name: str,
    user: NDArray[np.int64],
    item: NDArray[np.int64],
    times: NDArray[np.int64],
    users: int,
    items: int,
) -> Interactions:
    """The rows in time order, equal times in the order given; the id is the code."""
    order = np.argsort(times, kind="stable")
    return Interactions(
        users=user[order],
        items=item[order],
        user_ids=np.arange(users),
        item_ids=np.arange(items),
        timestamps=times[order],
        name=name,
    )


def _draw_all(
    tastes: NDArray[np.float64],
    traits: NDArray[np.float64],
    appeal: NDArray[np.float64],
    log_exposure: NDArray[np.float64],
    sizes: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """sizes[row] distinct items for each row of tastes, as (row, item); some rows at a time."""
    step = max(1, CELLS // len(traits))
    chunks = []
    for start in range(0, len(tastes), step):
        here = slice(start, start + step)
        relevance = _relevance(tastes[here], traits, appeal)
        row, item = _draw(log_exposure + np.log(relevance), sizes[here], rng)
        chunks.append((row + start, item))
    rows, items = (np.concatenate(parts) for parts in zip(*chunks, strict=True))
    return rows, items


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
    # The k largest keys in falling order are a draw without replacement, the first one drawn first.
    best = np.take_along_axis(best, np.argsort(-np.take_along_axis(keys, best, 1), axis=1), 1)
    row, rank = np.nonzero(np.arange(most) < sizes[:, None])
    return row, best[row, rank]


# ---- By name, as a source of `load`: synthetic:users=200,seed=1 ----------------------------------
SYNTHETIC = "synthetic"
GENERATORS: dict[str, Callable[..., SyntheticMarket]] = {
    SYNTHETIC: synthetic,
    "synthetic-sparse": sparse,
    "synthetic-baskets": baskets,
    "synthetic-trends": trends,
}
LARGE: dict[str, Callable[..., Interactions]] = {"synthetic-large": large_log}  # without a truth


def is_synthetic(source: str) -> bool:
    """Whether a `source` as in `load` is drawn by a generator."""
    return _kind(source) in GENERATORS or _kind(source) in LARGE


def market_of(source: str | Path) -> SyntheticMarket | None:
    """The market of a `source` as in `load`; None unless it is a generator with a truth."""
    if isinstance(source, str) and _kind(source) in GENERATORS:
        return synthetic_market(source)
    return None


def synthetic_market(source: str = SYNTHETIC) -> SyntheticMarket:
    """A synthetic market: its log in `interactions`, and the truth it was drawn from.

    source: "synthetic", or the name of another generator, or "synthetic:key=value,..."; the keys
        are the parameters of the generator (see `fairhorizon.data.synthetic`).
    """
    of_type(source, str, "the source", 'give it as text, as in "synthetic:users=60"')
    if _kind(source) not in GENERATORS:
        raise ConfigError(f"there is no {_kind(source)!r} (there are {', '.join(GENERATORS)})")
    generator = GENERATORS[_kind(source)]
    return generator(**_chosen(source, generator))


def _kind(source: str) -> str:
    return source.partition(":")[0]


def _chosen(source: str, generator: Callable[..., object]) -> dict[str, Any]:
    """The parameters of a generator that a source sets."""
    parameters = inspect.signature(generator).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items()}
    chosen: dict[str, Any] = {}
    for setting in filter(None, source.partition(":")[2].split(",")):
        key, _, value = setting.partition("=")
        if key not in defaults:
            raise ConfigError(
                f"{source}: unknown setting {key!r} (there are {', '.join(defaults)})"
            )
        try:
            chosen[key] = type(defaults[key])(value)
        except ValueError:
            raise ConfigError(f"{source}: {key} {value!r} is not a number") from None
    return chosen


def drawn_log(source: str) -> Interactions:
    """The log of a `source` that `is_synthetic`."""
    kind = _kind(source)
    if kind in LARGE:
        return LARGE[kind](**_chosen(source, LARGE[kind]))
    return synthetic_market(source).interactions
