"""Lists of 20 for everybody under one limit, under ten, and with a limit for each of many sellers.

    python benchmarks/several_limits.py [--data ml-1m] [--sellers 1000] [--run runs/a] [--small]

Times are of CPU, of everything from the scores of the rankers to whole lists, on one thread. The
ten limits are on the popular items and on nine groups drawn at random, which overlap: at most 60 %
of what the popular items have without limits, at least 130 % or at most 80 % of what the others
have. Sellers get items at random; none may have more than twice their equal part. With --run, a
model that `fairhorizon fit fcpo` has written is taken in place of a training.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fairhorizon.data.loading import load
from fairhorizon.data.splits import split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.limits.language import Limit
from fairhorizon.limits.measured import limit_reached
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.model.folder import ModelFolder
from fairhorizon.recommenders.base import Recommender
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Protocol
from shared import parse

LENGTH = 20
Members = NDArray[np.bool_]


def ten_limits(popular: Members, plain: NDArray[np.int64], seed: int) -> list[ResolvedLimit]:
    """On the popular items, and four limits and five floors on groups that overlap."""
    draw = np.random.default_rng(seed)

    def limit(name: str, members: Members, part: float, sign: str) -> ResolvedLimit:
        share = min(0.95, round(part * float(members[plain].mean()), 4))
        return ResolvedLimit(Limit.parse(f"{name}{sign}{share:g}"), members)

    limits = [limit("popular", popular, 0.6, "<=")]
    for number in range(9):
        members = draw.random(len(popular)) < draw.uniform(0.05, 0.4)
        part, sign = (1.3, ">=") if number % 2 == 0 else (0.8, "<=")
        limits.append(limit(f"group={number}", members, part, sign))
    return limits


def seller_limits(n_items: int, sellers: int, seed: int) -> list[ResolvedLimit]:
    """At most twice an equal part of the showings for each."""
    owner = np.random.default_rng(seed).integers(0, sellers, n_items)
    return [
        ResolvedLimit(Limit.parse(f"seller={one}<={2 / sellers:g}"), owner == one)
        for one in np.unique(owner)
    ]


def timed(model: Recommender, scenario: Scenario, limits: list[ResolvedLimit], name: str) -> float:
    started = time.process_time()
    lists = model.with_limits(limits).recommend(scenario, length=LENGTH)
    seconds = time.process_time() - started
    kept = sum(limit_reached(one, lists).kept for one in limits)
    print(f"{name:40} {seconds:8.2f} s, {kept} of {len(limits)} kept", flush=True)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--sellers", type=int, default=1000)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parse(parser, sellers=10)
    torch.set_num_threads(1)
    parts = split(load(options.data))
    if options.run is None:
        changes = {"rounds": 1} if options.small else {}
        model = Fcpo(FcpoConfig.preset("fast", **changes), seed=0).fit(parts)
    else:
        model = ModelFolder(options.run).recommender()
    scenario = evaluation_scenario(parts, model.queue_length, Protocol.STANDARD)
    popular = model.sensitive_.cpu().numpy()
    plain = model.with_level(1.0).recommend(scenario, length=LENGTH)
    ten = ten_limits(popular, plain, options.seed)
    one = timed(model, scenario, ten[:1], "one limit")
    several = timed(model, scenario, ten, "ten limits")
    sellers = seller_limits(len(popular), options.sellers, options.seed)
    timed(model, scenario, sellers, f"each of {options.sellers} sellers")
    print(f"ten limits / one limit {several / one:26.2f}")


if __name__ == "__main__":
    main()
