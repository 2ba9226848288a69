"""The example of logs of other kinds finds what its docstrings say."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "examples" / "kinds_of_logs.py"


def test_weights_and_distance_bring_lists_nearer_to_the_truth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    spec = importlib.util.spec_from_file_location("kinds_of_logs", PATH)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    plain, weighted = example.a_shop()
    assert weighted > plain + 0.03
    areas, everywhere, nearby = example.check_ins()
    assert areas == 5
    assert everywhere < 0.3
    assert nearby > 0.98
    plain, weighted = example.sessions_without_users()
    assert weighted > plain + 0.02
    example.main()
    assert "check-ins: 5 areas" in capsys.readouterr().out
