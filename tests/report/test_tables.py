import math

import pytest
from rich.console import Console

from fairhorizon.report.tables import (
    HEADINGS,
    format_value,
    metrics_table,
    table_headings,
    table_lines,
    units,
)

PAPER_METRICS = ["recall", "f1", "ndcg", "gini", "popularity_rate"]
ROW = {
    "dataset": "ml-100k",
    "method": "fcpo",
    "protocol": "standard",
    "mode": "one-shot",
    "seed": 3,
    "alpha_prime": 0.4,
    "metrics": {
        "recall@5": 0.01234,
        "ndcg@5": 0.09876,
        "recall@20": 0.2,
        "ndcg@20": math.nan,
        "exposure_ratio@20": 2 / 3,
    },
}
OTHER = ROW | {"method": "popularity", "protocol": "paper", "alpha_prime": None, "seed": None}


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
    long = {"mode": "interactive", "metrics": values}
    lines = rendered(metrics_table([ROW | long], PAPER_METRICS, [20]), width=80)
    expected = "ml-100k fcpo 0.4 standard interactive 3 20 10.00 11.00 12.00 13.00 14.00"
    assert lines[2].split() == expected.split()
    assert lines[3].strip() == "Metrics in percent."


def test_numbers_stay_whole_where_words_have_to_fold():
    long = ROW | {"method": "a-method-with-a-long-name", "metrics": {"gini@20": 0.98765}}
    lines = rendered(metrics_table([long], PAPER_METRICS, [20]), width=80)
    assert max(map(len, lines)) <= 80
    assert sum("98.77" in line for line in lines) == 1


def test_brackets_are_text_and_not_markup():
    lines = rendered(metrics_table([ROW | {"method": "[red]mf"}], ["recall"], [5]), width=80)
    assert lines[2].split()[1] == "[red]mf"
