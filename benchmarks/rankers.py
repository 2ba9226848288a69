"""The fit of rankers: CPU seconds, epochs and NDCG@20, as ratios to a fit of EASE in the same run.

    python benchmarks/rankers.py [--data ml-1m] [--methods ridge,gru4rec] [--repeats 1]
        [--save FOLDER] [--than FOLDER] [--small]

One thread. EASE with recency is fitted before each of the others, so that a noisy machine slows
both alike. Fit number n has seed n. NDCG@20 is that of the standard protocol, one-shot, and its
difference to EASE is paired over users. --save writes the NDCG of every user as
FOLDER/DATA-METHOD-SEED.npy; with --than FOLDER, those of an earlier version are compared.
"""

import argparse
import time
from pathlib import Path
from statistics import median

import numpy as np
import torch

from fairhorizon.data.loading import load
from fairhorizon.data.splits import Split, split
from fairhorizon.rankers import RANKERS
from fairhorizon.recommenders.ranked.model import Ranked
from shared import LENGTH, ByUser, difference, ndcg_of, parse

YARDSTICK = "ease:recent"


def fitted(method: str, parts: Split, seed: int) -> tuple[ByUser, float, int]:
    """NDCG of every user, CPU seconds, and epochs; 0 of what is not fitted in epochs."""
    ranker, epochs = RANKERS[method](seed=seed), 0

    def count(epoch: int, _: float) -> None:
        nonlocal epochs
        epochs = epoch

    started = time.process_time()
    ranker.fit(parts, on_epoch=count)
    seconds = time.process_time() - started
    return ndcg_of(Ranked(ranker), parts), seconds, epochs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--methods", default="ridge,gru4rec")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--save", type=Path)
    parser.add_argument("--than", type=Path)
    options = parse(parser, save=None, than=None)
    torch.set_num_threads(1)
    parts = split(load(options.data))
    for method in options.methods.split(","):
        times, ratios = [], []
        for seed in range(options.repeats):
            base, yardstick, _ = fitted(YARDSTICK, parts, seed)
            ndcg, seconds, epochs = fitted(method, parts, seed)
            times.append(seconds)
            ratios.append(seconds / yardstick)
            print(
                f"{method}, seed {seed}: fit {seconds:.2f} s, {epochs} epochs, NDCG@{LENGTH} "
                f"{100 * np.nanmean(ndcg):.2f}, {difference(ndcg, base)} to {YARDSTICK}",
                flush=True,
            )
            name = f"{options.data}-{method.replace(':', '-')}-{seed}.npy"
            if options.save is not None:
                options.save.mkdir(parents=True, exist_ok=True)
                np.save(options.save / name, ndcg)
            if options.than is not None:
                print(f"  {difference(ndcg, np.load(options.than / name))} to the earlier version")
        print(f"fit of {method} {median(times):.2f} s")
        print(f"fit of {method} / fit of {YARDSTICK} {median(ratios):.2f}")


if __name__ == "__main__":
    main()
