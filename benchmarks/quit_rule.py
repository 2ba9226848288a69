"""A policy with a horizon against PPO of Stable-Baselines3, among users who quit when bored.

    python benchmarks/quit_rule.py [--data ml-1m] [--limits 0.4,0.2] [--seeds 3] [--more 0]
                                   [--out quit-rule] [--small]

Users quit when more than 4 of the last 10 items are of one genre. Rows: `fcpo:long` under the
limit, the same without a horizon, the stack under the control and without a limit, and PPO, which
weighs the rankers of `fcpo:long` (quit_view.py): free, with a penalty on popular showings that
follows the limit, and under the same control as the others. PPO learns from as many showings as
`fcpo:long`, in its rehearsals and in the run itself; with --more N, also from N times as many.
Settings are chosen for each of the three, by a run with a seed that is not reported. The ensemble
is what PPO begins with; random weights are drawn anew for every user and step.
"""

import argparse
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from fairhorizon.data.loading import load
from quit_rival import CANDIDATES, CHOOSING, QUICK_CANDIDATES, Candidates, Rival, chosen
from quit_world import Figures, World
from small import parse

REFERENCES = ("fcpo:long", "stack+control", "stack")
WITHOUT_HORIZON = "fcpo:long, gamma_r=0"
QUICK: Mapping[str, Mapping[str, Any]] = {
    "fcpo": {"rounds": 1, "adapt": False, "rehearsals": 1},
    "stack": {"adapt": False},
}
KINDS = 6  # of the items of the small market
Row = tuple[str, Figures]


def references(world: World, seed: int) -> Iterator[Row]:
    for method in REFERENCES:
        yield method, world.known(method, seed)
    settings = {**world.settings, "fcpo": {**world.settings.get("fcpo", {}), "gamma_r": 0.0}}
    yield WITHOUT_HORIZON, replace(world, settings=settings).known("fcpo:long", seed)


def budget(world: World, seed: int, long_run: Figures) -> int:
    """Showings that `fcpo:long` learns from, if rehearsals have as many as the run itself.

    They have fewer: less was learned before them.
    """
    model = world.policy(seed)
    users = world.study.study.dataset().split.train.n_users
    return round((model.config.rehearsals + 1) * users * long_run.showings)


def rows(world: World, seeds: range, candidates: Candidates, more: int) -> Iterator[Row]:
    """Of all seeds, one after the other; settings of PPO are chosen before."""
    settings: dict[str, Any] = {}
    for seed in seeds:
        for name, found in references(world, seed):
            if name == "fcpo:long":
                showings = budget(world, seed, found)
            yield name, found
        rival = Rival(world, seed, showings)
        if not settings:
            settings = chosen(Rival(world, CHOOSING, showings), candidates)
        yield "the ensemble", rival.fixed()
        yield "random weights", rival.random()
        for way, own in settings.items():
            yield f"PPO, {way}", rival.run(way, own)
            if more:
                larger = replace(rival, budget=more * showings)
                yield f"PPO, {way}, {more} times the showings", larger.run(way, own)


def table(found: Sequence[Row]) -> Iterator[str]:
    """Mean and standard deviation over the seeds."""
    yield "| | likes per user | showings | likes per showing | popular, % | steps over, % |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name in dict.fromkeys(name for name, _ in found):
        yield f"| {name} | {cells([one for other, one in found if other == name])} |"


def cells(runs: Sequence[Figures]) -> str:
    columns = [
        spread([one.likes for one in runs], 2),
        spread([one.showings for one in runs], 1),
        spread([one.per_step for one in runs], 3),
        spread([100 * one.popular for one in runs], 1),
        spread([100 * one.over for one in runs], 0),
    ]
    return " | ".join(columns)


def spread(values: Sequence[float], digits: int) -> str:
    mean = f"{np.mean(values):.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ± {np.std(values, ddof=1):.{digits}f}"


def small_table(folder: Path, source: str) -> str:
    """A table with kinds of the items of a market that has none."""
    file = folder / "items.csv"
    lines = [f"{item},kind {n % KINDS}" for n, item in enumerate(load(source).item_ids)]
    file.write_text("\n".join(["item,genre", *lines]) + "\n", encoding="utf-8")
    return str(file)


def compare(options: argparse.Namespace, folder: Path) -> None:
    for limit in map(float, options.limits.split(",")):
        world = World(folder, options.data, limit, options.steps)
        if options.small:
            items = small_table(folder, options.data)
            world = replace(world, item_table=items, settings=QUICK)
        print(
            f"\n{options.data}, {options.steps} steps, popular at most {100 * limit:g} %",
            flush=True,
        )
        began, found = time.perf_counter(), []
        candidates = QUICK_CANDIDATES if options.small else CANDIDATES
        for name, one in rows(world, range(options.seeds), candidates, options.more):
            found.append((name, one))
            print(f"  {time.perf_counter() - began:6.0f} s  {name} | {cells([one])}", flush=True)
        print("", *table(found), sep="\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-1m")
    parser.add_argument("--limits", default="0.4,0.2", help="largest shares of popular showings")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--more", type=int, default=0, help="times the showings, in more rows")
    parser.add_argument("--out", type=Path, help="keeps models and runs; else they are lost")
    options = parse(parser, limits="0.4", steps=4, seeds=1, out=None)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # notes on the log
    if options.out is not None:
        compare(options, options.out)
        return
    with TemporaryDirectory() as folder:
        compare(options, Path(folder))


if __name__ == "__main__":
    main()
