"""Counting in millionths, and the windows in which limits count."""

import pytest

from fairhorizon.errors import ConfigError
from fairhorizon.limits.language import Limit
from fairhorizon.service.budget.rules import UNIT, Window, allowed, place_units, share_units

DAY = 86_400


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("popular<=0.4", (UNIT, UNIT, UNIT, UNIT)),
        ("popular<=0.4@2", (UNIT, UNIT, 0, 0)),
        # 1 / log2(2), 1 / log2(3), 1 / 2, 1 / log2(5)
        ("popular<=0.4;weights=log", (1_000_000, 630_930, 500_000, 430_677)),
        ("popular<=0.4;weights=1,0.5", (1_000_000, 500_000, 0, 0)),
    ],
)
def test_what_places_count(text: str, units: tuple[int, ...]) -> None:
    assert place_units(Limit.parse(text), 4) == units


def test_a_share_of_many_digits_is_the_stricter_one() -> None:
    assert share_units(Limit.parse("popular<=0.4")) == 400_000
    assert share_units(Limit.parse("popular<=0.3333333333")) == 333_333
    assert share_units(Limit.parse("popular>=0.3333333333")) == 333_334


def test_what_is_allowed_is_rounded_down() -> None:
    assert allowed(400_000, 11 * UNIT, 0) == 4_400_000
    assert allowed(333_333, 2, 5) == 5


@pytest.mark.parametrize("text", ["always", "day", "10000 showings", " 10000  Showings "])
def test_windows_are_read_as_they_are_written(text: str) -> None:
    window = Window.parse(text)
    assert str(window) == " ".join(text.lower().split())
    assert Window.parse(str(window)) == window


@pytest.mark.parametrize("text", ["", "week", "0 showings", "-5 showings", "1.5 showings"])
def test_other_windows_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="give always, day or 10000 showings"):
        Window.parse(text)


def test_a_day_begins_at_midnight_utc() -> None:
    window = Window.parse("day")
    assert window.name(0.0, None, 0) == "1970-01-01"
    assert window.name(DAY - 0.001, "1970-01-01", 0) == "1970-01-01"
    assert window.name(DAY, "1970-01-01", 0) == "1970-01-02"


def test_a_window_of_showings_ends_with_the_list_that_fills_it() -> None:
    window = Window.parse("25 showings")
    assert window.name(0.0, None, 0) == "1"
    assert window.name(0.0, "1", 20 * UNIT) == "1"
    assert window.name(0.0, "1", 30 * UNIT) == "2"
    assert window.name(0.0, "2", 0) == "2"
