import json

import numpy as np
import pytest
from rich.console import Console

from fairhorizon.report.levels import levels_figure, levels_markdown, levels_table


@pytest.fixture
def rows(make_row):
    def make(method, level, settings, **values):
        row = make_row(method, level=level, settings=settings, **values)
        row |= {"ours": method.startswith("fcpo"), "best_rival": False, "above": 0}
        return row | {"notes": []}

    def thrice(name, *dials):
        return [f"{name}@{dial}" for dial in dials]

    table = [
        make("fcpo:strong", 0.65, ["fcpo:strong@0.65"] * 3, ndcg=0.25, gini=0.7, popularity=0.65),
        make("ease+quota", 0.65, ["ease+quota@0.65"] * 3, ndcg=0.2, gini=0.75, popularity=0.6),
        make("ease+foe", 0.65, thrice("ease+foe", 0.7, 0.68, 0.71), ndcg=0.22, gini=0.8),
        make("popularity", 0.65, [None, "popularity", None]),
        make("fcpo:strong", 0.37, ["fcpo:strong@0.37"] * 3, ndcg=0.1, gini=0.6, popularity=0.38),
        make("ease", 0.37, ["ease"] * 3, ndcg=0.12, gini=0.65, popularity=0.2),
    ]
    table[2]["best_rival"] = table[5]["best_rival"] = True
    table[3]["metrics"] = {}
    table[4]["above"] = 2
    return table


@pytest.fixture
def gains():
    return [
        {
            **{"level": 0.65, "method": "fcpo:strong", "rival": "ease+foe", "users": 9},
            **{"ndcg": 0.25, "rival_ndcg": 0.22, "gain": 0.03 / 0.22, "gini_difference": -0.1},
            **{"rate_difference": 0.15, "t_test": 0.0004, "t_test_corrected": 0.0008},
        },
        {
            **{"level": 0.37, "method": "fcpo:strong", "rival": "ease", "users": 9},
            **{"ndcg": 0.1, "rival_ndcg": 0.12, "gain": None, "gini_difference": None},
            **{"rate_difference": 0.18, "t_test": None, "t_test_corrected": None},
        },
    ]


def test_a_table_a_level_with_the_best_rival_and_what_is_above_marked(rows, gains):
    text = levels_markdown(rows, gains)
    assert (
        "Popularity rate@20 of at most 65 %: ml-100k, standard protocol, one-shot, 3 seeds" in text
    )
    assert "Popularity rate@20 of at most 37 %: ml-100k" in text
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
    assert "! under some seed the popularity rate is over the level" in text
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
    longest = rows[1] | {"method": "gru4rec+penalty", "settings": ["gru4rec+penalty@10.234"] * 3}
    gains[0]["rival"] = "gru4rec+penalty"
    console = Console(width=80)
    with console.capture() as capture:
        console.print(levels_table([*rows[:3], longest], gains))
    lines = [line.split() for line in capture.get().splitlines()]
    line = ["gru4rec+penalty", "10.234", "20.00", "±0.10", "75.00", "±0.10+", "60.00", "±0.10"]
    assert [*line, "20.00", "±0.10"] in lines
    line = ["65", "%", "fcpo:strong", "gru4rec+penalty", "25.00", "22.00", "13.64", "-10.00"]
    assert [*line, "15.00", "<0.001"] in lines


def test_the_figure_is_a_frontier_of_the_levels(rows):
    of_gini, of_tail = levels_figure(rows).axes
    np.testing.assert_allclose(of_gini.lines[0].get_xydata(), [[-60, 10], [-70, 25]])
    np.testing.assert_allclose(of_tail.lines[0].get_xydata(), [[62, 10], [35, 25]])
    json.dumps(rows)
