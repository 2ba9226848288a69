"""Commands with --engine ray: what they refuse, and what Ctrl-C leaves."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairhorizon.cli.app import run

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


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_ctrl_c_ends_ray_too(tmp_path: Path, short: Path) -> None:
    """As in a terminal, where the signal goes to all processes of the command."""
    command = [
        *(sys.executable, "-m", "fairhorizon", "compare", MARKET, "--engine=ray", "--jobs=1"),
        *("--methods=bpr", "--seeds=1", f"--out={tmp_path / 'out'}"),
        *("--set=bpr.max_epochs=1000000", "--set=bpr.patience=1000000"),
    ]
    process = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(short)},
    )
    try:
        while not any("finished_there" in name for name in _descendants(process.pid).values()):
            assert process.poll() is None, process.communicate()
            time.sleep(0.1)
        started = _descendants(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        said, rest = process.communicate(timeout=90)
    finally:
        process.kill()  # should it go on
    assert process.returncode == 130
    assert (said, rest.splitlines()[-1]) == ("", "stopped")
    assert "Traceback" not in rest
    assert len(started) > 3  # of Ray: its table, its node, its worker
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{number}").exists() for number in started):
        assert time.monotonic() < deadline, "a process goes on"
        time.sleep(0.1)
    assert list(short.iterdir()) == []


def _descendants(ancestor: int) -> dict[int, str]:
    """What the processes are doing that it has started, and those that these have started."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                after = (folder / "stat").read_text().rpartition(")")[2].split()
                names[int(folder.name)] = (folder / "cmdline").read_text()
            except OSError:
                continue  # it has ended
            parents[int(folder.name)] = int(after[1])
    found = {ancestor}
    while more := {one for one, parent in parents.items() if parent in found} - found:
        found |= more
    return {one: names[one] for one in found - {ancestor}}
