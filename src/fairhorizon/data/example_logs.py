"""Seeded example logs as frames, with the truth that they were drawn from.

A shop with quantities and repeated purchases, check-ins with coordinates, sessions without users.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.locations import area_centre

START, DAY = 1_600_000_000, 86_400  # seconds
YEAR = 365 * DAY

CHANCE = 0.5  # of the rows of a shop are bought by chance: presents, trials, offers
AWAY = 0.05  # of the check-ins are in another city
CITIES = ((52.52, 13.40), (48.14, 11.58), (53.55, 9.99), (50.94, 6.96), (50.11, 8.68))
TOPICS = 6  # of sessions
STRAY = 0.25  # of the views of a session are of any article


@dataclass(frozen=True, eq=False)
class ShopLog:
    """A row per order line, and what every customer truly likes.

    wanted: probability that a customer likes a product. Half of the lines are drawn by it, and of
        those the quantity is 1 + Poisson(8 wanted): a liked product is bought in quantity and
        again. The other half is drawn by exposure alone, one piece each. Without the quantities the
        two halves cannot be told apart.
    """

    frame: pl.DataFrame  # customer, sku, quantity, ordered, seller
    wanted: NDArray[np.float64]  # (customers, products)
    by_chance: NDArray[np.bool_]  # (rows,)
    seller: NDArray[np.object_]  # (products,)


def shop(customers: int = 200, products: int = 120, lines: int = 30, *, seed: int = 0) -> ShopLog:
    """About `lines` order lines per customer over a year; customers are c0, ..., products p0, ...

    A customer may buy a product again, on another day or in the same order.
    """
    rng = np.random.default_rng(seed)
    wanted, exposure = taste_market(customers, products, rng)
    customer = np.repeat(np.arange(customers), rng.poisson(lines, customers).clip(min=5))
    by_chance = rng.random(len(customer)) < CHANCE
    # Squared, so that likes show clearly in few rows.
    taste = np.where(by_chance[:, None], 1.0, wanted[customer] ** 2)
    product = drawn(taste * exposure, rng)
    likes = np.where(by_chance, 0.0, wanted[customer, product])
    quantity = 1 + rng.poisson(8 * likes)
    ordered = START + rng.integers(0, YEAR, len(customer))
    owners = sellers(products, rng)
    order = np.argsort(ordered, kind="stable")
    frame = pl.DataFrame(
        {
            "customer": [f"c{code}" for code in customer[order]],
            "sku": [f"p{code}" for code in product[order]],
            "quantity": quantity[order],
            "ordered": ordered[order],
            "seller": owners[product[order]].tolist(),
        }
    )
    return ShopLog(frame, wanted, by_chance[order], owners)


@dataclass(frozen=True, eq=False)
class CheckinLog:
    """A row per check-in, and where everybody lives.

    A city is a disc within one area of a grid of `area_km`, so that the areas of the grid are the
    cities. A check-in is drawn from the liked places of the user's home, one in twenty from those
    elsewhere.
    """

    frame: pl.DataFrame  # user, venue, latitude, longitude, time
    liked: NDArray[np.float64]  # (users, venues)
    home: NDArray[np.int64]  # (users,) city
    city: NDArray[np.int64]  # (venues,)
    area_km: float


def checkins(
    users: int = 150, venues: int = 100, visits: int = 25, *, area_km: float = 20.0, seed: int = 0
) -> CheckinLog:
    """About `visits` check-ins per user over a year; users are u0, u1, ..., venues v0, v1, ..."""
    rng = np.random.default_rng(seed)
    liked, exposure = taste_market(users, venues, rng)
    centres = np.array([area_centre(*city, area_km) for city in CITIES])
    city = rng.permutation(np.arange(venues) % len(CITIES))  # every city has some
    home = rng.integers(0, len(CITIES), users)
    # The square root spreads venues evenly over the disc.
    away = 0.4 * area_km * np.sqrt(rng.random(venues))  # km from the centre: within its area
    angle = 2 * np.pi * rng.random(venues)
    degrees = 360 / 40_030.0  # of latitude, per km
    latitude = centres[city, 0] + degrees * away * np.sin(angle)
    longitude = centres[city, 1] + degrees * away * np.cos(angle) / np.cos(np.radians(latitude))
    user = np.repeat(np.arange(users), rng.poisson(visits, users).clip(min=5))
    near = city[None, :] == home[user, None]
    travels = rng.random(len(user)) < AWAY
    venue = drawn(liked[user] * exposure * (near != travels[:, None]), rng)
    time = START + rng.integers(0, YEAR, len(user))
    order = np.argsort(time, kind="stable")
    frame = pl.DataFrame(
        {
            "user": [f"u{code}" for code in user[order]],
            "venue": [f"v{code}" for code in venue[order]],
            "latitude": latitude[venue[order]].round(5),
            "longitude": longitude[venue[order]].round(5),
            "time": time[order],
        }
    )
    return CheckinLog(frame, liked, home, city, area_km)


@dataclass(frozen=True, eq=False)
class SessionLog:
    """A row per view, and what every session was about.

    A session draws its articles from its topic, one view in four from all articles. Articles of the
    topic are read for minutes, the others for seconds.
    """

    frame: pl.DataFrame  # session, article, seconds, time
    topic_of_session: NDArray[np.int64]  # (sessions,)
    topic: NDArray[np.int64]  # (articles,)


def sessions(n: int = 400, articles: int = 90, views: int = 8, *, seed: int = 0) -> SessionLog:
    """`n` sessions s0, s1, ... with about `views` views each, all of different articles."""
    rng = np.random.default_rng(seed)
    topic = rng.permutation(np.arange(articles) % TOPICS)  # every topic has some
    about = rng.integers(0, TOPICS, n)
    exposure = rng.permutation(np.arange(1, articles + 1) ** -0.7)
    session = np.repeat(np.arange(n), rng.poisson(views, n).clip(5, articles // (2 * TOPICS)))
    stray = rng.random(len(session)) < STRAY
    own = topic[None, :] == about[session, None]
    weights = exposure * (own | stray[:, None])
    seen = np.zeros((n, articles), dtype=np.bool_)
    article = np.empty(len(session), dtype=np.int64)
    place = np.arange(len(session)) - np.searchsorted(session, session)
    # One view of every session at a time, so that none draws an article twice.
    for step in range(int(place.max()) + 1):
        rows = np.flatnonzero(place == step)
        # A tiny weight for other articles: those of the topic may be used up.
        free = np.maximum(weights[rows] * ~seen[session[rows]], 1e-12 * ~seen[session[rows]])
        article[rows] = drawn(free, rng)
        seen[session[rows], article[rows]] = True
    liked = topic[article] == about[session]
    seconds = np.where(liked, rng.gamma(4, 45, len(session)), rng.gamma(2, 5, len(session)))
    time = START + rng.integers(0, YEAR, n)[session] + 60 * place
    order = np.argsort(time, kind="stable")
    frame = pl.DataFrame(
        {
            "session": [f"s{code}" for code in session[order]],
            "article": [f"a{code}" for code in article[order]],
            "seconds": seconds[order].round(1),
            "time": time[order],
        }
    )
    return SessionLog(frame, about, topic)


def taste_market(
    users: int, items: int, rng: np.random.Generator, *, dim: int = 3, skew: float = 0.7
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(users, items) the probability that a user likes an item, and (items,) Zipf exposure.

    The logit is p_u . q_i with E[(p.q)^2] = 9; exposure of the r-th item is r^-skew, at random.
    """
    scale = np.sqrt(3 / np.sqrt(dim))
    tastes, traits = rng.normal(0, scale, (users, dim)), rng.normal(0, scale, (items, dim))
    liked = 1 / (1 + np.exp(-(tastes @ traits.T)))
    exposure = rng.permutation(np.arange(1, items + 1) ** -skew)
    return liked, exposure / exposure.sum()


def drawn(weights: NDArray[np.float64], rng: np.random.Generator) -> NDArray[np.int64]:
    """(n,) one column for every row of weights (n, m), with probability by weight."""
    # By inversion: the number of cumulative weights below a uniform point.
    cumulative = weights.cumsum(axis=1)
    points = rng.random(len(weights)) * cumulative[:, -1]
    return np.asarray((cumulative < points[:, None]).sum(axis=1), dtype=np.int64)


def sellers(items: int, rng: np.random.Generator) -> NDArray[np.object_]:
    """(items,) "big" has half of the items; ten small ones, s0 to s9, share the others."""
    codes = rng.integers(0, 20, items)
    return np.array(["big" if code > 9 else f"s{code}" for code in codes], dtype=object)


EXAMPLES: dict[str, Callable[..., pl.DataFrame]] = {
    "shop": lambda seed: shop(seed=seed).frame,
    "checkins": lambda seed: checkins(seed=seed).frame,
    "sessions": lambda seed: sessions(seed=seed).frame,
}
