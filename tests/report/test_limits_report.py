"""Limits as tables: one format for a terminal, a page and Markdown."""

import pytest
from rich.console import Console

from fairhorizon.report.limits import (
    COLUMNS,
    limits_grid,
    limits_table,
    methods_markdown,
    methods_section,
    methods_table,
)
from fairhorizon.studies.rows import LimitRow

KEPT = LimitRow(
    method="fcpo",
    seeds=(0, 1),
    limit="popular<=0.4",
    asked=0.4,
    is_floor=False,
    reached=0.382,
    kept=True,
    n_lists=80,
    at={5: 0.41, 10: 0.39},
    weighed=0.45,
    lists_above=0.125,
    violations=0,
    price=0.01234,
)
BROKEN = LimitRow("ease", (0, 1), "shop=A>=0.3", 0.3, True, 0.2, False, 80, violations=1234)


def printed(table: object, width: int = 80) -> list[str]:
    console = Console(width=width, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(table)
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_line_for_each_limit() -> None:
    grid = limits_grid([KEPT, BROKEN])
    assert list(grid.headings) == [
        *("Limit", "Asked", "Reached", "Weighed", "First 10", "Lists above", "Violations"),
        *("Price", "Kept"),
    ]
    assert [[cell.text for cell in line] for line in grid.lines] == [
        ["popular<=0.4", "<=40", "38.20", "45.00", "39.00", "12.50", "0", "0.0123", "yes"],
        ["shop=A>=0.3", ">=30", "20.00", "-", "-", "-", "1,234", "-", "no"],
    ]


def test_on_a_terminal_words_come_first() -> None:
    lines = printed(limits_table([KEPT, BROKEN]))
    assert lines[0] == "popular<=0.4 kept: 38.2 % of at most 40 %"
    assert lines[1] == "shop=A>=0.3 not kept: 20.0 % of at least 30 %, 10.0 points too few"
    assert lines[-2].split() == [
        *("popular<=0.4", "<=40", "38.20", "45.00", "39.00", "12.50", "0", "0.0123", "yes")
    ]
    assert max(map(len, lines)) <= 80


def test_on_a_terminal_methods_stand_below_their_limit() -> None:
    lines = printed(methods_table([KEPT, BROKEN]))
    assert [line for line in lines if line.startswith("Limit ")] == [
        "Limit popular<=0.4",
        "Limit shop=A>=0.3",
    ]
    assert lines[-1].split() == ["ease", ">=30", "20.00", "-", "-", "-", "1,234", "-", "no"]


def test_on_a_page_and_in_markdown() -> None:
    (grid,) = methods_section([KEPT, BROKEN]).parts
    assert list(grid.headings) == ["Method", "Limit", *COLUMNS]
    assert [line[0].text for line in grid.lines] == ["fcpo", "ease"]
    text = methods_markdown([KEPT])
    assert "| fcpo | popular\\<=0.4 | \\<=40 | 38.20 |" in text


def test_over_seeds_there_are_means_totals_and_the_worst() -> None:
    other = LimitRow(
        *("fcpo", (0, 1), "popular<=0.4", 0.4, False, 0.5, False, 80),
        **{"at": {5: 0.51}, "weighed": 0.55, "violations": 3, "price": None},
    )
    both = LimitRow.from_seeds("fcpo", (0, 1), [KEPT, other])
    assert (both.reached, both.weighed) == (0.441, 0.5)
    assert both.at == {5: pytest.approx(0.46)}
    assert (both.kept, both.violations, both.n_lists) == (False, 3, 160)
    assert (both.price, both.lists_above, both.broken) == (None, None, None)
    assert list(both.to_json()["at"]) == ["5"]
