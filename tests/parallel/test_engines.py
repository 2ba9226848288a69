"""The contract of engines: the same rows and answers from processes and from Ray.

All tests that need the Ray cluster are here, as it is started once for a file. What the two engines
have in common is tested with processes alone, which start sooner.
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
from functools import partial
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
from dying_blocks import LIMITS, DyingMaker, candidates, serve_group
from parallel_cluster import CLIENT_PORT, NODE
from parallel_tasks import Fails, LostAt, MakeNumbers, Numbers, Place, Sleeps, Squares, Waits
from running_processes import read_pipe, wait_for_the_end_of

from fairhorizon import __version__
from fairhorizon.allocation.engine import allocate
from fairhorizon.cli.app import run
from fairhorizon.errors import ConfigError, FairHorizonError
from fairhorizon.limits.groups import popular_group
from fairhorizon.model.blocks import ListsOfRun, served_in_blocks
from fairhorizon.model.folder import ModelFolder
from fairhorizon.parallel import ray_engine
from fairhorizon.parallel.engine import (
    BlockHolder,
    Messages,
    Processes,
    TaskEngine,
    WorkerBlocks,
    pickled,
)
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


# Tasks.


@pytest.mark.essential
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
    rows = list(engine.each([Place(), Place()]))
    assert {row[:2] for row in rows} == {("1", str(tmp_path))}
    assert os.getpid() not in {row[2] for row in rows}


def retried(engine: TaskEngine, how: str, folder: Path) -> None:
    rows = list(engine.each([LostAt(folder, 1, how), Squares(3)]))
    assert sorted(map(str, rows)) == ["(3, 0)", "(3, 1)", "(3, 4)", "first", "second"]
    assert len(list(folder.iterdir())) == 2


def test_a_task_that_lost_its_worker_is_tried_again_and_its_rows_come_once(
    engine: TaskEngine, tmp_path: Path
) -> None:
    retried(engine, "killed", tmp_path)


def test_a_worker_without_memory_is_lost(tmp_path: Path) -> None:
    retried(Processes(2), "out of memory", tmp_path)


def test_a_task_that_always_loses_its_worker_ends_with_a_remedy(tmp_path: Path) -> None:
    tasks = [LostAt(tmp_path, 100), Squares(2)]
    expected = r"lost its worker 3 times.*memory.*\(write to the author; fewer jobs need less"
    with pytest.raises(FairHorizonError, match=expected):
        list(Processes(2).each(tasks, remedy="write to the author"))
    assert len(list(tmp_path.iterdir())) == 3


def test_an_error_in_a_task_is_raised_here(engine: TaskEngine) -> None:
    with pytest.raises(ConfigError, match=r"^this cannot work \(do that\)") as raised:
        list(engine.each([Fails("ours"), Fails("ours")]))
    assert "in rows" in "".join(raised.value.__notes__)
    assert list(engine.each([Squares(2), Squares(1)])).count((2, 1)) == 1  # it goes on


@pytest.mark.parametrize(
    ("how", "kind", "message"),
    [
        ("unpicklable", FairHorizonError, r"^items\.csv: there is no column 'genre' \(give ano"),
        ("a bug", ZeroDivisionError, "^a bug"),
    ],
)
def test_an_error_that_cannot_be_sent_is_said(
    how: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as raised:
        list(Processes(2).each([Fails(how), Fails(how)]))
    assert "in rows" in "".join(raised.value.__notes__)


def test_processes_are_kept_for_as_long_as_the_engine_is_entered() -> None:
    tasks = [Place(), Place()]
    with Processes(2) as engine:
        first, second = ({row[2] for row in engine.each(tasks)} for _ in range(2))
        assert first & second
    assert not any(Path(f"/proc/{number}").exists() for number in first | second)
    for number in {row[2] for row in engine.each(tasks)}:  # alone, a call ends its own
        assert not Path(f"/proc/{number}").exists()


def test_ctrl_c_between_two_rows_ends_what_is_running(engine: TaskEngine, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    rows = engine.each([Squares(2), Sleeps(tmp_path / "begun")])
    assert next(rows) == (2, 0)
    worker = int(read_pipe(tmp_path / "begun"))
    with pytest.raises(KeyboardInterrupt), engine:
        raise KeyboardInterrupt
    rows.close()
    wait_for_the_end_of([worker])


# Blocks.


def asked_of_all(blocks: WorkerBlocks) -> Messages:
    """Two blocks of six numbers each are asked all kinds of questions."""
    assert blocks.messages == Messages()
    for weights in (np.ones(12), np.r_[np.ones(6), np.zeros(20_000)]):  # small, large
        expected = [float(weights[:6] @ np.arange(6)), float(weights[6:12] @ np.arange(6, 12))]
        assert blocks.map(Numbers.total, weights) == expected
    assert len(set(blocks.map(Numbers.process))) == 2
    before = replace(blocks.messages)
    assert blocks.map(Numbers.total, np.ones(2000)) == [15.0, 51.0]
    counted = blocks.messages
    first = counted.sent - before.sent
    assert 2 * 16_000 < first < 2 * 16_000 + 1500  # 2,000 numbers of 8 bytes to each
    assert counted.received - before.received < 1500
    before = replace(counted)
    parts = blocks.map_each(Numbers.echo, [(np.ones(1000),), (np.zeros(500),)])
    assert [part.sum() for part in parts] == [1000, 0]
    assert 12_000 < counted.sent - before.sent < 12_000 + 1500
    assert 12_000 < counted.received - before.received < 12_000 + 3000
    assert counted.calls == before.calls + 1
    before = replace(counted)
    assert blocks.one(1, Numbers.total, np.ones(1000)) == 51.0
    assert 8_000 < counted.sent - before.sent < 8_000 + 1500
    with pytest.raises(ConfigError, match="this cannot work"):
        blocks.map(Numbers.fail, "ours")
    with pytest.raises(ValueError, match="for 1 blocks, there are 2"):
        blocks.map_each(Numbers.echo, [(1.0,)])
    assert blocks.map(Numbers.total, np.ones(12)) == [15.0, 51.0]  # it goes on
    return counted


def test_blocks_are_made_once_and_answer_in_order(engine: TaskEngine, tmp_path: Path) -> None:
    """What is sent and received is counted."""
    makers = [MakeNumbers(first, first + 6, log=tmp_path / "log") for first in (0, 6)]
    assert engine.over_blocks(makers, asked_of_all).calls == 8
    assert sorted((tmp_path / "log").read_text().split()) == ["0", "6"]


def test_a_lost_block_is_made_anew_and_all_questions_asked_again(
    engine: TaskEngine, tmp_path: Path
) -> None:
    makers = [
        MakeNumbers(0, 4, log=tmp_path / "log"),
        MakeNumbers(4, 8, log=tmp_path / "log", lose_at=tmp_path / "lost"),
    ]
    times = []

    def totals(blocks: WorkerBlocks) -> list[float]:
        times.append(1)
        blocks.map(Numbers.begin, 1.0)  # which a new block does not know of
        return blocks.map(Numbers.total, np.ones(8))

    assert engine.over_blocks(makers, totals) == [10.0, 26.0]
    assert len(times) == 2
    assert sorted((tmp_path / "log").read_text().split()) == ["0", "4", "4"]


def test_a_block_that_is_killed_while_lists_are_made_changes_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "killed"
    lists = Processes(2).over_blocks([DyingMaker(half, mark) for half in (0, 1)], serve_group)
    one = allocate(candidates(), LIMITS)
    assert mark.exists()
    assert one.prices[0] > 0
    np.testing.assert_array_equal(lists, one.lists)


def test_a_block_that_is_always_lost_ends_with_a_remedy() -> None:
    with pytest.raises(FairHorizonError, match=r"block 1 of 1 was lost 3 times.*\(more blocks"):
        Processes(1).over_blocks([MakeNumbers(0, 4)], lambda blocks: blocks.map(Numbers.lost))


def test_a_block_that_is_lost_before_it_is_made_is_named() -> None:
    makers = [MakeNumbers(0, 4), MakeNumbers(4, 8, fails="lost")]
    with pytest.raises(FairHorizonError, match="block 2 of 2 was lost 3 times"):
        Processes(2).over_blocks(makers, len)


def test_an_error_in_the_making_of_a_block_is_raised_here() -> None:
    with pytest.raises(ConfigError, match="this cannot"):
        Processes(2).over_blocks([MakeNumbers(0, 1, fails="ours")], len)


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


# On Ray alone.


@pytest.mark.parametrize(
    ("home", "message"),
    [
        ((Path.cwd(), "0.0", 1), r"has fairhorizon 0\..*, the command 0\.0 \(ins"),
        ((Path("/not/here"), __version__, 1), r"has no folder /not/here \(run the com"),
    ],
)
def test_a_node_that_does_not_fit_is_named(
    home: tuple[Path, str, int], message: str, on_ray: ModuleType
) -> None:
    enter = partial(on_ray.enter, *home)
    with pytest.raises(ConfigError, match=f"^node {re.escape(socket.gethostname())} {message}"):
        raise on_ray.run_there(pickled(Squares(2)), enter)
    answer = BlockHolder(enter).answer(pickled((MakeNumbers(0, 2), ())))
    with pytest.raises(ConfigError, match=message):
        raise pickle.loads(answer)


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
    assert capsys.readouterr().err.count("2/2 tasks on 2 nodes)") > 0


@pytest.mark.usefixtures("cluster")
def test_an_audit_on_ray_says_the_same(tmp_path: Path) -> None:
    run_folder, lists = tmp_path / "run", tmp_path / "lists.csv"
    assert run(["fit", "popularity+quota@0.4", TINY, f"--out={run_folder}"]) == 0
    assert run(["recommend", str(run_folder), f"--out={lists}"]) == 0
    words = ["audit", str(lists), TINY, "--k=3,7", "--limit=popular<=0.4", "--name=shop"]
    for engine in ("processes", "ray"):
        assert run([*words, f"--engine={engine}", f"--json={tmp_path / engine}"]) == 0
    processes, ray = (
        json.loads((tmp_path / engine).read_text()) for engine in ("processes", "ray")
    )
    assert "--engine ray" in ray.pop("made_by")["command"]
    assert "shop" in processes.pop("made_by")["command"]
    assert ray == processes
    assert ray["rows"][0]["method"] == "shop"


@pytest.mark.usefixtures("cluster")
def test_lists_on_ray_are_those_of_one_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under one plain limit without spread, where nothing but a price ties the users."""
    model = tmp_path / "run"
    data = "--data=synthetic:users=50,items=60,interactions_per_user=15"
    settings = ["--alpha-prime=0.3", "--set=lists.spread=null"]
    assert run(["fit", "ease+lists", data, *settings, f"--out={model}"]) == 0
    assert run(["recommend", str(model), f"--out={tmp_path / 'here.csv'}"]) == 0
    on_ray = ["--engine=ray", "--jobs=2", f"--out={tmp_path / 'ray.csv'}"]
    assert run(["recommend", str(model), *on_ray]) == 0
    assert "2 blocks of users" in capsys.readouterr().err
    assert (tmp_path / "here.csv").read_text() == (tmp_path / "ray.csv").read_text()


def attempts(marks: Path) -> int:
    return len(list(marks.iterdir()))


def is_running(mark: Path) -> bool:
    return Path(f"/proc/{mark.suffix[1:]}").exists()


def test_a_lost_node_is_done_without(cluster: Any, tmp_path: Path) -> None:
    """Its task and its block go to the other one."""
    marks, go = tmp_path / "marks", tmp_path / "go"
    marks.mkdir()

    def lose_a_node() -> None:
        if attempts(marks) == 2 and cluster.worker_nodes:  # one on each node
            assert engine.progress == "0/2 tasks on 2 nodes"
            (node,) = cluster.worker_nodes
            cluster.remove_node(node, allow_graceful=False)
        if not cluster.worker_nodes and not all(map(is_running, marks.iterdir())):
            go.touch()  # for the task of the other node, and for that which takes its place

    def serve(blocks: WorkerBlocks) -> list[str]:
        if cluster.worker_nodes:
            tasks = [Waits(marks, go, name) for name in ("a", "b")]
            assert sorted(engine.each(tasks, meanwhile=lose_a_node)) == ["a", "b"]
        assert blocks.map(Numbers.total, np.ones(8)) == [6.0, 22.0]
        return blocks.map(Numbers.node)

    try:
        with ray_engine(None, None, 1) as engine:
            nodes = engine.over_blocks([MakeNumbers(0, 4), MakeNumbers(4, 8)], serve)
            assert len(set(nodes)) == 1
            assert attempts(marks) == 3
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


CLIENT = """
import sys
import numpy as np
from fairhorizon.parallel import ray_engine
from parallel_tasks import MakeNumbers, Numbers, Squares
with ray_engine(sys.argv[1], 2, 1) as engine:
    print(sorted(engine.each([Squares(2), Squares(3)])), engine.progress)
    blocks = [MakeNumbers(0, 4), MakeNumbers(4, 8)]
    print(engine.over_blocks(blocks, lambda blocks: blocks.map(Numbers.total, np.ones(20_000))))
"""


@pytest.mark.usefixtures("cluster")
def test_a_client_of_the_cluster_gets_the_same() -> None:
    """From a process that is no part of it: tasks, and blocks with a message of 160 kB."""
    command = [sys.executable, "-c", CLIENT, f"ray://127.0.0.1:{CLIENT_PORT}"]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "[(2, 0), (2, 1), (3, 0), (3, 1), (3, 4)] 2/2 tasks on 2 nodes",
        "[6.0, 22.0]",
    ]
