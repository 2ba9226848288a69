"""Reading a log needs no more memory than docs/large.md says."""

import os
import subprocess
import sys

import pytest

from fairhorizon.data.loading import load
from fairhorizon.data.log_files import write_log

ROWS = 1_000_000
START, PER_ROW, PER_BYTE = 140e6, 140, 2  # bytes: of the program, per row, per byte of a text file
COMMAND = """
import sys
from pathlib import Path
from fairhorizon.cli.app import run
run(["data", "info", sys.argv[1]])
status = Path("/proc/self/status").read_text()  # not ru_maxrss, which counts the parent's memory
print("peak", 1024 * int(status.split("VmHWM:")[1].split()[0]))
"""


@pytest.fixture(scope="module")
def log():
    return load(f"synthetic-large:users=50000,items=50000,interactions={ROWS},text_ids=1")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("name", ["log.csv", "log.parquet"])
def test_a_million_rows_of_text_ids_stay_within_the_formula(log, name, tmp_path):
    write_log(log, path := tmp_path / name)
    told = subprocess.run(
        [sys.executable, "-c", COMMAND, str(path)],
        env={**os.environ, "POLARS_MAX_THREADS": "2", "COLUMNS": "120"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "1,000,000" in told
    text = path.stat().st_size if path.suffix == ".csv" else 0
    peak = int(told.split("peak ")[1])
    assert 60e6 < peak < START + PER_ROW * ROWS + PER_BYTE * text
