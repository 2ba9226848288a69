"""The demo of the service: it serves, sends traffic for a while and says what the limits are at."""

import subprocess
import sys
from pathlib import Path

import pytest

from local_postgres import free_port

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[2] / "examples" / "serve_demo.py"


def test_the_demo_serves_for_a_while_and_ends(shop_run: Path) -> None:
    words = ["--run", str(shop_run), "--seconds", "2", "--port", str(free_port())]
    done = subprocess.run(
        [sys.executable, str(DEMO), *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "dashboard: http://127.0.0.1:" in done.stdout
    (line,) = [one for one in done.stdout.splitlines() if "popular<=0.3: " in one]
    share = float(line.split(": ")[1].split(" %")[0])
    assert 0 < share <= 30
