"""The first method of a long run against the others: a gain is worded only where it is shown."""

from rich.console import Console

from fairhorizon.report.long_term import (
    differences_finding,
    differences_markdown,
    differences_section,
    differences_table,
)
from fairhorizon.studies.long_results import LongDifference

ROWS = [
    LongDifference("fcpo", "ease", (0, 1), 1943, 0.01234, 0.0101, 0.0146),
    LongDifference("fcpo", "stack+control", (0, 1), 1943, 0.002, -0.001, 0.005),
    LongDifference("fcpo", "best", (0, 1), 1943, -0.02, -0.03, -0.01),
    LongDifference("fcpo", "alone", (0, 1), 1, 0.02, None, None),
]


def test_lines_say_what_is_shown() -> None:
    lines = differences_markdown(ROWS).splitlines()
    assert lines[0] == "fcpo against each other method"
    assert lines[4:8] == [
        "| fcpo | ease | more | 1.23 | 1.01 to 1.46 | 1,943 |",
        "| fcpo | stack+control | not shown | 0.20 | -0.10 to 0.50 | 1,943 |",
        "| fcpo | best | less | -2.00 | -3.00 to -1.00 | 1,943 |",
        "| fcpo | alone | not shown | 2.00 | - | 1 |",
    ]


def test_the_sentence_claims_no_more() -> None:
    assert differences_finding(ROWS) == [
        "The NDCG of fcpo is more than that of ease (+1.23 points, 95 % interval +1.01 to +1.46).",
        "The NDCG of fcpo is less than that of best (-2.00 points, 95 % interval -3.00 to -1.00).",
        "No difference of fcpo to stack+control and alone is shown.",
    ]
    assert differences_finding(()) == []


def test_page_and_terminal_have_the_same_lines() -> None:
    console = Console(width=80)
    with console.capture() as printed:
        console.print(differences_table(ROWS))
    assert "stack+control not shown" in printed.get()
    assert differences_section(ROWS).title == "fcpo against each other method"
