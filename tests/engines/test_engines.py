"""The contract of engines: the same rows and answers from processes and from Ray.

All tests that need the Ray cluster are here: it is started once for a file.
"""

import json
import os
import pickle
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from engine_cluster import CLIENT_PORT, NODE
from engine_tasks import Fails, LostAt, MakeNumbers, Squares, Surroundings, Waits

from fairhorizon.cli.app import run
from fairhorizon.engines.engine import TaskEngine
from fairhorizon.engines.opening import ray_engine
from fairhorizon.engines.processes import Processes
from fairhorizon.engines.surroundings import FarShard, finished_there
from fairhorizon.engines.surroundings import Surroundings as Here
from fairhorizon.engines.worker import pickled
from fairhorizon.errors import ConfigError, FairHorizonError
from fairhorizon.limits.groups import popular_group
from fairhorizon.model.blocks import ListsOfRun, served_in_blocks
from fairhorizon.model.folder import ModelFolder
from fairhorizon.vocabulary import Protocol

pytestmark = pytest.mark.slow

TINY = "--data=synthetic:users=25,items=30,interactions_per_user=8"


@pytest.fixture(params=["processes", "ray"])
def engine(request: pytest.FixtureRequest) -> Iterator[TaskEngine]:
    if request.param == "ray":
        request.getfixturevalue("cluster")
        made = ray_engine(None, None, 1)
    else:
        made = Processes(jobs=2)
    with made as engine:
        yield engine


def test_all_rows_of_all_tasks_come_task_by_task(engine: TaskEngine) -> None:
    rows = list(engine.each([Squares(n) for n in range(6)]))
    assert sorted(rows) == [(n, number**2) for n in range(6) for number in range(n)]
    order = [n for n, _ in rows]
    assert [n for n, _ in groupby(order)] == list(dict.fromkeys(order))  # never mixed
    assert list(engine.each([])) == []


def test_a_worker_has_the_threads_and_the_folder_that_it_should(
    engine: TaskEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = list(engine.each([Surroundings(), Surroundings()]))
    assert {row[:3] for row in rows} == {(1, "1", str(tmp_path))}
    assert os.getpid() not in {row[3] for row in rows}


@pytest.mark.parametrize("how", ["killed", "out of memory"])
def test_a_task_that_lost_its_worker_is_tried_again_and_its_rows_come_once(
    engine: TaskEngine, how: str, tmp_path: Path
) -> None:
    tasks = [LostAt(tmp_path, 1, how), Squares(3)]
    rows = list(engine.each(tasks))
    assert sorted(map(str, rows)) == ["(3, 0)", "(3, 1)", "(3, 4)", "first", "second"]
    assert len(list(tmp_path.iterdir())) == 2


def test_a_task_that_always_loses_its_worker_ends_with_a_remedy(
    engine: TaskEngine, tmp_path: Path
) -> None:
    tasks = [LostAt(tmp_path, 100), Squares(2)]
    expected = r"lost its worker 3 times.*memory.*\(write to the author; fewer jobs need less"
    with pytest.raises(FairHorizonError, match=expected):
        list(engine.each(tasks, goes_on="write to the author"))
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("ours", ConfigError, r"^this cannot work \(do that\)"),
        ("unpicklable", FairHorizonError, r"^items\.csv: there is no column 'genre' \(give ano"),
        ("a bug", ZeroDivisionError, "^a bug"),
    ],
)
def test_an_error_in_a_task_is_raised_here(
    engine: TaskEngine, how: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as raised:
        list(engine.each([Fails(how), Fails(how)]))
    assert "in rows" in "".join(raised.value.__notes__)
    assert list(engine.each([Squares(2), Squares(1)])).count((2, 1)) == 1  # it goes on


def test_shards_are_made_once_and_answer_in_order(engine: TaskEngine, tmp_path: Path) -> None:
    """What is sent and received is counted; after an error the next call is answered."""
    makers = [MakeNumbers(first, first + 4, log=tmp_path / "log") for first in (0, 4, 8)]
    weights = np.linspace(0, 1, 12)
    with engine.shards(makers) as shards:
        assert len(shards) == 3
        for power in (1, 2):
            expected = [
                float(weights[f : f + 4] @ np.arange(f, f + 4.0) ** power) for f in (0, 4, 8)
            ]
            assert shards.call("total", weights, power=power) == expected
        parts = shards.call_each("plus", [(10.0,), (20.0,), (30.0,)])
        assert np.concatenate(parts).tolist() == [*range(10, 14), *range(24, 28), *range(38, 42)]
        assert len(set(shards.call("process"))) == 3
        before = replace(shards.messages)
        shards.call("total", np.ones(2000))
        counted = shards.messages
        first = counted.sent - before.sent
        assert 3 * 16_000 < first < 3 * 16_000 + 1500  # 2,000 numbers of 8 bytes to each
        assert counted.received - before.received < 1500
        before = replace(counted)
        shards.call_each("echo", [(np.ones(1000),), (np.ones(500),), (np.ones(500),)])
        assert 16_000 < counted.sent - before.sent < 16_000 + 1500
        assert 16_000 < counted.received - before.received < 16_000 + 3000
        assert counted.calls == before.calls + 1
        with pytest.raises(ConfigError, match="this cannot work"):
            shards.call("fail", "ours")
        with pytest.raises(AttributeError, match="nothing"):
            shards.call("nothing")
        with pytest.raises(ValueError, match="for 2 shards, there are 3"):
            shards.call_each("plus", [(1.0,)] * 2)
        assert shards.call("total", np.ones(12)) == [6.0, 22.0, 38.0]
    assert sorted((tmp_path / "log").read_text().split()) == ["0", "4", "8"]


def test_messages_are_counted_from_the_first_call() -> None:
    with Processes(jobs=1).shards([MakeNumbers(0, 2)]) as shards:
        made = shards.messages
        assert (made.calls, made.sent, made.received) == (0, 0, 0)


def test_a_lost_shard_is_made_anew_and_the_call_repeated(
    engine: TaskEngine, tmp_path: Path
) -> None:
    makers = [
        MakeNumbers(0, 4, log=tmp_path / "log"),
        MakeNumbers(4, 8, log=tmp_path / "log", lose_at=tmp_path / "lost"),
    ]
    with engine.shards(makers) as shards:
        assert shards.call("total", np.ones(8)) == [6.0, 22.0]
        assert shards.call("total", np.ones(8)) == [6.0, 22.0]
    assert sorted((tmp_path / "log").read_text().split()) == ["0", "4", "4"]


def test_a_shard_that_is_always_lost_ends_with_a_remedy(engine: TaskEngine) -> None:
    with (
        engine.shards([MakeNumbers(0, 4)]) as shards,
        pytest.raises(FairHorizonError, match=r"shard 1 of 1 was lost 3 times.*\(more shards"),
    ):
        shards.call("lost")


def test_a_shard_that_is_lost_before_it_is_made_is_named() -> None:
    with (
        pytest.raises(FairHorizonError, match="shard 2 of 2 was lost 3 times"),
        Processes(jobs=2).shards([MakeNumbers(0, 4), MakeNumbers(4, 8, fails="lost")]),
    ):
        pass


def test_an_error_in_the_making_of_a_shard_is_raised_here(engine: TaskEngine) -> None:
    with (
        pytest.raises(ConfigError, match="this cannot"),
        engine.shards([MakeNumbers(0, 1, fails="ours")]),
    ):
        pass


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            replace(Here.here(1), version="0.0"),
            r"has fairhorizon 0\..*, the command 0\.0 \(ins",
        ),
        (replace(Here.here(1), folder=Path("/not/here")), r"has no folder /not/here \(run the com"),
    ],
)
def test_a_node_that_does_not_fit_is_named(own: Here, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^node {re.escape(socket.gethostname())} {message}"):
        finished_there(pickled(Squares(2)), own).get()
    answer = FarShard(own).answer(pickled(MakeNumbers(0, 2)))
    with pytest.raises(ConfigError, match=message):
        pickle.loads(answer).get()


def test_ctrl_c_between_two_rows_ends_what_is_running(engine: TaskEngine, tmp_path: Path) -> None:
    tasks = [Squares(2), Waits(tmp_path, tmp_path / "never", "a")]
    rows = engine.each(tasks)
    assert next(rows) == (2, 0)
    while not list(tmp_path.iterdir()):
        time.sleep(0.05)
    with pytest.raises(KeyboardInterrupt), engine:
        raise KeyboardInterrupt
    rows.close()
    (mark,) = tmp_path.iterdir()
    deadline = time.monotonic() + 30
    while is_running(mark):
        assert time.monotonic() < deadline, "it goes on"
        time.sleep(0.05)


def kept(folder: Path) -> dict[str, Any]:
    """What a study has in its folder, without times."""
    found: dict[str, Any] = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if file.parent.name == "rows" and file.suffix == ".json":
            found[name] = {**json.loads(file.read_text()), "seconds": None}
        elif file.parent.name == "steps" and file.suffix == ".parquet":
            found[name] = pl.read_parquet(file).drop("seconds").rows()
        elif file.suffix in (".npy", ".safetensors") or file.name == "best.json":
            found[name] = file.read_bytes()
    return found


@pytest.mark.parametrize(
    ("words", "files"),
    [
        (["compare", "--methods=mf,mf+quota@0.3", "--seeds=2", "--set=mf.max_epochs=1"], 4 + 4 + 2),
        (["longterm", "--methods=popularity,ease+quota", "--seeds=1", "--steps=3"], 2 + 2),
        (["tune", "itemknn", "--trials=4"], 1),
    ],
)
def test_a_command_gives_the_same_on_every_engine_to_the_bit(
    words: list[str], files: int, cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cluster.worker_nodes
    common = [*words, TINY]
    folders = [tmp_path / engine for engine in ("processes", "ray")]
    here = "1" if words[0] != "tune" else "2"  # one or several are the same, but not for a search
    for folder, jobs in zip(folders, (here, "2"), strict=True):
        where = [f"--jobs={jobs}", f"--engine={folder.name}", f"--out={folder}"]
        assert run([*common, *where]) == 0
    first, second = map(kept, folders)
    assert len(first) == files
    assert first == second
    said = capsys.readouterr().err
    tasks = {"compare": "2/2", "longterm": "2/2", "tune": "2/2"}[words[0]]
    assert said.count(f"{tasks} tasks on 2 nodes)") > 0


def attempts(marks: Path) -> int:
    return len(list(marks.iterdir()))


def is_running(mark: Path) -> bool:
    return Path(f"/proc/{mark.suffix[1:]}").exists()


def test_a_lost_node_is_done_without(cluster: Any, tmp_path: Path) -> None:
    """Its task and its shard go to the other one."""
    marks, go = tmp_path / "marks", tmp_path / "go"
    marks.mkdir()

    def lose_a_node() -> None:
        if attempts(marks) == 2 and cluster.worker_nodes:  # one on each node
            assert engine.progress == "0/2 tasks on 2 nodes"
            (node,) = cluster.worker_nodes
            cluster.remove_node(node, allow_graceful=False)
        if not cluster.worker_nodes and not all(map(is_running, marks.iterdir())):
            go.touch()  # for the task of the other node, and for that which takes its place

    try:
        with ray_engine(None, None, 1) as engine:
            makers = [MakeNumbers(0, 4), MakeNumbers(4, 8)]
            with engine.shards(makers) as shards:
                tasks = [Waits(marks, go, name) for name in ("a", "b")]
                assert sorted(engine.each(tasks, meanwhile=lose_a_node)) == ["a", "b"]
                assert attempts(marks) == 3
                assert shards.call("total", np.ones(8)) == [6.0, 22.0]
                assert len(set(shards.call("node"))) == 1
            deadline = time.monotonic() + 60
            while engine.progress != "2/2 tasks on 1 node":
                assert time.monotonic() < deadline, engine.progress
                time.sleep(0.1)
    finally:
        cluster.add_node(**NODE)


def test_ray_ends_what_takes_too_much_memory_and_that_is_told(cluster: Any, tmp_path: Path) -> None:
    always = {"RAY_memory_usage_threshold": "0.0001", "RAY_memory_monitor_refresh_ms": "100"}
    node = cluster.add_node(**NODE, env_vars=always)
    tasks = [Waits(tmp_path, tmp_path / "never", name) for name in ("a", "b", "c")]
    try:
        with (
            ray_engine(None, None, 1) as engine,
            pytest.raises(FairHorizonError, match="lost its worker 3 times, perhaps") as raised,
        ):
            list(engine.each(tasks))  # the other nodes have no place for the third
        assert type(raised.value.__cause__).__name__ == "OutOfMemoryError"
    finally:
        cluster.remove_node(node)


def test_processes_are_kept_for_as_long_as_the_engine_is_entered() -> None:
    tasks = [Surroundings(), Surroundings()]
    with Processes(2) as engine:
        first, second = ({row[3] for row in engine.each(tasks)} for _ in range(2))
        assert first & second
    assert not any(Path(f"/proc/{number}").exists() for number in first | second)
    for number in {row[3] for row in engine.each(tasks)}:  # alone, a call ends its own
        assert not Path(f"/proc/{number}").exists()


@pytest.mark.usefixtures("cluster")
def test_lists_on_ray_are_those_of_one_process(tmp_path: Path) -> None:
    """Under one plain limit without spread, where nothing but a price ties the users."""
    from fairhorizon.engines.on_ray import OnRay

    fit = [
        "fit",
        "ease+lists",
        "--data=synthetic:users=50,items=60,interactions_per_user=15",
        "--alpha-prime=0.3",
        "--set=lists.spread=null",
    ]
    assert run([*fit, "--out", str(tmp_path / "run")]) == 0
    lists = ListsOfRun(tmp_path / "run", 5, Protocol.STANDARD)
    model, dataset = lists.model(), ModelFolder(tmp_path / "run").data().open()
    one = model.served(lists.scenario(model, dataset), length=5)
    with OnRay(jobs=2) as engine:
        made = served_in_blocks(lists, model, dataset.log.n_users, engine)
    assert made is not None
    assert made.blocks == 2
    assert max(one.prices.values()) > 0
    np.testing.assert_array_equal(made.served.lists, one.lists)
    assert made.served.prices == pytest.approx(dict(one.prices), abs=1e-6)


def test_lists_that_are_spread_by_two_workers_keep_the_limit(tmp_path: Path) -> None:
    """What each user is shown may differ from the lists of one process; the limit holds."""
    data = "--data=synthetic:users=50,items=60,interactions_per_user=15"
    fit = ["fit", "ease+lists", data, "--alpha-prime=0.3", f"--out={tmp_path / 'run'}"]
    assert run(fit) == 0
    lists = ListsOfRun(tmp_path / "run", 5, Protocol.STANDARD)
    model, dataset = lists.model(), ModelFolder(tmp_path / "run").data().open()
    with Processes(2) as engine:
        made = served_in_blocks(lists, model, dataset.log.n_users, engine)
    assert made is not None
    assert made.blocks == 2
    popular = popular_group(dataset.split.train.item_counts())
    assert (made.served.lists >= 0).all()
    assert popular[made.served.lists].mean() <= 0.3


@pytest.mark.usefixtures("cluster")
def test_an_audit_on_ray_says_the_same(tmp_path: Path) -> None:
    run_folder, lists = tmp_path / "run", tmp_path / "lists.csv"
    assert run(["fit", "popularity+quota@0.4", TINY, f"--out={run_folder}"]) == 0
    assert run(["recommend", str(run_folder), f"--out={lists}"]) == 0
    words = ["audit", str(lists), TINY, "--k=3,7", "--limit=popular<=0.4", "--name=shop"]
    for engine in ("processes", "ray"):
        assert run([*words, f"--engine={engine}", f"--json={tmp_path / engine}"]) == 0
    assert (tmp_path / "ray").read_text() == (tmp_path / "processes").read_text()
    assert '"shop"' in (tmp_path / "ray").read_text()


CLIENT = """
import json, sys
from fairhorizon.cli.app import run
sys.exit(max(run(words) for words in json.loads(sys.argv[1])))
"""
AT_CLIENT = ("--engine=ray", f"--address=ray://127.0.0.1:{CLIENT_PORT}")


@pytest.mark.usefixtures("cluster")
def test_a_client_of_the_cluster_gets_the_same(tmp_path: Path) -> None:
    """From a process that is no part of it: a study, and lists by blocks of users."""
    here, client = tmp_path / "here", tmp_path / "client"
    data = "--data=synthetic:users=50,items=60,interactions_per_user=15"

    def commands(folder: Path) -> list[list[str]]:
        folder.mkdir()
        study = ["compare", "--methods=popularity", "--seeds=2", TINY, f"--out={folder / 'study'}"]
        lists = ["recommend", str(tmp_path / "model"), f"--out={folder / 'lists.csv'}"]
        return [study, lists]

    fit = ["fit", "ease+lists", data, "--alpha-prime=0.3", "--set=lists.spread=null"]
    assert run([*fit, f"--out={tmp_path / 'model'}"]) == 0
    assert [run(words) for words in commands(here)] == [0, 0]
    words = json.dumps([[*words, "--jobs=2", *AT_CLIENT] for words in commands(client)])
    command = [sys.executable, "-c", CLIENT, words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2/2 tasks on 2 nodes" in done.stderr
    assert "2 blocks of users" in done.stderr
    assert kept(here / "study") == kept(client / "study") != {}
    assert (here / "lists.csv").read_text() == (client / "lists.csv").read_text()
