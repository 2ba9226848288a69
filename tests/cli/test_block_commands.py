"""Commands over blocks of users: under one limit, the lists that one process makes."""

import json
from pathlib import Path

import pytest

from fairhorizon.cli.app import run

DATA = "--data=synthetic:users=50,items=60,interactions_per_user=15"


def fairhorizon(*arguments: object) -> None:
    assert run([str(argument) for argument in arguments]) == 0


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "lists"
    fairhorizon(
        "fit", "ease+lists", DATA, "--alpha-prime=0.3", "--set=lists.spread=null", "--out", out
    )
    return out


@pytest.mark.slow
def test_lists_and_metrics_are_the_same(
    fitted: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for jobs in (1, 2):
        fairhorizon(
            *("recommend", fitted, "--k=5", "--scores", f"--jobs={jobs}"),
            *("--engine=processes", "--out", tmp_path / f"lists{jobs}.csv"),
        )
        fairhorizon(
            *("evaluate", fitted, "--k=5", f"--jobs={jobs}", "--json", tmp_path / f"{jobs}.json"),
            *("--limit=popular<=0.2", "--lists", tmp_path / f"evaluated{jobs}.csv"),
        )
    for name in ("lists{}.csv", "evaluated{}.csv"):
        one, two = (tmp_path / name.format(jobs) for jobs in (1, 2))
        assert one.read_bytes() == two.read_bytes()
    found = [json.loads((tmp_path / f"{jobs}.json").read_text()) for jobs in (1, 2)]
    # Sums over two blocks may round otherwise than over one, so the price may in its last digit.
    one, two = (content["limits"][0].pop("price") for content in found)
    assert one == pytest.approx(two, rel=1e-9)
    assert found[0] == found[1]
    assert "2 blocks of users" in capfd.readouterr().err


def test_a_method_that_has_one_place_says_so(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fairhorizon("fit", "popularity+pmmf", DATA, "--out", tmp_path / "run")
    fairhorizon("recommend", tmp_path / "run", "--k=5", "--jobs=2", "--out", tmp_path / "a.csv")
    error = capfd.readouterr().err
    assert (
        "note: popularity+pmmf makes these lists in one process (--jobs changes nothing)" in error
    )
