"""How FCPO's settings for the paper's protocol were chosen: on validation items, test items unseen.

    python benchmarks/choose_settings.py [--data ml-100k] [--rounds 100] [--small]

Prints the best validation NDCG@20 of seed 0 after at most 100 rounds at alpha' = 0.85, in percent.
"""

import argparse

from fairhorizon.fcpo.config import FcpoConfig
from fairhorizon.rankers.mf import MfConfig
from fairhorizon.vocabulary import Protocol
from shared import parse, train_all

EMBEDDINGS = (MfConfig(), MfConfig(target="interaction"))
STARTS = ("first", "anywhere")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="ml-100k")
    parser.add_argument("--rounds", type=int, default=100)
    options = parse(parser, rounds=1)
    configs = {
        f"PMF of {pmf.target}s, episodes start {starts}": FcpoConfig.preset(
            "paper",
            pmf=pmf,
            starts=starts,
            protocol=Protocol.PAPER,
            alpha_prime=0.85,
            rounds=options.rounds,
            patience=8,
        )
        for pmf in EMBEDDINGS
        for starts in STARTS
    }
    for outcome in train_all(configs, [0], options.data, options.small):
        print(f"{outcome.name:46}  validation NDCG@20 {100 * outcome.best_validation:.2f}")


if __name__ == "__main__":
    main()
