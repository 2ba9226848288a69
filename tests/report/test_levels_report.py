import json
from dataclasses import replace

import pytest
from rich.console import Console
from specs import charts_of, line_of

from fairhorizon.report.levels import (
    finding,
    levels_chart,
    levels_markdown,
    levels_table,
    write_levels,
)
from fairhorizon.results.studies import GainRow, LevelRow
from fairhorizon.vocabulary import Mode, Protocol


@pytest.fixture
def rows(make_metrics):
    def make(method, level, dials, *, settings=None, best_rival=False, above=0, **values):
        return LevelRow(
            dataset="ml-100k",
            method=method,
            level=level,
            protocol=Protocol.STANDARD,
            mode=Mode.ONE_SHOT,
            seeds=(0, 1, 2),
            metrics=make_metrics(**values) if values else {},
            seconds={},
            notes=(),
            ours=method.startswith("fcpo"),
            settings=settings or tuple(f"{method}@{dial}" for dial in dials),
            dials=dials,
            above=above,
            best_rival=best_rival,
        )

    quota, foe = (0.65,) * 3, (0.7, 0.68, 0.71)
    some = (None, "popularity", None)
    return [
        make("fcpo:strong", 0.65, (0.65,) * 3, ndcg=0.25, gini=0.7, popularity=0.65),
        make("ease+quota", 0.65, quota, ndcg=0.2, gini=0.75, popularity=0.6),
        make("ease+foe", 0.65, foe, ndcg=0.22, gini=0.8, best_rival=True),
        make("popularity", 0.65, (), settings=some),
        make("fcpo:strong", 0.37, (0.37,) * 3, ndcg=0.1, gini=0.6, popularity=0.38, above=2),
        make(
            *("ease", 0.37, ()),
            **{"settings": ("ease",) * 3, "best_rival": True},
            **{"ndcg": 0.12, "gini": 0.65, "popularity": 0.2},
        ),
    ]


@pytest.fixture
def gains():
    return [
        GainRow(
            **{"level": 0.65, "method": "fcpo:strong", "rival": "ease+foe", "users": 9},
            **{"ndcg": 0.25, "rival_ndcg": 0.22, "gain": 0.03 / 0.22, "gini_difference": -0.1},
            **{"rate_difference": 0.15, "t_test": 0.0004, "t_test_corrected": 0.0008},
        ),
        GainRow(
            **{"level": 0.37, "method": "fcpo:strong", "rival": "ease", "users": 9},
            **{"ndcg": 0.1, "rival_ndcg": 0.12, "gain": None, "gini_difference": None},
            **{"rate_difference": 0.18, "t_test": None, "t_test_corrected": None},
        ),
    ]


def test_a_table_a_level_with_the_best_rival_and_what_is_above_marked(rows, gains):
    text = levels_markdown(rows, gains)
    assert (
        "At most 65 % popular items in lists of 20: ml-100k, standard protocol, one-shot, 3 seeds"
        in text
    )
    assert "At most 37 % popular items in lists of 20: ml-100k" in text
    assert (
        "| fcpo:strong | 0.65 | **25.00** ±0.10 | **70.00** ±0.10 | 65.00 ±0.10 | **25.00** ±0.10 |"
    ) in text
    assert (
        "| ease+foe ^ | 0.68 to 0.71 | _22.00_ ±0.10 | 80.00 ±0.10 | 50.00 ±0.10 | _22.00_ ±0.10 |"
    ) in text
    assert "| popularity | 1 of 3 seeds | - | - | - | - |" in text
    assert "| fcpo:strong ! | 0.37 | _10.00_ ±0.10 | **60.00** ±0.10 | 38.00 ±0.10 |" in text
    assert "| ease ^ | - | **12.00** ±0.10 |" in text
    assert "picked with hindsight, in its favour" in text
    assert "! under some seed the share is above the level" in text
    assert (
        "| 65 % | fcpo:strong | ease+foe | 25.00 | 22.00 | 13.64 | -10.00 | 15.00 | \\<0.001 |"
        in text
    )
    assert "| 37 % | fcpo:strong | ease | 10.00 | 12.00 | - | - | 18.00 | - |" in text


def test_what_does_not_apply_is_not_explained(rows):
    text = levels_markdown(rows[:2], [])
    assert "n of m seeds" not in text
    assert "!" not in text
    assert "^" not in text
    assert "Gain" not in text


def test_a_terminal_of_80_columns_holds_the_longest_names(rows, gains):
    longest = replace(rows[1], method="gru4rec+penalty", dials=(10.234,) * 3)
    gains[0] = replace(gains[0], rival="gru4rec+penalty")
    console = Console(width=80)
    with console.capture() as capture:
        console.print(levels_table([*rows[:3], longest], gains))
    lines = [line.split() for line in capture.get().splitlines()]
    line = ["gru4rec+penalty", "10.234", "20.00", "±0.10", "75.00", "±0.10+", "60.00", "±0.10"]
    assert [*line, "20.00", "±0.10"] in lines
    line = ["65", "%", "fcpo:strong", "gru4rec+penalty", "25.00", "22.00", "13.64", "-10.00"]
    assert [*line, "15.00", "<0.001"] in lines


def test_the_chart_is_a_frontier_of_the_levels(rows):
    of_gini, of_tail = levels_chart(rows).panels
    assert line_of(of_gini, "fcpo:strong") == [(-60, 10), (-70, 25)]
    assert line_of(of_tail, "fcpo:strong") == [(62, 10), (35, 25)]


def test_there_is_a_page_and_it_opens_with_gains_and_limits(rows, gains, tmp_path):
    write_levels(tmp_path, rows, gains, 20, command="a command")
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<h1>Accuracy at levels of fairness on ml-100k</h1>" in html
    assert "<code>a command</code>" in html
    assert len(charts_of(html)) == 2
    assert html.count("<details") == 2
    found = finding(rows, gains, 20)
    assert found == (
        "With at most 65 % popular items fcpo:strong has an NDCG@20 of 25.00 %, 13.6 % more than "
        "ease+foe. With at most 37 % popular items fcpo:strong has an NDCG@20 of 10.00 %, against "
        "ease. 4 of 5 results keep their limit; under some seed fcpo:strong at 37 % is above it. "
        "No setting reached the limit for popularity at 65 %."
    )
    assert f'<p class="finding">{found}</p>'.replace(" %", "\u00a0%") in html
    assert finding(rows[:3], [], 20) == (
        "With at most 65 % popular items fcpo:strong is the best: NDCG@20 25.00 %. "
        "All 3 results keep their limit."
    )


def test_the_rows_for_programs(rows, gains, tmp_path):
    write_levels(tmp_path, rows, gains, 20, command="a command")
    content = json.loads((tmp_path / "levels.json").read_text(encoding="utf-8"))
    assert (content["command"], content["k"], content["levels"]) == ("a command", 20, [0.65, 0.37])
    assert list(content["rows"][2]) == [
        *("level", "dataset", "method", "protocol", "mode", "seeds", "ours", "best_rival"),
        *("settings", "above", "metrics", "seconds", "notes", "limit_missed"),
    ]
    assert content["rows"][2]["settings"] == ["ease+foe@0.7", "ease+foe@0.68", "ease+foe@0.71"]
    assert content["rows"][3]["settings"] == [None, "popularity", None]
    assert content["gains"][0]["gain"] == pytest.approx(0.03 / 0.22)
    assert content["gains"][1]["t_test"] is None
