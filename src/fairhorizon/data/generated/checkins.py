"""Check-ins with latitude and longitude: people go where they live, to places they like."""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from fairhorizon.data.generated.drawing import START, YEAR, drawn, taste_market
from fairhorizon.data.locations import area_centre

AWAY = 0.05  # of the check-ins are in another city
CITIES = ((52.52, 13.40), (48.14, 11.58), (53.55, 9.99), (50.94, 6.96), (50.11, 8.68))


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
    """About so many check-ins per user over a year; users are u0, u1, ..., venues v0, v1, ..."""
    rng = np.random.default_rng(seed)
    liked, exposure = taste_market(users, venues, rng)
    centres = np.array([area_centre(*city, area_km) for city in CITIES])
    city = rng.permutation(np.arange(venues) % len(CITIES))  # every city has some
    home = rng.integers(0, len(CITIES), users)
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
