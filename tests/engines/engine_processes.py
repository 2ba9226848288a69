"""Commands of tests that run in processes of their own, and what they start."""

import time
from collections.abc import Iterable
from pathlib import Path

MARKET = "synthetic:users=60,items=80,interactions_per_user=20"
SETTINGS = (
    *("rounds=200", "patience=999", "evaluate_every=1", "checkpoint_every=1000"),
    *("horizon=5", "fisher_states=32", "pmf.max_epochs=2", "pmf.dim=8", "gru_hidden=8"),
    *("precision=double", "actor_hidden=[8,8]", "critic_hidden=[8,8]"),
)


def fit_words(out: Path, *others: str) -> list[str]:
    settings = [f"--set={setting}" for setting in SETTINGS]
    return ["fit", "fcpo:paper@0.4", "--data", MARKET, "--out", str(out), *settings, *others]


def descendants(ancestor: int) -> dict[int, str]:
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


def wait_for_the_end_of(processes: Iterable[int]) -> None:
    deadline = time.monotonic() + 30
    while any(Path(f"/proc/{number}").exists() for number in processes):
        assert time.monotonic() < deadline, "a process goes on"
        time.sleep(0.1)
