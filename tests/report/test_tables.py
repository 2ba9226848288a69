import math
from dataclasses import replace

import pytest
from rich.console import Console

from fairhorizon.evaluation.short_term import EvaluationRow
from fairhorizon.report.tables import (
    HEADINGS,
    METRICS,
    format_value,
    group_title,
    metric_columns,
    metrics_table,
    table_headings,
    table_lines,
    units,
)
from fairhorizon.vocabulary import Mode, Protocol

PAPER_METRICS = ["recall", "f1", "ndcg", "gini", "popularity_rate"]
ROW = EvaluationRow(
    dataset="ml-100k",
    method="fcpo",
    protocol=Protocol.STANDARD,
    mode=Mode.ONE_SHOT,
    seed=3,
    alpha_prime=0.4,
    metrics={
        "recall@5": 0.01234,
        "ndcg@5": 0.09876,
        "recall@20": 0.2,
        "ndcg@20": math.nan,
        "exposure_ratio@20": 2 / 3,
    },
)
OTHER = replace(ROW, method="popularity", protocol=Protocol.PAPER, alpha_prime=None, seed=None)


def rendered(table, width):
    console = Console(width=width)
    with console.capture() as capture:
        console.print(table)
    return capture.get().splitlines()


@pytest.mark.parametrize(
    ("metric", "value", "expected"),
    [
        ("recall", 0.12345, "12.35"),
        ("gini", 1.0, "100.00"),
        ("exposure_ratio", 2.5, "2.50"),
        ("exposure_ratio", math.inf, "inf"),
        ("demographic_parity_gap", -0.126, "-0.13"),
        ("demographic_parity_gap", -math.inf, "-inf"),
        ("ndcg", math.nan, "-"),
        ("ndcg", None, "-"),
    ],
)
def test_values_are_percentages_where_they_are_shares(metric, value, expected):
    assert format_value(metric, value) == expected


def test_one_line_per_row_and_k_says_its_protocol_and_mode():
    assert table_lines([ROW, OTHER], ["recall", "ndcg"], [5, 20]) == [
        ["ml-100k", "fcpo", "0.4", "standard", "one-shot", "3", "5", "1.23", "9.88"],
        ["ml-100k", "fcpo", "0.4", "standard", "one-shot", "3", "20", "20.00", "-"],
        ["ml-100k", "popularity", "-", "paper", "one-shot", "-", "5", "1.23", "9.88"],
        ["ml-100k", "popularity", "-", "paper", "one-shot", "-", "20", "20.00", "-"],
    ]


def test_headings_fit_the_lines():
    headings = table_headings(["recall", "exposure_ratio"])
    assert headings == [*HEADINGS, "Recall", "G0/G1"]
    assert len(headings) == len(table_lines([ROW], ["recall", "exposure_ratio"], [5])[0])


def test_an_unknown_metric_is_named():
    with pytest.raises(ValueError, match="unknown metric 'hitrate'; known are recall, f1"):
        metrics_table([ROW], ["recall", "hitrate"], [5])


def test_the_caption_says_what_is_not_a_percentage():
    assert units(["recall"]) == "Metrics in percent."
    mixed = ["gini", "exposure_ratio", "demographic_parity_gap"]
    assert units(mixed) == "Metrics in percent, except G0/G1 and Parity gap."


def test_the_metrics_of_the_paper_fit_a_terminal_of_80_columns():
    values = {f"{name}@20": 0.1 + 0.01 * i for i, name in enumerate(PAPER_METRICS)}
    long = replace(ROW, mode=Mode.INTERACTIVE, metrics=values)
    lines = rendered(metrics_table([long], PAPER_METRICS, [20]), width=80)
    expected = "ml-100k fcpo 0.4 standard interactive 3 20 10.00 11.00 12.00 13.00 14.00"
    assert lines[2].split() == expected.split()
    assert lines[3].strip() == "Metrics in percent."


def test_numbers_stay_whole_where_words_have_to_fold():
    long = replace(ROW, method="a-method-with-a-long-name", metrics={"gini@20": 0.98765})
    lines = rendered(metrics_table([long], PAPER_METRICS, [20]), width=80)
    assert max(map(len, lines)) <= 80
    assert sum("98.77" in line for line in lines) == 1


def test_brackets_are_text_and_not_markup():
    lines = rendered(metrics_table([replace(ROW, method="[red]mf")], ["recall"], [5]), width=80)
    assert lines[2].split()[1] == "[red]mf"


def test_a_group_by_an_attribute_is_called_by_its_name():
    group = "seller = MegaMart"
    row = replace(ROW, group=group, metrics={"popularity_rate@20": 0.25})
    headings = table_headings(PAPER_METRICS, group=group)
    assert headings[-1] == "seller = MegaMart"
    lines = rendered(metrics_table([row], PAPER_METRICS, [20]), width=80)
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "The group is seller = MegaMart." in text
    assert "pop" not in text.lower()
    assert lines[0].split()[-2:] == ["seller", "="]  # the heading, folded
    assert lines[1].split()[-1] == "MegaMart"
    assert [line.split()[-1] for line in lines if "fcpo" in line] == ["25.00"]


def test_no_word_on_metrics_of_such_a_group_speaks_of_popularity():
    for name, column in metric_columns("genre = Drama or War").items():
        words = f"{column.heading} {column.short} {column.meaning}"
        assert "popular" not in words.lower(), name
        assert "long tail" not in words
        assert "long-tail" not in words
    meaning = metric_columns("genre = Drama or War")["demographic_parity_gap"].meaning
    assert meaning == "exposure per item with genre = Drama or War minus per other item"
    assert metric_columns() == METRICS
    assert METRICS["popularity_rate"].heading == group_title("popular") == "Popular"
