"""What a fit says while it runs."""

import os
import pty
import subprocess
import sys

import pytest

FIT = "import fairhorizon as fh; fh.fit('synthetic:users=20,items=30', 'fcpo')"


@pytest.mark.slow
@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_printed_where_somebody_watches(terminal: bool) -> None:
    ours, theirs = pty.openpty() if terminal else os.pipe()
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FIT], stderr=theirs, check=False)
    os.set_blocking(ours, False)
    try:
        said = os.read(ours, 10_000).decode()
    except BlockingIOError:
        said = ""
    assert done.returncode == 0, said
    assert ("fitting ridge" in said) == terminal
    assert bool(said) == terminal
