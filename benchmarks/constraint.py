"""Does FCPO keep its limit, and does it learn without one?  Preset `paper`, ML-100K, 3 seeds.

    python benchmarks/constraint.py [--rounds 100] [--seeds 3] [--data ml-100k] [--small]

Prints, for alpha' = 0.4 and 0.8, the mean training cost of the last 10 rounds over the limit (to
stay at or below 1.05), and for alpha' = 1 the mean reward of the last 10 rounds over that of the
first 10 (to reach 1.5).
"""

import argparse
from collections.abc import Sequence
from statistics import mean

from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.recommenders.progress import RoundReport
from shared import parse, train_all


def over_limit(reports: Sequence[RoundReport]) -> float:
    return mean(report.cost for report in reports[-10:]) / reports[-1].limit


def reward_growth(reports: Sequence[RoundReport]) -> float:
    return mean(r.reward for r in reports[-10:]) / mean(r.reward for r in reports[:10])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", default="ml-100k")
    options = parse(parser, rounds=1, seeds=1)
    configs = {
        f"alpha' {level:g}": FcpoConfig.preset("paper", alpha_prime=level, rounds=options.rounds)
        for level in (0.4, 0.8, 1.0)
    }
    outcomes = list(train_all(configs, range(options.seeds), options.data, options.small))
    print(f"{'':10}  seed  rounds  cost last 10 / limit  reward last 10 / first 10")
    for outcome in sorted(outcomes, key=lambda outcome: (outcome.name, outcome.seed)):
        reports = outcome.reports
        print(
            f"{outcome.name:10}  {outcome.seed:4}  {len(reports):6}  "
            f"{over_limit(reports):20.3f}  {reward_growth(reports):24.2f}"
        )


if __name__ == "__main__":
    main()
