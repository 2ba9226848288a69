"""The paper's figures beside ours: cells by hand, in Markdown, CSV and LaTeX."""

from dataclasses import replace

import polars as pl
import pytest

from fairhorizon.data.splits import Statistics
from fairhorizon.report.reproduction import (
    finding,
    long_grid,
    main_rows,
    six_items_grid,
    statistics_grid,
    table_grid,
    trade_off_chart,
    write_reproduction,
)
from fairhorizon.report.tables import csv_text, latex, markdown
from fairhorizon.studies.long_results import LongTermResult
from fairhorizon.studies.reproduce import Reproduced, TableRow
from fairhorizon.studies.six_items import SixItemsRow
from fairhorizon.studies.step_record import SCHEMA
from fairhorizon.vocabulary import Mode, Protocol

ML_100K = Statistics(943, 1682, 100_000, 100_000 / 943, 100_000 / 1682, 100_000 / 943 / 1682)


@pytest.fixture
def table(make_row):
    """MF, and FCPO-3 served by a sample, as it was trained to, and by the mean; with feedback."""

    def row(paper, name, level=None, *, served="", mode=Mode.ONE_SHOT, **values):
        own = make_row(name, level, seeds=(0,), protocol=Protocol.PAPER, **values)
        return TableRow(
            paper, replace(own, mode=mode, settings={"serve": served or "sample"}), served
        )

    return (
        row("MF", "mf", ndcg=0.0653, gini=0.98, popularity=1.0),
        row("FCPO-3", "fcpo:paper", 0.4, ndcg=0.0687, gini=0.83, popularity=0.32),
        row("FCPO-3", "fcpo:paper", 0.4, served="mean", ndcg=0.07, gini=0.95, popularity=0.3),
        row("FCPO-3", "fcpo:paper", 0.4, mode=Mode.INTERACTIVE, ndcg=0.0702),
    )


def test_the_first_table_has_the_columns_of_the_paper():
    text = markdown(statistics_grid("ml-100k", ML_100K))
    line = "| ml-100k | 943 (943) | 1682 (1682) | 106 (106) | 59.45 (59.45) | 100,000 (100,000) "
    assert line + "| 6.305% (6.305%) |" in text
    assert "(" not in markdown(statistics_grid("mine", ML_100K))


def test_a_row_of_the_second_table_has_the_paper_in_every_cell(table):
    shown = main_rows(table)
    assert [(row.paper, row.serving) for row in shown] == [("MF", ""), ("FCPO-3", "")]
    grid = table_grid(shown, 20, "Table 2")
    mf, fcpo = grid.lines
    assert [cell.text for cell in mf[:2]] == ["MF", "mf"]
    assert [cell.text for cell in fcpo[:2]] == ["FCPO-3", "fcpo:paper@0.4"]
    # recall, F1, NDCG, Gini index, popularity rate at 20
    assert [cell.paper for cell in mf[2:]] == ["7.44", "5.07", "5.68", "97.03", "99.92"]
    assert [cell.paper for cell in fcpo[2:]] == ["3.33", "2.54", "2.87", "73.23", "36.94"]
    assert [cell.text for cell in (mf[4], fcpo[4])] == ["6.53", "6.87"]
    assert "_6.53_ (5.68)" in markdown(grid)
    assert r"\textbf{6.87} (2.87)" in latex(grid)
    assert r"\toprule" in latex(grid)
    headings, first, _ = csv_text(grid).splitlines()
    assert headings.split(",")[6:8] == ["NDCG", "NDCG (paper)"]
    assert first.split(",")[6:8] == ["6.53", "5.68"]


def test_figure_3_draws_ours_and_all_rows_of_the_paper(table):
    chart = trade_off_chart(table, 20)
    theirs = [name for name in chart.styles if name.endswith("in the paper")]
    assert len(theirs) == 8  # seven baselines, and the three levels of FCPO as one line
    assert {"mf", "fcpo:paper"} < set(chart.styles)


@pytest.fixture
def run():
    """Eight steps at most 40 %: NDCG rises by 0.01; the share is 0.5, and from step 4 on 0.41."""
    frame = pl.DataFrame(
        {
            "method": ["mf"] * 8,
            "seed": [0] * 8,
            "step": list(range(1, 9)),
            "ndcg": [0.01 * step for step in range(1, 9)],
            "gini": [0.5] * 8,
            "popularity_rate": [0.5] * 3 + [0.41] * 4 + [0.39],
            "popularity_rate_retrospective": [0.45] * 8,
            "limited_rate": [0.4] * 8,
        }
    )
    steps = pl.concat([pl.DataFrame(schema=SCHEMA), frame], how="diagonal_relaxed")
    return LongTermResult(steps.select(list(SCHEMA)).cast(SCHEMA), {}, 0.4, 1)


def test_figure_4_in_numbers(run):
    """NDCG at every quarter; of the seven steps from the second on five are near, six above."""
    (line,) = long_grid(run).lines
    assert [cell.text for cell in line[:5]] == ["mf", "2.00", "4.00", "6.00", "8.00"]
    assert [cell.text for cell in line[5:8]] == ["50.00", "39.00", "45.00"]
    assert line[8].value == pytest.approx(500 / 7)
    assert line[9].value == pytest.approx(600 / 7)


def six(policy, clicks, seed=None, limit=0.3):
    shares = (0.1, 0.2, 0.0, 0.7, 0.0, 0.0)
    return SixItemsRow(policy, limit, seed, clicks, 0.3, shares, 0.7, (0.0, 0.3))


SIX = (
    six("fixed parity", 0.6),
    six("myopic", 0.6),
    six("fcpo", 0.70, seed=0),
    six("fcpo", 0.74, seed=1),
    six("optimum", 0.8),
)


def test_seeds_of_the_six_items_are_one_line():
    grid = six_items_grid(SIX)
    assert [line[1].text for line in grid.lines] == ["fixed parity", "myopic", "fcpo", "optimum"]
    fcpo = grid.lines[2]
    assert (fcpo[2].text, fcpo[2].spread) == ("0.720", "±0.028")  # 0.04 / sqrt(2)
    assert fcpo[3].text == "90.00"  # of the clicks of the optimum
    assert [cell.text for cell in fcpo[5:]] == ["10.0", "20.0", "0.0", "70.0", "0.0", "0.0"]


def test_everything_is_written(tmp_path, table, run):
    found = Reproduced("ml-100k", 1, False, ML_100K, table, run, efficiency=(), six_items=SIX)
    assert finding(found).startswith(
        "NDCG@20 is at least that of the paper in 2 of 2 rows of Table 2. On six items whose "
        "labels move fcpo gets 90 % of the clicks of the optimum at a limit of 30 %, the myopic "
        "allocation 75 %."
    )
    write_reproduction(tmp_path, found, "fairhorizon reproduce")
    names = {path.name for path in tmp_path.iterdir()}
    assert {"index.html", "index.md", "reproduction.json", "figure3.png", "figure4.png"} <= names
    assert {"table1.csv", "table1.tex", "table2.csv", "table2.tex", "introduction.png"} <= names
    text = (tmp_path / "index.md").read_text(encoding="utf-8")
    for title in ("## Table 1", "## Table 2", "## Figure 3", "## Figure 4", "## Introduction"):
        assert title in text
    assert "    fairhorizon reproduce\n" in text
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<code>fairhorizon reproduce</code>" in page
    # only the longest lists stand open: K = 20 first, then 10 and 5
    k = [line for line in text.splitlines() if ", K = " in line]
    assert [line.rpartition(" ")[2] for line in k] == ["20", "10", "5", "20"]
