"""Every benchmark runs, on a small market: README and docs cite what they print."""

import re
import runpy
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
PARTS = {  # what benchmarks share; nothing to run
    *("shared", "result_tables", "local_postgres", "fleet_simulation", "quit_ppo"),
    *("service_checks", "service_kills", "service_load", "service_traffic"),
}
CASES = {
    "bpr": r"ratio, median of the pairs +\d+\.\d\d$",
    "choose_settings": r"no alternatives +sample +[\d.]+ at +[\d.]+  mean +[\d.]+ at +[\d.]+",
    "constraint": r"alpha' 0\.4 +0 +1 +\d\.\d{3} +1\.00$",
    "ease": r"fit and scores / bare inverse +\d+\.\d\d$",
    "fleet": r"^lists simulated [\d,]+; after each of them at most C above the share$",
    "fuzz_api": r"^calls \d+  server errors 0$",
    "kinds": r"at most +\d+\.\d+ %: fcpo \d+\.\d+, .* [+-]\d+\.\d\d % \+- \d+\.\d\d$",
    "list_speed": r"^everybody, by place .* ratio +\d+\.\d\d$",
    "one_user": r"^inside the service, three limits( +\d+\.\d\d){4}$",
    "presets": r"fast - before at 37 %: [+-]\d+\.\d\d \+- \d+\.\d\d$",
    "quit_rule": r"^\| PPO, under the control \| \d+\.\d\d \| \d+\.\d \| \d\.\d{3} \| .* \|$",
    "reading": r"^parts, all kept +\d+\.\d s +\d+\.\d s +\d+ MB +\d+ +-?\d+\.\d$",
    "recorded": r"^3 +0\.20 +[+-]\d+\.\d % .* ± +\d+\.\d % +-?\d+ %$",
    "results": r"^\| fcpo \| popularity \| .* \| +59 \|$",
    "retrieval": r"^all products / index +\d+\.\d\d$",
    "rankers": r"^fit of gru4rec / fit of ease:recent \d+\.\d\d$",
    "exposure": r"n = +20 .* x +objectives apart by \de-\d\d$",
    "leaving": r"^3 +0\.20 +[+-]\d+\.\d % .* +[+-]\d+\.\d %$",
    "leaving_chart": r"^looking ahead \(fcpo\) +popular by patience( \d\.\d{3}){4} +still there \d",
    "lock_time": r"^bytes of a recorded list +\d+$",
    "long_run": r"  60 users,  3 steps +\d+\.\d µs of CPU a user and step$",
    "long_run --whole": r"3 steps, an update every 10, preset fast$",
    "scale": r"^time with 1,200 rows / 600: \d+\.\d\d$",
    "scale_on_paper": r"^\| together \| [\d,]+ \| [\d,]+ \|$",
    "service": r"request / bare recommend, of the medians +\d+\.\d\d$",
    "service kills": r"^all good +1 of 1$",
    "service memory": r"^growth +-?\d+\.\d\d %$",
    "service restarts": r"^the server +\d+\.\d\d s$",
    "service replicas": r"^kept after every list yes$",
    "shop": r"^one by one +\d+\.\d\d s +\d+\.\d x lists of everybody$",
    "shop_growth": r"^exponent +fit -?\d+\.\d\d, solve -?\d+\.\d\d, everybody .*$",
    "several_limits": r"ten limits / one limit +\d+\.\d\d$",
    "start": r"^fairhorizon --help +\d\.\d{3} s +\d+\.\d x$",
    "speed": r"policy update / forward and backward pass +\d+\.\d\d$",
    "phases": r"lists at alpha' 0\.37 +\d\.\d\d s +\d+\.\d\d x$",
}


def test_every_benchmark_is_run() -> None:
    names = {path.stem for path in BENCHMARKS.glob("*.py")}
    assert names == {case.split()[0] for case in CASES} | PARTS


@pytest.mark.parametrize("case", CASES)
def test_a_benchmark_runs(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = case.split()
    monkeypatch.syspath_prepend(BENCHMARKS)
    monkeypatch.setattr(sys, "argv", [name, "--small", *options])
    runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert re.search(CASES[case], printed, re.MULTILINE), printed
