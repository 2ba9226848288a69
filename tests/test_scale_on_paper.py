"""docs/scale.md has the tables of its script, and the script its arithmetic."""

from dataclasses import replace

import pytest

from fleet import between_reports as simulated_between_reports
from fleet_simulation import Scenario
from scale_on_paper import (
    CONSTANTS,
    LOCK_MS,
    MARKER,
    PAGE,
    TABLES,
    Size,
    between_reports,
    bytes_,
    filled,
    most_lists_together,
    retrieval_ms,
    seconds,
)

SIZE = Size()


def test_the_page_is_what_the_script_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert {name for _, name, _, _ in MARKER.findall(text)} == {"assumptions", "costs"}
    assert filled(text, SIZE) == text, "run: python benchmarks/scale_on_paper.py --write"


def test_another_size_is_another_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert filled(text, replace(SIZE, items=1e6)) != text


def test_amounts_are_in_readable_units() -> None:
    assert [bytes_(one) for one in (12, 2.56e9, 4e14, 1.6e15)] == [
        "12 B",
        "2.56 GB",
        "400 TB",
        "1.6 PB",
    ]
    assert [seconds(one) for one in (2, 90, 7200, 86_400 * 20.5)] == [
        "2 s",
        "1.5 min",
        "2 h",
        "20.5 days",
    ]


def test_arithmetic_by_hand() -> None:
    assert SIZE.lists_at_peak == pytest.approx(3 * 2e8 / 86_400)
    # 2.5M items of a shard are 25 times 100,000: five times 0.34 ms
    assert retrieval_ms(SIZE) == pytest.approx(1.7)
    # 16 lists in 2.5 + 1.6 ms
    assert most_lists_together(SIZE) == pytest.approx(16 / 0.0041)
    assert between_reports(SIZE) == pytest.approx((1000 * 0.0025 * 86_400 / 3) ** 0.5)


def test_the_page_and_the_simulation_have_the_same_law() -> None:
    day = Scenario(replicas=SIZE.replicas, seconds=86_400.0)
    assert day.lock_ms == LOCK_MS.value
    assert simulated_between_reports(day) == pytest.approx(between_reports(SIZE))


def test_every_constant_says_where_it_is_from() -> None:
    assert all(one.source and one.meaning for one in CONSTANTS.values())


def test_costs_add_up() -> None:
    rows = [line.split("|")[2:4] for line in TABLES["costs"](SIZE).splitlines()[2:]]
    hours = [float(one.replace(",", "")) for one, _ in rows]
    assert sum(hours[:-1]) == pytest.approx(hours[-1], abs=len(rows))
    assert float(rows[-1][1]) == pytest.approx(hours[-1] * SIZE.price, abs=1)
