"""Commands with --engine ray: what they refuse, and what Ctrl-C leaves."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from engine_processes import descendants, wait_for_the_end_of

from fairhorizon.cli.app import run

pytestmark = pytest.mark.slow

MARKET = "--data=synthetic:users=60,items=80,interactions_per_user=20"


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder whose path leaves room for the names of sockets."""
    folder = Path(tempfile.mkdtemp("", "fh-", "/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_without_ray_there_is_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "fairhorizon.engines.on_ray", raising=False)
    out = tmp_path / "new"
    assert run(["compare", MARKET, "--methods=popularity", "--engine=ray", f"--out={out}"]) == 1
    assert capsys.readouterr().err == (
        "error: --engine ray needs Ray (pip install 'fairhorizon[ray]')\n"
    )
    assert not out.exists()


@pytest.mark.parametrize("command", ["compare", "tune"])
def test_an_address_is_one_of_ray(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    method = ["ease"] if command == "tune" else []
    assert run([command, *method, MARKET, "--address=auto"]) == 2
    assert "--address: is for --engine ray (give both)" in capsys.readouterr().err


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")


@contextmanager
def command(short: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """As in a terminal, where a signal goes to all processes of a command."""
    process = subprocess.Popen(
        [sys.executable, "-m", "fairhorizon", *words],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(short)},
    )
    try:
        yield process
    finally:
        process.kill()  # should it go on


@needs_proc
def test_ctrl_c_ends_ray_too(tmp_path: Path, short: Path) -> None:
    words = [
        *("compare", MARKET, "--engine=ray", "--jobs=1"),
        *("--methods=bpr", "--seeds=1", f"--out={tmp_path / 'out'}"),
        *("--set=bpr.max_epochs=1000000", "--set=bpr.patience=1000000"),
    ]
    with command(short, *words) as process:
        while not any("finished_there" in name for name in descendants(process.pid).values()):
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        started = descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        said, rest = process.communicate(timeout=90)
    assert process.returncode == 130
    assert (said, rest.splitlines()[-1]) == ("", "stopped")
    assert "Traceback" not in rest
    assert len(started) > 3  # of Ray: its table, its node, its worker
    wait_for_the_end_of(started)
    assert list(short.iterdir()) == []
