"""Locations on the earth: distances, areas of a grid, and items near a user."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.errors import DataError, NoColumnError

EARTH_KM = 6371.0088  # mean radius
DEGREE_KM = math.pi * EARTH_KM / 180  # of latitude
AREA = "area"  # the attribute that is computed from coordinates
AREA_KM = 10.0
CELLS = 4_000_000  # distances held at once
NAMES = {"latitude": ("latitude", "lat"), "longitude": ("longitude", "lon", "lng", "long")}
Floats = NDArray[np.float64]


def haversine_km(
    latitude: ArrayLike, longitude: ArrayLike, other_latitude: ArrayLike, other_longitude: ArrayLike
) -> Floats:
    """Great-circle distances in kilometres between points in degrees, by broadcasting.

    2 R asin sqrt(sin^2((b - a) / 2) + cos a cos b sin^2((d - c) / 2)), latitudes a and b,
    longitudes c and d.
    """
    a, c, b, d = (
        np.radians(np.asarray(angles, dtype=np.float64))
        for angles in (latitude, longitude, other_latitude, other_longitude)
    )
    half = np.sin((b - a) / 2) ** 2 + np.cos(a) * np.cos(b) * np.sin((d - c) / 2) ** 2
    # Clipped: rounding may take it beyond 1 for points on opposite sides of the earth.
    distance: Floats = 2 * EARTH_KM * np.arcsin(np.sqrt(np.clip(half, 0, 1)))
    return distance


def _cell(latitude: float, longitude: float, area_km: float) -> tuple[float, float]:
    """The centre of the area that a point lies in, in degrees."""
    height = area_km / DEGREE_KM
    row = min(math.floor((latitude + 90) / height), math.ceil(180 / height) - 1)
    # The last row may reach beyond the pole, where a cosine of 0 would leave no columns.
    middle = min(-90 + (row + 0.5) * height, 90 - 1e-9)
    # So many columns that they go round the earth exactly, about as wide as high at the middle.
    columns = max(1, math.floor(360 * math.cos(math.radians(middle)) / height))
    column = math.floor((longitude + 180) % 360 / 360 * columns)
    return middle, -180 + (column + 0.5) * 360 / columns


def area_centre(latitude: float, longitude: float, area_km: float = AREA_KM) -> tuple[float, float]:
    """Latitude and longitude of the centre of a point's area.

    Areas are the cells of a grid: rows of latitude that are `area_km` high, cut into columns that
    are about as wide.
    """
    return _cell(latitude, longitude, area_km)


def area_names(latitude: Floats, longitude: Floats, area_km: float = AREA_KM) -> NDArray[Any]:
    """(n,) the area of every point, named after its centre as in 52.53_13.38; "" where it is NaN.

    A name has as many decimals as tell two areas apart.
    """
    if not area_km > 0 or not math.isfinite(area_km):
        raise DataError(f"an area of {area_km} km is none", remedy="give a length above 0")
    decimals = max(2, 1 + math.ceil(-math.log10(area_km / DEGREE_KM)))
    names = []
    for point in zip(latitude.tolist(), longitude.tolist(), strict=True):
        if any(map(math.isnan, point)):
            names.append("")
            continue
        centre = _cell(*point, area_km)
        names.append("_".join(f"{one:.{decimals}f}" for one in centre))
    return np.array(names, dtype=object)


@dataclass(frozen=True, eq=False)
class Locations:
    """Where the items of a log are, in degrees; NaN where it is not known."""

    latitude: Floats  # (n_items,)
    longitude: Floats  # (n_items,)

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, NDArray[Any]], name: str = "") -> "Locations":
        """From item attributes called latitude and longitude, or lat and lon."""
        columns = coordinates_among(attributes)
        if columns is None:
            known = ", ".join(attributes) or "none"
            raise DataError(
                f"{name or 'the data'} has no coordinates",
                remedy=f"name columns latitude and longitude; the attributes are {known}",
            )
        latitude, longitude = (_degrees(attributes[column], column) for column in columns)
        for column, values, most in zip(columns, (latitude, longitude), (90, 180), strict=True):
            wrong = np.abs(values) > most
            if wrong.any():
                raise DataError(
                    f"{column} {values[wrong][0]:g} is not between -{most} and {most}",
                    remedy="give degrees",
                )
        return cls(latitude, longitude)

    def areas(self, area_km: float = AREA_KM) -> NDArray[Any]:
        """(n_items,) the area of every item."""
        return area_names(self.latitude, self.longitude, area_km)

    def within(self, points: ArrayLike, km: float) -> NDArray[np.bool_]:
        """(m, n_items) bool: items at most `km` from each point (m, 2), in degrees.

        Nothing is near a point that is NaN, and an item without coordinates is near nothing.
        """
        points = np.asarray(points, dtype=np.float64).reshape(-1, 2)
        blocks = [near for _, near in self.blocks(points, km)]
        return np.concatenate(blocks) if blocks else np.zeros((0, len(self.latitude)), np.bool_)

    def blocks(self, points: Floats, km: float) -> Iterator[tuple[slice, NDArray[np.bool_]]]:
        """`within` for some points at a time, so that no large matrix is in memory."""
        step = max(1, CELLS // max(1, len(self.latitude)))
        for start in range(0, len(points), step):
            rows = slice(start, min(start + step, len(points)))
            here = points[rows, :, None]  # (b, 2, 1)
            distance = haversine_km(here[:, 0], here[:, 1], self.latitude, self.longitude)
            yield rows, distance <= km  # of NaN: False


def last_points(log: Interactions, locations: Locations) -> Floats:
    """(n_users, 2) where every user was last; NaN of users without an interaction."""
    points = np.full((log.n_users, 2), np.nan)
    known = ~np.isnan(locations.latitude[log.items])
    # In time order, so that a later row overwrites an earlier one.
    rows = np.flatnonzero(known)
    points[log.users[rows], 0] = locations.latitude[log.items[rows]]
    points[log.users[rows], 1] = locations.longitude[log.items[rows]]
    return points


def items_near(
    log: Interactions,
    km: float,
    *,
    users: Sequence[Any] | None = None,
    point: tuple[float, float] | None = None,
    attributes: Mapping[str, NDArray[Any]] | None = None,
) -> dict[Any, list[Any]]:
    """Ids of the items within some distance of where each user was last, or of a point.

    For the candidates of a call. A user whose place is not known has no item nearby.

    log: with the coordinates as attributes, latitude and longitude.
    km: the largest distance, in kilometres.
    users: ids of those who are served; None: all.
    point: latitude and longitude of all of them, such as where they are now.
    attributes: the coordinates, where a table of items has them.
    """
    locations = Locations.from_attributes(
        log.attributes if attributes is None else attributes, log.name
    )
    code_of = {one: code for code, one in enumerate(log.user_ids.tolist())}
    wanted = list(code_of) if users is None else list(users)
    if unknown := [one for one in wanted if one not in code_of]:
        raise DataError(f"user {unknown[0]} is not in the log", remedy="give users of the log")
    points = last_points(log, locations) if point is None else np.tile(point, (log.n_users, 1))
    codes = np.array([code_of[one] for one in wanted], dtype=np.int64)
    near: dict[Any, list[Any]] = {}
    for rows, allowed in locations.blocks(points[codes], km):
        for one, row in zip(wanted[rows], allowed, strict=True):
            near[one] = log.item_ids[row].tolist()
    return near


def attribute_or_area(
    column: str, attribute: Callable[[str], NDArray[Any]], area_km: float = AREA_KM
) -> NDArray[Any]:
    """(n_items,) an attribute; `area` is computed from coordinates where there is no such column.

    attribute: gives a column by its name, or raises a NoColumnError with those there are.
    """
    try:
        return attribute(column)
    except NoColumnError as error:
        found = coordinates_among(error.columns) if column == AREA else None
        if found is None:
            raise
    return Locations.from_attributes({name: attribute(name) for name in found}).areas(area_km)


def coordinates_among(columns: Mapping[str, Any] | Sequence[str]) -> tuple[str, str] | None:
    """The columns of latitude and longitude, by their usual names; None unless both are there."""
    spelt = {str(column).lower(): str(column) for column in columns}
    found = [next((spelt[n] for n in names if n in spelt), None) for names in NAMES.values()]
    return (found[0], found[1]) if found[0] is not None and found[1] is not None else None


def _degrees(cells: NDArray[Any], column: str) -> Floats:
    """Numbers, NaN where the text is empty."""
    try:
        values = [float(cell) if str(cell).strip() else math.nan for cell in cells.tolist()]
    except ValueError as error:
        raise DataError(f"{column}: {error}", remedy="give degrees as numbers") from None
    return np.array(values, dtype=np.float64)
