"""fairhorizon longterm at work: what it prints, writes, keeps and refuses."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from fairhorizon import histories
from fairhorizon.cli.app import run

MARKET = "--data=synthetic:users=60,items=80,interactions_per_user=20"
LONGTERM = ("longterm", MARKET, "--jobs=1")
SMALL = ("--set=mf.dim=4", "--set=mf.max_epochs=2")


def fairhorizon(*arguments: object) -> None:
    assert run([str(argument) for argument in arguments]) == 0


def content(file: Path) -> dict[str, Any]:
    """Strict JSON: no NaN and no Infinity."""
    text = file.read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(
        text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON")
    )
    return loaded


@pytest.mark.slow
def test_from_a_comparison_to_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, file = tmp_path / "new" / "long", tmp_path / "rows.json"
    fairhorizon("compare", MARKET, *SMALL, "--methods=mf", "--seeds=2", "--jobs=1", "--out", out)
    models = {path: path.stat().st_mtime_ns for path in out.glob("models/*")}
    capsys.readouterr()
    command = (*LONGTERM, *SMALL, "--steps=12", "--seeds=2", "--warm-up=4", "--out", out)
    fairhorizon(*command, "--methods=mf+foe,mf,popularity", "--round=6", "--json", file)
    said = capsys.readouterr()
    assert said.err.count(" trained in ") == 2  # popularity alone, with two seeds
    assert "6/6  " in said.err
    assert "mf+foe seed 1  NDCG " in said.err
    assert "After step 12, 2 seeds" in said.out
    assert "Seconds per step: mf+foe 0." in said.out
    assert {path: path.stat().st_mtime_ns for path in models} == models

    steps = pl.read_parquet(out / "steps" / "*.parquet")
    assert steps.height == 3 * 2 * 12
    assert set(steps["method"]) == {"mf+foe", "mf", "popularity"}
    summary = content(file)
    assert summary == content(out / "longterm.json")
    assert [row["method"] for row in summary["rows"]] == ["mf+foe", "mf", "popularity"]
    last = steps.filter(pl.col("step") == 12, pl.col("method") == "mf")["gini"]
    assert summary["rows"][1]["metrics"]["gini"] == pytest.approx(
        {"mean": last.mean(), "std": last.std()}
    )
    settings = summary["settings"]
    assert (settings["steps"], settings["warm_up"], settings["round_length"]) == (12, 4, 6)
    for figure in ("figure4.png", "control.png", "churn.png"):
        assert (out / figure).read_bytes().startswith(b"\x89PNG")
    assert "fairhorizon longterm" in (out / "index.html").read_text(encoding="utf-8")

    before = {path: path.stat().st_mtime_ns for path in out.glob("steps/*")}
    fairhorizon(*command, "--methods=popularity,mf", "--round=6")
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert [row["method"] for row in content(out / "longterm.json")["rows"]] == ["popularity", "mf"]


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["--methods=esae"], 2, ["--methods: there is no method 'esae' (there are"]),
        (["--steps=0"], 2, ["--steps"]),
        (["--k=0"], 2, ["--k"]),
        (["--round=0"], 2, ["--round"]),
        (["--repeat-after=0"], 2, ["--repeat-after"]),
        (["--seeds=0"], 2, ["--seeds"]),
        (["--alpha-prime=1.5"], 2, ["--alpha-prime"]),
        (["--retrain=some"], 2, ["--retrain"]),
        (["--users=real"], 2, ["--users"]),
        (["--methods=mf", "--k=81"], 1, ["--k 81: there are only 80 items"]),
        (["--methods=mf", "--drift=0.1"], 1, ["--drift: only for simulated users (give --users "]),
        (["--methods=mf", "--position-bias=1"], 1, ["--position-bias: only for simulated users"]),
        (["--users=simulated", "--drift=-1"], 2, ["--drift: -1.0: give at least 0"]),
        (
            ["--users=simulated", "--position-bias=-1"],
            2,
            ["-bias: -1.0: give at least 0"],
        ),
        (["--methods=mf", "--patience=4"], 1, ["--patience: only for users who can leave (give"]),
        (["--users=simulated", "--quit=4/10"], 1, ["--quit: only for users who can leave"]),
        (["--users=leaving", "--quit=10/4"], 2, ["--quit: '10/4' (give two whole numbers, the sm"]),
        (["--users=leaving", "--like-adds=0"], 2, ["--like-adds: 0.0: give a number above 0"]),
        (["--users=leaving", "--patience=1"], 2, ["--patience"]),
        (["--methods=fcpo", "--limit=a=A:0.3"], 2, ["after <= or >= (give a=A<=0.3)"]),
        (["--methods=fcpo", "--limit=gini<=2"], 2, ["--limit: 'gini<=2', position 7: '2' is no"]),
        (["--methods=fcpo", "--limit=kind=A>=0.2"], 1, ["no column 'kind'"]),
        (
            ["--methods=mf", "--limit=gini<=0.8"],
            1,
            ["gini<=0.8: none of the methods can keep it (add fcpo"],
        ),
        (
            ["--limit=popular<=0.4", "--alpha-prime=0.3"],
            2,
            ["--limit: popular<=0.4 and --alpha-prime 0.3 (give one)"],
        ),
        (
            ["--limit=popular<=0.4;labels=lagged:3", "--limit=popular>=0.1;labels=lagged:4"],
            2,
            ["--limit: labels lag by several numbers of steps (give one)"],
        ),
        (["--methods=fcpo", "--set=fcpo.list_length=2"], 1, ["fcpo.list_length=2 and lists of 1"]),
        (["--methods=mf", "--set=mf.dims=3"], 1, ["mf: there is no dims"]),
        (["--methods=mf", "--json=."], 1, [".: Is a directory"]),
        (
            ["--methods=ease+control", "--set=control.mmr=0.5"],
            1,
            ["ease+control: mmr and kind_quota are about kinds", "no column 'genre'", "--by"],
        ),
        (
            ["--methods=ease+control", "--by=genre"],
            1,
            ["--by: nothing looks at kinds of items (give --users leaving, or --set control.mmr="],
        ),
        (
            ["--methods=ease+control", "--set=control.kind_quota=12"],
            1,
            ["kind_quota=12 of a window of 10 closes nothing (give less than window)"],
        ),
        (["--methods=fcpo", "--group-column=kind"], 1, ["go together (give both)"]),
        (["--methods=fcpo", "--item-table=a.csv"], 1, ["a.csv: there is no such file"]),
    ],
)
def test_mistakes_are_refused_before_any_work(
    arguments: list[str],
    code: int,
    parts: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run([*LONGTERM, *arguments]) == code
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    for part in parts:
        assert part in message
    assert list(tmp_path.iterdir()) == []


def test_more_users_times_items_than_a_table_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(histories, "DENSE_CELLS", 1000)
    assert run([*LONGTERM, "--methods=ease+control"]) == 1
    message = capsys.readouterr().err
    assert "users x 80 items are" in message
    assert "cells, and at most 1,000 are possible (take fewer users" in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_items_are_offered_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """80 items: 45 lists of 2 are more, 40 lists are not; with repeats after 41 steps some are."""
    command = [*LONGTERM, "--methods=popularity", "--seeds=1", "--steps=45", "--k=2"]
    notes, rates = [], []
    for number, repeats in enumerate(([], ["--repeat-after=5"], ["--repeat-after=41"])):
        out = tmp_path / str(number)
        assert run([*command, *repeats, f"--out={out}"]) == 0
        notes += [line for line in capsys.readouterr().err.splitlines() if "will be empty" in line]
        (file,) = (out / "steps").glob("*.parquet")
        rates.append(pl.read_parquet(file)["popularity_rate_initial"][-1])
        settings = content(out / "longterm.json")["settings"]
        assert settings.get("repeat_after") == (None, 5, 41)[number]
    assert notes == [
        "note: 45 lists of 2 need more than the 80 items there are: the last lists will be empty",
        "note: 41 lists of 2 need more than the 80 items there are: some lists will be empty",
    ]
    assert rates[1] > 0.7 > 0.3 > rates[0]  # the best items over and over, or all of them


def test_limits_of_groups_in_an_item_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{item},{'AB'[item % 2]}" for item in range(80)]
    Path("items.csv").write_text("item,kind\n" + "\n".join(rows))
    command = [*LONGTERM, "--methods=fcpo", "--item-table=items.csv"]
    assert run([*command, "--limit=kind=C<=0.2"]) == 1
    assert "no item has the attribute value 'C' (the values are A, B)" in capsys.readouterr().err
    assert run([*command, "--limit=size=A<=0.2"]) == 1
    assert "no column 'size'; there are kind" in capsys.readouterr().err
    assert run([*command, "--limit=kind=A<=0.2", "--limit=kind=A>=0.3"]) == 1
    said = capsys.readouterr().err
    assert "kind=A<=0.2, kind=A>=0.3: no 80 items that a user may be shown keep" in said
    assert [path.name for path in tmp_path.iterdir()] == ["items.csv"]


@pytest.mark.slow
def test_rules_about_kinds_of_an_item_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each setting is a run of its own, beside the others in the same folder."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{item},{'AB'[item % 2]}" for item in range(80)]
    Path("items.csv").write_text("item,kind\n" + "\n".join(rows))
    command = [*LONGTERM, "--methods=ease+control", "--seeds=1", "--steps=5", "--by=kind"]
    rules = (["--set=control.mmr=0.2"], ["--set=control.kind_quota=1", "--set=control.window=2"])
    for rule in rules:
        assert run([*command, *rule, "--item-table=items.csv", "--out=out"]) == 0
    files = list(Path("out/steps").glob("*.parquet"))
    assert len({pl.read_parquet(file)["ndcg"][-1] for file in files}) == 2 == len(files)
    assert len(list(Path("out/models").glob("ease-*.safetensors"))) == 1
    capsys.readouterr()
    assert run([*command, *rules[0], "--by=size", "--item-table=items.csv", "--out=out"]) == 1
    assert "no column 'size'; there are kind" in capsys.readouterr().err


def test_what_is_not_measured_and_how_further_limits_were_kept_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{item},{'AB'[item % 2]}" for item in range(80)]
    Path("items.csv").write_text("item,kind\n" + "\n".join(rows))
    small = ("fcpo.rounds=0", 'fcpo.warm_start=["ease","itemknn"]')
    command = (*LONGTERM, *(f"--set={one}" for one in small), "--methods=fcpo", "--seeds=1")
    command = (*command, "--item-table=items.csv", "--limit=kind=A>=0.4", "--steps=5")
    assert run([*command, "--warm-up=5"]) == 0
    said = capsys.readouterr()
    assert (
        "note: a warm-up of 5 steps leaves none of the 5 at which the limit is checked" in said.err
    )
    floor = r"kind=A>=0\.4: (\S+) % reached, must be at least 40 %; "
    assert re.search(floor + "not checked, no step comes after the warm-up", said.out)
    assert run([*command, "--warm-up=2"]) == 0
    said = capsys.readouterr()
    assert "a warm-up" not in said.err
    shown = re.search(floor + r"kept after the warm-up \(fcpo\)", said.out)
    assert shown is not None
    (row,) = content(Path("longterm/longterm.json"))["limits"]
    assert (row["limit"], row["method"]) == ("kind=A>=0.4", "fcpo")
    assert (row["bound"], row["is_floor"]) == (0.4, True)
    assert 0.4 <= row["reached"]["mean"] == pytest.approx(float(shown[1]) / 100, abs=1e-4)
    assert f"{shown[1]} %" in Path("longterm/longterm.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_ctrl_c_keeps_what_there_is_and_resume_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    command = [*LONGTERM, "--methods=popularity", "--seeds=1", "--steps=300", f"--out={out}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "fairhorizon", *command],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error"},
    )
    deadline = time.monotonic() + 60
    while not list(out.glob("steps/*.safetensors")) and process.poll() is None:
        assert time.monotonic() < deadline, "no checkpoint"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    try:
        _, rest = process.communicate(timeout=60)
    finally:
        process.kill()  # should it go on
    assert process.returncode == 130
    assert rest.splitlines()[-2:] == ["run the same command with --resume to continue", "stopped"]
    assert "Traceback" not in rest
    before = pl.read_parquet(out / "steps" / "*.parquet")
    assert before["step"].to_list() == list(range(1, before.height + 1))
    assert 10 <= before.height < 300

    assert run(command) == 1
    said = capsys.readouterr().err
    assert "this run is not finished (--resume continues it, another --out starts again)" in said
    assert run([*command, "--resume"]) == 0
    after = pl.read_parquet(out / "steps" / "*.parquet")
    assert after.height == 300
    assert after["seconds"][:10].to_list() == before["seconds"][:10].to_list()
    assert (out / "index.html").exists()


@pytest.mark.slow
def test_a_round_that_is_never_finished_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (*LONGTERM, "--steps=6", "--warm-up=1", "--seeds=1", "--out", tmp_path / "out")
    fairhorizon(*command, "--methods=popularity,popularity+quota,popularity+tfrom")
    note = (
        "note: a user is shown 6 items, less than a round of 100: the limit of popularity+quota is "
        "for a whole round and may never take effect (give --round 6 or less)"
    )
    assert capsys.readouterr().err.count(note) == 1
    fairhorizon(*command, "--methods=popularity,popularity+quota", "--round=6")
    fairhorizon(*command, "--methods=popularity")
    assert "round" not in capsys.readouterr().err
