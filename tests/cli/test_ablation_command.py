"""fairhorizon ablation at work: what it prints, writes, keeps and refuses."""

import json
from pathlib import Path

import pytest

from fairhorizon.cli.app import run

MARKET = "--data=synthetic:users=60,items=80,interactions_per_user=20"
TINY = [
    f"--set=fcpo.{setting}"
    for setting in (
        *('warm_start=["ease"]', "adapt=false", "spread=none"),
        *("rounds=1", "horizon=3", "cg_iterations=3"),
    )
]


def test_ablation_prints_writes_and_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, file = tmp_path / "new" / "ablation", tmp_path / "rows.json"
    command = [
        *("ablation", MARKET, *TINY, "--variants=fast,no-rounds,fast", "--alpha-prime=0.3"),
        *("--k=10", "--seeds=2", "--jobs=1", f"--out={out}"),
    ]
    assert run([*command, f"--json={file}"]) == 0
    printed = capsys.readouterr()
    assert "ease seed 0 fitted in " in printed.err
    assert "1/4  fast seed 0  popular " in printed.err
    assert "4/4  no-rounds seed 1  popular " in printed.err
    assert "Served with at most 30 % popular items" in printed.out
    found = json.loads(file.read_text(encoding="utf-8"))
    assert found == json.loads((out / "ablation.json").read_text(encoding="utf-8"))
    assert found["k"] == 10
    assert found["command"].startswith("fairhorizon ablation --data ")
    assert [row["method"] for row in found["rows"]] == ["fast", "no-rounds"]
    for row in found["rows"]:
        assert (row["alpha_prime"], row["limit"], row["seeds"]) == (0.3, 0.3, [0, 1])
        assert row["metrics"]["popularity_rate@10"]["mean"] <= 0.3 + 5e-4
    assert [len(row["courses"][1]["share"]) for row in found["rows"]] == [2, 1]
    assert "| no-rounds | 0, 0 |" in (out / "ablation.md").read_text(encoding="utf-8")

    results = {path: path.stat().st_mtime_ns for path in out.glob("[mr]o*/*")}
    assert len(results) == 4 + 2 * 2 * 2  # rows, and rankers of both parts with their cards
    assert run(command) == 0
    assert {path: path.stat().st_mtime_ns for path in out.glob("[mr]o*/*")} == results


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--variants=fast,strange"], 2, "--variants: 'strange' (there are fast, no-rounds, "),
        (["--variants="], 2, "--variants: ''"),
        (["--alpha-prime=0"], 1, "alpha_prime=0.0: give a number above 0"),
        (["--set=fcpo.roundz=3"], 1, "there is no roundz"),
        (["--set=ease.l2=3"], 1, "settings of ease: the variants are those of fcpo"),
        (["--set=fcpo.alpha_prime=0.3"], 1, "(give --alpha-prime instead)"),
        (["--k=81"], 1, "there are only 80 items"),
        (["--json=."], 1, ".: Is a directory"),
    ],
)
def test_mistakes_are_refused_before_any_work(
    arguments: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["ablation", MARKET, *arguments]) == code
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
