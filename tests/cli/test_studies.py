"""compare, frontier and efficiency at work: what they print, write, keep and refuse."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import typer

from fairhorizon import __version__
from fairhorizon.cli import longterm
from fairhorizon.cli.app import app, run
from fairhorizon.cli.studies import COMPARED, SWEPT
from fairhorizon.data.splits import split
from fairhorizon.data.synthetic import synthetic
from fairhorizon.evaluation.short_term import evaluate
from fairhorizon.methods import Method, build

MARKET = "--data=synthetic:users=60,items=80,interactions_per_user=20"
SMALL = ["--set=bpr.dim=4", "--set=bpr.max_epochs=2"]
TINY_FCPO = [
    f"--set=fcpo.{setting}"
    for setting in ("rounds=2", "horizon=5", 'warm_start=["ease","itemknn"]')
]


def fairhorizon(*arguments: object) -> None:
    assert run([str(argument) for argument in arguments]) == 0


def content(file: Path) -> dict[str, list[dict[str, object]]]:
    """Strict JSON: no NaN and no Infinity."""
    text = file.read_text(encoding="utf-8")
    loaded: dict[str, list[dict[str, object]]] = json.loads(
        text, parse_constant=lambda word: pytest.fail(f"{word} is not JSON")
    )
    return loaded


def test_compare_prints_writes_and_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, file = tmp_path / "new" / "table", tmp_path / "rows.json"
    command = ("compare", MARKET, *SMALL, "--seeds=2", "--k=5,10", "--jobs=1", "--out", out)
    fairhorizon(*command, "--methods=popularity,bpr", "--json", file)
    printed = capsys.readouterr()
    assert "4/4" in printed.err
    assert "bpr" in printed.out
    rows = content(file)["rows"]
    assert [row["method"] for row in rows] == ["popularity", "bpr"]
    assert {(row["protocol"], row["mode"]) for row in rows} == {("standard", "one-shot")}
    # against the library, seed by seed
    parts = split(synthetic(60, 80, 20).interactions)
    values = [
        evaluate(
            build(Method("bpr"), {"dim": 4, "max_epochs": 2}, seed).fit(parts), parts, ks=[5, 10]
        ).metrics["ndcg@10"]
        for seed in (0, 1)
    ]
    assert rows[1]["metrics"]["ndcg@10"] == pytest.approx(  # type: ignore[index]
        {"mean": sum(values) / 2, "std": abs(values[0] - values[1]) / 2**0.5}
    )
    assert content(out / "comparison.json") == content(file)
    made_by = json.loads(file.read_text(encoding="utf-8"))["made_by"]
    assert made_by["seeds"] == [0, 1]
    assert made_by["version"] == __version__
    assert made_by["packages"]["numpy"] == np.__version__
    assert made_by["command"].startswith("fairhorizon compare --data synthetic:users=60")
    assert made_by["data"]["fingerprints"] == {
        name: getattr(parts, name).fingerprint() for name in ("train", "validation", "test")
    }
    assert "popularity" in (out / "table.md").read_text(encoding="utf-8")
    page = (out / "index.html").read_text(encoding="utf-8")
    assert "<table" in page
    assert "<code>fairhorizon compare --data synthetic:users=60,items=80" in page
    assert f"--out {out} --json {file}" in page
    assert "--jobs 1" in page
    models = {path: path.stat().st_mtime_ns for path in out.glob("models/*")}
    fairhorizon(*command, "--methods=bpr+quota@0.2,bpr,popularity")
    assert {path: path.stat().st_mtime_ns for path in out.glob("models/*")} == models


@pytest.mark.parametrize(("command", "seeds"), [("compare", 5), ("frontier", 1), ("levels", 5)])
def test_study_commands_share_their_options(command: str, seeds: int) -> None:
    parameters = {p.name: p for p in typer.main.get_command(app).commands[command].params}  # type: ignore[attr-defined]
    shared = {"methods", "seeds", "protocol", "mode", "settings_files", "settings", "json_file"}
    shared |= {"data", "cut", "sensitive", "user", "jobs", "engine_name", "address", "threads"}
    assert shared <= set(parameters)
    assert parameters["seeds"].default == seeds
    assert Path(parameters["out"].default).name == {"compare": "comparison"}.get(command, command)


def test_compare_under_protocol_paper_prints_the_papers_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ("compare", MARKET, *SMALL, "--seeds=1", "--jobs=1", "--protocol=paper")
    fairhorizon(*command, "--methods=bpr", "--out", tmp_path / "a", "--json", tmp_path / "a.json")
    assert content(tmp_path / "a.json")["rows"][0]["protocol"] == "paper"
    assert "significance" not in capsys.readouterr().out  # of one method


def test_settings_come_from_files_and_from_the_command(tmp_path: Path) -> None:
    file, best = tmp_path / "settings.json", tmp_path / "best.json"
    file.write_text('{"bpr": {"dim": 3, "max_epochs": 1}, "quota": {"share": 0.3}}')
    best.write_text('{"method": "bpr", "settings": {"dim": 5}, "validation": 0.1}')
    fairhorizon(
        *("compare", MARKET, "--methods=bpr+quota", "--seeds=1", "--jobs=1", "--k=5"),
        *("--settings", file, "--settings", best, "--set=bpr.max_epochs=2"),
        *("--out", tmp_path / "out", "--json", tmp_path / "rows.json"),
    )
    settings = content(tmp_path / "rows.json")["rows"][0]["settings"]
    assert isinstance(settings, dict)
    assert (settings["dim"], settings["max_epochs"]) == (5, 2)
    assert settings["quota"] == {"share": 0.3}


@pytest.mark.slow
def test_frontier_sweeps_dials_and_measures_the_area(tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "rows.json"
    fairhorizon(
        *("frontier", MARKET, "--methods=popularity,popularity+quota,fcpo@0.5", *TINY_FCPO),
        *("--k=10", "--jobs=1", "--out", out, "--json", file),
    )
    rows = content(file)["rows"]
    quotas = [row for row in rows if str(row["method"]).startswith("popularity+quota@")]
    rates = [row["metrics"]["popularity_rate@10"]["mean"] for row in quotas]  # type: ignore[index]
    assert rates[0] == pytest.approx(0.1)
    assert rates == sorted(rates)
    assert all(rate <= 0.1 * n + 1e-9 for n, rate in enumerate(rates, 1))
    assert len(rows) == 12
    areas = {row["method"]: row for row in content(file)["hypervolume"]}
    assert set(areas) == {"popularity", "popularity+quota", "fcpo"}
    assert (out / "frontier.png").read_bytes().startswith(b"\x89PNG")
    assert "vegaEmbed" in (out / "index.html").read_text(encoding="utf-8")


def test_a_level_that_is_named_twice_is_one_point(tmp_path: Path) -> None:
    fairhorizon(
        *("frontier", MARKET, "--methods=popularity+quota,popularity+quota@0.4", "--k=10"),
        *("--jobs=1", "--out", tmp_path / "out", "--json", tmp_path / "rows.json"),
    )
    levels = [row["level"] for row in content(tmp_path / "rows.json")["rows"]]
    assert len(levels) == len(set(levels)) == 10


@pytest.mark.slow
@pytest.mark.filterwarnings("always::fairhorizon.data.interactions.NoTimestampsWarning")
def test_what_is_odd_about_the_data_is_said_once(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"  # two items a user: one to train, one to validate, none to test
    rows = [f"{user},{(user + n) % 7}" for user in range(9) for n in range(2)]
    log.write_text("user,item\n" + "\n".join(rows) + "\n", encoding="utf-8")
    fairhorizon(
        *("compare", f"--data={log}", "--methods=popularity,ease", "--seeds=1", "--jobs=2"),
        *("--k=3", "--out", tmp_path / "out", "--json", tmp_path / "rows.json"),
    )
    said = capfd.readouterr().err
    assert said.count("has no timestamps") == 1
    assert said.count("note: no user has test items, so recall, F1 and NDCG are undefined") == 1
    for row in content(tmp_path / "rows.json")["rows"]:
        assert row["metrics"]["ndcg@3"] == {"mean": None, "std": None}  # type: ignore[index]


def test_efficiency_times_every_contestant(tmp_path: Path) -> None:
    out, file = tmp_path / "out", tmp_path / "rows.json"
    fairhorizon(
        *("efficiency", MARKET, "--ranker=popularity", "--k=10", "--repeats=2"),
        *("--out", out, "--json", file),
    )
    rows = content(file)["rows"]
    assert [(row["method"], row["candidates"]) for row in rows] == [
        ("popularity", None),
        ("popularity+foe", 80),  # no more than the catalogue has
        ("fcpo:paper", None),
    ]
    assert all(row["metrics"]["seconds"]["mean"] > 0 for row in rows)  # type: ignore[index]
    assert (out / "efficiency.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "index.html").exists()


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        (["compare", MARKET, "--methods=esae"], 2, ["--methods: there is no method 'esae' (there"]),
        (["compare", MARKET, "--methods=,"], 2, ["--methods: name at least one"]),
        (["compare", MARKET, "--methods=bpr", "--set=bpr=3"], 2, ["--set: bpr=3 (give method.key"]),
        (["compare", MARKET, "--methods=bpr", "--set=esae.l2=3"], 1, ["settings of 'esae'"]),
        (["compare", MARKET, "--methods=bpr", "--set=bpr.dims=3"], 1, ["bpr: there is no dims"]),
        (["compare", MARKET, "--methods=mf+foe", "--set=foe.candidates=9"], 1, ["a list of 20 "]),
        (["compare", MARKET, "--methods=bpr", "--json=."], 1, [".: Is a directory"]),
        (["compare", MARKET, "--methods=bpr", "--json=/dev/null/a"], 1, ["/dev/null: File exists"]),
        (["frontier", MARKET, "--methods=bpr+foe", "--json=."], 1, [".: Is a directory"]),
        (["efficiency", MARKET, "--k=5", "--json=."], 1, [".: Is a directory"]),
        (["tune", "bpr", MARKET, "--json=."], 1, [".: Is a directory"]),
        (["compare", MARKET, "--methods=bpr", "--settings=no.json"], 1, ["no.json"]),
        (["compare", MARKET, "--methods=bpr", "--k=200"], 1, ["there are only 80 items"]),
        (["compare", MARKET, "--seeds=0"], 2, ["--seeds"]),
        (["compare"], 2, ["--data"]),
        (["compare", "--data=nowhere.csv", "--methods=bpr"], 1, ["nowhere.csv"]),
        (["frontier", MARKET, "--methods=ease+quota@x"], 2, ["'x' is no number"]),
        (["efficiency", MARKET, "--ranker=fcpo"], 2, ["'--ranker': 'fcpo' (there are popularity,"]),
        (["efficiency", MARKET, "--k=100"], 1, ["there are only 80 items"]),
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
    assert run(arguments) == code
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    for part in parts:
        assert part in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["{", "[1]", '{"bpr": 3}'])
def test_a_file_without_settings_is_refused(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "settings.json"
    file.write_text(text)
    command = ["compare", MARKET, "--methods=bpr", f"--settings={file}", f"--out={tmp_path / 'o'}"]
    assert run(command) == 1
    assert str(file) in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads /proc")
def test_ctrl_c_ends_every_process(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [
        *(sys.executable, "-m", "fairhorizon", "compare", MARKET, "--jobs=2", "--seeds=2"),
        *("--methods=popularity,bpr", "--set=bpr.max_epochs=1000000", f"--out={out}"),
        "--set=bpr.patience=1000000",
    ]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
    # BPR, which never ends, is begun first: stop while it is at work in both processes
    while len(workers := _descendants(process.pid)) < 4 and process.poll() is None:
        time.sleep(0.05)  # two workers, whom they are forked from, and multiprocessing's watchman
    process.send_signal(signal.SIGINT)
    try:
        _, rest = process.communicate(timeout=60)
    finally:
        process.kill()  # should it go on
    assert process.returncode == 130
    assert rest.splitlines()[-1] == "stopped"
    assert "Traceback" not in rest
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{worker}").exists() for worker in workers):
        assert time.monotonic() < deadline, "a worker goes on"
        time.sleep(0.05)


def _descendants(parent: int | str) -> list[str]:
    """Processes that the parent has started and not ended, and those that these have started."""
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return []  # it has ended
    return [*children, *(one for child in children for one in _descendants(child))]


@pytest.mark.parametrize(
    ("command", "methods"),
    [("compare", COMPARED), ("frontier", SWEPT), ("longterm", longterm.METHODS)],
)
def test_the_help_shows_the_methods_of_the_command(
    command: str, methods: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "--help"]) == 0
    said = "".join(re.sub(r"[^\w+:@.,-]", "", capsys.readouterr().out))
    assert f"default:{','.join(methods)}" in said


def test_a_comparison_has_the_default_method() -> None:
    assert {"fcpo@0.85", "fcpo@0.65", "fcpo@0.37"} < set(COMPARED)
    assert {f"stack+lists@{level}" for level in (0.85, 0.65, 0.37)} < set(COMPARED)
    assert {"popularity", "stack+lists", "ease:recent+lists", "gru4rec+lists"} < set(SWEPT)
    assert {"popularity", "stack+control", "ease:recent+control"} < set(longterm.METHODS)
    assert all(str(Method.parse(name)) == name for name in COMPARED)


@pytest.mark.slow
def test_reproduce_computes_every_part_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second run computes nothing again and writes the same."""
    out = tmp_path / "paper"
    command = ("reproduce", MARKET, "--quick", "--jobs=1", "--out", out)
    fairhorizon(*command, *SMALL, "--set=fcpo.rounds=1", "--set=fcpo.pmf.max_epochs=1")
    first = capsys.readouterr()
    found = content(out / "reproduction.json")
    assert {row["paper"] for row in found["table2"]} >= {"MF", "LIRD", "NCF-FOE", "FCPO-3"}
    fcpo = [row for row in found["table2"] if row["method"] == "fcpo:paper@0.4"]
    served = {(row["mode"], row["settings"]["serve"]) for row in fcpo}  # type: ignore[index]
    assert served == {
        (mode, way) for mode in ("one-shot", "interactive") for way in ("sample", "mean")
    }
    runs = {row["method"] for row in found["figure4"]["rows"]}  # type: ignore[call-overload]
    assert {
        *("fcpo:paper", "fcpo:paper, control=off", "fcpo:tuned, control=off"),
        "fcpo:paper, trained without a limit",
    } < runs
    assert found["table1"]["users"] == 60  # type: ignore[call-overload]
    assert found["introduction"][-1]["policy"] == "optimum"
    assert len(found["efficiency"]) == 3  # 80 items: one number of candidates
    assert "trained in" in first.err
    fairhorizon(*command, *SMALL, "--set=fcpo.rounds=1", "--set=fcpo.pmf.max_epochs=1")
    again = capsys.readouterr()
    assert "trained in" not in again.err
    assert "step" not in again.err
    assert content(out / "reproduction.json") == found


def test_reproduce_one_part_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "paper"
    fairhorizon("reproduce", MARKET, "--only=table1", "--out", out)
    assert "28.583%" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == [
        *("index.html", "index.md", "reproduction.json", "table1.csv", "table1.tex"),
    ]
