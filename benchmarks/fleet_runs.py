"""Runs of a simulated fleet, by the size of its leases, in several processes."""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

from fairhorizon.service.budget.leases import TIMES, lease_size
from fairhorizon.service.budget.rules import UNIT
from fleet_account import SizeRule
from fleet_scenario import Scenario
from fleet_simulation import Fleet, Outcome

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
