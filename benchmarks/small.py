"""The option --small of every benchmark: does it still run?"""

import argparse

MARKET = "synthetic:users=60,items=80,interactions_per_user=20"
HELP = "a small synthetic market, in seconds: shows that it runs, the figures say nothing"


def parse(parser: argparse.ArgumentParser, **small: object) -> argparse.Namespace:
    """The options of the command line; --small sets `small` and the data."""
    parser.add_argument("--small", action="store_true", help=HELP)
    options = parser.parse_args()
    if options.small:
        vars(options).update({"data": MARKET, **small})
    return options
