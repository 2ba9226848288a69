"""recommend: for all users or some, in three formats, with scores; other commands read them all."""

import csv
import json
import random
import shlex
from collections import defaultdict
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from fairhorizon.cli.app import run
from fairhorizon.model.folder import ModelFolder
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

USERS, ITEMS, K = 30, 40, 5
FCPO = '--set rounds=1 --set horizon=3 --set adapt=false --set warm_start=["ease","itemknn"]'


def fairhorizon(command: str) -> None:
    assert run(shlex.split(command, posix=False)) == 0


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    draw, folder = random.Random(5), tmp_path_factory.mktemp("shop")
    with (folder / "log.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["buyer", "item", "time"])
        for user in range(USERS):
            taken = sorted(range(ITEMS), key=lambda item: draw.random() * (item + 5))[:10]
            for time, item in enumerate(draw.sample(taken, len(taken))):
                rows.writerow([f"u{user}", f"s{item}", time])
    data = f"--data {folder / 'log.csv'} --user buyer"
    for name in ("mf", "ease", "ease+lists@0.3", "ease+control@0.3", "mf+pmmf"):
        fairhorizon(f"fit {name} {data} --out {folder / name.partition('@')[0]}")
    fairhorizon(f"fit fcpo@0.3 {data} {FCPO} --out {folder / 'fcpo'}")
    return folder


def lists_of(path: Path) -> dict[str, list[str]]:
    lists: dict[str, list[str]] = defaultdict(list)
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            lists[row["user"]].append(row["item"])
    return lists


def popular(folder: Path) -> set[str]:
    dataset = ModelFolder(folder).data().open()
    return set(dataset.log.item_ids[dataset.sensitive].tolist())


@pytest.mark.parametrize("name", ["mf", "ease"])  # by the user, and by the user's items
@pytest.mark.parametrize("how", ["", "--as-of now"])
def test_without_limits_a_user_has_the_same_list_alone(
    name: str, how: str, shop: Path, tmp_path: Path
) -> None:
    everybody, some = tmp_path / "all.csv", tmp_path / "some.csv"
    fairhorizon(f"recommend {shop / name} --k {K} {how} --out {everybody}")
    fairhorizon(f"recommend {shop / name} --k {K} {how} --user u7 --user u3 --out {some}")
    of_all, of_some = lists_of(everybody), lists_of(some)
    assert list(of_some) == ["u7", "u3"]  # in the order asked for
    assert of_some == {user: of_all[user] for user in ("u7", "u3")}


@pytest.mark.parametrize("name", ["fcpo", "ease+lists", "ease+control"])
def test_limits_are_kept_over_the_lists_that_are_written(
    name: str, shop: Path, tmp_path: Path
) -> None:
    users = [f"u{user}" for user in range(0, USERS, 3)]
    (tmp_path / "users.txt").write_text("\n".join(users) + "\n", encoding="utf-8")
    out = tmp_path / "lists.csv"
    fairhorizon(
        f"recommend {shop / name} --k {K} --users {tmp_path / 'users.txt'} --limit popular<=0.2 "
        f"--out {out}"
    )
    lists = lists_of(out)
    assert list(lists) == users
    shown = [item for items in lists.values() for item in items]
    assert len(shown) == len(users) * K
    assert sum(item in popular(shop / name) for item in shown) <= 0.2 * len(shown)
    # and nobody is shown what they have
    dataset = ModelFolder(shop / name).data().open()
    for log in (dataset.split.train, dataset.split.validation):
        pairs = zip(log.user_ids[log.users], log.item_ids[log.items], strict=True)
        assert not any(item in lists.get(user, ()) for user, item in pairs)


def test_some_users_by_themselves(shop: Path, tmp_path: Path) -> None:
    everybody, some = tmp_path / "all.csv", tmp_path / "some.csv"
    fairhorizon(f"recommend {shop / 'fcpo'} --k {K} --one-by-one --out {everybody}")
    fairhorizon(f"recommend {shop / 'fcpo'} --k {K} --one-by-one --user u0 --user u1 --out {some}")
    # the first two arrive first
    assert lists_of(some) == {user: lists_of(everybody)[user] for user in ("u0", "u1")}


def test_the_formats_hold_the_same_and_an_audit_reads_them(shop: Path, tmp_path: Path) -> None:
    found = {}
    for suffix, option in (("csv", ""), ("parquet", ""), ("jsonl", ""), ("txt", "--format jsonl")):
        out, log = tmp_path / f"lists.{suffix}", shop / "log.csv"
        fairhorizon(f"recommend {shop / 'ease'} --k {K} --scores {option} --out {out}")
        if suffix == "txt":
            assert out.read_bytes() == found["jsonl"][0]
            continue
        fairhorizon(
            f"audit {out} --data {log} --user buyer --k {K} --limit popular<=0.4 "
            f"--json {tmp_path / 'audit.json'}"
        )
        audit = json.loads((tmp_path / "audit.json").read_text())
        assert f"lists.{suffix}" in audit.pop("made_by")["command"]
        found[suffix] = (out.read_bytes(), audit)
    assert found["csv"][1] == found["parquet"][1] == found["jsonl"][1]
    frames = [
        pl.read_csv(tmp_path / "lists.csv"),
        pl.read_parquet(tmp_path / "lists.parquet"),
        pl.read_ndjson(tmp_path / "lists.jsonl"),
    ]
    assert frames[0].columns == ["user", "rank", "item", "score"]
    assert frames[0].equals(frames[1])
    assert frames[0].equals(frames[2])
    assert json.loads((tmp_path / "lists.jsonl").read_text().splitlines()[0])["rank"] == 1


def test_scores_are_those_of_the_method(shop: Path, tmp_path: Path) -> None:
    for name, columns in (("ease", ["score"]), ("ease+lists", ["score", "value"])):
        out = tmp_path / f"{name}.parquet"
        fairhorizon(f"recommend {shop / name} --k {K} --scores --out {out}")
        frame, model = pl.read_parquet(out), ModelFolder(shop / name).recommender()
        assert frame.columns == ["user", "rank", "item", *columns]
        scenario = evaluation_scenario(
            ModelFolder(shop / name).data().open().split, model.queue_length, Protocol.STANDARD
        )
        served = model.rank(scenario, length=K)
        assert served.scores is not None
        assert np.array_equal(frame["score"].to_numpy().reshape(-1, K), served.scores)


def test_requests_one_by_one_have_scores_too(shop: Path, tmp_path: Path) -> None:
    out = tmp_path / "lists.parquet"
    fairhorizon(f"recommend {shop / 'fcpo'} --k {K} --one-by-one --scores --out {out}")
    frame = pl.read_parquet(out)
    assert frame.columns == ["user", "rank", "item", "score", "value"]
    assert frame["score"].is_between(0, 1).all()


def test_a_method_without_scores_says_so(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "lists.csv"
    fairhorizon(f"recommend {shop / 'ease+control'} --k {K} --scores --out {out}")
    assert "note: lists that are made this way have no scores\n" in capsys.readouterr().err
    assert out.read_text(encoding="utf-8").startswith("user,rank,item\n")


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", "--user u3 --user u99", "user 'u99' is not in log.csv (give ids of the data)"),
        (
            "u1\nu2\nnobody\n",
            "--users users.csv",
            "users.csv line 3: user 'nobody' is not in log.csv (give ids of the data)",
        ),
        (
            "x,buyer\n1,u1\n2,u77\n",
            "--users users.csv",
            "users.csv line 3: user 'u77' is not in log.csv (give ids of the data)",
        ),
        (
            "x,y\n1,u1\n",
            "--users users.csv",
            "users.csv: no column looks like the user; there are 'x', 'y' (give a file with one id "
            "per line, or with a column called user)",
        ),
    ],
)
def test_unknown_users_are_named(
    text: str,
    options: str,
    message: str,
    shop: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("users.csv").write_text(text, encoding="utf-8")
    assert run(shlex.split(f"recommend {shop / 'ease'} {options} --out lists.csv")) == 1
    assert capsys.readouterr().err == f"error: {message}\n"
    assert not Path("lists.csv").exists()


@pytest.mark.parametrize("text", ["u4\nu2\nu4\n", "buyer,n\nu4,1\nu2,5\n", "n;user_id\n1;u4\n2;u2"])
def test_files_of_users(text: str, shop: Path, tmp_path: Path) -> None:
    users, out = tmp_path / "users.csv", tmp_path / "lists.csv"
    users.write_text(text, encoding="utf-8")
    fairhorizon(f"recommend {shop / 'mf+pmmf'} --k {K} --users {users} --out {out}")
    assert list(lists_of(out)) == ["u4", "u2"]


@pytest.mark.parametrize(
    ("line", "fault"),
    [("{nonsense", "is no JSON"), ('{"user": "u1"}', "has other keys than the first line")],
)
def test_broken_json_lines(
    line: str, fault: str, shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lists = tmp_path / "lists.jsonl"
    lists.write_text(f'{{"user": "u1", "item": "s1"}}\n\n{line}\n', encoding="utf-8")
    assert run(["audit", str(lists), "--data", str(shop / "log.csv")]) == 1
    remedy = 'give {"user": ..., "item": ...} per line'
    assert capsys.readouterr().err == f"error: {lists} line 3: {fault} ({remedy})\n"


def code(command: str) -> int:
    return run(shlex.split(command, posix=False))


@pytest.mark.parametrize("jobs", [1, 2])
def test_candidates_and_excluded_items(jobs: int, shop: Path, tmp_path: Path) -> None:
    out, mine, gone, stock = (tmp_path / name for name in ("l.csv", "m.csv", "g.csv", "s.txt"))
    fairhorizon(f"recommend {shop / 'ease+lists'} --k {K} --out {out} --allow-missed")
    free = lists_of(out)
    wanted = free["u1"][2:4]
    mine.write_text("buyer,item\n" + "".join(f"u1,{one}\n" for one in wanted), encoding="utf-8")
    gone.write_text(f"item,buyer\n{free['u2'][0]},u2\ns99,u2\n", encoding="utf-8")
    pairs = f"--candidates {mine} --exclude {gone}"
    fairhorizon(
        f"recommend {shop / 'ease+lists'} --k {K} {pairs} --jobs {jobs} --out {out} --allow-missed"
    )
    found = lists_of(out)
    assert sorted(found["u1"]) == sorted(wanted)
    assert free["u2"][0] not in found["u2"]
    assert len(found["u2"]) == K
    stock.write_text("".join(f"s{item}\n" for item in range(20)), encoding="utf-8")
    some = f"--candidates {stock} --user u3 --user u1"
    fairhorizon(f"recommend {shop / 'ease'} --k {K} {some} --out {out}")
    found = lists_of(out)
    assert list(found) == ["u3", "u1"]
    assert {int(item[1:]) for items in found.values() for item in items} <= set(range(20))


def test_a_verdict_per_limit_and_the_exit_code(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "lists.csv"
    fairhorizon(f"recommend {shop / 'ease+lists'} --k {K} --limit popular<=0.3 --out {out}")
    assert "popular<=0.3  kept: " in capsys.readouterr().out
    few = popular(shop / "ease+lists")  # nothing but popular items: the limit cannot be kept
    (tmp_path / "few.txt").write_text("\n".join(few) + "\n", encoding="utf-8")
    missed = f"recommend {shop / 'ease+control'} --k 2 --limit popular<=0.3 --out {out}"
    missed += f" --candidates {tmp_path / 'few.txt'}"
    assert code(missed) == 3
    assert "popular<=0.3  not kept: " in capsys.readouterr().out
    assert out.exists()
    assert code(f"{missed} --allow-missed") == 0


def test_what_the_lists_are_made_of_is_not_written_over(
    shop: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log, run_file = shop / "log.csv", shop / "ease" / "run.json"
    before = log.read_bytes(), run_file.read_bytes()
    (tmp_path / "link.csv").symlink_to(log)
    for out in (log, run_file, tmp_path / "link.csv"):
        assert code(f"recommend {shop / 'ease'} --out {out}") == 1
        assert "name another --out" in capsys.readouterr().err
    assert (log.read_bytes(), run_file.read_bytes()) == before
    assert code(f"recommend {shop / 'ease'} --out {tmp_path / 'l.xlsx'}") == 1
    assert "lists are written as .csv, .txt, .parquet" in capsys.readouterr().err


def test_ids_that_a_spreadsheet_would_run(shop: Path, tmp_path: Path) -> None:
    log, out = tmp_path / "log.csv", tmp_path / "lists.csv"
    text = (shop / "log.csv").read_text(encoding="utf-8")
    log.write_text(text.replace(",s1,", ',"=2+3",').replace("u1,", "@u1,"), encoding="utf-8")
    fairhorizon(f"fit popularity --data {log} --user buyer --out {tmp_path / 'run'}")
    fairhorizon(f"recommend {tmp_path / 'run'} --k 30 --out {out}")
    plain = lists_of(out)
    fairhorizon(f"recommend {tmp_path / 'run'} --k 30 --spreadsheet-safe --out {out}")
    safe = lists_of(out)
    assert any("=2+3" in items for items in plain.values())
    assert safe["'@u1"] == ["'=2+3" if item == "=2+3" else item for item in plain["@u1"]]
    assert "u2" in safe


def test_a_table_that_calls_the_item_as_the_log_does_has_further_items(tmp_path: Path) -> None:
    rows = [(f"u{n % 7}", f"s{n * 5 % 12}", n) for n in range(40)]
    log = pl.DataFrame(rows, schema=["buyer", "Artikel/SKU", "time"], orient="row")
    log.write_csv(tmp_path / "log.csv")
    items = [f"s{code}" for code in range(14)]  # the last two are not in the log
    pl.DataFrame({"Artikel/SKU": items}).write_csv(tmp_path / "items.csv")
    about = f"--data {tmp_path / 'log.csv'} --user buyer --item Artikel/SKU"
    table = f"--item-table {tmp_path / 'items.csv'} --limit new>=0.1"
    fairhorizon(f"fit ease+lists {about} {table} --all --out {tmp_path / 'run'}")
    fairhorizon(f"recommend {tmp_path / 'run'} --k 5 --out {tmp_path / 'lists.csv'}")
    shown = [item for own in lists_of(tmp_path / "lists.csv").values() for item in own]
    assert shown.count("s12") + shown.count("s13") >= 0.1 * len(shown) > 0
