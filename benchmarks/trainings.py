"""Trainings that do not depend on each other, one core each."""

import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

import torch

from fairhorizon.data.loading import load
from fairhorizon.data.splits import split
from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.rankers.mf import MfConfig
from fairhorizon.recommenders.base import FitTask
from fairhorizon.recommenders.progress import RoundReport


@dataclass(frozen=True)
class Outcome:
    name: str
    seed: int
    reports: list[RoundReport]
    best_validation: float


def run(name: str, config: FcpoConfig, seed: int, data: str) -> Outcome:
    torch.set_num_threads(1)
    training = Fcpo(config, seed=seed).training(FitTask.of(split(load(data)))).training
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
