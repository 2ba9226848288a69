"""One trained model at every level of its dial, and a training of preset strong that is stopped."""

import csv
import json
import signal
from collections import defaultdict
from fractions import Fraction
from pathlib import Path

import pytest

from fairhorizon.cli.app import run
from fairhorizon.cli.progress import Progress
from fairhorizon.model.folder import ModelFolder
from fairhorizon.recommenders.progress import RoundReport

USERS = 50
DATA = f"--data=synthetic:users={USERS},items=80,interactions_per_user=20"
SETTINGS = (
    *('warm_start=["als","itemknn"]', "adapt=false"),
    *("rounds=3", "horizon=5", "evaluate_every=1"),
)
FIT = ["fit", "fcpo", DATA, *(f"--set={one}" for one in SETTINGS), "--alpha-prime=0.4"]
FILES = ["checkpoint.safetensors", "model.safetensors", "run.json"]


def fairhorizon(*arguments: object) -> None:
    assert run([str(argument) for argument in arguments]) == 0


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "strong"
    fairhorizon(*FIT, "--out", out)
    return out


@pytest.fixture(scope="module")
def recent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose first price suits its values at both moments; a higher one leaves room."""
    out = tmp_path_factory.mktemp("recent") / "strong"
    fairhorizon(*FIT, '--set=warm_start=["als","itemknn:recent"]', "--out", out)
    return out


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of methods that have another dial or none."""
    folder = tmp_path_factory.mktemp("others")
    paper = ("--set=pmf.max_epochs=2", "--set=pmf.dim=4", "--set=gru_hidden=4", "--set=rounds=0")
    fairhorizon("fit", "fcpo:paper@0.3", DATA, *paper, "--out", folder / "paper")
    for name in ("ease", "ease+quota@0.5", "popularity+penalty"):
        fairhorizon("fit", name, DATA, "--out", folder / name.partition("@")[0])
    return folder


def lists_of(path: Path) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            lists[row["user"]].append(row["item"])
    return lists


def popular(folder: Path) -> set[str]:
    dataset = ModelFolder(folder).data().open()
    return set(dataset.log.item_ids[dataset.sensitive].astype(str))


@pytest.mark.parametrize("level", [None, 0.15, 0.25, 0.63, 1])
def test_lists_made_together_keep_any_level_to_the_item(
    fitted: Path, tmp_path: Path, level: float | None
) -> None:
    out, before = tmp_path / "lists.csv", (fitted / "model.safetensors").read_bytes()
    dial = () if level is None else ("--alpha-prime", level)
    fairhorizon("recommend", fitted, "--k", 5, *dial, "--out", out)
    lists, group = lists_of(out), popular(fitted)
    shown = [item for items in lists.values() for item in items]
    assert len(shown) == 5 * USERS
    allowed = int(Fraction(str(level or 0.4)) * len(shown))
    of_group = sum(item in group for item in shown)
    assert of_group == allowed if (level or 0.4) < 0.5 else of_group <= allowed
    assert (fitted / "model.safetensors").read_bytes() == before

    evaluated = tmp_path / "evaluated.csv"
    fairhorizon("evaluate", fitted, "--k", 5, *dial, "--lists", evaluated)
    assert evaluated.read_bytes() == out.read_bytes()
    metrics = json.loads((fitted / "metrics.json").read_text())
    assert metrics["alpha_prime"] == (level or 0.4)
    assert metrics["metrics"]["popularity_rate@5"] == pytest.approx(of_group / len(shown))


@pytest.mark.parametrize("as_of", ["training", "now"])
def test_one_by_one_the_level_holds_after_every_list(
    recent: Path, tmp_path: Path, as_of: str
) -> None:
    out, group = tmp_path / "lists.csv", popular(recent)
    how = ("--alpha-prime", 0.3, "--one-by-one", "--as-of", as_of)
    fairhorizon("recommend", recent, "--k", 4, *how, "--out", out)
    shown = of_group = 0
    for items in lists_of(out).values():
        shown += len(items)
        of_group += sum(item in group for item in items)
        assert of_group <= 0.3 * shown + 1e-9
    assert shown == 4 * USERS
    assert of_group >= 0.2 * shown


def test_a_quota_is_a_share_that_can_be_set_too(others: Path, tmp_path: Path) -> None:
    group, run_folder = popular(others / "ease+quota"), others / "ease+quota"
    for level, allowed in ((None, 5), (0.2, 2)):
        out = tmp_path / f"{level}.csv"
        dial = () if level is None else ("--alpha-prime", level)
        fairhorizon("recommend", run_folder, "--k", 10, *dial, "--out", out)
        counts = [sum(item in group for item in items) for items in lists_of(out).values()]
        assert max(counts) == allowed


@pytest.mark.parametrize(
    ("name", "options", "code", "message"),
    [
        ("paper", "--alpha-prime 0.5", 1, "trained for alpha' 0.3 and serves no other (fit it ag"),
        ("paper", "--one-by-one", 1, "serves no single requests (fit preset fast)"),
        ("ease", "--alpha-prime 0.5", 1, "ease has no limit to set to 0.5 (fit fcpo, which serve"),
        ("popularity+penalty", "--alpha-prime 0.5", 1, "popularity+penalty has no limit to set"),
        ("ease", "--one-by-one", 1, "ease serves every user alone (leave out --one-by-one)"),
        ("paper", "--alpha-prime 0", 2, "'--alpha-prime': 0 is no share of what is shown (give o"),
        ("paper", "--alpha-prime 1.5", 2, "'--alpha-prime': 1.5 is no share of what is shown"),
        ("paper", "--alpha-prime nan", 2, "'--alpha-prime': nan is no share of what is shown"),
    ],
)
def test_what_a_model_cannot_is_refused(
    name: str,
    options: str,
    code: int,
    message: str,
    others: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "lists.csv"
    commands = [["recommend", str(others / name), "--out", str(out)]]
    if options.startswith("--alpha-prime"):
        commands.append(["evaluate", str(others / name)])
    for command in commands:
        assert run([*command, *options.split()]) == code
        (line,) = capsys.readouterr().err.splitlines()
        assert message in line
    assert not out.exists()
    assert not (others / name / "metrics.json").exists()


def stopped(out: Path, stop: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that is stopped by Ctrl-C in a round."""

    def in_a_round(_: Progress, report: RoundReport) -> None:
        if report.round == stop:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "round", in_a_round)
        assert run([*FIT, f"--out={out}"]) == 130


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 3])
def test_a_stopped_training_of_preset_strong_goes_on_bit_for_bit(
    stop: int,
    fitted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "run"
    stopped(out, stop, monkeypatch)
    said = capfd.readouterr().err
    assert said.endswith("run the same command with --resume to continue\nstopped\n")
    assert sorted(path.name for path in out.iterdir()) == FILES
    card = ModelFolder(out).card().model_dump()
    assert (card["status"], len(card["rounds"])) == ("interrupted", stop)
    fairhorizon("recommend", out, "--alpha-prime", 0.2, "--k", 5, "--out", tmp_path / "lists.csv")
    capfd.readouterr()

    fairhorizon(*FIT, "--out", out, "--resume")
    said = capfd.readouterr().err
    rounds = [line.split()[0] for line in said.splitlines() if "reward" in line]
    assert rounds == (["2/3", "3/3"] if stop == 1 else [])  # else only the rankers are left to fit
    assert "on earlier ones" not in said
    for name in ("model.safetensors", "run.json"):
        assert (out / name).read_bytes() == (fitted / name).read_bytes()


def test_what_is_being_fitted_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    fairhorizon(*FIT, "--set=rounds=1", "--out", tmp_path / "run")
    lines = [line.removeprefix(DATA[7:]) for line in capfd.readouterr().err.splitlines()]
    assert lines[0] == ": fitting als, itemknn, on all training items and on earlier ones"
    assert lines[1].startswith("epoch 1  validation NDCG 0.")
    assert [line for line in lines[1:] if line.startswith(":")] == []
    assert lines[-1].startswith("1/1  reward ")
