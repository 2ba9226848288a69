"""Distances, areas and nearby items, against brute force and the truth of a generator."""

import math

import numpy as np
import pytest

from fairhorizon.data import locations
from fairhorizon.data.example_logs import checkins
from fairhorizon.data.frames import from_frame
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.locations import (
    Locations,
    area_centre,
    area_names,
    attribute_or_area,
    haversine_km,
    items_near,
    last_points,
)
from fairhorizon.errors import DataError, NoColumnError

BERLIN, MUNICH = (52.52, 13.405), (48.1374, 11.5755)


def angle_km(one: tuple[float, float], other: tuple[float, float]) -> float:
    """The same distance by the angle between two unit vectors."""
    vectors = []
    for latitude, longitude in (one, other):
        a, b = math.radians(latitude), math.radians(longitude)
        vectors.append((math.cos(a) * math.cos(b), math.cos(a) * math.sin(b), math.sin(a)))
    product = sum(x * y for x, y in zip(*vectors, strict=True))
    return locations.EARTH_KM * math.acos(max(-1.0, min(1.0, product)))


def test_distances() -> None:
    assert float(haversine_km(*BERLIN, *MUNICH)) == pytest.approx(504.4, abs=0.2)
    assert float(haversine_km(0, 179.5, 0, -179.5)) == pytest.approx(111.195, abs=0.01)
    assert float(haversine_km(90, 0, -90, 77)) == pytest.approx(20_015.1, abs=0.1)
    rng = np.random.default_rng(0)
    points = np.stack([rng.uniform(-90, 90, 50), rng.uniform(-180, 180, 50)], axis=1)
    for one, other in zip(points[:25], points[25:], strict=True):
        assert float(haversine_km(*one, *other)) == pytest.approx(
            angle_km(tuple(one), tuple(other)), rel=1e-6
        )


@pytest.mark.parametrize("area_km", [0.5, 10.0, 300.0])
def test_an_area_is_about_as_wide_as_asked_and_named_once(area_km: float) -> None:
    rng = np.random.default_rng(1)
    latitude, longitude = rng.uniform(-70, 70, 300), rng.uniform(-180, 180, 300)
    names = area_names(latitude, longitude, area_km)
    centres = {}
    for name, *point in zip(names, latitude, longitude, strict=True):
        centre = area_centre(*point, area_km)
        assert centres.setdefault(name, centre) == centre
        assert float(haversine_km(*point, *centre)) <= area_km  # half a diagonal is 0.71 km
        assert area_centre(*centre, area_km) == pytest.approx(centre)
    assert len(set(centres.values())) == len(centres)


def test_the_poles_the_date_line_and_no_coordinates() -> None:
    latitude = np.array([90.0, -90.0, 0.0, 0.0, np.nan])
    longitude = np.array([0.0, 0.0, 180.0, -180.0, 1.0])
    *_, east, west, missing = area_names(latitude, longitude, 10.0)
    assert east == west
    assert missing == ""
    with pytest.raises(DataError, match="an area of 0 km is none"):
        area_names(latitude, longitude, 0)


@pytest.fixture(scope="module")
def log() -> Interactions:
    return from_frame(
        checkins(40, 30, 10, seed=2).frame,
        item="venue",
        timestamp="time",
        weight="rows",
        attributes=["latitude", "longitude"],
    )


def test_areas_are_the_cities_of_the_generator() -> None:
    truth = checkins(seed=4)
    log = from_frame(
        truth.frame, item="venue", timestamp="time", weight="rows", attributes=("latitude",)
    )
    with pytest.raises(DataError, match=r"has no coordinates .*the attributes are latitude"):
        Locations.from_attributes(log.attributes, "a log")
    log = from_frame(
        *(truth.frame,), item="venue", timestamp="time", weight="rows",
        attributes=("latitude", "longitude"),
    )  # fmt: skip
    areas = Locations.from_attributes(log.attributes).areas(truth.area_km)
    city = truth.city[[int(one[1:]) for one in log.item_ids]]
    assert len(set(areas)) == len(set(city)) == 5
    assert len(set(zip(areas, city, strict=True))) == 5


def test_who_is_near_by_brute_force(log: Interactions) -> None:
    places = Locations.from_attributes(log.attributes)
    points = last_points(log, places)
    where = list(zip(places.latitude, places.longitude, strict=True))
    last = {user: where[item] for user, item in zip(log.users, log.items, strict=True)}
    assert [tuple(point) for point in points] == [last[user] for user in range(log.n_users)]
    near = items_near(log, 5.0)
    for user, point in last.items():
        expected = [
            item
            for item, other in zip(log.item_ids, where, strict=True)
            if angle_km(point, other) <= 5.0
        ]
        assert near[log.user_ids[user]] == expected
    assert 0 < sum(map(len, near.values())) < log.n_users * log.n_items / 5


def test_near_a_given_point_and_in_blocks(
    log: Interactions, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Locations.from_attributes(log.attributes)
    some = log.user_ids[:3].tolist()
    here = (float(place.latitude[7]), float(place.longitude[7]))
    near = items_near(log, 0.001, users=some, point=here)
    assert near == {user: [log.item_ids[7]] for user in some}
    whole = place.within(last_points(log, place), 30)
    monkeypatch.setattr(locations, "CELLS", 100)
    np.testing.assert_array_equal(place.within(last_points(log, place), 30), whole)
    assert len(list(place.blocks(last_points(log, place), 30))) == 14
    with pytest.raises(DataError, match="user nobody is not in the log"):
        items_near(log, 1, users=["nobody"])


def test_who_was_nowhere_is_near_nothing() -> None:
    place = Locations(np.array([1.0, np.nan]), np.array([2.0, np.nan]))
    near = place.within([[1.0, 2.0], [np.nan, np.nan]], 1e9)
    assert near.tolist() == [[True, False], [False, False]]


def test_an_area_is_made_only_where_there_is_none() -> None:
    columns = {"lat": np.array(["52.5", ""]), "Lon": np.array(["13.4", ""]), "kind": np.array(["a", "b"])}  # fmt: skip # noqa: E501

    def attribute(name: str) -> np.ndarray:
        if name not in columns:
            raise NoColumnError(name, tuple(columns), file=None, remedy="")
        return columns[name]

    assert attribute_or_area("area", attribute, 10.0)[1] == ""
    assert attribute_or_area("area", attribute, 10.0)[0] == "52.497_13.443"
    assert attribute_or_area("kind", attribute).tolist() == ["a", "b"]
    with pytest.raises(NoColumnError, match="'seller'"):
        attribute_or_area("seller", attribute)
    columns["area"] = np.array(["north", "south"])
    assert attribute_or_area("area", attribute).tolist() == ["north", "south"]
    columns["lat"] = np.array(["91", ""])
    with pytest.raises(DataError, match="lat 91 is not between -90 and 90"):
        Locations.from_attributes(columns)
