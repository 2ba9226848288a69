"""The benchmarks that README cites still run, on a small market."""

import runpy
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
MARKET = "--data=synthetic:users=60,items=80,interactions_per_user=20"


@pytest.mark.parametrize(
    ("name", "arguments", "printed"),
    [
        ("speed", ["--rounds=1"], "policy update / forward and backward pass"),
        ("ease", ["--repeats=1"], "fit and scores / bare inverse"),
    ],
)
def test_a_benchmark_runs(
    name: str,
    arguments: list[str],
    printed: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", [name, MARKET, *arguments])
    runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
    assert printed in capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(BENCHMARKS.glob("*.py")), ids=lambda path: path.stem)
def test_what_a_benchmark_imports_exists(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    runpy.run_path(str(path), run_name="imported")
