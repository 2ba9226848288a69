"""Logs too small for everything: users without training items, no test part, few items."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from fairhorizon.cli.app import run

SMALL = [
    f"--set={setting}"
    for setting in (
        "rounds=4",
        "horizon=5",
        "pmf.dim=8",
        "pmf.max_epochs=3",
        "gru_hidden=8",
        "evaluate_every=2",
    )
]


def fairhorizon(*arguments: object) -> None:
    assert run([str(argument) for argument in arguments]) == 0


def list_lengths(path: Path) -> set[int]:
    users = [line.split(",")[0] for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return set(Counter(users).values())


def test_users_without_training_items_and_a_log_without_test_items(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 12 users with one item (validation) or two (training, validation), 8 items: no test part.
    log, out = tmp_path / "short.csv", tmp_path / "run"
    rows = [(user, (3 * user + n) % 8, n) for user in range(12) for n in range(1 + user % 2)]
    text = "\n".join(",".join(map(str, row)) for row in rows)
    log.write_text(f"user,item,timestamp\n{text}\n", encoding="utf-8")
    fairhorizon("fit", "fcpo:paper", f"--data={log}", *SMALL, "--out", out)
    fairhorizon("evaluate", out, "--k", 3, "--json", tmp_path / "m.json")
    said = capsys.readouterr()
    assert "note: no user has test items, so recall, F1 and NDCG are undefined" in said.err
    assert re.search(r"fcpo +1 +standard +one-shot +0 +3 +- +- +- +\d", said.out)
    metrics = json.loads((tmp_path / "m.json").read_text())["metrics"]
    assert [metrics[f"{name}@3"] for name in ("recall", "f1", "ndcg")] == [None, None, None]
    assert 0 <= metrics["gini@3"] <= 1
    for as_of in ("training", "now"):
        lists = tmp_path / f"{as_of}.csv"
        fairhorizon("recommend", out, "--k", 3, "--as-of", as_of, "--out", lists)
        assert list_lengths(lists) == {3}

    assert run(["fit", "fcpo", f"--data={log}", *SMALL, f"--out={tmp_path / 'strong'}"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: short.csv has no user with two training items, an earlier one for the rankers and "
        "a later one to learn from (give more, or fit fcpo:paper)"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [["fcpo:paper"], ["fcpo", '--set=warm_start=["ease","itemknn"]']]
)
def test_fewer_items_than_a_validation_list(method: list[str], tmp_path: Path) -> None:
    log, out = tmp_path / "tiny.csv", tmp_path / "run"
    rows = [f"{user},{(user + n) % 6},{n}" for user in range(9) for n in range(5)]
    log.write_text("user,item,timestamp\n" + "\n".join(rows) + "\n", encoding="utf-8")
    fairhorizon("fit", *method, f"--data={log}", *SMALL, "--out", out)
    fairhorizon("evaluate", out, "--k", 6, "--lists", tmp_path / "lists.csv")
    assert list_lengths(tmp_path / "lists.csv") == {2}  # of 6 items, 4 are in the history


def cycle_of(n_items: int, path: Path) -> Path:
    """12 users; each takes up to five items, one after the other, from a start of their own."""
    each = min(5, n_items - 1)
    rows = [f"{user},{(user + n) % n_items},{n}" for user in range(12) for n in range(each)]
    path.write_text("user,item,timestamp\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.slow
@pytest.mark.parametrize(("n_items", "ks"), [(4, [4]), (8, [5]), (12, [5, 10])])
def test_without_k_lists_are_as_long_as_the_catalogue_allows(
    n_items: int, ks: list[int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, run_folder = cycle_of(n_items, tmp_path / "log.csv"), tmp_path / "run"
    fairhorizon("fit", "popularity", "--data", log, "--out", run_folder)
    fairhorizon("evaluate", run_folder, "--json", tmp_path / "m.json")
    assert measured(tmp_path / "m.json", "gini") == ks
    fairhorizon("recommend", run_folder, "--out", tmp_path / "lists.csv")
    fairhorizon("audit", tmp_path / "lists.csv", "--data", log, "--json", tmp_path / "audit.json")
    assert measured(tmp_path / "audit.json", "gini") == ks
    study = ("--data", log, "--methods=popularity,popularity+quota@0.5", "--seeds=1", "--jobs=1")
    for command, lengths in (("compare", ks), ("frontier", [n_items])):
        capsys.readouterr()
        fairhorizon(command, *study, "--out", tmp_path / command)
        said = capsys.readouterr()
        assert f"NDCG@{lengths[-1]} " in said.out + said.err


def measured(path: Path, metric: str) -> list[int]:
    """The list lengths at which a metric was measured."""
    found = re.findall(rf'"{metric}@(\d+)"', path.read_text(encoding="utf-8"))
    return sorted(map(int, found))


def test_a_length_asked_for_is_kept_or_said_to_be_too_long_for_some(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One user of 13 has taken all 28 items, so that few are left for a list."""
    log, run_folder, lists = cycle_of(28, tmp_path / "log.csv"), tmp_path / "run", tmp_path / "l"
    more = [f"20,{item},{item}" for item in range(28)]
    with log.open("a", encoding="utf-8") as file:
        file.write("\n".join(more) + "\n")
    fairhorizon("fit", "popularity", "--data", log, "--out", run_folder)
    capsys.readouterr()
    fairhorizon("evaluate", run_folder, "--k=22", "--lists", lists)
    note = "note: 1 of 13 lists have fewer than 22 items, the shortest "
    assert note in capsys.readouterr().err
    assert max(list_lengths(lists)) == 22
    fairhorizon("recommend", run_folder, "--k=22", "--out", lists)
    assert note in capsys.readouterr().err
    assert max(list_lengths(lists)) == 22
    fairhorizon("recommend", run_folder, "--k=2", "--out", lists)
    assert "note" not in capsys.readouterr().err
    assert list_lengths(lists) == {2}
