"""How much a horizon brings that was learned from the record of a service without one.

    python benchmarks/recorded.py [--users 4000] [--steps 60] [--seeds 3] [--markets 4] [--small]

The tabular market of users who leave. One run of the myopic allocation is recorded, as `fit
--answers` reads it; other users are then served by what a like is worth. Likes per user above the
myopic allocation, which keeps the same limit at every step.
"""

import argparse

import numpy as np
import torch
from numpy.typing import NDArray

from fairhorizon.fcpo.retention.replay import GAMMA, FittedRetention, OfflineReplay, learned_from
from fairhorizon.recommenders.responses import ResponseHistory
from fairhorizon.simulation.tabular import Moment, TabularMarket, myopic, play, seeing_patience
from shared import parse

Bools = NDArray[np.bool_]
FIRST = 100  # seed of the runs that count; that of the record is 0
AWAY = 5  # steps at the end of the record in which who left was shown nothing
MARKETS = [(most, share) for most in ((3,), (4,), (6,), (3, 4, 6)) for share in (0.2, 0.4)]


class Record:
    """A run of the myopic allocation, as a service records it."""

    def __init__(self, market: TabularMarket, seed: int) -> None:
        size = (market.users, market.steps)
        self.shown, self.popular, self.liked = np.zeros((3, *size), dtype=np.bool_)
        self.scores, self.best = np.zeros(size), np.zeros((market.users, 2))
        self.history = types_of(market, seed)
        play(market, myopic, seed, self.tell)

    def tell(self, moment: Moment, popular: Bools, liked: Bools, stays: Bools) -> None:  # noqa: ARG002
        at = moment.rows, moment.step
        self.shown[at], self.popular[at], self.liked[at] = True, popular, liked
        self.scores[at] = np.log(odds(np.where(popular, moment.p, moment.q)))
        if moment.step == 0:  # what a model makes of them before the record
            self.best[moment.rows] = log_odds_of(moment)

    def offline_replay(self) -> OfflineReplay:
        left = ~self.shown[:, -min(AWAY, self.shown.shape[1]) :].any(1)
        tables = (self.popular, self.shown, self.liked, left)
        return OfflineReplay(
            self.history,
            torch.from_numpy(self.best).float(),
            torch.from_numpy(self.scores).float(),
            *map(torch.from_numpy, tables),
        )


class Server:
    """Serves by what a like is worth, and sees answers alone."""

    def __init__(self, market: TabularMarket, retention: FittedRetention, seed: int) -> None:
        self.users, self.retention = market.users, retention
        self.responses = ResponseHistory(types_of(market, seed))

    def values(self, moment: Moment) -> NDArray[np.float64]:
        best = torch.zeros(self.users, 2)
        best[moment.rows] = torch.from_numpy(log_odds_of(moment)).float()
        worth = self.retention.worth(self.responses, best).numpy()[moment.rows]
        return (moment.p - moment.q) * worth

    def tell(self, moment: Moment, popular: Bools, liked: Bools, stays: Bools) -> None:  # noqa: ARG002
        lists, hits = torch.full((self.users, 1), -1), torch.zeros(self.users, 1, dtype=torch.bool)
        lists[moment.rows], hits[moment.rows, 0] = 0, torch.from_numpy(liked)
        self.responses.see(lists, hits)


def types_of(market: TabularMarket, seed: int) -> torch.Tensor:
    """What is known of the users of a run beforehand."""
    likings = market.likings(np.random.default_rng(seed), market.users)
    return torch.from_numpy(market.types_of(likings))


def odds(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    return probabilities / (1 - probabilities)


def log_odds_of(moment: Moment) -> NDArray[np.float64]:
    """(rows, 2) of the other item and of the popular one."""
    return np.log(odds(np.stack([moment.q, moment.p], axis=1).clip(1e-6, 1 - 1e-6)))


def gains(market: TabularMarket, seeds: range) -> tuple[float, NDArray[np.float64]]:
    """Of the optimum on average, and learned by seed: in percent of the myopic allocation."""
    learned, usual = learned_from([Record(market, 0).offline_replay()])
    retention = FittedRetention(GAMMA, learned, {}, (), 0.0, usual)
    likes = np.zeros((3, len(seeds)))
    for n, seed in enumerate(seeds):
        server = Server(market, retention, seed)
        likes[:, n] = (
            play(market, myopic, seed)[0],
            play(market, seeing_patience(market), seed)[0],
            play(market, server.values, seed, server.tell)[0],
        )
    above = 100 * (likes[1:] / likes[0] - 1)
    return float(above[0].mean()), above[1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--markets", type=int, default=4)
    options = parse(parser, users=200, steps=8, seeds=2, markets=1)
    torch.set_num_threads(1)
    print("M        limit   optimum   from a record        of it")
    for most, share in MARKETS[: options.markets]:
        market = TabularMarket(options.users, options.steps, most, share)
        optimum, learned = gains(market, range(FIRST, FIRST + options.seeds))
        mean, spread = learned.mean(), learned.std(ddof=min(1, len(learned) - 1))
        print(
            f"{'/'.join(map(str, most)):8s} {share:5.2f}  {optimum:+6.1f} %  "
            f"{mean:+6.1f} ± {spread:3.1f} %  {100 * mean / optimum:9.0f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
