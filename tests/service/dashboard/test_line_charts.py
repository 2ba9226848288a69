"""Charts: where points are drawn, which ticks there are, and the table of numbers."""

import pytest

from fairhorizon.service.dashboard.charts import Curve, LineChart, percent, plain
from fairhorizon.service.monitoring.counts import Period

HOUR = 3600
FOUR_HOURS = Period(0, 4 * HOUR, HOUR)


def chart(points, period=FOUR_HOURS, **more) -> LineChart:
    return LineChart("t", (Curve("c", points, "#000"),), period, **more)


def test_points_are_drawn_in_the_middle_of_their_step() -> None:
    drawn = chart([(0, 0.0), (HOUR, 2.0), (2 * HOUR, 4.0)])
    # 400 wide from 48 on: an hour is 100, its middle 50; 154 high above 166: ticks of 1 up to 4
    assert drawn.top == 4
    assert drawn.polylines(drawn.curves[0]) == ["98.0,166.0 198.0,89.0 298.0,12.0"]


def test_a_line_has_gaps_where_steps_are_missing() -> None:
    drawn = chart([(0, 1.0), (2 * HOUR, 1.0), (3 * HOUR, 1.0)])
    assert drawn.polylines(drawn.curves[0]) == ["98.0,12.0 98.0,12.0", "298.0,12.0 398.0,12.0"]


def test_everything_stays_inside_the_frame() -> None:
    drawn = chart([(-HOUR, 5.0), (0, -3.0), (9 * HOUR, 1e9)], line=0.5)
    numbers = [
        tuple(map(float, pair.split(",")))
        for line in drawn.polylines(drawn.curves[0])
        for pair in line.split()
    ]
    assert all(48 <= x <= 448 and 12 <= y <= 166 for x, y in numbers)


@pytest.mark.parametrize(
    ("most", "ticks"),
    [
        (0.41, ["0 %", "10 %", "20 %", "30 %", "40 %", "50 %"]),
        (1.0, ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]),
        (0.0, ["0 %", "100 %"]),
        (0.012, ["0 %", "0.25 %", "0.5 %", "0.75 %", "1 %", "1.25 %"]),
    ],
)
def test_ticks_of_values(most: float, ticks: list[str]) -> None:
    drawn = chart([(0, most)], write=percent)
    assert [text for _, text in drawn.value_ticks] == ticks
    assert drawn.value_ticks[0][0] == 166
    assert drawn.value_ticks[-1][0] == 12


def test_the_limit_is_on_the_axis() -> None:
    drawn = chart([(0, 0.1)], line=0.4, write=percent)
    assert drawn.top == pytest.approx(0.4)
    assert drawn.y(0.4) == 12


@pytest.mark.parametrize(
    ("length", "ticks"),
    [
        (HOUR, ["00:10", "00:20", "00:30", "00:40", "00:50"]),
        (24 * HOUR, ["04:00", "08:00", "12:00", "16:00", "20:00"]),
        (7 * 24 * HOUR, ["02 Jan", "03 Jan", "04 Jan", "05 Jan", "06 Jan", "07 Jan"]),
    ],
)
def test_ticks_of_time(length: int, ticks: list[str]) -> None:
    drawn = chart([(0, 1.0)], Period(0, length, 60))
    assert [text for _, text in drawn.time_ticks] == ticks


def test_numbers_newest_first_and_not_too_many() -> None:
    few = chart([(0, 0.5), (HOUR, 0.25)], write=percent)
    assert few.rows == [("01 Jan 01:00", ["25 %"]), ("01 Jan 00:00", ["50 %"])]
    many = chart([(60 * n, n) for n in range(100)], Period(0, 6000, 60))
    assert [row[1][0] for row in many.rows] == [f"{n:g}" for n in range(99, -1, -5)]


def test_curves_with_other_times_leave_cells_empty() -> None:
    curves = (Curve("one", [(0, 1.0)], "#000"), Curve("other", [(HOUR, 2.0)], "#111"))
    drawn = LineChart("t", curves, FOUR_HOURS)
    assert drawn.rows == [("01 Jan 01:00", ["", "2"]), ("01 Jan 00:00", ["1", ""])]
    assert not drawn.is_empty
    assert LineChart("t", (Curve("one", [], "#000"),), FOUR_HOURS).is_empty


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (0.00059, "0.00059"), (0.12345, "0.123"), (99.94, "99.9"), (12_345.6, "12,346")],
)
def test_numbers_as_people_read_them(value: float, text: str) -> None:
    assert plain(value) == text
