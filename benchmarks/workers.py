"""Seconds per round of FCPO's training by one and by two workers, as ratios measured in one run.

    python benchmarks/workers.py [--data ml-1m] [--rounds 4] [--repeats 3] [--small]

Preset paper, rounds without an evaluation; every part begins with the same parameters. Its first
round, in which memory is claimed, does not count. The speed-up is against one worker of one thread,
by the medians; one worker of two threads has as many cores as two workers.
"""

import argparse
import warnings
from collections.abc import Iterable
from statistics import median

import torch

from fairhorizon.agents.fcpo.config import FcpoConfig
from fairhorizon.agents.fcpo.learning.together import rounds_by
from fairhorizon.agents.fcpo.learning.training import Training
from fairhorizon.agents.fcpo.model import Fcpo
from fairhorizon.agents.progress import RoundReport
from fairhorizon.agents.tasks import FitTask
from fairhorizon.data.sources import load
from fairhorizon.data.splits import split
from fairhorizon.engines.local_crew import LocalCrew
from fairhorizon.rankers.mf import MfConfig
from small import parse

ONE, THREADS, WORKERS = "1 worker, 1 thread", "1 worker, 2 threads", "2 workers, 1 thread each"


def rounds(training: Training, part: str) -> Iterable[RoundReport]:
    """All rounds, by the workers of the part."""
    if part == WORKERS:
        return rounds_by(LocalCrew(2), training)
    torch.set_num_threads(2 if part == THREADS else 1)
    return training.rounds()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--rounds", type=int, default=4, help="that count, of each repeat")
    parser.add_argument("--repeats", type=int, default=3)
    small = {"horizon": 5, "fisher_states": 32, "gru_hidden": 8}
    options = parse(parser, rounds=1, repeats=1, settings=small)
    threads = torch.get_num_threads()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about ties
        parts = split(load(options.data))
    config = FcpoConfig.preset(
        "paper",
        alpha_prime=0.4,
        rounds=options.rounds + 1,
        evaluate_every=options.rounds + 2,
        pmf=MfConfig(max_epochs=2),  # what is learned has no part in how long it takes
        **getattr(options, "settings", {}),
    )
    training = Fcpo(config).session(FitTask.of(parts)).training
    first = training.state()
    seconds: dict[str, list[float]] = {ONE: [], THREADS: [], WORKERS: []}
    for _ in range(options.repeats):
        for part, times in seconds.items():
            training.restore(first)
            times += [report.seconds for report in rounds(training, part)][1:]
    torch.set_num_threads(threads)
    print(f"{options.data}: {parts.train.n_users} users, {parts.train.n_items} items")
    base = median(seconds[ONE])
    for part, times in seconds.items():
        spread = f"{min(times):.2f} to {max(times):.2f}"
        print(
            f"{part:<25} {median(times):8.2f} s a round ({spread})   "
            f"{base / median(times):.2f} x as fast as {ONE}"
        )


if __name__ == "__main__":
    main()
