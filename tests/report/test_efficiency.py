import json

import pytest
from rich.console import Console
from specs import check_schema, colours, marks

from fairhorizon.metrics.spread import Spread
from fairhorizon.report.charts import PALETTE
from fairhorizon.report.efficiency import (
    duration,
    efficiency_section,
    efficiency_table,
    finding,
    write_efficiency,
)
from fairhorizon.studies.efficiency import EfficiencyRow
from fairhorizon.vocabulary import Mode, Protocol

ROWS = [
    EfficiencyRow(
        dataset="ml-100k",
        method=method,
        step=step,
        candidates=candidates,
        protocol=Protocol.STANDARD,
        mode=Mode.ONE_SHOT,
        users=943,
        length=100,
        seconds=Spread(seconds, 0.0),
    )
    for method, step, candidates, seconds in (
        ("mf+foe", "foe", 200, 0.5),  # in the paper 1.5 hours
        ("mf+foe", "foe", 1682, 4.0),  # in the paper no time
        ("fcpo", "fcpo", None, 5400.0),  # in the paper 3 hours
    )
]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.0312, "0.031 s"),
        (4, "4 s"),
        (45.4, "45 s"),
        (119, "119 s"),
        (120, "2 min"),
        (5400, "90 min"),
        (7200, "2 h"),
        (397 * 3600, "397 h"),
    ],
)
def test_durations_as_a_person_says_them(seconds, words):
    assert duration(seconds) == words


def test_the_table_gives_time_ratio_and_time_per_user():
    console = Console(width=80)
    with console.capture() as capture:
        console.print(efficiency_table(ROWS))
    lines = [" ".join(line.split()) for line in capture.get().splitlines()]
    assert "mf+foe 200 items 0.5 s 90 min 10,800 0.53 943 100" in lines
    assert "mf+foe 1682 items 4 s - - 4.24 943 100" in lines
    assert "fcpo all items 90 min 3 h 2 5726.41 943 100" in lines


def test_the_chart_has_a_bar_a_row_and_a_diamond_where_the_paper_has_a_time():
    section = efficiency_section(ROWS, title="Time, ml-100k")
    chart, table = section.parts
    assert chart.title == "Time to recommend 100 items to each of 943 users"
    check_schema(chart)
    (panel,) = chart.panels
    ((bars, rows),) = marks(panel, "bar")
    assert [row["seconds"] for row in rows] == [0.5, 4.0, 5400.0]
    labels = [row["label"] for row in rows]
    assert labels == ["mf+foe, 200 items", "mf+foe, 1682 items", "fcpo, all items"]
    assert bars["encoding"]["x"]["scale"]["type"] == "log"
    assert bars["encoding"]["y"]["sort"] == labels
    ((_, theirs),) = marks(panel, "point")
    assert [(row["label"], row["seconds"]) for row in theirs] == [
        (labels[0], 5400),
        (labels[2], 10800),
    ]
    assert colours(panel.spec) == {"mf+foe": PALETTE[0], "fcpo": PALETTE[1]}
    assert chart.png().startswith(b"\x89PNG")
    assert [line[4].text for line in table.lines] == ["10,800", "-", "2"]


def test_the_page_opens_with_the_fastest_and_the_slowest():
    assert finding(ROWS) == (
        "mf+foe, 200 items, takes 0.5 s for all 943 users; fcpo, all items, is the slowest with "
        "90 min, 10,800 times as long. Only time was measured, no limit was tested."
    )


def test_the_rows_for_programs_have_the_papers_hours(tmp_path):
    write_efficiency(tmp_path, ROWS)
    rows = json.loads((tmp_path / "efficiency.json").read_text(encoding="utf-8"))["rows"]
    assert [row["paper_hours"] for row in rows] == [1.5, None, 3.0]
    assert rows[0] == {
        **{"dataset": "ml-100k", "method": "mf+foe", "candidates": 200, "protocol": "standard"},
        **{"mode": "one-shot", "users": 943, "length": 100, "seconds": 0.5, "paper_hours": 1.5},
        "metrics": {"seconds": {"mean": 0.5, "std": 0.0}},
    }
