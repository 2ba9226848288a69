"""What Ctrl-C leaves of Ray that a command has started, and what is refused before that."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_processes import descendants, read_pipe, wait_for_the_end_of

from fairhorizon.cli.app import run

MARKET = "--data=synthetic:users=60,items=80,interactions_per_user=20"
# What commands do with an engine; all of them hear Ctrl-C as an exception.
PROGRAM = """
import sys
from pathlib import Path
from fairhorizon.parallel import ray_engine
from parallel_tasks import Sleeps
try:
    with ray_engine(None, 1, 1) as engine:
        list(engine.each([Sleeps(Path(sys.argv[1]))]))
except KeyboardInterrupt:
    sys.exit(130)
"""


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
    monkeypatch.delitem(sys.modules, "fairhorizon.parallel.on_ray", raising=False)
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


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="only on Linux")
def test_ctrl_c_ends_ray_too(tmp_path: Path, short: Path) -> None:
    """As in a terminal, where the signal goes to all processes of a command."""
    begun = tmp_path / "begun"
    os.mkfifo(begun)
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, begun],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": path, "TMPDIR": str(short)},
    ) as process:
        try:
            worker = int(read_pipe(begun))
            started = descendants(process.pid)
            os.killpg(process.pid, signal.SIGINT)
            _, said = process.communicate(timeout=90)
        finally:
            process.kill()  # should it go on
    assert (process.returncode, said) == (130, "")
    assert worker in started
    assert len(started) > 3  # of Ray: its table, its node, its worker
    wait_for_the_end_of(started)
    assert list(short.iterdir()) == []
