"""fit --answers and recommend --value long: in a folder, over shards, one by one; and refusals."""

import shlex
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairhorizon.cli.app import run
from fairhorizon.data.synthetic import synthetic
from fairhorizon.limits.groups import popular_group

DAY, USERS, ITEMS = 86_400, 40, 60
FCPO = (
    """--set rounds=1 --set horizon=3 --set adapt=false --set 'warm_start=["ease","popularity"]' """
    "--set candidates=20"
)


def fairhorizon(command: str, code: int = 0) -> None:
    assert run(shlex.split(command)) == code


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log, answers after it, and runs with and without them."""
    made = tmp_path_factory.mktemp("long")
    log = synthetic(USERS, ITEMS, 12, seed=3).interactions
    columns = {"user": log.users, "item": log.items, "time": DAY * np.arange(len(log))}
    pl.DataFrame(columns).write_csv(made / "log.csv")
    draw, rows = np.random.default_rng(1), []
    for user in range(USERS):
        for day in range(25):
            liked = int(draw.random() < 0.7)
            rows.append((user, int(draw.integers(ITEMS)), DAY * (len(log) + day), liked))
            if not liked and draw.random() < 0.5:
                break
    names = ["user", "item", "time", "liked"]
    pl.DataFrame(rows, schema=names, orient="row").write_csv(made / "answers.csv")
    data = f"--data {made / 'log.csv'}"
    answers = f"--answers {made / 'answers.csv'} --away 4"
    fairhorizon(f"fit fcpo@0.3 {data} {FCPO} --all {answers} --out {made / 'with'}")
    fairhorizon(f"fit fcpo@0.3 {data} {FCPO} --all --out {made / 'without'}")
    fairhorizon(f"fit ease+lists@0.3 {data} {answers} --out {made / 'split'}")
    return made


def lists(folder: Path, options: str, name: str = "with") -> pl.DataFrame:
    out = folder / "lists.csv"
    fairhorizon(f"recommend {folder / name} --k 4 --scores --out {out} {options}")
    return pl.read_csv(out)


@pytest.mark.slow
def test_answers_change_nothing_but_what_is_asked_for(folder: Path) -> None:
    assert (folder / "with" / "retention.safetensors").exists()
    assert not (folder / "without" / "retention.safetensors").exists()
    plain = lists(folder, "")
    assert plain.equals(lists(folder, "", "without"))
    long = lists(folder, "--value long")
    assert not long.equals(plain)
    log = pl.read_csv(folder / "log.csv")
    popular = np.flatnonzero(popular_group(np.bincount(log["item"].to_numpy(), minlength=ITEMS)))
    most = int(0.3 * 4 * USERS)
    assert [some["item"].is_in(popular.tolist()).sum() for some in (plain, long)] == [most, most]


@pytest.mark.slow
def test_blocks_one_by_one_and_some_users(folder: Path) -> None:
    blocks, together = lists(folder, "--value long --jobs 2"), lists(folder, "--value long")
    assert len(blocks) == len(together) == 4 * USERS
    assert blocks["value"].sum() == pytest.approx(together["value"].sum(), rel=0.03)
    plain, long = lists(folder, "--one-by-one"), lists(folder, "--one-by-one --value long")
    assert len(long) == 4 * USERS
    both = plain.join(long, on=["user", "item"], suffix="_long")
    worth = {
        user: (rows["value_long"] / rows["value"]).to_list()
        for (user,), rows in both.group_by("user")
    }
    for ratios in worth.values():
        assert ratios == pytest.approx([ratios[0]] * len(ratios), rel=1e-4)
    some = lists(folder, "--value long --user 7 --user 3")
    assert some["user"].to_list() == [7] * 4 + [3] * 4
    same = some.join(plain, on=["user", "item"], suffix="_plain")
    found = (same["value"] / same["value_plain"]).to_list()
    assert found == pytest.approx([worth[user][0] for user in same["user"]], rel=1e-4)
    assert len(set(same["user"])) == 2


@pytest.mark.slow
def test_a_run_that_can_be_tested_learns_too(folder: Path) -> None:
    assert not lists(folder, "--value long", "split").equals(lists(folder, "", "split"))


def test_fit_says_what_it_has_learned_from(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = pl.read_csv(folder / "answers.csv")
    command = f"fit ease+lists --data {folder / 'log.csv'} --answers {folder / 'answers.csv'}"
    fairhorizon(f"{command} --away 4 --out {tmp_path / 'run'}")
    told = capsys.readouterr().err
    assert f"{len(answers):,} answers of {USERS} users, of whom" in told
    assert "left: a like is worth" in told


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("recommend {0}/without --value long --out {1}/x.csv", "has learned from no answers what"),
        ("recommend {0}/with --value later --out {1}/x.csv", "'ndcg', 'long'"),
        ("fit ease+lists --data {0}/log.csv --away 3 --out {1}/r", "it is about --answers"),
        ("fit ease --data {0}/log.csv --answers {0}/answers.csv --out {1}/r", "of values"),
        (
            "fit ease+lists --data {0}/log.csv --answers {0}/answers.csv --away 90 --out {1}/r",
            "nobody can be seen to be away for 90",
        ),
        (
            "fit ease+lists --data {0}/log.csv --answers {0}/log.csv --out {1}/r",
            "no column is called 'liked'",
        ),
    ],
)
def test_refusals(
    command: str, message: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shlex.split(command.format(folder, tmp_path))) != 0
    assert message in " ".join(capsys.readouterr().err.split())
    assert not any(tmp_path.iterdir())
