"""The demonstration in tables, in a sentence and on its page."""

import io
import re

import numpy as np
import polars as pl
import pytest
from rich.console import Console
from specs import check_schema

from fairhorizon.limits.measured import Verdict
from fairhorizon.report.demo import (
    demo_tables,
    finding,
    intro,
    levels_grid,
    long_run_chart,
    strictest_exposure,
    write_demo_report,
)
from fairhorizon.report.page import drawing_library
from fairhorizon.studies.demo import DemoResult
from fairhorizon.studies.long_results import LongTermResult
from fairhorizon.studies.rows import SampleItem, SampleLists

LEVELS = (0.85, 0.65, 0.37)
WEIGHED = "popular<=0.37;weights=log"
NDCG = {"popularity+quota": 0.1, "ease+quota": 0.2, "fcpo": 0.3}
FOUND = ("log: long histories", "rankers, by weight: ease 1", "NDCG@20 of validation: ease 0.2")


@pytest.fixture
def result(make_row):
    """fcpo is at its limit; ease+quota is over it at 37 %."""
    rows = [make_row("popularity", seeds=(0,), popularity=1.0, ndcg=0.12)]
    for level in LEVELS:
        for name, ndcg in NDCG.items():
            over = name == "ease+quota" and level == 0.37
            share = level + 0.01 if over else level
            rows.append(make_row(name, level, seeds=(0,), popularity=share, ndcg=ndcg + level / 10))
        if level == 0.65:
            rows.append(make_row("fcpo:paper", level, seeds=(0,), popularity=0.5, ndcg=0.05))
            rows.append(make_row("fcpo:tuned", level, seeds=(0,), popularity=0.6, ndcg=0.06))
    items = np.arange(20)
    return DemoResult(
        tuple(rows),
        7,
        FOUND,
        {row.method: items for row in rows},
        items,
        items > 15,
        long_run(),
        by_place=make_row("fcpo", 0.37, seeds=(0,), popularity=0.36, ndcg=0.3),
        verdicts=(
            Verdict("popular<=0.37", True, "kept: 37.0 % of at most 37 %", at_the_bottom=True),
            Verdict(WEIGHED, False, "not kept: 38.0 % of at most 37 %"),
        ),
        shares_by_rank={"no limit": (0.9, 0.8), "popular<=0.37": (0.5, 0.2), WEIGHED: (0.3, 0.4)},
        sample=SampleLists(
            "u1",
            ("no limit", WEIGHED),
            (
                (SampleItem("Star Wars", True), SampleItem("Fargo", True)),
                (SampleItem("Kolya", False),),
            ),
            "popular",
        ),
    )


def long_run():
    """Two steps; fcpo stays at the limit, popularity is over it."""
    shares = {"popularity": 1.0, "fcpo": 0.37}
    rows = [
        {"method": method, "seed": 0, "step": step, "churn": 0, "ndcg": 0.5 - share / 10}
        | dict.fromkeys(("recall", "gini"), 0.5)
        | {"limited_rate": share, "violation_share": float(share > 0.37)}
        | {"largest_overshoot": share - 0.37}
        | dict.fromkeys(("step_popularity_rate", "step_popularity_rate_initial"), share)
        for method, share in shares.items()
        for step in (1, 2)
    ]
    return LongTermResult(pl.DataFrame(rows), {}, 0.37, 0, settings={"round_length": 20})


def texts(grid):
    return [[cell.text for cell in line] for line in grid.lines]


def test_a_line_has_its_limit_and_whether_it_was_kept(result):
    grid = levels_grid(result, 20)
    assert grid.headings == [
        *("Limit", "Method", "Kept", "Popular", "NDCG@20", "Recall@20", "Gini@20")
    ]
    assert [line[:5] for line in texts(grid)] == [
        ["none", "popularity", "-", "100.00", "12.00"],
        ["85 %", "popularity+quota", "yes", "85.00", "18.50"],
        ["85 %", "ease+quota", "yes", "85.00", "28.50"],
        ["85 %", "fcpo", "yes", "85.00", "38.50"],
        ["65 %", "popularity+quota", "yes", "65.00", "16.50"],
        ["65 %", "ease+quota", "yes", "65.00", "26.50"],
        ["65 %", "fcpo", "yes", "65.00", "36.50"],
        ["65 %", "fcpo:paper", "yes", "50.00", "5.00"],
        ["65 %", "fcpo:tuned", "yes", "60.00", "6.00"],
        ["37 %", "popularity+quota", "yes", "37.00", "13.70"],
        ["37 %", "ease+quota", "no", "38.00", "23.70"],
        ["37 %", "fcpo", "yes", "37.00", "33.70"],
        ["37 %", "fcpo by place", "no", "36.00", "30.00"],
    ]


def test_methods_are_compared_at_the_same_limit_only(result):
    places = {(line[0].text, line[1].text): line[4].place for line in levels_grid(result, 20).lines}
    assert [key for key, place in places.items() if place == 1] == [
        *(("85 %", "fcpo"), ("65 %", "fcpo"), ("37 %", "fcpo"))
    ]
    assert [key for key, place in places.items() if place == 2] == [
        *(("85 %", "ease+quota"), ("65 %", "ease+quota"), ("37 %", "ease+quota"))
    ]


def test_it_opens_with_accuracy_at_the_limits_and_whether_they_were_kept(result):
    assert finding(result, 20) == (
        "NDCG@20 in percent with at most 85 / 65 / 37 % popular items: "
        "fcpo 38.50 / 36.50 / 33.70; ease+quota 28.50 / 26.50 / 23.70; "
        "popularity+quota 18.50 / 16.50 / 13.70. "
        "10 of 11 limits on popular items kept; not kept by ease+quota (38.00 %, at most 37 %). "
        f"At rank 1 fcpo shows 30.00 % popular items under {WEIGHED}, 90.00 % without a limit. "
        "After 2 steps fcpo is the most accurate, with an NDCG of 46.30 %. The limit of 37 % "
        "popular items was kept by fcpo and was broken by popularity (at 100.0 % of steps)."
    )


def test_a_terminal_of_80_columns_shows_both_tables(result):
    console = Console(width=80, file=io.StringIO())
    with console.capture() as shown:
        console.print(demo_tables(result, 20))
    lines = [line.rstrip() for line in shown.get().splitlines()]
    assert "37 %  fcpo             yes    37.00    33.70*     33.70*   80.00*" in lines
    words = " ".join(lines)
    assert "fcpo:paper, the policy of the paper, and fcpo:tuned had 7 rounds of training" in words
    assert "The long run: 2 steps of one item for every user, at most 37 % popular" in words
    assert "A quota is kept over rounds of 20 items per user" in words
    (fcpo,) = (line for line in lines if line.startswith("fcpo "))
    assert fcpo.split() == ["fcpo", "46.30*", "50.00*", "50.00*", "37.00*", "0.00*", "0.00*", "0"]


def test_exposure_is_drawn_without_a_limit_and_at_the_strictest(result):
    assert list(strictest_exposure(result).styles)[1:] == [
        *("training log", "popularity", "popularity+quota@0.37", "ease+quota@0.37", "fcpo@0.37")
    ]


def test_the_long_run_has_a_panel_for_each_method_with_the_limit(result):
    chart = long_run_chart(result.long_run)
    assert [panel.title for panel in chart.panels] == ["popularity", "fcpo"]
    assert "over the limit at 100.0 % of steps" in chart.panels[0].remark
    check_schema(chart)


def test_a_group_by_an_attribute_is_called_by_its_name():
    assert "may be of popular items (the 20 % of the catalogue" in intro("popular")
    assert "may be of items with seller = Mega. fcpo is" in intro("seller = Mega")


def test_the_page_has_the_tables_of_all_lengths_and_what_the_fit_found(result, tmp_path):
    write_demo_report(tmp_path, result, [5, 20], "fairhorizon demo")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("exposure.pdf", "exposure.png", "exposure.svg", "index.html", "levels.pdf"),
        *("levels.png", "levels.svg", "long-run.pdf", "long-run.png", "long-run.svg"),
    ]
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    html = html.replace(drawing_library(), "")
    assert re.findall(r"<h2>(.*)</h2>", html) == [
        *("Did fcpo keep its limits?", "The lists of user u1", "Exposure by rank"),
        *("Accuracy against fairness", "The limit at every moment", "Distribution of exposure"),
        *("At each limit", "The long run"),
        *("What fcpo found about the log", "The methods", "What the numbers mean", "Made by"),
    ]
    first, folded = html.split("<summary>All figures, and what they mean</summary>")
    assert re.findall(r'<li class="(\w+)">', first) == ["hidden", "bad"]
    assert "Star Wars ●</td>" in first
    assert ">Kolya</td>" in first
    assert "<summary>The first 5 places</summary>" in folded
    assert "<dt>rankers, by weight</dt><dd>ease 1</dd>" in html
