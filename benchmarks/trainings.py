"""Trainings that do not depend on each other, one core each."""

import multiprocessing
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

import torch

from fairhorizon.agents import Fcpo, FcpoConfig, RoundReport
from fairhorizon.data import load, split
from fairhorizon.evaluation import evaluate


@dataclass(frozen=True)
class Outcome:
    name: str
    seed: int
    reports: list[RoundReport]
    best_validation: float
    rows: list[dict[str, Any]]  # results of the judged (protocol, mode) pairs


def run(
    name: str, config: FcpoConfig, seed: int, data: str, judged: Sequence[tuple[str, str]]
) -> Outcome:
    torch.set_num_threads(1)
    parts = split(load(data))
    model = Fcpo(config, seed=seed)
    training = model.start(parts)
    for _ in training.rounds():
        pass
    model.adopt(training)
    rows = [evaluate(model, parts, protocol=p, mode=m).row() for p, m in judged]
    return Outcome(name, seed, training.reports, training.best_validation, rows)


def train_all(
    configs: Mapping[str, FcpoConfig],
    seeds: Sequence[int],
    data: str,
    judged: Sequence[tuple[str, str]] = (),
) -> Iterator[Outcome]:
    """Every configuration under every seed, as they finish."""
    load(data)  # fetched once, before the processes look for it
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        jobs = [
            pool.submit(run, name, config, seed, data, judged)
            for name, config in configs.items()
            for seed in seeds
        ]
        for number, job in enumerate(as_completed(jobs), 1):
            outcome = job.result()
            print(f"{number}/{len(jobs)} {outcome.name}, seed {outcome.seed}", file=sys.stderr)
            yield outcome
