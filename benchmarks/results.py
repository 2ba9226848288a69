"""The results in README and docs, made anew: runs studies, stores what they found, fills tables.

    python benchmarks/results.py                     the default set, at most 90 minutes on 2 cores
    python benchmarks/results.py --full              more seeds, fcpo:strong and GRU4Rec: many hours
    python benchmarks/results.py --only long-ml-1m   one study; may be given several times
    python benchmarks/results.py --tables            tables from docs/results/data, without any run

Studies keep what they have finished in --work: interrupted, the same command continues. What a
study found is written to docs/results/data/NAME.json as soon as it ends, and at the end the tables
between markers in README.md and docs are made from these files (result_tables.py). The full set has
the same studies in the same folders, so it begins with what the default set has left. Delete the
folder after a change of the code: a study knows its settings and the version, not every commit.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fairhorizon import __version__
from fairhorizon.cli import app as command_line
from fairhorizon.files import write_json, write_text
from result_tables import filled, tables_of
from shared import MARKET, parse

ROOT = Path(__file__).parents[1]
DATA, IMAGES = ROOT / "docs" / "results" / "data", ROOT / "docs" / "images"
DOCUMENTS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

LEVELS = "--levels 0.85,0.65,0.37 --limit 'popular<=0.37;weights=log'"
BINDING = "--steps 60 --k 5 --repeat-after 10 --warm-up 10"
RERANKED = "stack+quota,stack+pmmf,stack+fairco,stack+tfrom"
STRONG = "fcpo:strong,fcpo:strong-start"


@dataclass(frozen=True)
class Plan:
    """A study by the command line. The full set has further methods and more seeds."""

    name: str
    command: str  # levels or longterm
    data: str
    options: str
    methods: str = ""  # empty: the default ones of the command
    seeds: int = 1
    full_methods: str = ""
    full_seeds: int = 5
    figures: tuple[tuple[str, str], ...] = ()  # of the study, and what docs/images calls them

    def of_full_set(self) -> "Plan":
        methods = ",".join(filter(None, (self.methods, self.full_methods)))
        return replace(self, methods=methods, seeds=self.full_seeds)

    def words(self) -> list[str]:
        """All of the command line that decides what is found."""
        methods = ["--methods", self.methods] if self.methods else []
        options = shlex.split(self.options)
        return [self.command, "--data", self.data, *options, *methods, "--seeds", str(self.seeds)]


PLANS = [
    Plan(
        "levels-ml-100k",
        "levels",
        "ml-100k",
        LEVELS,
        "fcpo,fcpo:start,stack+lists,ease:recent+lists,ease:recent+quota,stack+penalty,stack+foe,"
        f"{RERANKED},popularity+quota",
        full_methods=f"{STRONG},gru4rec+lists,gru4rec+quota",
    ),
    Plan(
        "long-ml-100k",
        "longterm",
        "ml-100k",
        "--steps 400",
        f"fcpo,fcpo:start,stack+control,ease:recent+control,{RERANKED},ease:recent,popularity",
        full_methods=f"{STRONG},gru4rec+control,gru4rec+quota,gru4rec",
        figures=(("figure4.png", "long-run-ml-100k.png"),),
    ),
    Plan(
        "long-ml-100k-recovering",
        "longterm",
        "ml-100k",
        "--steps 400 --no-look-ahead",
        "fcpo,stack+control,ease:recent+control",
    ),
    Plan("long-ml-100k-repeats", "longterm", "ml-100k", BINDING),
    Plan(
        "long-ml-1m",
        "longterm",
        "ml-1m",
        "--steps 400",
        "fcpo,stack+control,ease:recent+control",
        full_methods=f"fcpo:start,{STRONG},gru4rec+control",
        full_seeds=3,
    ),
]
QUICK = (
    '--set fcpo.warm_start=\'["ease:recent","itemknn:recent"]\' --set fcpo.rounds=1 '
    "--set fcpo.adapt=false --set fcpo.spread=null"
)
SMALL_PLANS = [
    Plan(
        "levels-small",
        "levels",
        MARKET,
        f"--levels 0.4 --tries 0 {QUICK}",
        "fcpo,ease:recent+quota",
    ),
    Plan(
        "long-small",
        "longterm",
        MARKET,
        f"--steps 4 --warm-up 2 {QUICK}",
        "fcpo,ease:recent+control,popularity",
        seeds=2,
    ),
]

LEFT_OUT = {
    "command",
    "note",
    "seconds",
    "notes",
    "seconds_per_step",
    "levels",
}  # of the JSON files
NOT_SHOWN = ("f1", "coverage", "exposure_ratio", "demographic_parity_gap", "exact_k_violation")
DECIMALS = 6  # more would differ from machine to machine


def run(plan: Plan, work: Path, jobs: int) -> Path:
    """Run what is missing of a study, with one job in this process; its JSON file."""
    out = work / plan.name
    words = [*plan.words(), "--jobs", str(jobs), "--out", str(out)]
    words += ["--resume"] if plan.command == "longterm" else []
    began = time.monotonic()
    try:
        called(words, here=jobs == 1)
    finally:
        spent = seconds_spent(out) + time.monotonic() - began
        write_json(out / "seconds.json", spent)
    return out / f"{plan.command}.json"


def called(words: list[str], *, here: bool) -> None:
    """A command of the command line."""
    if here:
        code = command_line.run(words)
    else:
        code = subprocess.run([sys.executable, "-m", "fairhorizon", *words]).returncode
    if code:
        raise StudyError(code)


class StudyError(Exception):
    """A study has ended with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"ended with code {code}")


def seconds_spent(out: Path) -> float:
    """By all runs of a study so far: it may have been interrupted."""
    file = out / "seconds.json"
    return float(json.loads(file.read_text(encoding="utf-8"))) if file.exists() else 0.0


def store(plan: Plan, found: Path, file: Path) -> None:
    """Write what a study found, its command and how long it took.

    A file with the same findings stays as it is: it has the time of the run that made them.
    """
    content = {
        "kind": plan.command,
        "command": shlex.join(["fairhorizon", *plan.words()]),
        "version": __version__,
        **trimmed(json.loads(found.read_text(encoding="utf-8"))),
    }
    if file.exists():
        before = json.loads(file.read_text(encoding="utf-8"))
        if {key: value for key, value in before.items() if key != "seconds"} == content:
            return
    write_json(file, content | {"seconds": round(seconds_spent(found.parent))})


def trimmed(content: Any) -> Any:
    """Without what no table shows, and with rounded numbers."""
    if isinstance(content, float):
        return round(content, DECIMALS)
    if isinstance(content, list):
        return [trimmed(one) for one in content]
    if isinstance(content, dict):
        return {
            key: trimmed(value)
            for key, value in content.items()
            if key not in LEFT_OUT and key.partition("@")[0] not in NOT_SHOWN
        }
    return content


def stored(folder: Path) -> dict[str, dict[str, Any]]:
    """The content of all data files, by name."""
    files = sorted(folder.glob("*.json"))
    return {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files}


def fill_documents(documents: Sequence[Path], data: dict[str, dict[str, Any]]) -> None:
    """Put the tables between their markers."""
    for document in documents:
        before = document.read_text(encoding="utf-8")
        after, missing = filled(before, data)
        if after != before:
            write_text(document, after)
            print(f"{document.relative_to(ROOT)}: tables written")
        for name in missing:
            print(f"{document.relative_to(ROOT)}: no data of {name} yet")


def announce(plans: Sequence[Plan], folder: Path) -> None:
    """What will be run, and what is known of how long it takes."""
    known = stored(folder)
    for plan in plans:
        seconds = known.get(plan.name, {}).get("seconds")
        took = "" if seconds is None else f"  (the stored results took {seconds / 60:.0f} minutes)"
        print(f"{plan.name}: {shlex.join(['fairhorizon', *plan.words()])}{took}", flush=True)


def make(plans: Sequence[Plan], work: Path, folder: Path, jobs: int) -> list[str]:
    """Run and store one study after the other; the names of those that failed."""
    failed = []
    for plan in plans:
        print(f"== {plan.name}", flush=True)
        try:
            found = run(plan, work, jobs)
        except StudyError as error:
            failed.append(plan.name)
            print(f"{plan.name} {error}", flush=True)
            continue
        store(plan, found, folder / f"{plan.name}.json")
        for figure, image in plan.figures:
            shutil.copyfile(found.parent / figure, IMAGES / image)
        print(f"{plan.name}: {seconds_spent(work / plan.name):.0f} s so far", flush=True)
    return failed


def try_small() -> None:
    """All of it on a small market, with the tables on the terminal; no document is changed."""
    with tempfile.TemporaryDirectory() as folder:
        work, data = Path(folder) / "work", Path(folder) / "data"
        assert make(SMALL_PLANS, work, data, jobs=1) == []
        for name, content in stored(data).items():
            for table, text in tables_of(content).items():
                print(f"-- {name} {table}\n{text}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [plan.name for plan in PLANS]
    parser.add_argument("--full", action="store_true", help="the full set")
    parser.add_argument("--only", action="append", choices=names, help="one study; repeatable")
    parser.add_argument("--tables", action="store_true", help="only write the tables")
    parser.add_argument("--work", type=Path, default=Path("results"), help="folder of the runs")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    options = parse(parser)
    if options.small:
        try_small()
        return
    failed: list[str] = []
    if not options.tables:
        plans = [plan for plan in PLANS if options.only is None or plan.name in options.only]
        plans = [plan.of_full_set() for plan in plans] if options.full else plans
        announce(plans, DATA)
        failed = make(plans, options.work, DATA, options.jobs)
    fill_documents(DOCUMENTS, stored(DATA))
    if failed:
        sys.exit(f"not finished: {', '.join(failed)} (the same command continues)")


if __name__ == "__main__":
    main()
