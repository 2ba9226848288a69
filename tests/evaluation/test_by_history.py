"""Accuracy by length of history and new items, worked by hand."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fairhorizon.cli.app import run
from fairhorizon.data.interactions import Interactions
from fairhorizon.evaluation.short_term import ByHistory, HistoryRow, NewItems, by_history, relevance
from fairhorizon.report.tables import history_table, new_items_line

SECOND = 1 / math.log2(3)  # the gain of a hit at rank 2; that at rank 3 is 1/2
#       user: training    test   list
#          0: nothing     4, 5   0 4 1    rank 2 of two items
#          1: 0           5      5 4 1    rank 1
#          2: 0 1         2      3 - -    none; an empty place is no item 5
#          3: 0 1 2       3      0 1 3    rank 3
#          4: 3           none   0 1 2    counts nowhere
TRAIN = [(1, 0), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (4, 3)]
TEST = [(0, 4), (0, 5), (1, 5), (2, 2), (3, 3)]
LISTS = np.array([[0, 4, 1], [5, 4, 1], [3, -1, -1], [0, 1, 3], [0, 1, 2]])


def log(rows: list[tuple[int, int]]) -> Interactions:
    users, items = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    return Interactions(users, items, user_ids=np.arange(5), item_ids=np.arange(6))


def found(k: int = 3, test: list[tuple[int, int]] | None = None) -> ByHistory:
    relevant = relevance(log(TEST if test is None else test))
    return by_history(LISTS, relevant, log(TRAIN), k)


def test_users_are_told_apart_by_their_training_interactions():
    """New are items 4 and 5: three of five test interactions, of which two are in the lists."""
    result = found()
    assert [(row.history, row.users) for row in result.users] == [
        ("none", 1),
        ("1 or 2", 2),
        ("3 or more", 1),
    ]
    ndcg = [SECOND / (1 + SECOND), (1 + 0) / 2, 1 / 2]
    assert [row.ndcg for row in result.users] == pytest.approx(ndcg, rel=1e-12)
    assert [row.recall for row in result.users] == pytest.approx([1 / 2, (1 + 0) / 2, 1])
    assert result.new_items == NewItems(interactions=3, of=5, found=2)


def test_only_the_first_k_places_count():
    result = found(k=1)
    assert [row.ndcg for row in result.users] == [0, 0.5, 0]
    assert result.new_items == NewItems(3, 5, 1)
    assert result.k == 1


def test_groups_without_users_are_null_in_json():
    result = found(test=[(3, 3)])
    assert result.to_json() == {
        "k": 3,
        "users": [
            {"history": "none", "users": 0, "ndcg": None, "recall": None},
            {"history": "1 or 2", "users": 0, "ndcg": None, "recall": None},
            {"history": "3 or more", "users": 1, "ndcg": 0.5, "recall": 1.0},
        ],
        "new_items": {"interactions": 0, "of": 1, "found": 0},
    }
    nothing = found(test=[])
    assert [row.users for row in nothing.users] == [0, 0, 0]
    assert nothing.new_items == NewItems(0, 0, 0)


def test_there_is_a_table_and_a_line_only_of_what_there_is():
    result = found()
    table = history_table(result)
    assert table is not None
    cells = [list(column.cells) for column in table.columns]
    assert cells == [
        ["none", "1 or 2", "3 or more"],
        ["1", "2", "1"],
        ["38.69", "50.00", "50.00"],
        ["50.00", "50.00", "100.00"],
    ]
    assert [column.header for column in table.columns][1:] == ["Users", "NDCG@3", "Recall@3"]
    assert new_items_line(result) == (
        "New items: 3 of 5 test interactions (60.0 %) are with items that are not in the training "
        "log; the lists of 3 have 2 of them."
    )
    usual = found(test=[(3, 3)])
    assert history_table(usual) is None
    assert new_items_line(usual) is None
    without = replace(result, users=(HistoryRow("none", 0, math.nan, math.nan), *result.users[1:]))
    table = history_table(without)
    assert table is not None
    assert list(table.columns[0].cells) == ["1 or 2", "3 or more"]


def test_evaluate_prints_it_and_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cut in time: of 20 rows the last 4 are for testing, the 2 before for validation.

    Training: a took 1 .. 7, b 1 .. 6, c 1. Test: c takes 2, d (new) takes 1, a and d the new 9.
    Popularity shows c 2 3 (1 is known), d 1 2, a the new 8 (6 known to all, 8 before 9).
    """
    monkeypatch.chdir(tmp_path)
    rows = [("a", item) for item in range(1, 8)] + [("b", item) for item in range(1, 7)]
    rows += [("c", 1), ("b", 7), ("b", 8), ("c", 2), ("d", 1), ("d", 9), ("a", 9)]
    text = "".join(f"{user},{item},{time}\n" for time, (user, item) in enumerate(rows))
    (tmp_path / "log.csv").write_text(f"user,item,time\n{text}")
    assert run(["fit", "popularity", "--data", "log.csv", "--split", "time", "--out", "run"]) == 0
    assert run(["evaluate", "run", "--k", "1,2"]) == 0
    said = capsys.readouterr().out
    assert "New items: 2 of 4 test interactions (50.0 %)" in said
    assert [line.split() for line in said.splitlines() if line.startswith(("none", "1 or 2"))] == [
        ["none", "1", "61.31", "50.00"],  # rank 1 of two: 1 / (1 + SECOND)
        ["1", "or", "2", "1", "100.00", "100.00"],
    ]
    stored = json.loads((tmp_path / "run" / "metrics.json").read_text())["by_history"]
    assert [row["users"] for row in stored["users"]] == [1, 1, 1]
    assert stored["users"][0]["ndcg"] == pytest.approx(1 / (1 + SECOND))
    assert stored["new_items"] == {"interactions": 2, "of": 4, "found": 1}
