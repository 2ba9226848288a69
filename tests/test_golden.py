"""The same seed gives the same lists as before: two methods and one long run, in `golden.json`.

A change that is meant to change lists says so and stores new ones: `python tests/test_golden.py`.
"""

import csv
import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl
import pytest
import torch

from fairhorizon.cli.app import run
from fairhorizon.fcpo import learner

GOLDEN = Path(__file__).parent / "golden.json"
MARKET = "synthetic:users=60,items=80,interactions_per_user=20"
METHODS = {
    "ease:recent+quota": ("quota.share=0.4",),
    "lird": ("rounds=2", "updates=20", "pmf.max_epochs=3"),
}
LONG_RUN = ("rounds=3", "horizon=5", "pmf.max_epochs=3", "gru_hidden=8")
COLUMNS = ("reward", "ndcg", "gini", "popularity_rate", "price")


def rounding() -> str:
    """A digest of how this machine rounds: CPUs with the same instructions may differ in sums."""
    generator = torch.Generator().manual_seed(0)
    digest = hashlib.sha256()
    for size in (8, 16, 64, 257):
        x = torch.randn(size, 97, generator=generator)
        w = torch.randn(97, 48, generator=generator)
        y = torch.sigmoid(torch.tanh(x @ w) @ torch.randn(48, 5, generator=generator)).exp()
        spd = (x.T @ x).double() + torch.eye(97, dtype=torch.float64)
        for part in (y, y.sum(0), y.logsumexp(1), torch.linalg.solve(spd, w.double())):
            digest.update(part.contiguous().numpy().tobytes())
    return digest.hexdigest()[:16]


def fairhorizon(*words: object) -> None:
    assert run([str(word) for word in words]) == 0


def lists_of(method: str, folder: Path) -> dict[str, dict[str, list[int]]]:
    """One-shot and interactive lists of a fresh fit: the items of every user, best first."""
    chosen = [f"--set={setting}" for setting in METHODS[method]]
    fairhorizon("fit", method, "--data", MARKET, "--out", folder / "run", *chosen)
    lists: dict[str, dict[str, list[int]]] = {}
    for mode in ("one-shot", "interactive"):
        file = folder / f"{mode}.csv"
        fairhorizon("evaluate", folder / "run", "--mode", mode, "--k=10", "--lists", file)
        of_users = lists[mode] = {}
        with file.open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                of_users.setdefault(row["user"], []).append(int(row["item"]))
    return lists


def long_run(folder: Path) -> dict[str, list[float | None]]:
    """What each of 30 steps of fcpo:paper recorded."""
    chosen = [f"--set=fcpo.{setting}" for setting in LONG_RUN]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(learner, "FISHER_STATES", 32)
        fairhorizon(
            *("longterm", "--data", MARKET, "--methods=fcpo:paper", "--steps=30", "--warm-up=5"),
            *("--round=10", "--retrain=all", "--update-every=5", "--seeds=1", "--jobs=1"),
            *("--limit", "popular<=0.4;labels=moment", "--out", folder, *chosen),
        )
    (file,) = (folder / "steps").glob("*.parquet")
    return pl.read_parquet(file).select(COLUMNS).to_dict(as_series=False)


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize("method", METHODS)
def test_lists(method: str, golden: dict[str, Any], tmp_path: Path) -> None:
    now, then = lists_of(method, tmp_path), golden["lists"][method]
    if rounding() == golden["rounding"]:
        assert now == then
    for mode, lists in then.items():
        same = [len({*lists[user]} & {*now[mode][user]}) / len(lists[user]) for user in lists]
        assert sum(same) / len(same) > 0.8


@pytest.mark.slow
def test_long_run(golden: dict[str, Any], tmp_path: Path) -> None:
    now, then = long_run(tmp_path), golden["long run"]
    if rounding() == golden["rounding"]:
        for column in COLUMNS:
            assert now[column] == pytest.approx(then[column], rel=1e-9), column
    # On other machines steps differ, but the means of the run do not differ much.
    for column in ("reward", "ndcg", "gini", "popularity_rate"):
        mean = sum(then[column]) / len(then[column])
        assert sum(now[column]) / len(now[column]) == pytest.approx(mean, rel=0.25, abs=0.02)


def store() -> None:
    """Write what this version gives."""
    torch.set_num_threads(1)  # as in tests
    with TemporaryDirectory() as folder:
        content = {
            "rounding": rounding(),
            "lists": {method: lists_of(method, Path(folder) / method) for method in METHODS},
            "long run": long_run(Path(folder) / "long run"),
        }
    GOLDEN.write_text(json.dumps(content, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    store()
