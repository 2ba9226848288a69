"""What benchmarks share: the option --small, paired differences of NDCG, trainings side by side."""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fairhorizon.data.loading import load
from fairhorizon.data.splits import Split, split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.metrics.fairness import exposure_counts
from fairhorizon.rankers.mf import MfConfig
from fairhorizon.recommenders.base import FitTask, Recommender
from fairhorizon.recommenders.interactive import ndcg_by_user
from fairhorizon.recommenders.progress import RoundReport
from fairhorizon.simulation.feedback import evaluation_scenario
from fairhorizon.vocabulary import Protocol

MARKET = "synthetic:users=60,items=80,interactions_per_user=20"
HELP = "a small synthetic market, in seconds: shows that it runs, the figures say nothing"


def parse(parser: argparse.ArgumentParser, **small: object) -> argparse.Namespace:
    """The options of the command line; --small sets `small` and the data."""
    parser.add_argument("--small", action="store_true", help=HELP)
    options = parser.parse_args()
    if options.small:
        vars(options).update({"data": MARKET, **small})
    return options


# NDCG@20 of every user, one-shot and standard, and differences of it.


LENGTH = 20

ByUser = NDArray[np.float64]  # (n_users,), NaN for users without test items


def measured(model: Recommender, parts: Split) -> tuple[ByUser, NDArray[np.float64]]:
    """NDCG of every user, and how often each item is shown."""
    scenario = evaluation_scenario(parts, model.queue_length, Protocol.STANDARD)
    n_items = parts.train.n_items
    length = min(LENGTH, n_items)
    lists = model.recommend(scenario, length=length)
    ndcg = ndcg_by_user(torch.from_numpy(lists), torch.arange(len(lists)), scenario)
    return ndcg, exposure_counts(lists, n_items, length)


def ndcg_of(model: Recommender, parts: Split) -> ByUser:
    return measured(model, parts)[0]


def difference(ours: ByUser, theirs: ByUser, unit: float = 0.01) -> str:
    """The mean with its 95 % interval, paired over users; in percentage points by default."""
    gain = (ours - theirs)[~np.isnan(ours)] / unit
    error = 1.96 * gain.std(ddof=1) / len(gain) ** 0.5
    return f"{gain.mean():+.2f} +- {error:.2f}"


# Trainings that do not depend on each other, one core each.


@dataclass(frozen=True)
class Outcome:
    name: str
    seed: int
    reports: list[RoundReport]
    best_validation: float


def run(name: str, config: FcpoConfig, seed: int, data: str) -> Outcome:
    torch.set_num_threads(1)
    training = Fcpo(config, seed=seed).training(FitTask.from_split(split(load(data))))
    for _ in training.rounds():
        pass
    return Outcome(name, seed, training.reports, training.best_validation)


def train_all(
    configs: Mapping[str, FcpoConfig], seeds: Sequence[int], data: str, here: bool = False
) -> Iterator[Outcome]:
    """Every configuration under every seed, as they finish; `here`: all in this process."""
    if here:
        for name, config in configs.items():
            quick = config.model_copy(update={"pmf": MfConfig(max_epochs=1)})
            yield from (run(name, quick, seed, data) for seed in seeds)
        return
    load(data)  # fetched once, before the processes look for it
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        jobs = [
            pool.submit(run, name, config, seed, data)
            for name, config in configs.items()
            for seed in seeds
        ]
        for number, job in enumerate(as_completed(jobs), 1):
            outcome = job.result()
            print(f"{number}/{len(jobs)} {outcome.name}, seed {outcome.seed}", file=sys.stderr)
            yield outcome
