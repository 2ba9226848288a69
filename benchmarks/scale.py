"""A large log on one machine: time by phase, peak memory, and time by the number of rows.

    python benchmarks/scale.py [--users 100000] [--items 100000] [--interactions 10000000]
        [--against 1000000] [--data LOG] [--folder FOLDER] [--small]

Each log is read and split, `fcpo` is fitted with preset `fast`, and lists of 20 for everybody are
made and evaluated at three levels, in a process of its own. Synthetic logs are drawn outside the
clock and kept in --folder. With --against, a log of so many rows is measured too, and the ratio of
the times is printed; 0: none. With --data, that log is measured alone.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import fairhorizon as fh
from fairhorizon.data.log_files import write_log
from fairhorizon.recommenders.progress import Listener, RoundReport
from shared import parse

LEVELS = (0.85, 0.65, 0.37)
LENGTH = 20


class Phases(Listener):
    """Wall time of every phase, printed when it ends."""

    def __init__(self) -> None:
        self.started = self.last = time.perf_counter()
        self.rounds = 0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.started

    def end(self, phase: str) -> None:
        now = time.perf_counter()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(f"{phase:50s} {now - self.last:9.1f} s   peak so far {peak:5.2f} GiB", flush=True)
        self.last = now

    def stage(self, text: str, metric: str = "NDCG") -> None:  # noqa: ARG002
        print(text, f"({self.seconds:.0f} s)", flush=True)

    def round(self, report: RoundReport) -> None:
        self.rounds = report.round


def measure(data: str, settings: dict[str, object]) -> None:
    """Everything for one log, in this process."""
    phases = Phases()
    parts = fh.split(fh.load(data))
    phases.end(f"reading and splitting {len(parts.train):,} training rows")
    model = fh.Fcpo(fh.FcpoConfig.preset("fast", **settings), seed=0)
    model.fit(parts, listener=phases)
    phases.end(f"fit of fcpo, {phases.rounds} rounds of CPO")
    for level in LEVELS:
        found = fh.evaluate(model.with_level(level), parts, ks=(LENGTH,)).metrics
        phases.end(f"lists of {LENGTH} at {level:g}, and their evaluation")
        print(
            f"  NDCG {100 * found[f'ndcg@{LENGTH}']:.2f}  "
            f"popular {100 * found[f'popularity_rate@{LENGTH}']:.2f} %"
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": round(phases.seconds, 1), "peak_gib": round(peak, 2)}))


def in_its_own_process(data: str, settings: dict[str, object]) -> float:
    """Seconds of wall time."""
    command = [sys.executable, __file__, "--measure", data, "--settings", json.dumps(settings)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            print(line, end="", flush=True)
    if child.returncode:
        sys.exit(child.returncode)
    return float(json.loads(line)["seconds"])


def drawn(options: argparse.Namespace, interactions: int, folder: Path) -> str:
    """The file of a synthetic log."""
    name = f"{options.users}-{options.items}-{interactions}"
    file = folder / f"log-{name}.parquet"
    if not file.exists():
        sizes = f"users={options.users},items={options.items},interactions={interactions}"
        write_log(fh.load(f"synthetic-large:{sizes},seed=1"), file)
    return str(file)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--interactions", type=int, default=10_000_000)
    parser.add_argument("--against", type=int, default=1_000_000)
    parser.add_argument("--data")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--settings", type=json.loads, default={}, help="of fcpo, as JSON")
    small = {"rounds": 1, "warm_start": ["ease:recent"], "adapt": False, "spread": None}
    options = parse(parser, users=60, items=80, interactions=1200, against=600, settings=small)
    if options.small:
        options.data = None
    if options.measure is not None:
        measure(options.measure, options.settings)
        return
    if options.data is not None:
        in_its_own_process(options.data, options.settings)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        seconds = {}
        for rows in filter(None, (options.against, options.interactions)):
            print(f"{options.users:,} users, {options.items:,} items, {rows:,} interactions")
            seconds[rows] = in_its_own_process(drawn(options, rows, folder), options.settings)
        if len(seconds) == 2:
            few, many = seconds.values()
            print(
                f"time with {options.interactions:,} rows / {options.against:,}: {many / few:.2f}"
            )


if __name__ == "__main__":
    main()
