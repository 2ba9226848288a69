import json
import math
import re
from dataclasses import replace

import pytest
from rich.console import Console

from fairhorizon.metrics.spread import Spread
from fairhorizon.report.comparison import (
    comparison_markdown,
    comparison_section,
    comparison_table,
    finding,
    measured_as_in_paper,
    significance_markdown,
    significance_section,
    significance_table,
    write_comparison,
)
from fairhorizon.report.page import Page
from fairhorizon.studies.compare import SignificanceRow
from fairhorizon.vocabulary import Protocol

NASTY = "<b>*x*</b>"
TEST = SignificanceRow(
    metric="ndcg@20",
    best="sasrec",
    second="ease",
    difference=0.0123,
    t_test=0.00012,
    t_test_corrected=0.001,
    bootstrap=0.0204,
    bootstrap_corrected=math.nan,
    users=943,
)


@pytest.fixture
def rows(make_row):
    return [
        make_row("mf", ndcg=0.2, gini=0.9),
        make_row("fcpo:paper", 0.65, ndcg=0.3, gini=0.7, popularity=0.65),
        make_row("ease+quota", 0.4, ndcg=0.25, gini=0.8, popularity=0.4, std=0.0123),
    ]


def printed(table, width=80):
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]


def words(lines, first):
    (line,) = [line for line in lines if line.startswith(first)]
    return line.removeprefix(first).split()


def test_a_block_per_k_with_best_and_second_marked(rows):
    lines = printed(comparison_table(rows, ["ndcg", "gini"], [5, 20], paper=False))
    captions = [line for line in lines if line.startswith("ml-100k")]
    assert captions == [
        "ml-100k, standard protocol, one-shot, 3 seeds, K = 5",
        "ml-100k, standard protocol, one-shot, 3 seeds, K = 20",
    ]
    block = lines[: lines.index(captions[1])]
    assert words(block, "mf") == ["20.00", "±0.10", "90.00", "±0.10"]
    assert words(block, "fcpo:paper@0.65") == ["30.00", "±0.10*", "70.00", "±0.10*"]
    assert words(block, "ease+quota@0.4") == ["25.00", "±1.23+", "80.00", "±1.23+"]
    assert lines[-1] == "Metrics in percent. * best, + second of a column."


def test_the_papers_figures_stand_below_ours(rows):
    lines = printed(comparison_table(rows, paper=True, ks=[20]))
    assert words(lines, "paper MF") == ["7.44", "5.07", "5.68", "97.03", "99.92"]
    assert words(lines, "paper FCPO-2") == ["10.41", "4.95", "7.10", "94.78", "65.55"]
    assert sum(line.startswith("paper") for line in lines) == 2
    assert "training items may be" in " ".join(lines)


def test_figures_of_the_paper_need_its_protocol_and_its_group(make_row):
    rows = [make_row("mf", protocol=Protocol.PAPER)]
    assert measured_as_in_paper(rows)
    assert not measured_as_in_paper(rows, "genre = Drama")
    assert not measured_as_in_paper([*rows, make_row("mf")])


def test_a_method_name_of_14_letters_and_the_metrics_of_the_paper_fit_80_columns(rows):
    lines = printed(comparison_table(rows, paper=True), width=80)
    assert max(map(len, lines)) <= 80
    assert words(lines[:8], "ease+quota@0.4")[:2] == ["25.00", "±1.23+"]


def test_only_what_was_measured_alike_is_compared(make_row):
    rows = [
        make_row("mf", ndcg=0.2),
        make_row("ease", ndcg=0.1),
        make_row("mf", ndcg=0.05, protocol=Protocol.PAPER, seeds=(0,)),
        make_row("ease", ndcg=0.04, protocol=Protocol.PAPER),
        make_row("bpr", ndcg=0.9, dataset="ml-1m"),
    ]
    text = comparison_markdown(rows, ["ndcg"], [20], paper=False)
    assert re.findall(r"^ml.*$", text, re.MULTILINE) == [
        "ml-100k, standard protocol, one-shot, 3 seeds, K = 20",
        "ml-100k, paper protocol, one-shot, 1 to 3 seeds, K = 20",
        "ml-1m, standard protocol, one-shot, 3 seeds, K = 20",
    ]
    assert re.findall(r"^\| (?:mf|ease|bpr) .*$", text, re.MULTILINE) == [
        "| mf | **20.00** ±0.10 |",
        "| ease | _10.00_ ±0.10 |",
        "| mf | **5.00** |",  # one seed has no spread
        "| ease | _4.00_ ±0.10 |",
        "| bpr | 90.00 ±0.10 |",  # alone
    ]


def test_a_metric_that_was_not_measured_is_a_dash(make_row):
    row = make_row("mf", metrics={"ndcg@20": Spread()})
    text = comparison_markdown([row, make_row("ease")], ["ndcg", "coverage"], [20], paper=True)
    assert "| mf (paper MF) | - (5.68) | - |" in text
    assert "| ease | 10.00 ±0.10 | - |" in text


def test_markdown_says_what_the_marks_are(rows):
    text = comparison_markdown(rows, paper=True)
    assert text.count("| Method | Recall | F1 | NDCG | Gini | Popular |") == 3
    assert "Best **bold**, second _italic_. In brackets: the paper." in text
    assert "brackets" not in comparison_markdown(rows[2:], paper=True)


def test_the_section_has_a_table_for_each_k_and_the_longest_open(rows, make_row):
    section = comparison_section([*rows, make_row(NASTY)], paper=True, title="All")
    assert section.title == "All"
    heading, *tables = section.parts
    assert heading.text == "ml-100k, standard protocol, one-shot, 3 seeds"
    assert [(part.summary, part.is_open) for part in tables] == [
        ("K = 20", True),
        ("K = 10", False),
        ("K = 5", False),
    ]
    assert [len(part.grid.lines) for part in tables] == [4, 4, 4]
    html = Page("", "", "", [section]).html()
    assert '<td>mf <span class="paper">paper MF</span></td>' in html
    assert (
        '<td class="number" data-value="0.3"><strong>30.00</strong> <small>±0.10</small> '
        '<span class="paper">10.41</span></td>'
    ) in html
    assert "&lt;b&gt;*x*&lt;/b&gt;" in html
    assert "<b>" not in html


def test_the_page_opens_with_the_best_and_with_who_kept_its_limit(rows):
    test = replace(TEST, best="fcpo:paper@0.65", second="ease+quota@0.4", difference=0.05)
    assert finding(rows, [test], 20) == (
        "fcpo:paper@0.65 is the most accurate, with an NDCG@20 of 30.00 %. The next method, "
        "ease+quota@0.4, is 5.00 points behind (p = 0.001). "
        "All 2 limits on popular items were kept."
    )
    over = replace(rows[2], metrics=rows[2].metrics | {"popularity_rate@20": Spread(0.41, 0.0)})
    assert finding([*rows[:2], over], [], 20).endswith(
        "1 of 2 limits on popular items kept; not kept by ease+quota@0.4 (41.00 %, at most 40 %)."
    )
    assert finding(rows[:1], [], 20) == (
        "mf has an NDCG@20 of 20.00 %. No method had a limit on popular items."
    )


def test_significance_three_ways():
    lines = printed(significance_table([TEST]))
    expected = ["sasrec", "ease", "1.23", "<0.001", "0.001", "0.020", "-", "943"]
    assert words(lines, "ndcg@20") == expected
    cells = r"| ndcg@20 | sasrec | ease | 1.23 | \<0.001 | 0.001 | 0.020 | - | 943 |"
    assert cells in significance_markdown([TEST])
    html = Page("", "", "", [significance_section([TEST])]).html()
    assert '<td class="number" data-value="0.00012">&lt;0.001</td>' in html


def test_one_method_against_all_others_is_a_table_of_its_own(make_row, tmp_path):
    against = [replace(TEST, best="ease", second=name) for name in ("sasrec", "mf")]
    write_comparison(tmp_path, [make_row("mf")], [TEST], ks=(20,), against=against)
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "ease against each other method\n\n| Metric | Method | Rival |" in table
    assert [
        line.split(" | ")[1:3] for line in table.splitlines() if "| ndcg@20 | ease" in line
    ] == [
        ["ease", "sasrec"],
        ["ease", "mf"],
    ]
    content = json.loads((tmp_path / "comparison.json").read_text(encoding="utf-8"))
    assert [test["second"] for test in content["against"]] == ["sasrec", "mf"]


def test_a_report_is_for_programs_documents_and_browsers(make_row, tmp_path):
    rows = [make_row("mf", protocol=Protocol.PAPER, metrics={"ndcg@20": Spread()})]
    copy = tmp_path / "copy.json"
    made_by = {"command": "a command", "seeds": [0, 1, 2]}
    write_comparison(
        tmp_path, rows, [TEST], ks=(20,), command="a command", json_file=copy, made_by=made_by
    )
    text = copy.read_text(encoding="utf-8")
    content = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert text == (tmp_path / "comparison.json").read_text(encoding="utf-8")
    assert content["made_by"] == made_by
    (row,), (test,) = content["rows"], content["significance"]
    assert list(row) == [
        *("dataset", "method", "protocol", "mode", "alpha_prime", "seeds"),
        *("metrics", "seconds", "settings", "notes", "limit_missed"),
    ]
    assert (row["protocol"], row["mode"], row["seeds"]) == ("paper", "one-shot", [0, 1, 2])
    assert row["metrics"]["gini@20"] == {"mean": 0.8, "std": 0.001}
    assert row["metrics"]["ndcg@20"] == {"mean": None, "std": None}
    assert test["bootstrap_corrected"] is None
    assert test["t_test"] == 0.00012
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "| mf (paper MF) |" in table
    assert "| ndcg@20 | sasrec | ease | 1.23 |" in table
    columns = (tmp_path / "table-20.csv").read_text(encoding="utf-8").splitlines()
    assert columns[0].startswith("Method,Method (paper),Recall")
    assert columns[1].startswith("mf,paper MF,")
    assert r"mf (paper MF) &" in (tmp_path / "table-20.tex").read_text(encoding="utf-8")
    assert "ndcg@20,sasrec,ease,1.23" in (tmp_path / "tests.csv").read_text(encoding="utf-8")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<h1>Fair recommenders on ml-100k</h1>" in page
    assert "<code>a command</code>" in page
