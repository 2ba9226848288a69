"""Speed of Fairness of Exposure, as ratios measured in one run on one thread.

    python benchmarks/exposure.py [--programs 3] [--users 943] [--small]

First the linear program of Singh and Joachims (2018) for one user, solved by scipy's HiGHS, against
our share of a batch of users. Then all users of MovieLens-1M over its whole catalogue, against one
bare sort of the same scores; the paper that FairHorizon is built on reports 397 hours for 800
candidates. Both times are of CPU.
"""

import argparse
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, kron, vstack
from torch import Tensor

from fairhorizon.data.loading import load
from fairhorizon.data.splits import split
from fairhorizon.limits.groups import popular_group
from fairhorizon.ranking import best_lists
from fairhorizon.rerank.exposure import ExposureFairness, attention, solve_exposure
from shared import parse


def cpu_seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def random_scores(users: int, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Normal scores, the fifth of the items that is the group one deviation above the others."""
    group = torch.arange(n) < n // 5
    return torch.randn(users, n, generator=generator) + group, group


def linear_program(u: NDArray[np.float64], f: NDArray[np.float64], c: float) -> float:
    """max u^T P v over doubly stochastic P with f^T P v = c."""
    n = len(u)
    v = attention(n).numpy()
    ones, identity = csr_array(np.ones((1, n))), eye_array(n)
    rows = [kron(identity, ones), kron(ones, identity), csr_array(np.outer(f, v).reshape(1, -1))]
    solution = linprog(
        -np.outer(u, v).ravel(),
        A_eq=vstack(rows),
        b_eq=np.append(np.ones(2 * n), c),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    return -float(solution.fun)


def against_highs(n: int, users: int, programs: int, generator: torch.Generator) -> None:
    """One line: seconds of a user, ratio, and how far apart the two objectives are."""
    problem = ExposureFairness(candidates=n).problem(*random_scores(users, n, generator))
    u, f, c = problem.u, problem.f, problem.c
    solve_exposure(u, f, c)
    ours = median(cpu_seconds(lambda: solve_exposure(u, f, c)) for _ in range(3)) / users
    exact = solve_exposure(u, f, c).objective
    theirs, apart = [], 0.0
    for user in range(programs):
        started = time.process_time()
        best = linear_program(u[user].numpy(), f[user].numpy(), float(c[user]))
        theirs.append(time.process_time() - started)
        apart = max(apart, abs(best / float(exact[user]) - 1))
    print(
        f"n = {n:4d}   HiGHS {median(theirs):8.3f} s   ours {1e3 * ours:8.4f} ms"
        f"   {median(theirs) / ours:9.0f} x   objectives apart by {apart:.0e}"
    )


def cosine_scores(data: str) -> tuple[Tensor, Tensor]:
    """Scores as an item-based ranker has them: similarity to all that the user took."""
    train = split(load(data)).train
    taken = csr_array(
        (np.ones(len(train)), (train.users, train.items)), shape=(train.n_users, train.n_items)
    )
    norms = np.sqrt(np.maximum(train.item_counts(), 1))
    similar = (taken.T @ taken).toarray() / np.outer(norms, norms)
    group = popular_group(train.item_counts())
    return torch.from_numpy((taken @ similar).astype(np.float32)), torch.from_numpy(group)


def whole_catalogue(data: str) -> None:
    scores, group = cosine_scores(data)

    def rerank(constraint: str) -> None:
        reranker = ExposureFairness.model_validate({"candidates": 0, "constraint": constraint})
        handicap = reranker.handicap(scores, group, torch.Generator().manual_seed(0))
        best_lists(scores - handicap, group, 20, 20)

    print(f"{data}: {scores.shape[0]} users over all {scores.shape[1]} items, lists of 20 drawn")
    bare = median(cpu_seconds(lambda: scores.sort(dim=1)) for _ in range(3))
    print(f"  bare sort of the scores   {bare:6.1f} s")
    for constraint in ("parity", "impact"):
        seconds = cpu_seconds(lambda constraint=constraint: rerank(constraint))  # type: ignore[misc]
        print(f"  {constraint:22s}    {seconds:6.1f} s   {seconds / bare:5.1f} sorts")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=3, help="users solved by HiGHS")
    parser.add_argument("--data", default="ml-1m", help="for the whole catalogue")
    parser.add_argument("--sizes", type=int, nargs="+", default=[50, 100, 200], help="of a program")
    parser.add_argument("--users", type=int, default=943, help="users in our batch")
    options = parse(parser, programs=1, users=8, sizes=[10, 20])
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    print(f"parity, one user; ours in a batch of {options.users}")
    for n in options.sizes:
        against_highs(n, options.users, options.programs, generator)
    whole_catalogue(options.data)


if __name__ == "__main__":
    main()
