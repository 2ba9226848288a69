"""Speed of a preset of FCPO: training by phase, and lists at several levels, on one thread.

    python benchmarks/phases.py [--data ml-100k] [--preset fast] [--run runs/a] [--small]

Times are of CPU. Lists are also said as a ratio to the bare work: the rankers of the warm start
score every item for everybody, and the best 20 of their sum are taken. With --run, a model that
`fairhorizon fit fcpo` has written is taken in place of a training.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from fairhorizon.data.loading import load
from fairhorizon.data.splits import split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.model.folder import ModelFolder
from fairhorizon.rankers.ensemble import Ensemble
from fairhorizon.ranking import standardised
from fairhorizon.recommenders.base import FitTask
from fairhorizon.simulation.feedback import Scenario, evaluation_scenario
from fairhorizon.vocabulary import Protocol
from shared import parse

USERS_AT_ONCE = 1024
SMALL: dict[str, Any] = {"warm_start": ("ease:recent", "itemknn:recent"), "rounds": 1}


class Clock:
    """CPU seconds since the last look."""

    def __init__(self) -> None:
        self.last = time.process_time()

    def features(self) -> float:
        now = time.process_time()
        passed, self.last = now - self.last, now
        return passed


def bare(ensemble: Ensemble, scenario: Scenario) -> None:
    """Scores of all rankers, their sum without what is known already, the best 20 of it."""
    for users in torch.arange(scenario.n_users).split(USERS_AT_ONCE):
        queue, blocked = scenario.queue[users], scenario.state(users).blocked
        total = sum(standardised(ranker.scores(users, queue)) for ranker in ensemble.rankers)
        assert isinstance(total, torch.Tensor)
        total.masked_fill_(blocked, -torch.inf).topk(20, dim=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--preset", default="fast")
    parser.add_argument("--run", type=Path)
    options = parse(parser)
    torch.set_num_threads(1)
    parts, clock = split(load(options.data)), Clock()
    if options.run is None:
        model = Fcpo(FcpoConfig.preset(options.preset, **(SMALL if options.small else {})), seed=0)
        clock.features()
        training = model.training(FitTask.from_split(parts))
        print(f"rankers on both parts, and the warm start {clock.features():15.1f} s")
        rounds = list(training.rounds())
        print(f"{len(rounds):2d} rounds of CPO, with validation {clock.features():23.1f} s")
        model.adopt(training)
        print(f"the check of weights, evenness and prices {clock.features():15.1f} s")
    else:
        loaded = ModelFolder(options.run).recommender()
        assert isinstance(loaded, Fcpo)
        model = loaded
    assert model.policy_.ensemble is not None
    scenario = evaluation_scenario(parts, model.queue_length, Protocol.STANDARD)
    clock.features()
    bare(model.policy_.ensemble, scenario)
    least = clock.features()
    print(f"bare scores and best 20 of {scenario.n_users} users {least:14.2f} s")
    for level in (1.0, 0.65, 0.37):
        model.with_level(level).recommend(scenario, length=20)
        seconds = clock.features()
        print(f"lists at alpha' {level:<5g} {seconds:28.2f} s  {seconds / least:.2f} x")


if __name__ == "__main__":
    main()
