"""Plant known faults in the source, one at a time, and see that the tests catch every one.

A test that cannot fail is worthless, and it looks just like a good one. The lists beside this
file, one for each part of the package, hold small faults that a real change could bring in: a
flipped sign, `<=` for `<`, a lost seed, test items in place of validation items. Each is applied to
a copy of the source, and the tests that it names have to fail. A fault that survives is a hole in
the tests.

    make faults
    python tests/faults/run.py line-search-failure quota-rounds-up
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LISTS = Path(__file__).parent
ROOT = LISTS.parent.parent
PACKAGE = "fairhorizon"
SECONDS = 300.0  # that the tests of one fault may take
PASSED, FAILED = 0, 1  # exit codes of pytest


class ListError(Exception):
    """The list of faults does not fit the source."""


@dataclass(frozen=True)
class Fault:
    """A change to one file of the package, and the tests that should fail because of it."""

    name: str
    file: str  # below src/fairhorizon
    find: str  # occurs exactly once in the file
    becomes: str
    tests: tuple[str, ...]  # files or test ids, below tests

    def changed(self, source: str) -> str:
        """The source with the fault in it."""
        count = source.count(self.find)
        if count != 1:
            raise ListError(f"{self.name}: found {count} times in {self.file}: {self.find}")
        return source.replace(self.find, self.becomes)

    def apply(self, package: Path) -> None:
        """Write the fault into a copy of the package."""
        path = package / self.file
        path.write_text(self.changed(path.read_text(encoding="utf-8")), encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()  # the copy may be of the same second and size as the original


@dataclass(frozen=True)
class Verdict:
    """What the tests made of a fault."""

    fault: Fault
    caught: bool
    seconds: float
    note: str  # which test failed first, or why nothing can be said

    def line(self) -> str:
        word = "caught" if self.caught else "SURVIVED"
        return f"{word:8} {self.seconds:6.1f} s  {self.fault.name:40} {self.note}"


def read_faults(folder: Path = LISTS) -> list[Fault]:
    """All faults of the lists in a folder; no two may have the same name."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.toml"))]
    entries = [entry for text in texts for entry in tomllib.loads(text)["fault"]]
    faults = [Fault(**entry | {"tests": tuple(entry["tests"])}) for entry in entries]
    names = [fault.name for fault in faults]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ListError(f"two faults are called {twice[0]}")
    return faults


@contextmanager
def source_copy() -> Iterator[Path]:
    """A copy of src that is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="fault-") as folder:
        yield Path(shutil.copytree(ROOT / "src", Path(folder) / "src"))


def run_tests(source: Path, tests: Iterable[str], limit: float) -> tuple[int, str]:
    """Exit code and output of the tests on a copy of the source."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    command += ["--hypothesis-seed=0", *(f"tests/{test}" for test in tests)]
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "OMP_NUM_THREADS": "1",
        # examples that fail because of a fault must not be kept for the real source
        "HYPOTHESIS_STORAGE_DIRECTORY": str(source.parent / "hypothesis"),
    }
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=limit,
        check=False,
    )
    return done.returncode, done.stdout


def judge(fault: Fault, limit: float = SECONDS) -> Verdict:
    """Whether the tests of a fault catch it; only a test that fails does."""
    begin = time.monotonic()
    try:
        with source_copy() as source:
            fault.apply(source / PACKAGE)
            code, output = run_tests(source, fault.tests, limit)
    except ListError as error:
        return Verdict(fault, False, time.monotonic() - begin, str(error))
    except subprocess.TimeoutExpired:
        return Verdict(fault, False, limit, "the tests did not end in time")
    failed = re.search(r"^FAILED (\S+)", output, re.MULTILINE)
    note = failed[1].removeprefix("tests/") if failed else ""
    if code not in (PASSED, FAILED):
        note = f"pytest ended with exit code {code}: {output.strip().splitlines()[-1]}"
    return Verdict(fault, code == FAILED, time.monotonic() - begin, note)


def check_clean(faults: Sequence[Fault]) -> bool:
    """Whether all named tests pass without any fault."""
    tests = sorted({test for fault in faults for test in fault.tests})
    begin = time.monotonic()
    with source_copy() as source:
        code, output = run_tests(source, tests, SECONDS * len(tests))
    if code != PASSED:
        print(output)
    word = "pass" if code == PASSED else "FAIL"
    print(f"without a fault the tests {word} ({time.monotonic() - begin:.0f} s)", flush=True)
    return code == PASSED


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Plant faults and see that the tests catch them.")
    parser.add_argument("names", nargs="*", help="faults to plant; all of them unless given")
    parser.add_argument("--jobs", type=int, default=2, help="faults at the same time (default 2)")
    parser.add_argument("--skip-clean", action="store_true", help="do not run the tests without")
    options = parser.parse_args(arguments)
    faults = read_faults()
    if unknown := set(options.names) - {fault.name for fault in faults}:
        parser.error(f"there is no fault {sorted(unknown)[0]}")
    faults = [fault for fault in faults if not options.names or fault.name in options.names]
    if not options.skip_clean and not check_clean(faults):
        return 1
    caught, begin = 0, time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        for verdict in pool.map(judge, faults):
            caught += verdict.caught
            print(verdict.line(), flush=True)
    print(f"{len(faults)} faults, {caught} caught ({time.monotonic() - begin:.0f} s)")
    return 0 if caught == len(faults) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
