"""The fit of GRU4Rec (or SASRec): CPU seconds, epochs, NDCG@20, with a fit of EASE as yardstick.

    python benchmarks/gru4rec.py [--data ml-1m] [--method gru4rec] [--seeds 0] [--save FOLDER]

One thread. NDCG@20 is that of the standard protocol, one-shot. Seconds differ between machines, and
on one machine with what else runs there: the ratio to EASE, fitted before and after each fit, moves
less. --save writes the NDCG of every user as FOLDER/DATA-METHOD-SEED.npy, for paired differences
between versions: with --than FOLDER, those of an earlier run are compared.
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
from paired import LENGTH, difference, ndcg_of
from small import parse


def fitted(method: str, parts: Split, seed: int = 0) -> tuple[Ranked, float, int]:
    """The model, its CPU seconds and its epochs."""
    ranker, epochs = RANKERS[method](seed=seed), 0

    def count(epoch: int, _: float) -> None:
        nonlocal epochs
        epochs = epoch

    started = time.process_time()
    ranker.fit(parts, on_epoch=count)
    return Ranked(ranker), time.process_time() - started, epochs


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--method", default="gru4rec", choices=["gru4rec", "sasrec"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--save", type=Path, metavar="FOLDER")
    parser.add_argument("--than", type=Path, metavar="FOLDER")
    options = parse(parser, seeds=[0], save=None, than=None)
    torch.set_num_threads(1)
    parts = split(load(options.data))
    print(f"{options.data}, {options.method}")
    yardstick = [fitted("ease:recent", parts)[1]]
    times = []
    for seed in options.seeds:
        model, seconds, epochs = fitted(options.method, parts, seed)
        yardstick.append(fitted("ease:recent", parts)[1])
        times.append(seconds)
        ndcg = ndcg_of(model, parts)
        print(
            f"seed {seed}   fit {seconds:8.2f} s   epochs {epochs:2}   "
            f"NDCG@{LENGTH} {100 * np.nanmean(ndcg):6.2f}",
            flush=True,
        )
        name = f"{options.data}-{options.method}-{seed}.npy"
        if options.save is not None:
            options.save.mkdir(parents=True, exist_ok=True)
            np.save(options.save / name, ndcg)
        if options.than is not None:
            gain = difference(ndcg, np.load(options.than / name))
            print(f"  gain {gain} (95 %, paired over users)")
    ratio = median(times) / median(yardstick)
    print(f"fit of ease:recent {median(yardstick):8.2f} s")
    print(f"fit of {options.method} / fit of ease:recent  {ratio:8.2f}")


if __name__ == "__main__":
    main()
