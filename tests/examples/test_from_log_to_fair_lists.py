"""The notebook runs from top to bottom and shows what its text says."""

import runpy
from pathlib import Path

import jupytext
import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "from_log_to_fair_lists.py"


@pytest.mark.slow
def test_it_is_a_notebook() -> None:
    notebook = jupytext.read(NOTEBOOK)
    kinds = [cell.cell_type for cell in notebook.cells]
    assert kinds[0] == "markdown"
    assert notebook.cells[0].source.startswith("# From a log to fair lists")
    assert kinds.count("code") >= 8
    assert kinds.count("markdown") >= 6


@pytest.mark.slow
def test_it_runs_and_the_rules_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(NOTEBOOK))
    before, after = names["shares"](names["today"]), names["shares"](names["fair"])
    assert before["popular"] > 0.6
    assert before["small sellers"] < 0.2
    assert after["popular"] <= 0.4
    assert after["small sellers"] >= 0.5
    costs = names["costs"]
    assert (costs["share"] <= costs["limit"]).all()
    assert costs["ndcg"][0] < costs["ndcg"][-1]
    share = dict(zip(*names["last"].select("lists", "share"), strict=True))
    assert share["limit of 40 %"] <= 0.4 < 0.6 < share["no limit"]
    charts = {path.name for path in Path("charts").iterdir()}
    assert charts == {"shares.png", "lorenz.png", "limits.png", "long-run.png"}
