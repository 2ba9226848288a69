"""Crews: processes that train together, are interrupted, killed and resumed."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch.distributed as dist
from crew_tasks import Once, check, lists, parameters
from engine_processes import MARKET, fit_words

from fairhorizon.agents.crew import Crew, LostRankError, Meeting
from fairhorizon.agents.fcpo.config import FcpoConfig
from fairhorizon.agents.fcpo.learning.ranks import Ranks
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.progress import Listener, RoundReport
from fairhorizon.cli.app import run
from fairhorizon.data.splits import Split
from fairhorizon.engines.crews import Failure, Message, RankFailed, RankRow, watched
from fairhorizon.engines.local_crew import LocalCrew
from fairhorizon.engines.processes import HERE, Processes
from fairhorizon.errors import ConfigError


class Watcher(Listener):
    """Keeps the reports, and presses Ctrl-C after one of them."""

    def __init__(self, last: int | None = None) -> None:
        self.last, self.reports = last, list[RoundReport]()

    def round(self, report: RoundReport) -> None:
        self.reports.append(report)
        if report.round == self.last:
            os.kill(os.getpid(), signal.SIGINT)


def test_two_are_interrupted_and_four_go_on(
    market: Split, double: FcpoConfig, tmp_path: Path
) -> None:
    whole = Fcpo(double, seed=1).fit(market)
    five = FcpoConfig.model_validate({**double.model_dump(), "rounds": 5})
    after_five = Fcpo(five, seed=1).fit(market)

    watcher = Watcher(last=5)
    model = Fcpo(double, seed=1)
    model.fit(market, checkpoint=tmp_path, listener=watcher, crew=LocalCrew(2))
    assert not multiprocessing.active_children()
    assert not model.finished_
    assert [report.round for report in watcher.reports] == [1, 2, 3, 4, 5]
    assert (parameters(model) - parameters(after_five)).abs().max() < 1e-6
    assert np.array_equal(lists(model, market), lists(after_five, market))

    model = Fcpo(double, seed=1)
    model.fit(market, checkpoint=tmp_path, resume=True, crew=Processes(4).crew())
    assert model.finished_
    assert (parameters(model) - parameters(whole)).abs().max() < 1e-6
    assert np.array_equal(lists(model, market), lists(whole, market))
    for ours, alone in zip(model.history_, whole.history_, strict=True):
        assert ours.case == alone.case
        assert ours.validation == pytest.approx(alone.validation, abs=1e-12)


def test_a_killed_rank_ends_the_run_and_what_was_done_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = fit_words(tmp_path / "killed", "--workers", "2")
    command = [sys.executable, "-m", "fairhorizon", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.strip().startswith("3/200"):
                break
        ranks = children(process.pid)
        assert len(ranks) == 2
        os.kill(ranks[1], signal.SIGKILL)
        said = process.stderr.read().splitlines()
    assert process.returncode == 1
    done = max([3, *(int(line.split("/")[0]) for line in said if "/200  " in line)])
    checkpoint = tmp_path / "killed" / "checkpoint.safetensors"
    assert said[-1].startswith(
        "error: rank 1 of 2 was killed by SIGKILL, perhaps for want of memory "
        f"({done} finished rounds are kept in {checkpoint}); continue with: fairhorizon fit "
    )
    assert said[-1].endswith("--workers 2 --resume")
    assert not {pid for pid, _, _ in running()} & set(ranks)

    rounds = f"--set=rounds={done + 2}"
    assert run([*fit_words(tmp_path / "killed", "--resume"), rounds]) == 0
    assert run([*fit_words(tmp_path / "never"), rounds]) == 0
    shown = capsys.readouterr().err
    assert f"{done + 1}/{done + 2}" in shown
    models = [Fcpo.load(tmp_path / name / "model.safetensors") for name in ("killed", "never")]
    assert (parameters(models[0]) - parameters(models[1])).abs().max() < 1e-6


def children(parent: int) -> list[int]:
    """Processes of the parent, forked from the one that has imported what they need."""
    there = [(pid, of) for pid, of, text in running() if "multiprocessing.forkserver" in text]
    (server,) = (pid for pid, of in there if of == parent)
    return [pid for pid, of in there if of == server]


def running() -> list[tuple[int, int, str]]:
    """Id, parent and command of every process."""
    command = ["ps", "-A", "-ww", "-o", "pid=,ppid=,args="]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = (line.split(None, 2) for line in listed.stdout.splitlines())
    return [(int(pid), int(parent), text) for pid, parent, text in rows]


def test_sums_and_errors_of_a_crew() -> None:
    check(LocalCrew(2, patience=60).rows([Once("complain"), Once("complain")]))
    assert not multiprocessing.active_children()


class HeardAtOnce:
    """Two ranks whose last messages have come when somebody looks."""

    def receive(self, timeout: float | None) -> list[tuple[int, Message]]:
        assert timeout is None  # what has come is all that there is
        consequence = RankFailed(Failure.OTHER, "lost its peer")
        return [(0, RankRow(7)), (0, consequence), (1, RankFailed(Failure.LOST, "was killed"))]


def test_of_ranks_that_fail_at_once_the_lost_one_is_named() -> None:
    rows = watched(HeardAtOnce(), 2)
    assert next(rows) == 7
    with pytest.raises(LostRankError, match=r"^rank 1 of 2 was killed$"):
        next(rows)


class NoCrew:
    """Never asked to work."""

    size = 2

    def rows(self, members: Any) -> Any:  # noqa: ARG002
        raise AssertionError("nothing was to be trained")


@pytest.mark.parametrize(
    "changes", [{}, {"policy": "gaussian"}, {"warm_start": (), "starts": "first"}]
)
def test_other_policies_are_trained_by_one(changes: dict[str, Any], market: Split) -> None:
    crew: Crew = NoCrew()
    with pytest.raises(ConfigError, match=r"fcpo is trained by one process .* as fcpo:paper does"):
        Fcpo(FcpoConfig.preset("fast", **changes)).fit(market, crew=crew)
    with pytest.raises(ConfigError, match=r"fcpo is trained by one process .* buffer_rounds 1"):
        Fcpo(FcpoConfig.preset("paper", buffer_rounds=2)).fit(market, crew=crew)


def test_one_process_needs_no_crew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert HERE.crew() is None
    assert Processes(3, threads=2).crew() == LocalCrew(3, threads=2)
    words = ["--data", MARKET, "--out", str(tmp_path / "no"), "--workers", "2"]
    assert run(["fit", "ease", *words]) == 1
    assert "ease is trained by one process (leave out --workers" in capsys.readouterr().err
    assert run(["fit", "fcpo:paper", *words, "--all"]) == 2
    assert "not with --workers" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_who_does_not_come_is_not_waited_for_forever() -> None:
    """A rank whose others stay away gives up after its patience."""
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    failed = []

    def wait() -> None:
        try:
            Ranks(Meeting(0, 2, "127.0.0.1", store.port, patience=0.5))
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(60)
    assert len(failed) == 1
