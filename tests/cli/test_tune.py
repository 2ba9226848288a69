"""The command tune: what it writes, how it continues, what it refuses."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fairhorizon.cli.app import run
from fairhorizon.evaluation.short_term import validation_ndcg
from fairhorizon.model.folder import ModelFolder
from fairhorizon.studies.tuning import Objective

MARKET = "synthetic:users=40,items=60,interactions_per_user=15"
TUNE = ["tune", "itemknn:recent", "--data", MARKET, "--set", "neighbours=30"]


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("protocol", ["standard", "paper"])
def test_the_command_it_prints_gives_the_validation_it_found(
    protocol: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*TUNE, "--trials=4", "--protocol", protocol, "--out=t", "--json=t.json"]) == 0
    said = capsys.readouterr()
    best = json.loads(Path("t/best.json").read_text())
    shown = [line.split() for line in said.err.splitlines() if line.startswith("trial ")]
    assert [line[1] for line in shown] == ["1/4", "2/4", "3/4", "4/4"]
    assert max(line[3] for line in shown) == f"{best['validation']:.4f}"
    assert (best["method"], best["protocol"], best["trials"]) == ("itemknn:recent", protocol, 4)
    assert sorted(best["settings"]) == ["half_life", "neighbours", "popularity", "shrinkage"]
    assert best["settings"]["neighbours"] == 30

    summary, command = said.out.splitlines()
    assert summary.startswith(f"t/best.json: validation NDCG@20 {best['validation']:.4f}, trial ")
    program, *arguments = shlex.split(command)
    assert (program, arguments[:2]) == ("fairhorizon", ["fit", "itemknn:recent"])
    assert run(arguments) == 0
    fitted = ModelFolder(Path("runs/itemknn"))
    parts = fitted.data().open().split
    assert validation_ndcg(fitted.recommender(), parts, protocol) == best["validation"]

    (row,) = json.loads(Path("t.json").read_text())["rows"]
    assert row["metrics"] == {"validation_ndcg@20": {"mean": best["validation"], "std": 0}}
    assert row["settings"] == best["settings"]
    assert (row["method"], row["protocol"], row["mode"]) == ("itemknn:recent", protocol, "one-shot")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "preset"),
    [
        (["fcpo@0.5"], "paper"),
        (["fcpo@0.5", "--preset=strong"], "strong"),
        (["fcpo:strong@0.5"], "strong"),
    ],
)
def test_the_command_it_prints_has_the_preset(
    method: list[str], preset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own = {"paper": "pmf.max_epochs=2", "strong": 'warm_start=["ease"]'}
    small = [f"--set={own[preset]}", "--set=rounds=2", "--set=history=3"]
    assert run(["tune", *method, "--data", MARKET, *small, "--trials=2", "--out=t"]) == 0
    best = json.loads(Path("t/best.json").read_text())
    assert (best["method"], best["preset"]) == ("fcpo", preset)
    _, *arguments = shlex.split(capsys.readouterr().out.splitlines()[-1])
    assert arguments[:2] == ["fit", f"fcpo:{preset}"]
    assert not [word for word in arguments if word.startswith("--preset")]
    assert run(arguments) == 0
    fitted = ModelFolder(Path("runs/fcpo"))
    parts = fitted.data().open().split
    assert validation_ndcg(fitted.recommender(), parts, "standard") == best["validation"]


def test_a_second_call_continues_and_another_search_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = Path("tune/itemknn-recent-synthetic-users-40-items-60-interactions_per_user-15")
    for trials, expected in ((2, ["1/2", "2/2"]), (3, ["3/3"]), (3, [])):
        assert run([*TUNE, f"--trials={trials}"]) == 0
        lines = capsys.readouterr().err.splitlines()
        assert [line.split()[1] for line in lines] == expected
    assert json.loads((folder / "best.json").read_text())["trials"] == 3
    assert sorted(path.name for path in folder.iterdir()) == ["best.json", "study.db"]
    kept = (folder / "best.json").read_bytes()
    assert run([*TUNE, "--seed=1"]) == 1
    assert capsys.readouterr().err == (
        f"error: {folder}: holds a search of itemknn:recent with other seed (name another --out, "
        "or give what it was started with)\n"
    )
    assert (folder / "best.json").read_bytes() == kept


def test_ctrl_c_keeps_the_finished_trials(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, calls = Objective.value, []

    def stopped_at_the_third(objective: Objective, settings: dict[str, object]) -> float:
        calls.append(settings)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(objective, settings)

    with monkeypatch.context() as patched:
        patched.setattr(Objective, "value", stopped_at_the_third)
        assert run([*TUNE, "--trials=5", "--out=t"]) == 130
    said = capsys.readouterr().err.splitlines()
    assert said[-2:] == ["2 trials are kept; run the same command to continue", "stopped"]
    best = json.loads(Path("t/best.json").read_text())
    assert best["trials"] == 2
    assert run([*TUNE, "--trials=5", "--out=t"]) == 0
    assert [line.split()[1] for line in capsys.readouterr().err.splitlines()] == [
        "3/5",
        "4/5",
        "5/5",
    ]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nothing"], 2, "METHOD: there is no method 'nothing'"),
        (["ease+quota"], 2, "METHOD: ease+quota: a re-ranker is not trained (tune ease, then fit"),
        (["popularity"], 1, "popularity has no settings to search (fit it as it is)"),
        (["itemknn:recent", "--set=bogus=1"], 2, "there is no bogus (but neighbours,"),
        (["itemknn", "--trials=0"], 2, "--trials"),
        (["itemknn", "--data=gone.csv"], 1, "'gone.csv' is neither a file nor a named"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(
    arguments: list[str],
    code: int,
    message: str,
    place: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["tune", "--data", MARKET, "--out=new/t", *arguments]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert list(place.iterdir()) == []


def test_without_optuna_there_is_a_remedy(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert run([*TUNE, "--out=t"]) == 1
    assert capsys.readouterr().err == (
        "error: tune needs Optuna (pip install 'fairhorizon[tune]')\n"
    )
    assert list(place.iterdir()) == []


def test_help_waits_for_nothing_heavy() -> None:
    program = (
        "import sys; from fairhorizon.cli.app import run; "
        "assert run(['tune', '--help']) == run(['audit', '--help']) == 0; "
        "slow = {'torch', 'numpy', 'polars', 'scipy', 'optuna', 'jinja2', 'vl_convert'}; "
        "assert not slow & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 80
