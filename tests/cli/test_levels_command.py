"""fairhorizon levels at work: what it prints, writes, keeps and refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from fairhorizon.cli.app import run

MARKET = "--data=synthetic:users=60,items=80,interactions_per_user=20"
TINY_FCPO = [
    f"--set=fcpo.{setting}"
    for setting in ('warm_start=["ease"]', "rounds=0", "pmf.dim=4", "pmf.max_epochs=2")
]


def content(file: Path) -> dict[str, Any]:
    """Strict JSON: no NaN and no Infinity."""
    text = file.read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(
        text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON")
    )
    return loaded


@pytest.mark.slow
def test_levels_prints_writes_and_keeps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, file = tmp_path / "new" / "levels", tmp_path / "rows.json"
    command = [
        *("levels", MARKET, "--methods=fcpo:strong,ease+quota,popularity+penalty", *TINY_FCPO),
        *("--levels=0.5,0.2", "--k=10", "--seeds=1", "--tries=3", "--jobs=1", f"--out={out}"),
        "--mode=interactive",
    ]
    assert run([*command, f"--json={file}"]) == 0
    printed = capsys.readouterr()
    assert "fcpo:strong@0.5 seed 0  popular " in printed.err
    assert "At most 20 % popular items in lists of 10" in printed.out
    assert "FCPO against the best rival and without CPO rounds" in printed.out
    assert "By place, at most 20 % popular items" in printed.out
    assert "Who pays, at most 50 % popular items" in printed.out
    assert "fcpo:strong@1 seed 0  NDCG@10" in printed.err
    found = content(file)
    assert found == content(out / "levels.json")
    assert (found["k"], found["levels"]) == (10, [0.5, 0.2])
    assert found["command"].startswith("fairhorizon levels --data ")
    names = ["fcpo:strong", "ease+quota", "popularity+penalty"]
    assert [(row["level"], row["method"]) for row in found["rows"]] == [
        (level, name) for level in (0.5, 0.2) for name in names
    ]
    for row in found["rows"]:
        assert row["mode"] == "interactive"
        assert row["metrics"]["popularity_rate@10"]["mean"] <= row["level"] + 5e-4
    best = {row["level"]: row for row in found["rows"] if row["best_rival"]}
    for gain in found["gains"]:
        (ours,) = (r for r in found["rows"] if r["ours"] and r["level"] == gain["level"])
        rival = best[gain["level"]]
        own, theirs = (row["metrics"]["ndcg@10"]["mean"] for row in (ours, rival))
        assert gain["rival"] == rival["method"]
        assert gain["low"] <= gain["difference"] <= gain["high"]
        assert gain["difference"] == pytest.approx(own - theirs)
        assert gain["gain"] == pytest.approx(own / theirs - 1)
        assert 0 <= gain["t_test"] <= gain["t_test_corrected"] <= 1
    for row in found["rows"]:
        places = row["metrics"]
        assert {"popularity_rate@5", "weighed_rate@10", "lists_above@10"} < set(places)
        assert 0 <= places["weighed_rate@10"]["mean"] <= 1
    ours = [line for line in found["who_pays"] if line["ours"]]
    assert [line["level"] for line in ours] == [0.5] * 6 + [0.2] * 6
    for level in (0.5, 0.2):
        thirds = [line for line in ours if (line["level"], line["trait"]) == (level, "activity")]
        users = sum(line["users"] for line in thirds)
        (row,) = (r for r in found["rows"] if r["ours"] and r["level"] == level)
        mean = sum(line["users"] * line["limited"] for line in thirds) / users
        assert mean == pytest.approx(row["metrics"]["ndcg@10"]["mean"])
    assert "| fcpo:strong" in (out / "levels.md").read_text(encoding="utf-8")
    assert (out / "levels.png").read_bytes().startswith(b"\x89PNG")

    results = {path: path.stat().st_mtime_ns for path in out.glob("[mr]o*/*")}
    assert results
    assert run(command) == 0
    assert {path: path.stat().st_mtime_ns for path in out.glob("[mr]o*/*")} == results


@pytest.mark.slow
def test_levels_under_limits_by_place_and_on_a_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --limit alone there are no default levels; a plain limit is a level."""
    log, out = tmp_path / "log.csv", tmp_path / "out"
    cells = [
        f"{user},{(user * 3 + n * n) % 23},{n},{'A' if (user * 3 + n * n) % 23 < 9 else 'B'}"
        for user in range(30)
        for n in range(12)
    ]
    log.write_text("user,item,timestamp,seller\n" + "\n".join(cells) + "\n", encoding="utf-8")
    command = [
        *("levels", f"--data={log}", "--methods=ease+lists,ease+quota", "--seeds=1", "--k=5"),
        *("--jobs=1", "--tries=2", f"--out={out}", "--limit=seller=A<=0.4;weights=log"),
    ]
    assert run(command) == 0
    printed = capsys.readouterr().out
    assert "At most 40 % items with seller = A weighed by 1/log2(1 + place)" in printed
    found = content(out / "levels.json")
    assert (found["group"], found["levels"]) == ("seller = A", [0.4])
    assert found["limits"] == ["seller=A<=0.4;weights=log"]
    for row in found["rows"]:
        assert row["metrics"]["weighed_rate@5"]["mean"] <= 0.4 + 1e-9
        assert row["metrics"]["counted_share"] == row["metrics"]["weighed_rate@5"]
    assert run([*command[:-1], "--limit=seller=A<=0.4", "--levels=0.4,0.3"]) == 0
    found = content(out / "levels.json")
    assert found["limits"] == ["seller=A<=0.4", "seller=A<=0.3"]


def test_without_test_items_there_is_no_accuracy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    rows = [f"{user},{(user + n) % 7},{n}" for user in range(9) for n in range(2)]
    log.write_text("user,item,timestamp\n" + "\n".join(rows) + "\n", encoding="utf-8")
    out = tmp_path / "out"
    command = ["levels", f"--data={log}", "--methods=popularity+quota,popularity", "--seeds=1"]
    assert run([*command, "--k=3", "--jobs=1", f"--out={out}"]) == 0
    assert "no user has test items" in capsys.readouterr().err
    found = content(out / "levels.json")
    assert found["gains"] == []
    assert not any(row["best_rival"] for row in found["rows"])


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--levels=0.5,x"], 2, "--levels: '0.5,x' (give shares above 0 and up to 1, as in"),
        (["--levels=0"], 2, "--levels: '0' (give shares"),
        (["--levels=37"], 2, "--levels: '37' (give shares"),
        (["--levels=nan"], 2, "--levels: 'nan' (give shares"),
        (["--levels=,"], 2, "--levels: ',' (give shares"),
        (["--limit=popular<0.4"], 2, "--limit: 'popular<0.4', position 8: <= or >= is missing"),
        (["--limit=gini<=0.8"], 2, "--limit: 'gini<=0.8': a level is a largest share"),
        (["--limit=popular<=0.4;labels=moment"], 2, "(leave out labels)"),
        (["--methods=ease+quota@0.4"], 2, "the levels are those of --levels (give ease+quota)"),
        (["--methods=fcpo:paper@0.4"], 2, "the levels are those of --levels (give fcpo:paper)"),
        (["--methods=esae"], 2, "there is no method 'esae'"),
        (["--methods=ease", "--set=ease.l3=1"], 1, "ease: there is no l3"),
        (["--methods=ease", "--k=81"], 1, "there are only 80 items"),
        (["--methods=ease", "--json=."], 1, ".: Is a directory"),
        (
            ["--methods=fcpo", "--set=fcpo.warm_start=[]", "--set=fcpo.starts=first"],
            1,
            "a model is trained for one level",
        ),
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
    assert run(["levels", MARKET, *arguments]) == code
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
