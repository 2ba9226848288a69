"""A long run and interactive lists of many users and items, in a process of its own.

Prints the memory above that of the log and the model, in bytes: python large_run.py USERS ITEMS
"""

import sys
from pathlib import Path

import numpy as np
import torch

from fairhorizon import histories
from fairhorizon.agents.methods import Method, build
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.splits import split
from fairhorizon.environment.feedback import evaluation_scenario
from fairhorizon.evaluation.long_term import LongRun, LongRunSettings
from fairhorizon.exposure.counts import Exposure
from fairhorizon.exposure.step_limits import PopularityLimit
from fairhorizon.vocabulary import Protocol

EACH, STEPS = 10, 3  # items of a user's history, steps and places


def memory(name: str) -> int:
    """VmRSS, of now, or VmHWM, the peak since the last reset; in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return 1024 * int(line.split()[1])


def log(users: int, items: int) -> Interactions:
    """Ten items of each user, low codes more often than high ones."""
    random = np.random.default_rng(0)
    taken = (items * random.random((users, EACH)) ** 2).astype(np.int64)
    owners = np.repeat(np.arange(users), EACH)
    taken = np.unique(owners * items + taken.ravel())
    owners, taken = taken // items, taken % items
    times = np.arange(len(taken))
    return Interactions(owners, taken, np.arange(users), np.arange(items), timestamps=times)


def main(users: int, items: int) -> None:
    torch.set_num_threads(1)
    histories.DENSE_CELLS = 2**26  # a quarter of the usual, to save time
    parts = split(log(users, items))
    model = build(Method.parse("popularity+control"), {}, 0).fit(parts)
    scenario = evaluation_scenario(parts, max(1, model.queue_length), Protocol.STANDARD)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is that of now
    before = memory("VmRSS")
    run = LongRun(
        model.server([PopularityLimit(0.4)]),
        scenario,
        Exposure(parts.train.item_counts()),
        LongRunSettings(steps=STEPS, warm_up=0),
    )
    rows = [run.step() for _ in range(STEPS)]
    lists = model.recommend(scenario, length=STEPS, feedback=True)
    assert (lists >= 0).all()
    assert max(row["popularity_rate"] for row in rows) <= 0.4
    print(memory("VmHWM") - before)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
