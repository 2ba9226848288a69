"""The commands at work on a file of one's own: numbers recomputed from the CSV files they write."""

import csv
import json
import math
import random
import signal
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from fairhorizon.cli.app import run
from fairhorizon.cli.progress import Progress
from fairhorizon.model.folder import ModelFolder
from fairhorizon.recommenders.progress import RoundReport

SMALL = [
    f"--set={setting}"
    for setting in (
        "rounds=4",
        "horizon=5",
        "history=3",
        "pmf.dim=8",
        "pmf.max_epochs=3",
        "gru_hidden=8",
        "actor_hidden=[8,8]",
        "critic_hidden=[8,8]",
        "evaluate_every=2",
    )
]
N_ITEMS = 40


def fairhorizon(*arguments: object) -> None:
    assert run([str(argument) for argument in arguments]) == 0


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 customers with 1 to 14 of 40 wares; text ids with commas and signs; all at other times."""
    draw, path = random.Random(1), tmp_path_factory.mktemp("shop") / "einkäufe.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["Wann", "Kunde", "Artikel", "Warengruppe"])
        moment = iter(draw.sample(range(10_000), 1000))
        for user in range(30):
            for item in draw.sample(range(N_ITEMS), 1 + user % 14):
                group = "neu|grün" if item % 3 == 0 else "alt"
                rows.writerow([next(moment), f"käufer {user}", f'ware "{item}", ☃', group])
    return path


@pytest.fixture(scope="module")
def options(shop: Path) -> list[str]:
    columns = ["--user=Kunde", "--item=Artikel", "--timestamp=Wann"]
    return [f"--data={shop}", *columns, *SMALL, "--preset=paper"]


@pytest.fixture(scope="module")
def fitted(options: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "a"
    fairhorizon("fit", "fcpo", *options, "--alpha-prime", 0.4, "--out", out)
    return out


@pytest.fixture(scope="module")
def parts(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, str]]]:
    out = tmp_path_factory.mktemp("split") / "parts"
    columns = ("--user", "Kunde", "--item", 2, "--timestamp", "Wann")
    fairhorizon("data", "split", shop, *columns, "--out", out)
    return {part: rows_of(out / f"{part}.csv") for part in ("train", "validation", "test")}


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def lists_of(path: Path) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = defaultdict(list)
    for row in rows_of(path):
        lists[row["user"]].append(row["item"])
        assert int(row["rank"]) == len(lists[row["user"]])
    return lists


def by_user(rows: list[dict[str, str]]) -> dict[str, set[str]]:
    items: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        items[row["user"]].add(row["item"])
    return items


def metrics_by_hand(
    lists: dict[str, list[str]], test: dict[str, set[str]], limited: set[str], k: int
) -> dict[str, float]:
    """The definitions, one user after the other."""
    recall, f1, ndcg = [], [], []
    for user, liked in test.items():
        hits = [item in liked for item in lists[user][:k]]
        gain = sum(1 / math.log2(rank + 2) for rank, hit in enumerate(hits) if hit)
        best = sum(1 / math.log2(rank + 2) for rank in range(min(k, len(liked))))
        recall.append(sum(hits) / len(liked))
        f1.append(2 * sum(hits) / (k + len(liked)))
        ndcg.append(gain / best)
    shown = Counter(item for ranked in lists.values() for item in ranked[:k])
    counts = list(shown.values()) + [0] * (N_ITEMS - len(shown))
    differences = sum(abs(a - b) for a in counts for b in counts)
    return {
        f"recall@{k}": sum(recall) / len(recall),
        f"f1@{k}": sum(f1) / len(f1),
        f"ndcg@{k}": sum(ndcg) / len(ndcg),
        f"gini@{k}": differences / (2 * N_ITEMS * sum(counts)),
        f"popularity_rate@{k}": sum(shown[item] for item in limited) / sum(counts),
        f"coverage@{k}": len(shown) / N_ITEMS,
    }


def popular(train: list[dict[str, str]], everything: set[str], size: int) -> set[str]:
    counts = Counter(row["item"] for row in train)
    return set(sorted(everything, key=lambda item: (-counts[item], item))[:size])


@pytest.mark.parametrize("mode", ["one-shot", "interactive"])
@pytest.mark.parametrize("protocol", ["standard", "paper"])
def test_the_metrics_are_those_of_the_lists_and_of_the_split(
    fitted: Path, parts: dict[str, list[dict[str, str]]], tmp_path: Path, mode: str, protocol: str
) -> None:
    result, lists_file = tmp_path / "m.json", tmp_path / "lists.csv"
    how = ("--protocol", protocol, "--mode", mode, "--k", "7,3")
    fairhorizon("evaluate", fitted, *how, "--json", result, "--lists", lists_file)
    found = json.loads(result.read_text())
    everything = {row["item"] for rows in parts.values() for row in rows}
    assert len(everything) == N_ITEMS
    limited = popular(parts["train"], everything, N_ITEMS // 5)
    lists, test = lists_of(lists_file), by_user(parts["test"])
    for k in (3, 7):
        for name, value in metrics_by_hand(lists, test, limited, k).items():
            assert found["metrics"][name] == pytest.approx(value, rel=1e-12), name
    apart = found["by_history"]
    assert (apart["k"], apart["new_items"]["of"]) == (7, len(parts["test"]))
    assert sum(row["users"] for row in apart["users"]) == len(test)
    assert {key: found[key] for key in found if key not in ("metrics", "by_history")} == {
        "dataset": "einkäufe.csv",
        "method": "fcpo",
        "protocol": protocol,
        "mode": mode,
        "seed": 0,
        "alpha_prime": 0.4,
        "group": "popular",
    }
    assert (fitted / "metrics.json").read_bytes() == result.read_bytes()


def test_standard_lists_hold_nothing_of_the_history_and_paper_lists_may(
    fitted: Path, parts: dict[str, list[dict[str, str]]], tmp_path: Path
) -> None:
    history = by_user(parts["train"] + parts["validation"])
    for protocol in ("standard", "paper"):
        out = tmp_path / f"{protocol}.csv"
        fairhorizon("evaluate", fitted, "--protocol", protocol, "--k", N_ITEMS, "--lists", out)
        for user, shown in lists_of(out).items():
            assert len(set(shown)) == len(shown)
            if protocol == "standard":
                assert len(shown) == N_ITEMS - len(history[user])
                assert not history[user] & set(shown)
            else:
                assert len(shown) == N_ITEMS


def test_recommend_writes_the_lists_that_evaluate_measures(fitted: Path, tmp_path: Path) -> None:
    fairhorizon("evaluate", fitted, "--k", 6, "--lists", tmp_path / "evaluated.csv")
    fairhorizon("recommend", fitted, "--k", 6, "--out", tmp_path / "served.csv")
    assert (tmp_path / "evaluated.csv").read_bytes() == (tmp_path / "served.csv").read_bytes()
    fairhorizon("recommend", fitted, "--k", 6, "--seed", 1, "--out", tmp_path / "other.csv")
    assert (tmp_path / "evaluated.csv").read_bytes() != (tmp_path / "other.csv").read_bytes()


def test_as_of_now_nobody_is_shown_what_the_log_holds(
    fitted: Path,
    parts: dict[str, list[dict[str, str]]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "lists.csv"
    fairhorizon("recommend", fitted, "--as-of", "now", "--k", 5, "--out", out)
    known = by_user([row for rows in parts.values() for row in rows])
    lists = lists_of(out)
    assert len(lists) == 30
    assert all(len(shown) == 5 and not set(shown) & known[user] for user, shown in lists.items())
    assert capsys.readouterr().out == f"{out}: 150 items for 30 users\n"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(
    options: list[str], fitted: Path, tmp_path: Path
) -> None:
    again, other = tmp_path / "again", tmp_path / "other"
    for out, seed in ((again, 0), (other, 1)):
        command = ("fit", "fcpo", *options, "--alpha-prime", 0.4, "--seed", seed)
        fairhorizon(*command, "--out", out)
    for folder in (fitted, again, other):
        fairhorizon("evaluate", folder, "--lists", tmp_path / f"{folder.name}.csv")
    for name in ("model.safetensors", "run.json", "metrics.json"):
        assert (fitted / name).read_bytes() == (again / name).read_bytes()
        assert (fitted / name).read_bytes() != (other / name).read_bytes()
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "again.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("stop", [1, 3])
def test_an_interrupted_fit_is_usable_and_goes_on_as_if_never_stopped(
    options: list[str],
    fitted: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    stop: int,
) -> None:
    def press_ctrl_c(_: Progress, report: RoundReport) -> None:
        if report.round == stop:
            signal.raise_signal(signal.SIGINT)

    out = tmp_path / "b"
    command = ["fit", "fcpo", *options, "--alpha-prime=0.4", f"--out={out}"]
    with monkeypatch.context() as patched:
        patched.setattr(Progress, "round", press_ctrl_c)
        assert run(command) == 130
    assert capfd.readouterr().err.endswith(
        "run the same command with --resume to continue\nstopped\n"
    )
    assert sorted(path.name for path in out.iterdir()) == [
        "checkpoint.safetensors",
        "model.safetensors",
        "run.json",
    ]
    assert ModelFolder(out).card().model_dump()["status"] == "interrupted"
    fairhorizon("evaluate", out)
    fairhorizon(*command, "--resume")
    assert (out / "model.safetensors").read_bytes() == (fitted / "model.safetensors").read_bytes()
    assert (out / "run.json").read_bytes() == (fitted / "run.json").read_bytes()
    fairhorizon(*command, "--resume")  # a finished one stays as it is
    assert (out / "model.safetensors").read_bytes() == (fitted / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [["fcpo"], ["fcpo", "--preset=strong"], ["fcpo:strong"], ["fcpo:fast"]]
)
def test_a_policy_over_rankers_keeps_the_limit_without_a_round(
    name: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    data = "--data=synthetic:users=30,items=80,interactions_per_user=20"
    own = ["--set=rounds=0", '--set=warm_start=["popularity"]']
    fairhorizon("fit", *name, data, *own, "--alpha-prime=0.25", f"--out={out}")
    assert capsys.readouterr().out == (
        f"{out}: fcpo fitted on {data[7:]}: 0 rounds; can make lists under any limits\n"
    )
    for mode in ("one-shot", "interactive"):
        for k, allowed in ((3, 22), (6, 45)):  # of 30 users x k items; all like popular ones best
            how = ("--mode", mode, "--k", k, "--json", tmp_path / "m.json")
            fairhorizon("evaluate", out, *how)
            metrics = json.loads((tmp_path / "m.json").read_text())["metrics"]
            assert metrics[f"popularity_rate@{k}"] == pytest.approx(allowed / (30 * k))


@pytest.mark.slow
def test_groups_come_from_a_column_of_the_log_or_of_an_item_table(
    options: list[str], parts: dict[str, list[dict[str, str]]], tmp_path: Path
) -> None:
    everything = {row["item"] for rows in parts.values() for row in rows}
    table = tmp_path / "wares.tsv"
    with table.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, delimiter="\t")
        rows.writerow(["item", "brand"])
        rows.writerows([item, "A" if "1" in item else "B"] for item in everything)
    by_log = {item for item in everything if int(item.split('"')[1]) % 3 == 0}
    by_table = {item for item in everything if "1" in item}
    assert (len(by_log), len(by_table)) == (14, 13)
    for name, limited, groups in (
        ("log", by_log, ("--group-column=Warengruppe", "--sensitive=neu")),
        ("table", by_table, ("--group-column=brand", "--sensitive=A", f"--item-table={table}")),
    ):
        fairhorizon("fit", "fcpo", *options, *groups, "--out", tmp_path / name)
        lists = tmp_path / f"{name}.csv"
        fairhorizon("evaluate", tmp_path / name, "--k", 5, "--lists", lists)
        metrics = json.loads((tmp_path / name / "metrics.json").read_text())["metrics"]
        shown = [item for items in lists_of(lists).values() for item in items]
        share = sum(item in limited for item in shown) / len(shown)
        assert metrics["popularity_rate@5"] == pytest.approx(share, rel=1e-12)


def test_the_share_of_popular_items_can_be_set(
    options: list[str], parts: dict[str, list[dict[str, str]]], tmp_path: Path
) -> None:
    out, lists = tmp_path / "half", tmp_path / "lists.csv"
    fairhorizon("fit", "fcpo", *options, "--set", "popular_share=0.5", "--out", out)
    assert int(ModelFolder(out).recommender().sensitive_.sum()) == N_ITEMS // 2
    fairhorizon("evaluate", out, "--k", 4, "--lists", lists)
    everything = {row["item"] for rows in parts.values() for row in rows}
    limited = popular(parts["train"], everything, N_ITEMS // 2)
    by_hand = metrics_by_hand(lists_of(lists), by_user(parts["test"]), limited, 4)
    metrics = json.loads((out / "metrics.json").read_text())["metrics"]
    assert metrics["popularity_rate@4"] == pytest.approx(by_hand["popularity_rate@4"], rel=1e-12)


def test_a_cut_in_time_leaks_no_future(shop: Path, options: list[str], tmp_path: Path) -> None:
    columns = ("--user=Kunde", "--item=Artikel", "--timestamp=Wann", "--split=time")
    fairhorizon("data", "split", shop, *columns, "--out", tmp_path / "parts")
    times = {
        part: [int(row["timestamp"]) for row in rows_of(tmp_path / "parts" / f"{part}.csv")]
        for part in ("train", "validation", "test")
    }
    assert max(times["train"]) < min(times["validation"])
    assert max(times["validation"]) < min(times["test"])
    assert len(times["test"]) == sum(map(len, times.values())) // 5
    fairhorizon("fit", "fcpo", *options, "--split", "time", "--out", tmp_path / "run")
    fairhorizon("evaluate", tmp_path / "run")
