"""The best items of a user among many vectors: an index of FAISS against all products.

    python benchmarks/retrieval.py [--items 100000] [--factors 64] [--best 200] [--small]

One thread. Vectors of items lie around centres, those of users around the same ones; both are
drawn (seed 0). The two are measured in turns, one user at a time, so that a noisy machine slows
both alike: CPU time, medians over all users. Printed for a half and a tenth of the items too, as
docs/scale.md takes the time of the index to grow with the square root of its items.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import torch
from torch import Tensor

from fairhorizon.rankers.candidates import FIRST_PROBES, GroupIndex
from shared import parse

CENTRES, SPREAD, SEED = 300, 0.6, 0


def drawn(centres: Tensor, count: int, draw: torch.Generator) -> Tensor:
    """Vectors around centres."""
    own = centres[torch.randint(len(centres), (count,), generator=draw)]
    return own + SPREAD * torch.randn(own.shape, generator=draw)


def exact(vectors: Tensor, queries: Tensor, count: int) -> Tensor:
    """(b, count) items by falling product."""
    return (queries @ vectors.T).topk(count).indices


def milliseconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return 1000 * (time.process_time() - started)


def measure(items: int, options: argparse.Namespace, probes: int) -> tuple[float, float, float]:
    """Milliseconds of the index and of all products, and the part of the best that it finds."""
    draw = torch.Generator().manual_seed(SEED)
    centres = torch.randn((CENTRES, options.factors), generator=draw)
    vectors, queries = (drawn(centres, n, draw) for n in (items, options.users))
    index = GroupIndex.from_vectors(vectors, torch.arange(items))
    quick, whole, found = [], [], []
    for query in queries.split(1):
        quick.append(milliseconds(lambda: index.nearest(query, options.best, probes)))  # noqa: B023
        whole.append(milliseconds(lambda: exact(vectors, query, options.best)))  # noqa: B023
        ours = index.nearest(query, options.best, probes)
        theirs = exact(vectors, query, options.best)
        found.append(torch.isin(ours, theirs).sum().item() / options.best)
    return median(quick), median(whole), sum(found) / len(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--factors", type=int, default=64)
    parser.add_argument("--best", type=int, default=200)
    parser.add_argument("--users", type=int, default=300)
    parser.add_argument("--probes", type=int, default=FIRST_PROBES)
    options = parse(parser, items=2000, best=10, users=20)
    torch.set_num_threads(1)
    for items in (options.items // 10, options.items // 2, options.items):
        quick, whole, found = measure(items, options, options.probes)
        print(
            f"{items:>9,} items: index {quick:7.3f} ms, all products {whole:7.3f} ms, "
            f"found {100 * found:5.1f} % of the best {options.best}"
        )
    print(f"all products / index {whole / quick:12.2f}")


if __name__ == "__main__":
    main()
