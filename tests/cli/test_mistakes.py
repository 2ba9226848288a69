"""Every mistake ends in one line of what, where and what to do, and leaves nothing behind."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from fairhorizon.cli.app import run
from fairhorizon.files import sha256
from fairhorizon.storage import load_model, save_model

MARKET = "synthetic:users=30,items=40,interactions_per_user=10"
SMALL = "--set rounds=2 --set horizon=5 --set pmf.dim=4 --set pmf.max_epochs=2 --set gru_hidden=4"
FIT = f"fit fcpo:paper --data {MARKET} {SMALL} --out new/run"

NO_CARD = ("run.json", "gone")


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("fitted") / "a"
    assert run([*FIT.split()[:-1], str(out)]) == 0
    return out


@pytest.fixture
def place(tmp_path: Path, fitted: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a run and some files that are no logs."""
    shutil.copytree(fitted, tmp_path / "a")
    files = {
        "empty.csv": b"",
        "header.csv": b"user,item\n",
        "binary.csv": bytes(range(256)),
        "one-user.csv": b"user,item,timestamp\na,x,1\na,y,2\n",
        "columns.csv": b"wer,was\na,x\n",
        "time.csv": b"user,item,timestamp\na,x,1\nb,y,soon\n",
        "last.csv": b"user,item,timestamp\na,x,1\nb,y,2\n",
        "table.csv": b"item,kind\n1,A\n",
        "kinds.csv": b"item,kind\nx,A\ny,B\nz,B\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def tree(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def mistake(command: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code and message of a command that must leave the working folder as it was."""
    before = tree(Path())
    code = run(command.split())
    said = capsys.readouterr().err.splitlines()
    assert tree(Path()) == before
    assert [line for line in said if line.startswith("error: ")] == said[-1:]
    return code, said[-1].removeprefix("error: ")


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("bogus", ["No such command 'bogus'", "fairhorizon --help"]),
        ("data", ["Missing command", "fairhorizon data --help"]),
        ("fit", ["Missing argument 'method'", "fairhorizon fit --help"]),
        (
            "fit bogus --data synthetic --out b",
            ["METHOD: there is no method 'bogus' (there are popularity,"],
        ),
        ("fit fcpo --out b", ["--data", "fairhorizon fit --help"]),
        ("fit fcpo --data synthetic", ["--out"]),
        (f"{FIT} --bogus", ["No such option: --bogus"]),
        (f"{FIT} --alpha-prime 0", ["alpha_prime=0.0: give a number above 0"]),
        (f"{FIT} --alpha-prime 1.5", ["alpha_prime=1.5: give at most 1"]),
        (f"{FIT} --alpha-prime nan", ["alpha_prime=nan"]),
        (f"fit mf+foe --data {MARKET} --out b --set foe=3", ["foe=3 (say which of its settings"]),
        (f"{FIT} --alpha-prime much", ["--alpha-prime", "valid number"]),
        (f"{FIT} --set bogus=1", ["there is no bogus (but ridge, ease, itemknn, "]),
        (f"{FIT} --set pmf.bogus=1", ["there is no pmf.bogus (but dim, target,"]),
        (f"{FIT} --set rounds=many", ["rounds=many: give a whole number"]),
        (f"{FIT} --set rounds=-1", ["rounds=-1: give at least 0"]),
        (f"{FIT} --set starts=late", ["starts=late: give one of first, anywhere,"]),
        (f"{FIT} --set rounds", ["--set: 'rounds' (give key=value, as in rounds=50)"]),
        (f"{FIT} --set =3", ["--set: '=3' (give key=value"]),
        (f"{FIT} --set pmf=3 --set pmf.dim=4", ["--set: pmf is set to 3 too"]),
        (f"{FIT} --set rounds.x=3", ["--set: rounds is set to 2 too"]),
        (f"{FIT} --preset best", ["'best' is not one of 'fast', 'strong', 'paper'"]),
        (f"{FIT} --split fair", ["'fair' is not one of 'per-user', 'time'"]),
        (f"{FIT} --seed -1", ["--seed", "greater than or equal to 0"]),
        (f"{FIT} --seed 99999999999999999999", ["--seed", "less than or equal to 4294967295"]),
        (f"{FIT} --shuffle-ties -1", ["--shuffle-ties", "greater than or equal to 0"]),
        (
            f"{FIT} --shuffle-ties 1 --keep-ties",
            ["--keep-ties: cannot be given together with --shuffle-ties"],
        ),
        ("evaluate a --k 0", ["--k: '0' (give whole numbers from 1 on, as in"]),
        ("evaluate a --k 5,abc", ["--k: '5,abc' (give whole numbers"]),
        ("evaluate a --k ,", ["--k: ',' (give whole numbers"]),
        ("evaluate a --protocol fair", ["'fair' is not one of 'standard', 'paper'"]),
        ("evaluate a --mode slow", ["'slow' is not one of 'one-shot', 'interactive'"]),
        ("recommend a --k 0 --out l.csv", ["--k", "greater than or equal to 1"]),
        ("recommend a --k abc --out l.csv", ["--k", "valid integer"]),
        ("recommend a", ["--out"]),
        ("demo --rounds 0", ["--rounds"]),
    ],
)
@pytest.mark.usefixtures("place")
def test_a_wrong_command_line_exits_with_2(
    command: str, parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, message = mistake(command, capsys)
    assert code == 2
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        ("data info ml-20m", ["'ml-20m' is neither a file nor a named data set", "ml-100k, ml-1m"]),
        ("data info missing.csv", ["'missing.csv' is neither a file nor"]),
        ("data info empty.csv", ["empty.csv: the file is empty (give rows of user and item)"]),
        ("data info header.csv", ["header.csv: there is a header but no rows (give rows"]),
        ("data info binary.csv", ["binary.csv line 2: is not utf-8 text (a binary file"]),
        ("data info one-user.csv", ["one-user.csv: all rows are of one user, a (give"]),
        ("data info columns.csv", ["no column looks like the user (the columns are 'wer', 'was'"]),
        ("data info columns.csv --user nobody", ["there is no column 'nobody' (the columns are"]),
        ("data info time.csv", ["time.csv line 3: timestamp 'soon' is not a number (seconds"]),
        ("data info .", ["binary.csv line 2: is not utf-8 text"]),  # a folder is a log in parts
        ("data info synthetic:users=x", ["synthetic:users=x: users 'x' is not a number"]),
        ("data info synthetic:size=1", ["unknown setting 'size' (there are users, items,"]),
        (f"data split {MARKET} --out a", ["a: already exists (name a new folder or empty it)"]),
        (
            "fit fcpo:paper --data last.csv --out b --set horizon=1",
            ["last.csv has nothing to train on"],
        ),
        (
            f"{FIT} --set horizon=41",
            ["41 lists of 1 need more than the 40 items", "(set a smaller"],
        ),
        (f"{FIT} --group-column kind", ["go together (give both)"]),
        (f"{FIT} --sensitive A", ["go together (give both)"]),
        (f"{FIT} --item-table table.csv", ["table.csv: which column has the groups?"]),
        (f"{FIT} --group-column kind --sensitive A", ["has no column 'kind' (give an item table"]),
        (
            f"{FIT} --group-column kind --sensitive A --item-table table.csv",
            ["table.csv: item 0 of the log", "is not in the table of items (add a row for it)"],
        ),
        (
            f"{FIT} --group-column kind --sensitive A --item-table gone.csv",
            ["gone.csv: there is no such file (check the path)"],
        ),
        (
            "fit ease+lists --data last.csv --all --limit kind=A>=0.6 --limit kind=A<=0.4 "
            "--item-table kinds.csv --out b",
            ["kind=A>=0.6 and kind=A<=0.4 cannot be kept together (take at most 0.4 in kind"],
        ),
        (
            "fit ease+lists --data last.csv --all --limit new>=0.05 --out b",
            ["new>=0.05 cannot be kept: no item is in this group (leave the limit out)"],
        ),
        (f"{FIT} --out a", ["a: already exists (continue with --resume, or name another --out)"]),
        (f"{FIT} --out empty.csv", ["empty.csv: already exists"]),
        (f"fit ease --data {MARKET} --out a", ["a: already exists (name another --out)"]),
        (f"fit ease --data {MARKET} --out a --resume", ["ease keeps no checkpoints (leave out"]),
        (
            f"{FIT} --out empty.csv/b",
            ["empty.csv/b: Not a directory (check the path, your "],
        ),
        (f"{FIT} --resume", ["run/checkpoint.safetensors: there is no checkpoint (leave out"]),
        (f"{FIT} --out a --resume --alpha-prime 0.3", ["alpha_prime cannot change (only rounds,"]),
        (
            f"{FIT} --out a --resume".replace("fcpo:paper", "fcpo:paper@0.7"),
            ["alpha_prime cannot change (only rounds,"],
        ),
        (
            f"{FIT} --out a --resume --seed 4",
            ["--seed 4: the checkpoint has seed 0 (leave it out)"],
        ),
        (f"{FIT} --out a --resume --set popular_share=0.5", ["popular_share cannot change"]),
        (f"{FIT} --out a --resume --data {MARKET},seed=1", ["was trained on other data (resume"]),
        ("evaluate nowhere", ["nowhere: no model here, run.json is missing (fairhorizon fit"]),
        ("evaluate empty.csv", ["empty.csv: no model here, run.json is missing"]),
        ("recommend nowhere --out l.csv", ["nowhere: no model here"]),
        ("evaluate a --k 5,41", ["--k 41: there are only 40 items (give at most as many)"]),
        ("recommend a --k 41 --out l.csv", ["--k 41: there are only 40 items"]),
        ("recommend a --out a", ["a: Is a directory (check the path, your permissions"]),
        ("evaluate a --lists empty.csv/l.csv", ["empty.csv: File exists (check the path"]),
        ("evaluate a --json a", ["a: Is a directory (check the path"]),
        (f"demo --data {MARKET} --k 41", ["--k 41: there are only 40 items"]),
        ("demo --data missing.csv", ["'missing.csv' is neither a file nor a named data set"]),
        (f"demo --data {MARKET} --out empty.csv", ["empty.csv: File exists"]),
    ],
)
@pytest.mark.filterwarnings("ignore::fairhorizon.data.interactions.NoTimestampsWarning")
@pytest.mark.usefixtures("place")
def test_what_does_not_fit_exits_with_1(
    command: str, parts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    code, message = mistake(command, capsys)
    assert code == 1
    for part in parts:
        assert part in message


@pytest.mark.parametrize("damage", ["gone", "empty", "half", "noise", "folder"])
@pytest.mark.parametrize("file", ["run.json", "model.safetensors", "checkpoint.safetensors"])
def test_a_damaged_run_is_refused(
    file: str, damage: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place / "a" / file
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "gone":
        changed = {"empty": b"", "half": content[: len(content) // 2], "noise": bytes(range(256))}
        path.write_bytes(changed[damage])
    commands = ["evaluate a", "recommend a --out l.csv"]
    if file.startswith("checkpoint"):
        commands = [f"{FIT} --out a --resume"]
    for command in commands:
        code, message = mistake(command, capsys)
        assert code == 1
        assert message.startswith("a: no model" if (file, damage) == NO_CARD else f"a/{file}: ")
        assert message.endswith(")")  # the remedy


@pytest.mark.parametrize(
    "card",
    [
        [],
        {},
        {"data": 3},
        {"data": {"source": MARKET, "bogus": 1}},
        {"data": {"source": MARKET, "cut": "x"}},
    ],
)
def test_a_foreign_card_is_refused(
    card: object, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "a" / "run.json").write_text(json.dumps(card))
    code, message = mistake("evaluate a", capsys)
    assert code == 1
    assert message.startswith("a/run.json: ")
    assert message.endswith("(fit it again)")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ("tensor missing", "'sensitive' is missing or unknown"),
        ("key missing", "'seed' is missing or unknown"),
        ("setting missing", "holds something unexpected: horizon of the settings is missing"),
        ("setting", "holds something unexpected: there is no from_the_future"),
        ("tensor of another shape", "holds something unexpected: "),
    ],
)
def test_a_whole_file_with_other_content_than_this_version_writes_is_refused(
    change: str, fault: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file, kind, command in (
        ("model.safetensors", "fcpo", "evaluate a"),
        ("checkpoint.safetensors", "fcpo-checkpoint", f"{FIT} --out a --resume"),
    ):
        tensors, description = load_model(place / "a" / file, kind)
        if change == "tensor missing":
            del tensors["sensitive"]
        elif change == "tensor of another shape":
            name = next(key for key in tensors if key.endswith("bias"))
            tensors[name] = torch.zeros(3, 3)
        elif change == "setting":
            description["config"]["from_the_future"] = 1
        elif change == "setting missing":
            del description["config"]["horizon"]
        else:
            del description["seed"]
        save_model(place / "a" / file, kind, tensors, description)
        card = json.loads((place / "a" / "run.json").read_text())
        card["files"]["model.safetensors"] = sha256(place / "a" / "model.safetensors")
        (place / "a" / "run.json").write_text(json.dumps(card))
        code, message = mistake(command, capsys)
        assert code == 1
        assert message.startswith(f"a/{file}: {fault}")
        assert message.endswith("(fit it again)")


def test_a_model_of_other_data_is_refused(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    card = place / "a" / "run.json"
    card.write_text(card.read_text().replace("users=30", "users=31"))
    for command in ("evaluate a", "recommend a --out l.csv"):
        code, message = mistake(command, capsys)
        assert code == 1
        assert "the model was fitted on other data than synthetic:users=31" in message


def test_other_groups_are_refused_on_resume(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [f"{item},{'A' if item < 5 else 'B'}" for item in range(40)]
    (place / "groups.csv").write_text("item,kind\n" + "\n".join(rows))
    groups = "--group-column kind --sensitive A --item-table groups.csv"
    code, message = mistake(f"{FIT} --out a --resume {groups}", capsys)
    assert code == 1
    assert "a/checkpoint.safetensors: was trained with other groups (give the same" in message


def test_a_killed_training_without_a_model_says_resume(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "a" / "run.json").unlink()
    assert mistake("evaluate a", capsys)[1].endswith("run.json is missing (continue with --resume)")


def test_a_run_that_cannot_be_written_still_shows_and_exports_its_metrics(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = place / "a" / "metrics.json"
    blocked.mkdir()
    assert run(["evaluate", "a", "--k", "5", "--json", "m.json"]) == 1
    said = capsys.readouterr()
    assert "standard" in said.out
    assert said.err.splitlines()[-1].startswith("error: a/metrics.json: Is a directory (check")
    assert 0 <= json.loads((place / "m.json").read_text())["metrics"]["ndcg@5"] <= 1
    assert list(blocked.iterdir()) == []
    blocked.rmdir()


def test_an_empty_folder_may_be_the_out(place: Path) -> None:
    (place / "b").mkdir()
    assert run([*FIT.split()[:-1], "b"]) == 0
    assert (place / "b" / "run.json").exists()
