from dataclasses import replace

import pytest
from rich.console import Console
from specs import charts_of, check_schema, line_of, marks

from fairhorizon.report.ablation import (
    ablation_markdown,
    ablation_table,
    finding,
    training_chart,
    write_ablation,
)
from fairhorizon.results.spread import Spread
from fairhorizon.results.studies import AblationRow, Course


@pytest.fixture
def rows(make_row):
    def make(method, difference, kept, rounds, shares, validation=0.16, **values):
        figures = {
            **{"share_before": shares[0], "share_after": shares[1]},
            **{"reward_before": 1.65, "reward_after": 1.2},
        }
        metrics = {name: Spread(value, 0.012) for name, value in figures.items()}
        metrics["validation"] = Spread() if validation is None else Spread(validation, 0.012)
        return AblationRow(
            summary=replace(make_row(method, metrics=metrics, **values), alpha_prime=0.4),
            meaning=f"{method} it is",
            difference=difference,
            courses=tuple(
                Course(0.4, shares, (1.65, 1.2), (validation, None), to_limit, at)
                for at, to_limit in zip(kept, rounds, strict=True)
            ),
        )

    less, never = Spread(-0.02, 0.003), [None] * 3
    return [
        make("fast", None, [8, 12, 30], [17, 18, 20], (0.82, 0.41), ndcg=0.27, gini=0.75),
        make("no-all-actions", less, [0, 0, 2], [25, None, 30], (0.82, 0.42), ndcg=0.25),
        make("gaussian", less, [30, 30, 30], never, (0.95, 0.93), None, ndcg=0.2, gini=0.85),
    ]


def test_what_is_served_stands_before_how_it_was_trained(rows):
    text = ablation_markdown(rows)
    served, training = text.split("Trained under a limit of 40 %, 3 seeds")
    assert (
        "at most 40 % popular items, lists of 20: ml-100k, standard protocol, one-shot, 3 seeds"
        in served
    )
    assert "| fast | 8, 12, 30 | **27.00** ±0.10 | - | **75.00** ±0.10 | 50.00 ±0.10 |" in served
    assert (
        "| no-all-actions | 0, 0, 2 | _25.00_ ±0.10 | -2.00 ±0.30 | _80.00_ ±0.10 | 50.00 ±0.10 |"
        in served
    )
    assert (
        "| no-all-actions | 25, -, 30 | 82.0 ±1.2 | 42.0 ±1.2 | 1.65 ±0.01 | 1.20 ±0.01 | 16.00 |"
        in training
    )
    assert (
        "| gaussian | -, -, - | 95.0 ±1.2 | 93.0 ±1.2 | 1.65 ±0.01 | 1.20 ±0.01 | - |" in training
    )
    assert training.rstrip().endswith("- `gaussian`: gaussian it is")


def test_of_one_seed_there_is_no_spread(rows):
    alone = [replace(row, summary=replace(row.summary, seeds=(0,))) for row in rows]
    text = ablation_markdown(alone)
    assert "±" not in text
    assert "3 seeds" not in text
    assert "1 seed" in text


def test_a_terminal_of_80_columns_holds_a_line_a_variant(rows):
    console = Console(width=80)
    with console.capture() as capture:
        console.print(ablation_table(rows))
    lines = [" ".join(line.split()) for line in capture.get().splitlines()]
    assert "no-all-actions 0, 0, 2 25.00 ±0.10+ -2.00 ±0.30 80.00 ±0.10+ 50.00 ±0.10" in lines
    assert "no-all-actions 25, -, 30 82.0 ±1.2 42.0 ±1.2 1.65 ±0.01 1.20 ±0.01 16.00" in lines


def test_the_page_opens_with_what_costs_most_and_who_keeps_the_limit(rows, tmp_path):
    assert finding(rows, 20) == (
        "fast has an NDCG@20 of 27.00 %. What costs most is no-all-actions: 2.00 points less. "
        "0 of 3 limits on popular items kept; not kept by fast (50.00 %, at most 40 %), "
        "no-all-actions (50.00 %, at most 40 %), gaussian (50.00 %, at most 40 %)."
    )
    write_ablation(tmp_path, rows, 20, command="a command")
    names = ["ablation.json", "ablation.md", "ablation.png", "index.html"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert len(charts_of((tmp_path / "index.html").read_text(encoding="utf-8"))) == 2


def test_the_chart_shows_share_and_reward_after_each_round(rows):
    check_schema(training_chart(rows))
    share, reward = training_chart(rows).panels
    assert line_of(share, "fast") == [(0, 82.0), (1, 41.0)]
    assert line_of(reward, "gaussian") == [(0, 1.65), (1, 1.2)]
    ((_, limit),) = marks(share, "rule")
    assert limit[0]["y"] == 40
    assert marks(reward, "rule") == []
