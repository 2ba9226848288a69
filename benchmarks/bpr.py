"""An epoch of BPR over one of implicit's, measured in turns in one run on one thread.

    python benchmarks/bpr.py [--data ml-100k] [--epochs 15] [--small]

Both see every training interaction once, have the same dimension, and never take a training item
for a negative: implicit skips the triple then, ours draws among the others. Ours runs with its
default settings, implicit has biases of the items too; validation is not part of the time.
"""

import argparse
import time
from collections.abc import Iterator
from statistics import median

import numpy as np
import torch
from implicit.bpr import BayesianPersonalizedRanking
from scipy.sparse import csr_matrix
from threadpoolctl import threadpool_limits

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.loading import load
from fairhorizon.data.splits import split
from fairhorizon.histories import UserItems
from fairhorizon.rankers.bpr import BprConfig, BprTraining
from shared import parse


def own_epochs(log: Interactions, config: BprConfig) -> Iterator[float]:
    """CPU seconds of one epoch after the other."""
    training = BprTraining(UserItems.from_log(log), config, torch.Generator().manual_seed(0))
    while True:
        started = time.process_time()
        training.epoch()
        yield time.process_time() - started


def implicit_epochs(log: Interactions, config: BprConfig) -> Iterator[float]:
    """CPU seconds of one epoch after the other; fitting again goes on from the last epoch."""
    shape = (log.n_users, log.n_items)
    taken = csr_matrix((np.ones(len(log), np.float32), (log.users, log.items)), shape=shape)
    model = BayesianPersonalizedRanking(
        factors=config.dim, iterations=1, num_threads=1, verify_negative_samples=True
    )
    while True:
        started = time.process_time()
        model.fit(taken, show_progress=False)
        yield time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--epochs", type=int, default=15)
    options = parse(parser, epochs=1)
    torch.set_num_threads(1)
    log, config = split(load(options.data)).train, BprConfig()
    with threadpool_limits(1):
        own, implicit = own_epochs(log, config), implicit_epochs(log, config)
        next(own), next(implicit)  # the first epochs prepare
        pairs = [(next(own), next(implicit)) for _ in range(options.epochs)]
    print(f"{options.data}, {len(log)} interactions, {config.dim} dimensions, batch {config.batch}")
    print(f"an epoch                    {1e3 * median(a for a, _ in pairs):8.1f} ms of CPU")
    print(f"an epoch of implicit        {1e3 * median(b for _, b in pairs):8.1f} ms of CPU")
    print(f"ratio, median of the pairs  {median(a / b for a, b in pairs):8.2f}")


if __name__ == "__main__":
    main()
