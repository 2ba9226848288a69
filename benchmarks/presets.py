"""The presets of FCPO: seconds and memory of their fits, NDCG@20 at three levels, differences.

    python benchmarks/presets.py [--data ml-100k] [--seeds 5] [--presets fast,strong,before]

`before` has the rankers of the preset `strong` of version 0.1: GRU4Rec, EASE and item-kNN with
default settings, weighed by cross-entropy. Differences are of the means over seeds, paired over
users, with 95 % intervals; NDCG@20 is one-shot, protocol standard.
"""

import argparse
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from fairhorizon.data.loading import load
from fairhorizon.data.splits import Split, split
from fairhorizon.fcpo.config import PRESETS, FcpoConfig
from fairhorizon.fcpo.model import Fcpo
from fairhorizon.metrics.fairness import gini
from shared import difference, measured, parse

LEVELS = (0.85, 0.65, 0.37)
BEFORE = FcpoConfig.preset(
    "strong", warm_start=("gru4rec", "ease:recent", "itemknn:recent"), adapt=False, patience=5
)
CONFIGS = {"fast": PRESETS["fast"], "strong": PRESETS["strong"], "before": BEFORE}
SMALL = {"rounds": 2, "gru4rec": {"max_epochs": 2, "dim": 8}}


@dataclass
class Measured:
    """What a preset took and reached, a row per seed."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    ndcg: list[NDArray[np.float64]] = field(default_factory=list)  # each (levels, n_users)
    gini: list[list[float]] = field(default_factory=list)
    rate: list[list[float]] = field(default_factory=list)


def measure(config: FcpoConfig, parts: Split, seed: int, found: Measured) -> None:
    cpu, wall = time.process_time(), time.perf_counter()
    model = Fcpo(config, seed=seed).fit(parts)
    found.cpu.append(time.process_time() - cpu)
    found.wall.append(time.perf_counter() - wall)
    group = model.sensitive_.cpu().numpy()
    ndcg, ginis, rates = [], [], []
    for level in LEVELS:
        by_user, shown = measured(model.with_level(level), parts)
        ndcg.append(by_user)
        ginis.append(gini(shown))
        rates.append(shown[group].sum() / shown.sum())
    found.ndcg.append(np.stack(ndcg))
    found.gini.append(ginis)
    found.rate.append(rates)


def report(name: str, found: Measured) -> None:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # so far
    print(
        f"{name:7} fit {np.mean(found.cpu):7.1f} s CPU, {np.mean(found.wall):7.1f} s wall, "
        f"{peak:.1f} GiB"
    )
    means = 100 * np.nanmean(np.stack(found.ndcg), axis=2)  # (seeds, levels)
    for number, level in enumerate(LEVELS):
        spread = means[:, number].std(ddof=1) if len(means) > 1 else 0.0
        print(
            f"  at most {100 * level:.0f} %: NDCG {means[:, number].mean():.2f} +- {spread:.2f}, "
            f"Gini {100 * np.mean(found.gini, axis=0)[number]:.1f}, "
            f"rate {100 * np.mean(found.rate, axis=0)[number]:.1f}"
        )


def compare(name: str, ours: Measured, other: str, theirs: Measured) -> None:
    means = (np.mean(found.ndcg, axis=0) for found in (ours, theirs))
    for level, *pair in zip(LEVELS, *means, strict=True):
        print(f"{name} - {other} at {100 * level:.0f} %: {difference(*pair)}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--presets", default="fast,strong,before")
    parser.add_argument("--keep", type=Path, help="folder for NDCG by seed, level and user")
    options = parse(parser, seeds=1, presets="fast,before")
    torch.set_num_threads(1)
    parts = split(load(options.data))
    found: dict[str, Measured] = {}
    for name in options.presets.split(","):
        config = CONFIGS[name].model_copy(update=SMALL) if options.small else CONFIGS[name]
        found[name] = Measured()
        for seed in range(options.seeds):
            measure(config, parts, seed, found[name])
            report(name, found[name])
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            np.save(options.keep / f"{options.data}-{name}.npy", np.stack(found[name].ndcg))
    names = list(found)
    for number, name in enumerate(names):
        for other in names[number + 1 :]:
            compare(name, found[name], other, found[other])


if __name__ == "__main__":
    main()
