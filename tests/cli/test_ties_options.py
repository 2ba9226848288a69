"""--shuffle-ties and --keep-ties, and what commands say about ties."""

import warnings
from pathlib import Path

import pytest

from fairhorizon.cli.app import run
from fairhorizon.data.loading import load
from fairhorizon.data.splits import shuffled_ties
from fairhorizon.model.folder import ModelFolder

TIED = "".join(f"a,{item},5\n" for item in range(1, 6))
APART = "".join(f"b,{item},{item + 5}\n" for item in range(1, 6))
FOUND = "tied.csv: 50.0 % of the rows share user and time with another: "


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "tied.csv").write_text(f"user,item,time\n{TIED}{APART}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained_by_a(folder: Path) -> list[int]:
    """The training items of user a, of five, in the order of the written split."""
    rows = [row.split(",") for row in (folder / "train.csv").read_text().splitlines()]
    return [int(item) for user, item, *_ in rows if user == '"a"']


@pytest.mark.parametrize(
    ("options", "seed", "stored"),
    [("", 0, "auto"), ("--shuffle-ties 7", 7, 7), ("--keep-ties", None, "keep")],
)
def test_ties_are_in_the_order_asked_for_and_only_a_choice_of_ours_is_noted(
    options: str,
    seed: int | None,
    stored: object,
    place: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run(f"data split tied.csv --out parts {options}".split()) == 0
        assert run(f"fit popularity --data tied.csv --out run {options}".split()) == 0
        assert run(["evaluate", "run", "--k=2"]) == 0
    said = capsys.readouterr().err
    note = f"note: {FOUND}their order is shuffled (seed 0); --keep-ties keeps that of the file\n"
    assert said.count(note) == (3 if stored == "auto" else 0)
    assert said.count("share user and time") == said.count(note)
    log = load("tied.csv")
    if seed is not None:
        log = shuffled_ties(log, seed)
    wanted = log.item_ids[log.items[log.users == 0]].tolist()[:3]
    assert trained_by_a(place / "parts") == wanted
    assert (wanted == [1, 2, 3]) is (stored == "keep")
    assert ModelFolder(place / "run").data().ties == stored


@pytest.mark.slow
def test_a_study_says_it_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    market = "synthetic-baskets:users=30,items=40,baskets_per_user=5"
    words = f"compare --data {market} --methods popularity,itemknn --seeds 1 --jobs 2 --k 3"
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert run([*words.split(), "--out", str(tmp_path / "out")]) == 0
    said = capfd.readouterr().err
    assert said.count("share user and time with another: their order is shuffled (seed 0)") == 1


@pytest.mark.usefixtures("place")
def test_data_info_says_what_share_is_tied_and_what_follows(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["data", "info", "tied.csv"]) == 0
    assert capsys.readouterr().out.endswith(
        "\n50.0 % of the rows share user and time with another: their order is shuffled (seed 0); "
        "--keep-ties keeps that of the file.\n"
    )
    rows = "".join(f"c,{item},{item}\n" for item in range(40)) + "c,40,0\n"  # 2 of 41 rows
    (place / "few.csv").write_text(f"user,item,time\n{rows}{APART}")  # 2 of 46
    assert run(["data", "info", "few.csv"]) == 0
    assert capsys.readouterr().out.endswith(
        "\n4.3 % of the rows share user and time with another: they keep the order of the file; "
        "--shuffle-ties SEED shuffles them.\n"
    )
    (place / "none.csv").write_text(f"user,item,time\n{APART}c,1,1\n")
    assert run(["data", "info", "none.csv"]) == 0
    assert "share user and time" not in capsys.readouterr().out
