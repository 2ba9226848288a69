"""The fit of ridge against those of EASE and GRU4Rec: CPU seconds, NDCG@20, ratios in one run.

    python benchmarks/ridge.py [--data ml-1m] [--repeats 3] [--with-gru4rec]

One thread. Ridge and EASE are fitted in turns, so that a noisy machine slows both alike; GRU4Rec,
which takes many minutes, is fitted once and only where asked for. NDCG@20 is that of the standard
protocol, one-shot; its differences are paired over users.
"""

import argparse
import time
from statistics import median

import numpy as np
import torch

from fairhorizon.data.loading import load
from fairhorizon.data.splits import Split, split
from fairhorizon.rankers import RANKERS
from fairhorizon.recommenders.ranked.model import Ranked
from paired import LENGTH, ByUser, difference, ndcg_of
from small import parse


def fitted(method: str, parts: Split) -> tuple[Ranked, float]:
    started = time.process_time()
    model = Ranked(RANKERS[method]()).fit(parts)
    return model, time.process_time() - started


def report(name: str, seconds: float, ndcg: ByUser) -> None:
    print(f"{name:10} fit {seconds:8.2f} s   NDCG@{LENGTH} {100 * np.nanmean(ndcg):6.2f}")


def compare(name: str, ours: ByUser, theirs: ByUser) -> None:
    print(f"ridge - {name:8} {difference(ours, theirs)} (95 %, paired over users)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--with-gru4rec", action="store_true")
    options = parse(parser, repeats=1, with_gru4rec=False)
    torch.set_num_threads(1)
    parts = split(load(options.data))
    times: dict[str, list[float]] = {"ridge": [], "ease:recent": []}
    values = {}
    for _ in range(options.repeats):
        for method, seconds in times.items():
            model, spent = fitted(method, parts)
            seconds.append(spent)
            values[method] = ndcg_of(model, parts)
    print(f"{options.data}, median of {options.repeats}")
    for method, seconds in times.items():
        report(method, median(seconds), values[method])
    ratio = median(a / b for a, b in zip(times["ridge"], times["ease:recent"], strict=True))
    print(f"fit of ridge / fit of ease:recent{ratio:8.2f}")
    compare("ease:recent", values["ridge"], values["ease:recent"])
    if options.with_gru4rec:
        model, spent = fitted("gru4rec", parts)
        theirs = ndcg_of(model, parts)
        report("gru4rec", spent, theirs)
        print(f"fit of gru4rec / fit of ridge    {spent / median(times['ridge']):8.2f}")
        compare("gru4rec", values["ridge"], theirs)


if __name__ == "__main__":
    main()
