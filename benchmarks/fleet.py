"""A thousand replicas that lease one budget, simulated: what does the size of a lease change?

    python benchmarks/fleet.py [--seconds 300] [--seeds 3] [--only SCENARIO ...] [--chart PNG]
        [--processes 2] [--small]

For every scenario and size of a lease (fleet_simulation.py): the most that was shown above the
share after any list (a run in which that is more than C fails), the part of the budget that was
wanted and not used, transactions a second under the lock, how long it is held, and what lists wait
for it. `rule` is the size that the service takes (service/budget/leases.py), `C / n` an equal part
of the slack, as it took before. Traffic, delays and crashes are drawn from the seed; all sizes get
the same. Regret is by how much the cost of the rule, unused + utilisation in percent, is above that
of the best size of the grid.
"""

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import mean

from fairhorizon.report import charts
from fairhorizon.report.charts import PALETTE, SHAPES, Style
from fairhorizon.service.budget.leases import TIMES, lease_size
from fairhorizon.service.budget.rules import UNIT
from fleet_simulation import Crowd, Fleet, Outcome, Recording, Scenario, SizeRule
from shared import parse

# Runs by the size of leases, in several processes.


SIZES = (1, 3, 10, 30, 100, 1000, 10_000)
RULE, BEFORE = "rule", "C / n"
Found = Mapping[str, Sequence[Outcome]]  # by the size of leases; one run for each seed


def fixed(size: int) -> SizeRule:
    return lambda *_: size * UNIT


def equal_part(slack: int, replicas: int, _lately: int) -> int:
    return max(UNIT, slack // max(1, replicas))


SIZE_RULES: dict[str, SizeRule] = {
    **{f"{size:,}": fixed(size) for size in SIZES},
    BEFORE: equal_part,
    RULE: lease_size,
}


def between_reports(scenario: Scenario) -> float:
    """Seconds between two reports of lists that are recorded apart: sqrt(n s H / 3).

    Leases and what is not yet reported are 3 T / H of a budget of H seconds, and reports keep the
    database busy for n s / T: the sum is least at this T.
    """
    busy = scenario.replicas * scenario.lock_ms / 1000
    return float((busy * scenario.seconds / TIMES) ** 0.5)


def run(scenario: Scenario, size: str, seed: int) -> Outcome:
    return Fleet(scenario, SIZE_RULES[size], seed, every=between_reports(scenario)).run()


class Runs:
    """Many runs in several processes."""

    def __init__(self, processes: Executor, seeds: int) -> None:
        self.processes, self.seeds = processes, seeds

    def of(self, cases: Mapping[str, tuple[Scenario, str]]) -> Found:
        """A run of each case and seed."""
        waiting = {
            name: [self.processes.submit(run, *case, seed) for seed in range(self.seeds)]
            for name, case in cases.items()
        }
        return {name: [one.result() for one in some] for name, some in waiting.items()}


# The chart: overshoot, unused budget and load by the size of leases.


PANELS = {
    "Most over the share, showings": lambda one: one.overshoot,
    "Unused budget, %": lambda one: 100 * one.unused,
    "Lock held, % of the time": lambda one: 100 * one.utilisation,
}


def draw(
    path: Path, found: Mapping[str, Mapping[str, Sequence[Outcome]]], sizes: Sequence[int]
) -> None:
    """A panel for each figure, a line for each scenario; the rule's as a dashed line."""
    looks = {
        name: Style(PALETTE[number % len(PALETTE)], SHAPES[number % len(SHAPES)])
        for number, name in enumerate(found)
    }
    x = {
        **{"field": "x", "type": "quantitative", "scale": {"type": "log", "nice": False}},
        "axis": {"title": "Lease, showings", "format": "~s", "values": list(sizes)},
    }
    panels = []
    for title, value in PANELS.items():
        y = {"field": "y", "type": "quantitative", "axis": {"title": None}}
        series = charts.by_series(looks)
        rows = [
            {"series": name, "x": size, "y": mean(map(value, runs[f"{size:,}"]))}
            for name, runs in found.items()
            for size in sizes
        ]
        rule = [
            {"series": name, "y": mean(map(value, runs["rule"]))} for name, runs in found.items()
        ]
        layers = [
            charts.mark("line", {"x": x, "y": y, "color": series["color"]}, rows),
            charts.mark(
                "point",
                {"x": x, "y": y, "color": series["color"], "shape": series["shape"]},
                rows,
                **{"filled": True, "size": 55, "opacity": 1},
            ),
            charts.mark(
                "rule", {"y": y, "color": series["color"]}, rule, strokeDash=[4, 4], opacity=0.7
            ),
        ]
        panels.append(charts.panel(layers, title=title))
    reading = "Mean over seeds. Lines: leases of one size. Dashed: the size by the service's rule."
    title = "What the size of a lease changes"
    chart = charts.Chart(title, panels, looks, reading=reading, columns=3)
    charts.save_picture(path, chart.png())


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
