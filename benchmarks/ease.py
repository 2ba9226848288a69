"""EASE's fit and the scores of all users, in CPU seconds and as a ratio, measured in one run.

    python benchmarks/ease.py [--data ml-1m] [--repeats 3] [--small]

One thread. The ratio is to the bare inverse of a matrix of the same size, without which there is
no EASE; the two are measured in turns, so that a noisy machine slows both alike.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch

from fairhorizon.data.loading import load
from fairhorizon.data.splits import split
from fairhorizon.histories import UserItems
from fairhorizon.rankers.ease import RecentEase
from shared import parse

LIMIT = 60.0  # CPU seconds, for ML-1M
SCORES_AT_ONCE = 2**24


def cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--repeats", type=int, default=3)
    options = parse(parser, repeats=1)
    torch.set_num_threads(1)
    parts = split(load(options.data))
    n_users, n_items = parts.train.n_users, parts.train.n_items
    regular = torch.randn(n_items, n_items, generator=torch.Generator().manual_seed(0))
    regular.diagonal().add_(10 * n_items**0.5)
    model = RecentEase()

    def score_everybody() -> None:
        queue = UserItems.from_log(parts.train, parts.validation).last(model.queue_length)
        for users in torch.arange(n_users).split(max(1, SCORES_AT_ONCE // n_items)):
            model.scores(users, queue[users])

    times = [
        (
            cpu_seconds(lambda: model.fit(parts)),
            cpu_seconds(score_everybody),
            cpu_seconds(lambda: torch.linalg.inv(regular)),
        )
        for _ in range(options.repeats)
    ]
    fit, score, inverse = (median(column) for column in zip(*times, strict=True))
    whole = median((a + b) for a, b, _ in times)
    ratio = median((a + b) / c for a, b, c in times)
    print(f"{options.data}: {n_users} users, {n_items} items, median of {options.repeats}")
    print(f"fit                                   {fit:8.2f} s")
    print(f"scores of all items for all users     {score:8.2f} s")
    print(f"bare inverse                          {inverse:8.2f} s")
    print(f"fit and scores / bare inverse         {ratio:8.2f}")
    if options.data == "ml-1m":
        verdict = "below" if whole < LIMIT else "NOT below"
        print(f"fit and scores, {verdict} {LIMIT:.0f} s          {whole:8.2f} s")


if __name__ == "__main__":
    main()
