"""Lists for many users times items: the peak memory stays below the formula of the docs."""

import json
import subprocess
import sys

import pytest

USERS = ITEMS = 20_000
CANDIDATES, LENGTH, RANKERS = 40, 20, 1

CHILD = f"""
import json, resource, sys
import numpy as np
import torch
from fairhorizon.recommenders.ranked.model import Ranked
from fairhorizon.allocation import spreading
from fairhorizon.data.frames import from_arrays
from fairhorizon.data.splits import split
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.evaluation.short_term import evaluate
from fairhorizon.rankers.itemknn import ItemKnn, ItemKnnConfig
from fairhorizon.rerank.lists import ListAllocation
from fairhorizon.vocabulary import Protocol

torch.set_num_threads(1)
spreading.TRIALS = spreading.SWEEPS = 1  # more of them take time and no memory
rng = np.random.default_rng(0)
users = np.repeat(np.arange({USERS}), 12)
items = (rng.random(len(users)) ** 2 * {ITEMS}).astype(np.int64)
parts = split(from_arrays(users, items, timestamps=np.arange(len(users))))
config = ItemKnnConfig(neighbours=20)
model = Ranked(ItemKnn(config), ListAllocation(share=0.4)).fit(parts)
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
found = evaluate(model, parts, ks=({LENGTH},))
shown = found.lists
print(json.dumps({{
    "before": before, "after": peak(), "queue": model.queue_length, "shape": shown.shape,
    "rate": found.metrics["popularity_rate@{LENGTH}"], "filled": bool((shown >= 0).all()),
}}))
"""


def formula(queue: int) -> float:
    """docs/large.md: bytes for lists of all users at once."""
    width = 2 * CANDIDATES * RANKERS
    candidate_set = 2 * USERS * width * (8 + 4 * (RANKERS + 1))
    values = 40 * USERS * width
    return candidate_set + values + 16 * USERS * queue + 2**28


@pytest.mark.slow
def test_lists_for_everybody_take_no_table_of_users_times_items() -> None:
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD], capture_output=True, text=True, check=True
    )
    found = json.loads(run.stdout)
    assert found["shape"] == [USERS, LENGTH]
    assert found["filled"]
    assert found["rate"] <= 0.4
    assert formula(found["queue"]) < 4 * USERS * ITEMS / 2  # the scores alone are twice as large
    assert found["after"] - found["before"] < formula(found["queue"])
