"""Tables, findings and the page of a comparison at levels of fairness."""

import json
from dataclasses import replace

import pytest
from rich.console import Console
from specs import charts_of, check_schema, line_of, marks

from fairhorizon.metrics.spread import Spread
from fairhorizon.report.levels import (
    finding,
    levels_chart,
    levels_markdown,
    levels_table,
    who_pays_chart,
    write_levels,
)
from fairhorizon.studies.levels import GainRow, LevelResults, LevelRow, UserGroupRow
from fairhorizon.vocabulary import Mode, Protocol


@pytest.fixture
def rows(make_metrics):
    places = {
        "popularity_rate@1": Spread(0.73, 0.001),
        "weighed_rate@20": Spread(0.71, 0.001),
        "lists_above@20": Spread(0.042, 0.001),
    }

    def make(method, level, dials, *, settings=None, best_rival=False, above=0, **values):
        return LevelRow(
            dataset="ml-100k",
            method=method,
            level=level,
            limit=f"popular<={level}",
            protocol=Protocol.STANDARD,
            mode=Mode.ONE_SHOT,
            seeds=(0, 1, 2),
            metrics=make_metrics(**values) | places if values else {},
            seconds={},
            notes=(),
            ours=method.startswith("fcpo"),
            settings=settings or tuple(f"{method}@{dial}" for dial in dials),
            setting_levels=dials,
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
            **{"level": 0.65, "limit": "popular<=0.65", "method": "fcpo:strong", "users": 9},
            **{"rival": "ease+foe", "best_rival": True, "without_cpo": False, "same_parts": True},
            **{"ndcg": 0.25, "rival_ndcg": 0.22, "gain": 0.03 / 0.22, "gini_difference": -0.1},
            **{"difference": 0.03, "low": 0.011, "high": 0.049},
            **{"rate_difference": 0.15, "t_test": 0.0004, "t_test_corrected": 0.0008},
        ),
        GainRow(
            **{"level": 0.65, "limit": "popular<=0.65", "method": "fcpo:strong", "users": 9},
            **{"rival": "fcpo:strong-start", "best_rival": False, "without_cpo": True},
            **{"same_parts": True, "ndcg": 0.25, "rival_ndcg": 0.249, "gain": 0.001 / 0.249},
            **{"difference": 0.001, "low": -0.002, "high": 0.004, "gini_difference": 0.0},
            **{"rate_difference": 0.0, "t_test": 0.5, "t_test_corrected": 0.5},
        ),
        GainRow(
            **{"level": 0.37, "limit": "popular<=0.37", "method": "fcpo:strong", "users": 9},
            **{"rival": "ease", "best_rival": True, "without_cpo": False, "same_parts": False},
            **{"ndcg": 0.1, "rival_ndcg": 0.12, "gain": None, "gini_difference": None},
            **{"difference": None, "low": None, "high": None},
            **{"rate_difference": 0.18, "t_test": None, "t_test_corrected": None},
        ),
    ]


@pytest.fixture
def payers():
    """The most active users of ours pay, those of the rival may not."""
    shared = {"level": 0.65, "limit": "popular<=0.65", "trait": "activity", "users": 3}
    tail = shared | {"trait": "taste for the tail", "third": "most", "smallest": 0.25}
    return [
        UserGroupRow(
            **shared,
            **{"method": "fcpo:strong", "ours": True, "third": "most", "smallest": 40.0},
            **{"largest": 90.0, "without": 0.3, "limited": 0.28, "difference": -0.02},
            **{"low": -0.031, "high": -0.009},
        ),
        UserGroupRow(
            **tail,
            **{"method": "ease+foe", "ours": False, "largest": 0.5, "without": 0.2},
            **{"limited": 0.2, "difference": 0.0, "low": None, "high": None},
        ),
    ]


@pytest.fixture
def results(rows, gains, payers):
    return LevelResults(rows, gains, payers, 20)


def test_a_table_a_level_with_the_best_rival_and_what_is_above_marked(results):
    text = levels_markdown(results)
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


def test_a_table_by_place(results):
    text = levels_markdown(results)
    assert "By place, at most 65 % popular items" in text
    assert "| Method | Rank 1 | First 10 | First 20 | Weighed | Lists over |" in text
    assert (
        "| fcpo:strong | 73.00 ±0.10 | 65.00 ±0.10 | 65.00 ±0.10 | 71.00 ±0.10 | 4.20 ±0.10 |"
    ) in text
    assert "| popularity | - | - | - | - | - |" in text
    short = levels_markdown(replace(results, k=7))
    assert "| Method | Rank 1 | First 7 | Weighed | Lists over |" in short


def test_a_gain_is_stated_with_its_interval_and_claimed_only_where_it_is_shown(results):
    text = levels_markdown(results)
    start = "| 65 % | fcpo:strong |"
    line = "25.00 | 22.00 | 3.00 | 1.10 to 4.90 | 13.64 | -10.00 | 15.00 | \\<0.001 |"
    assert f"{start} ease+foe ^ | {line}" in text
    line = "25.00 | 24.90 | 0.10 | -0.20 to 0.40 | not shown | 0.00 | 0.00 | 0.500 |"
    assert f"{start} fcpo:strong-start | {line}" in text
    line = "| 37 % | fcpo:strong | ease ^ | 10.00 | 12.00 | - | - | not shown | - | 18.00 | - |"
    assert line in text
    assert "fcpo:strong-start: the same without CPO rounds" in text
    assert "No rival of fcpo:strong is made of the same rankers" in text
    alike = [replace(row, same_parts=True, without_cpo=False) for row in results.gains]
    text = levels_markdown(replace(results, gains=alike))
    assert "made of the same rankers" not in text
    assert "without CPO rounds;" not in text


def test_who_pays_is_a_table_and_a_chart(results):
    text = levels_markdown(results)
    assert "Who pays, at most 65 % popular items" in text
    who = "| fcpo:strong | activity, most (40 to 90) | 3 |"
    assert f"{who} 30.00 | 28.00 | -2.00 | -3.10 to -0.90 |" in text
    who = "| ease+foe | taste for the tail, most (25 to 50 %) | 3 |"
    assert f"{who} 20.00 | 20.00 | 0.00 | - |" in text
    chart = who_pays_chart(results)
    (panel,) = chart.panels
    assert panel.title == "At most 65 % popular items"
    ((_, points),) = marks(panel, "point")
    found = [(row["series"], row["users"], row["x"], row["low"], row["high"]) for row in points]
    assert found[0] == (
        "fcpo:strong",
        "activity, most",
        -2,
        pytest.approx(-3.1),
        pytest.approx(-0.9),
    )
    assert found[1] == ("ease+foe", "taste for the tail, most", 0, 0, 0)
    check_schema(chart)
    assert "Who pays" not in levels_markdown(replace(results, who_pays=[]))


def test_a_limit_that_counts_by_place_is_named(results):
    weighed = {"limit": "popular<=0.65;weights=log", "counting": "weighed by 1/log2(1 + place)"}
    rows = [*results.rows, replace(results.rows[0], **weighed)]
    gains = [replace(results.gains[0], **weighed)]
    text = levels_markdown(replace(results, rows=rows, gains=gains))
    assert "At most 65 % popular items weighed by 1/log2(1 + place) in lists of 20: ml-100k" in text
    assert "| popular\\<=0.65;weights=log | fcpo:strong | ease+foe ^ |" in text
    found = finding(LevelResults(rows[-1:], gains, [], 20))
    assert found == (
        "With at most 65 % popular items weighed by 1/log2(1 + place) fcpo:strong has an NDCG@20 "
        "of 25.00 %, 13.6 % more than ease+foe (+3.00 points, 95 % interval +1.10 to +4.90). "
        "All 1 results keep their limit."
    )


def test_what_does_not_apply_is_not_explained(rows):
    text = levels_markdown(LevelResults(rows[:2], [], [], 20))
    assert "n of m seeds" not in text
    assert "!" not in text
    assert "^" not in text
    assert "Gain" not in text


def test_a_terminal_of_80_columns_holds_the_longest_names(results):
    rows, gains = results.rows, list(results.gains)
    longest = replace(rows[1], method="gru4rec+penalty", setting_levels=(10.234,) * 3)
    gains[0] = replace(gains[0], rival="gru4rec+penalty")
    console = Console(width=80)
    with console.capture() as capture:
        console.print(levels_table(replace(results, rows=[*rows[:3], longest], gains=gains)))
    lines = [line.split() for line in capture.get().splitlines()]
    line = ["gru4rec+penalty", "10.234", "20.00", "±0.10", "75.00", "±0.10+", "60.00", "±0.10"]
    assert [*line, "20.00", "±0.10"] in lines
    line = ["65", "%", "fcpo:strong", "gru4rec+penalty", "^", "25.00", "3.00", "1.10"]
    assert [*line, "to", "4.90", "13.64"] in lines
    places = [
        "gru4rec+penalty",
        "73.00",
        "±0.10",
        *("60.00", "±0.10") * 2,
        "71.00",
        "±0.10",
        "4.20",
        "±0.10",
    ]
    assert places in lines


def test_the_chart_is_a_frontier_of_the_levels(results):
    of_gini, of_tail = levels_chart(results).panels
    assert line_of(of_gini, "fcpo:strong") == [(-60, 10), (-70, 25)]
    assert line_of(of_tail, "fcpo:strong") == [(62, 10), (35, 25)]


def test_there_is_a_page_and_it_opens_with_gains_and_limits(results, rows, tmp_path):
    write_levels(tmp_path, results, command="a command")
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<h1>Accuracy at levels of fairness on ml-100k</h1>" in html
    assert "<code>a command</code>" in html
    assert len(charts_of(html)) == 3
    assert html.count("<details") == 2 + 2 + 1
    found = finding(results)
    assert found == (
        "With at most 65 % popular items fcpo:strong has an NDCG@20 of 25.00 %, 13.6 % more than "
        "ease+foe (+3.00 points, 95 % interval +1.10 to +4.90). With at most 37 % popular items "
        "fcpo:strong has an NDCG@20 of 10.00 %, against 12.00 % of ease. No difference of "
        "fcpo:strong to fcpo:strong-start, the same without CPO rounds, is shown at 65 % (NDCG@20 "
        "25.00 %: +0.10 points, 95 % interval -0.20 to +0.40). "
        "4 of 5 results keep their limit; under some seed fcpo:strong at 37 % is above it. "
        "At rank 1 the share of popular items is higher: 73.00 % for fcpo:strong at 65 % and "
        "73.00 % for fcpo:strong at 37 %. "
        "No setting reached the limit for popularity at 65 %."
    )
    assert f'<p class="finding">{found}</p>'.replace(" %", "\u00a0%") in html
    assert finding(LevelResults(rows[:3], [], [], 20)) == (
        "With at most 65 % popular items fcpo:strong is the best: NDCG@20 25.00 %. "
        "All 3 results keep their limit. "
        "At rank 1 the share of popular items is higher: 73.00 % for fcpo:strong at 65 %."
    )


def test_the_rows_for_programs(results, tmp_path):
    write_levels(tmp_path, results, command="a command")
    content = json.loads((tmp_path / "levels.json").read_text(encoding="utf-8"))
    assert (content["command"], content["k"], content["levels"]) == ("a command", 20, [0.65, 0.37])
    assert list(content["rows"][2]) == [
        *("level", "limit", "dataset", "method", "protocol", "mode", "seeds", "ours"),
        "best_rival",
        *("settings", "above", "metrics", "seconds", "notes", "limit_missed"),
    ]
    assert content["rows"][2]["settings"] == ["ease+foe@0.7", "ease+foe@0.68", "ease+foe@0.71"]
    assert content["rows"][3]["settings"] == [None, "popularity", None]
    assert content["gains"][0]["gain"] == pytest.approx(0.03 / 0.22)
    assert (content["gains"][0]["low"], content["gains"][0]["high"]) == (0.011, 0.049)
    assert content["gains"][2]["t_test"] is None
    assert content["limits"] == ["popular<=0.65", "popular<=0.37"]
    assert content["rows"][0]["metrics"]["weighed_rate@20"] == {"mean": 0.71, "std": 0.001}
    assert content["who_pays"][0]["difference"] == -0.02
    assert content["who_pays"][1]["low"] is None
