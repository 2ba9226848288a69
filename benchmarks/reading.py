"""Time and memory of `data info` on large logs, as ratios measured in one run.

    python benchmarks/reading.py [--rows 10000000] [--users 100000] [--items 100000] [--text-ids]

Draws two logs, of a tenth of the rows and of all of them, and writes each as CSV, as Parquet and as
a folder of CSV parts. Each is then read by a process of its own: the folder when nothing is in
the cache, when all parts but the last are, and when all are. CPU seconds, because they depend less
on what else the machine does; peak memory above that of the same command on a tiny log, per row.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from fairhorizon.data.loading import load
from fairhorizon.data.log_files import write_log, write_parts
from shared import parse

INFO = """
import sys
from pathlib import Path
from fairhorizon.cli.app import run
code = run(["data", "info", *sys.argv[1:]])
status = Path("/proc/self/status").read_text()
print("peak", 1024 * int(status.split("VmHWM:")[1].split()[0]))
sys.exit(code)
"""


@dataclass(frozen=True)
class Cost:
    """What one command took."""

    wall: float  # seconds
    cpu: float  # seconds
    peak: int  # bytes


def info(source: str | Path, cache: Path) -> Cost:
    """Run `data info` in a process of its own."""
    environment = {**os.environ, "FAIRHORIZON_CACHE": str(cache)}
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    told = subprocess.run(
        [sys.executable, "-c", INFO, str(source)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, int(told.split("peak ")[1]))


def measured(folder: Path, rows: int, options: argparse.Namespace) -> dict[str, Cost]:
    """Write a log of so many rows in three ways, and read it in five."""
    source = (
        f"synthetic-large:users={options.users},items={options.items},interactions={rows},"
        f"text_ids={int(options.text_ids)},seed=1"
    )
    begin = time.process_time()
    log = load(source)
    print(f"{len(log):>12,} rows drawn in {time.process_time() - begin:.1f} s of CPU", flush=True)
    folder.mkdir()
    write_log(log, folder / "log.csv")
    write_log(log, folder / "log.parquet")
    write_parts(log, folder / "parts", options.parts, "csv")
    del log
    cache, last = folder / "cache", folder / "parts" / f"part-{options.parts:04d}.csv"
    costs = {name: info(folder / f"log.{name}", cache) for name in ("csv", "parquet")}
    last.rename(folder / last.name)
    costs["parts, none kept"] = info(folder / "parts", cache)
    (folder / last.name).rename(last)
    costs["parts, one is new"] = info(folder / "parts", cache)
    costs["parts, all kept"] = info(folder / "parts", cache)
    return costs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--users", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--parts", type=int, default=10, help="files of the folder")
    parser.add_argument("--text-ids", action="store_true", help="ids that are no numbers")
    options = parse(parser, rows=2000, users=60, items=80, parts=2)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = info("synthetic-sparse:users=20,items=20", folder / "cache")
        print(f"on a tiny log: {start.cpu:.1f} s of CPU, peak {start.peak / 1e6:.0f} MB")
        few = measured(folder / "few", options.rows // 10, options)
        many = measured(folder / "many", options.rows, options)
        print("all rows             wall    CPU     peak  bytes a row  CPU over that of a tenth")
        for way, cost in many.items():
            per_row = max(0, cost.peak - start.peak) / options.rows
            ratio = (cost.cpu - start.cpu) / max(1e-9, few[way].cpu - start.cpu)
            print(
                f"{way:18} {cost.wall:5.1f} s {cost.cpu:5.1f} s {cost.peak / 1e6:5.0f} MB "
                f"{per_row:9.0f} {ratio:12.1f}"
            )


if __name__ == "__main__":
    main()
