"""A thousand replicas that lease one budget, simulated: what does the size of a lease change?

    python benchmarks/fleet.py [--seconds 300] [--seeds 3] [--only SCENARIO ...] [--chart PNG]
        [--processes 2] [--small]

For every scenario (fleet_scenario.py) and size of a lease: the most that was shown above the share
after any list (a run in which that is more than C fails), the part of the budget that was wanted
and not used, transactions a second under the lock, how long it is held, and what lists wait for it.
`rule` is the size that the service takes (service/budget/leases.py), `C / n` an equal part of the
slack, as it took before. Traffic, delays and crashes are drawn from the seed; all sizes get the
same. Regret is by how much the cost of the rule, unused + utilisation in percent, is above that of
the best size of the grid.
"""

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean

from fleet_chart import draw
from fleet_runs import BEFORE, RULE, SIZE_RULES, SIZES, Found, Runs
from fleet_scenario import Crowd, Recording, Scenario
from fleet_simulation import Outcome
from small import parse

SLACKS = (20, 200, 2000, 20_000)


def scenarios(seconds: float) -> list[Scenario]:
    """Those of the service as it is, and last of lists that are recorded apart."""
    even = Scenario(seconds=seconds)
    crowd = Crowd(0.5 * seconds, 0.6 * seconds, times=10)
    uneven = replace(
        even, name="uneven", unevenness=1.0, hot=10, hot_times=20, swing=0.5, crowd=crowd
    )
    troubles = {"between_crashes": 1800.0, "between_cuts": 7200.0, "leaving": 0.2}
    return [
        even,
        uneven,
        replace(uneven, name="failing", **troubles),
        replace(uneven, name="drifting", wanted=0.4, drift=0.15),
        replace(uneven, name="windows", window="50000 showings"),
        replace(even, name="twenty", replicas=20),
        replace(
            uneven,
            **{"name": "apart", "recording": Recording.APART, "lists_per_second": 500.0},
            **troubles,
        ),
    ]


def cost(runs: Sequence[Outcome]) -> float:
    """In percent of the budget and of the database's time."""
    return mean(100 * (one.unused + one.utilisation) for one in runs)


def _spread(values: Sequence[float], digits: int) -> str:
    middle, half = mean(values), (max(values) - min(values)) / 2
    return f"{middle:.{digits}f} ± {half:.{digits}f}"


def table(runs: Found) -> str:
    lines = [
        "| lease | most over the share | unused, % | transactions a second | lock held, % "
        "| wait, ms | p99, ms | lease, mean |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, outcomes in runs.items():
        cells = [
            f"{max(one.overshoot for one in outcomes):.0f}",
            _spread([100 * one.unused for one in outcomes], 2),
            f"{mean(one.transactions for one in outcomes):.0f}",
            f"{100 * mean(one.utilisation for one in outcomes):.1f}",
            f"{mean(one.wait_ms for one in outcomes):.1f}",
            f"{mean(one.slow_ms for one in outcomes):.0f}",
            f"{mean(one.lease for one in outcomes):.1f}",
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def regrets(found: Mapping[str, Found]) -> str:
    lines = ["| scenario | best size | its cost | cost of the rule | regret | of C / n |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for name, runs in found.items():
        costs = {size: cost(outcomes) for size, outcomes in runs.items()}
        best = min((size for size in costs if size not in (RULE, BEFORE)), key=costs.__getitem__)
        least = costs[best]
        lines.append(
            f"| {name} | {best} | {least:.2f} | {costs[RULE]:.2f} | {costs[RULE] - least:+.2f} "
            f"| {costs[BEFORE] - least:+.2f} |"
        )
    return "\n".join(lines)


def simulate(chosen: Sequence[Scenario], runs: Runs, *, with_slacks: bool) -> dict[str, Found]:
    """Run and print everything but the regrets."""
    found: dict[str, Found] = {}
    for scenario in chosen:
        found[scenario.name] = runs.of({size: (scenario, size) for size in SIZE_RULES})
        print(f"\n{scenario.name}: {scenario.replicas:,} replicas, recorded {scenario.recording}")
        print(table(found[scenario.name]), flush=True)
    if with_slacks:
        uneven = chosen[1]
        print(f"\n{uneven.name}, leases by the rule, by slack C")
        cases = {f"{slack:,}": (replace(uneven, slack=slack), RULE) for slack in SLACKS}
        print(table(runs.of(cases)).replace("| lease |", "| C |", 1), flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=300.0, help="of traffic")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--replicas", type=int, help="in place of those of each scenario")
    parser.add_argument("--only", action="append", help="a scenario; may be given several times")
    parser.add_argument("--chart", type=Path, help="where to draw what was found")
    parser.add_argument("--processes", type=int, default=2)
    options = parse(parser, seconds=4.0, seeds=1, replicas=20)
    chosen = [
        one if options.replicas is None else replace(one, replicas=options.replicas, hot=0)
        for one in scenarios(options.seconds)
        if not options.only or one.name in options.only
    ]
    with ProcessPoolExecutor(options.processes) as processes:
        found = simulate(chosen, Runs(processes, options.seeds), with_slacks=not options.only)
    print("\nregret, in percent of the budget and of the database's time")
    print(regrets(found))
    if options.chart is not None:
        draw(options.chart, found, SIZES)
    lists = sum(one.lists for runs in found.values() for some in runs.values() for one in some)
    print(f"\nlists simulated {lists:,}; after each of them at most C above the share")


if __name__ == "__main__":
    main()
