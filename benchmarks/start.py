"""What starting costs: imports, help and wrong arguments, as ratios to a bare interpreter.

    python benchmarks/start.py [--run FOLDER] [--repeats 5] [--small]

CPU seconds of processes, in turns; the median of each, and its ratio to `python -c pass`.
--run: a model of a whole log, which is opened too, by a process that has imported everything.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from statistics import median

from shared import parse

BARE = ("-c", "pass")
WAYS = {
    "python -c pass": BARE,
    "import fairhorizon": ("-c", "import fairhorizon"),
    "import torch": ("-c", "import torch"),
    **{
        f"fairhorizon {words}": ("-m", "fairhorizon", *words.split())
        for words in (
            "--help",
            "recommend nosuch",
            "recommend nosuch --wrong",
            "fit nosuch --data ml-100k --out a",
            "fit ease --data nosuch.csv --out a",
            "fit ease --data ml-100k --limit nosuch --out a",
            "compare --data ml-100k --methods ease,nosuch",
            "audit nosuch.csv --data ml-100k",
        )
    },
}


def cpu_seconds(words: tuple[str, ...], folder: str) -> float:
    """Of one process, by what the system has counted."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


OPENING = """
import sys, time
import fairhorizon as fh
import fairhorizon.fcpo.model
open_model, started = fh.open_model, time.process_time()
open_model(sys.argv[1])
print(time.process_time() - started)
"""


def seconds_to_open(run: str) -> float:
    words = [sys.executable, "-c", OPENING, run]
    return float(subprocess.run(words, capture_output=True, check=True, text=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--run")
    options = parse(parser, repeats=1)
    with tempfile.TemporaryDirectory() as folder:
        taken: dict[str, list[float]] = {name: [] for name in WAYS}
        for _ in range(options.repeats):
            for name, words in WAYS.items():
                taken[name].append(cpu_seconds(words, folder))
            if options.run:
                taken.setdefault("fh.open_model", []).append(seconds_to_open(options.run))
    bare = median(taken["python -c pass"])
    for name, seconds in taken.items():
        print(f"{name:60}{median(seconds):8.3f} s{median(seconds) / bare:8.1f} x")


if __name__ == "__main__":
    main()
