"""Files as people have them: other encodings, packed, called like a named set."""

import gzip
import json
import warnings
from pathlib import Path

import pytest

from fairhorizon.cli.app import run
from fairhorizon.cli.options import data_spec

USERS = [f"é{number}" for number in range(6)]
ITEMS = [f"ü{number}" for number in range(8)]
LOG = "user,item,timestamp\n" + "".join(
    f"{user},{item},{time}\n"
    for number, user in enumerate(USERS)
    for time, item in enumerate(ITEMS[number % 3 : number % 3 + 5])
)
TABLE = "item,kind\n" + "".join(f"{item},{'ä' if item < 'ü4' else 'b'}\n" for item in ITEMS)
LISTS = "user,item,rank\n" + "".join(f"{user},{ITEMS[0]},1\n" for user in USERS)
REMEDY = "name its encoding, e.g. --{}encoding latin-1)\n"
GROUP = "--group-column kind --sensitive ä --item-table table.csv"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of latin-1 files."""
    for name, text in {"log.csv": LOG, "table.csv": TABLE, "lists.csv": LISTS}.items():
        (tmp_path / name).write_bytes(text.encode("latin-1"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize(
    "command",
    [
        "data info log.csv",
        "data split log.csv --out parts",
        f"fit popularity --data log.csv --out run {GROUP}",
    ],
)
def test_commands_read_other_encodings(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command.split()) == 1
    said = capsys.readouterr().err
    assert "log.csv line 2: is not utf-8 text (a binary file" in said
    assert said.endswith(REMEDY.format(""))
    assert run([*command.split(), "--encoding", "latin-1"]) == 0


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("command", ["demo", "compare", "evaluate"])
def test_all_commands_that_read_a_log_know_the_option(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if command == "evaluate":
        command += " run"
        assert (
            run(["fit", "popularity", "--data", "log.csv", "--encoding", "latin-1", "--out", "run"])
            == 0
        )
    else:
        command += " --data log.csv --encoding latin-1"
    assert run([*command.split(), "--k", "99"]) == 1
    assert "--k 99: there are only 7 items" in capsys.readouterr().err  # so the log was read


@pytest.mark.usefixtures("place")
def test_limits_of_the_long_run_read_the_item_table_in_that_encoding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = "longterm --data log.csv --encoding latin-1 --methods fcpo --steps 2 --out long"
    limit = ["--limit", "kind=ö<=0.9", "--item-table", "table.csv"]
    assert run([*command.split(), *limit]) == 1
    said = capsys.readouterr().err
    assert "no item has the attribute value 'ö' (the values are b, ä)" in said


def test_audit_reads_lists_in_an_encoding_of_their_own(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "log.csv").write_bytes(gzip.compress(LOG.encode("latin-1")))
    command = f"audit lists.csv --data log.csv --encoding latin-1 {GROUP} --k 1"
    assert run(command.split()) == 1
    assert capsys.readouterr().err.endswith(REMEDY.format("list-"))
    assert run([*command.split(), "--list-encoding", "latin-1"]) == 0
    assert "kind = ä" in capsys.readouterr().out


def test_a_run_knows_the_encoding_of_its_data(place: Path) -> None:
    fit = f"fit popularity --data log.csv --encoding latin-1 --out run {GROUP}"
    assert run(fit.split()) == 0
    assert json.loads((place / "run" / "run.json").read_text())["data"]["encoding"] == "latin-1"
    assert run(["recommend", "run", "--k", "2", "--out", "lists.csv"]) == 0
    assert "é0,1,ü" in (place / "lists.csv").read_text()


@pytest.mark.parametrize("name", ["ml-100k", "ml-1m", "synthetic", "synthetic:users=30"])
def test_named_sets_come_before_files(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert data_spec(name, {}).source == name
    assert data_spec(f"./{name}", {}).source == str(tmp_path / name)


def test_a_file_that_is_called_like_a_named_set(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    market = "synthetic:users=30,items=40,interactions_per_user=10"
    (place / "log.csv").rename(place / market)
    assert run(["data", "split", market, "--out", "named"]) == 0
    assert run(["data", "split", f"./{market}", "--encoding", "latin-1", "--out", "file"]) == 0
    said = capsys.readouterr().out.splitlines()
    # one validation item of each of 30 users, and of each of 6, who have 5 items
    assert said[0].split(", ")[1] == "30 validation"
    assert said[1] == "file: 18 training, 6 validation, 6 test interactions"


def test_missing_values_are_a_note(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = LOG.replace("timestamp", "timestamp,rating").replace("\n", ",3\n").splitlines()
    rows[0] = rows[0].removesuffix(",3")
    rows[4], rows[6] = rows[4].removesuffix("3"), rows[6].removesuffix("3")
    (place / "log.csv").write_text("\n".join(rows), encoding="utf-8")
    (place / "table.csv").write_text(TABLE.replace("ü1,ä", "ü1,"), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert run(f"fit mf --data log.csv --out run {GROUP}".split()) == 0
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note")]
    assert [note.partition("csv: ")[2] for note in notes] == [
        "2 ratings are missing of 30: these rows count as interactions without a rating",
        "1 item has no kind of 7: without one an item is in no group of kind",
    ]


def test_what_is_odd_about_a_log_is_counted_in_notes(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = LOG.splitlines()
    short = ["x,ü1,1", "x,ü2,1", "y,ü1,2", "y,ü1,3"]  # equal times, a repeat, too few to test
    (place / "log.csv").write_text("\n".join([*rows, *short]), encoding="utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert run(["fit", "popularity", "--data", "log.csv", "--out", "run"]) == 0
        fitted = capsys.readouterr().err
        assert run(["evaluate", "run", "--k", "2"]) == 0
        evaluated = capsys.readouterr().err
    assert fitted.count("note: ") == 1  # 6.1 % of tied rows need none
    for said in (fitted, evaluated):
        assert said.count("csv: 1 row repeats the user and item of another: the first of") == 1
    assert evaluated.count("note: 2 of 8 users (25.0%) have no test items: recall, F1 and") == 1
