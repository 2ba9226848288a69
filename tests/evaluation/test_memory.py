"""Peak memory of a long run and of interactive lists of many users and items, by its formula."""

import subprocess
import sys
from pathlib import Path

from fairhorizon.allocation.shortlists import KEPT, ON_LISTS_AT_ONCE, SCORES_AT_ONCE

USERS, ITEMS = 4_500, 20_000
HISTORY, STEPS, CLASSES = 10, 3, 2  # of the script


def test_a_long_run_and_interactive_lists_keep_to_the_formula():
    """A table of scores would be 360 MB, and a run of the small way holds two or three of them."""
    assert USERS * ITEMS > 2**26  # the size above which the script works in blocks
    script = Path(__file__).with_name("large_run.py")
    command = [sys.executable, str(script), str(USERS), str(ITEMS)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    blocks = 16 * 4 * SCORES_AT_ONCE + 64 * ON_LISTS_AT_ONCE
    shortlists = 8 * USERS * CLASSES * KEPT
    sets = 3 * 8 * USERS * (HISTORY + STEPS)
    others = 1_000 * USERS + 100 * ITEMS  # counts, queues and numbers of a step
    assert int(found.stdout) < blocks + 2 * shortlists + 2 * sets + others < 4 * USERS * ITEMS / 2
