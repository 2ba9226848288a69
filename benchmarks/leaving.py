"""How much of what a horizon can bring is learned: the tabular market of users who leave.

    python benchmarks/leaving.py [--users 4000] [--steps 60] [--pretraining-runs 4] [--seeds 3]
        [--plain] [--width 16] [--small]

Likes per user above the myopic allocation, which keeps the same limit at every step: of the optimum
that sees patience, of the best that sees answers only, of what was learned from answers, and of a
rule of thumb: popular items to those with the highest (p - q) (1 + showings since the last like).
--plain: without a leap, and with critics as `fcpo:long` has them. --width: of the actor's layers.
"""

import argparse

import numpy as np
import torch
from numpy.typing import NDArray

from fairhorizon.fcpo.config import RetentionConfig
from fairhorizon.fcpo.retention.model import RetentionModel
from fairhorizon.simulation.tabular import (
    Moment,
    SeeingAnswers,
    TabularMarket,
    myopic,
    play,
    seeing_patience,
)
from shared import parse

Bools = NDArray[np.bool_]
GAMMA = 0.99
FIRST = 100  # seed of the runs that count; pretraining runs have 0, 1, ...
MARKETS = [(most, share) for most in ((3,), (4,), (6,), (3, 4, 6)) for share in (0.2, 0.4)]
# likes alone count in this market, and there are enough of them to fit closely
SETTINGS = RetentionConfig(presence=0.0, critic_iterations=250, leap=True)


class RetentionPlayer:
    """A retention model that plays, and notes what comes of it."""

    def __init__(
        self, market: TabularMarket, gamma: float, settings: RetentionConfig = SETTINGS
    ) -> None:
        self.market = market
        self.retention = RetentionModel(gamma, settings=settings, share=market.share, seed=0)

    def pretrain(self, count: int) -> None:
        """Learn from so many runs, each by what was learned in those before."""
        for seed in range(count):
            self.play(seed)
            self.retention.learn()

    def play(self, seed: int) -> float:
        """Likes per user."""
        self.begin(seed)
        return play(self.market, self.values, seed, self.tell)[0]

    def begin(self, seed: int) -> None:
        """A run. What is known of users beforehand is their type."""
        likings = self.market.likings(np.random.default_rng(seed), self.market.users)
        self.retention.begin(torch.from_numpy(self.market.types_of(likings)))

    def values(self, moment: Moment) -> NDArray[np.float64]:
        scores = torch.full((self.market.users, 2), -torch.inf)
        for item, chance in enumerate((moment.p, moment.q)):
            scores[moment.rows, item] = torch.logit(torch.from_numpy(chance), eps=1e-6).float()
        self.items = self.retention.valued(scores, torch.tensor([True, False]))
        found = self.items.values.numpy()[moment.rows]
        gains: NDArray[np.float64] = (found[:, 0] - found[:, 1]).astype(np.float64)
        return gains

    def tell(self, moment: Moment, popular: Bools, liked: Bools, stays: Bools) -> None:
        lists = torch.full((self.market.users, 1), -1)
        lists[moment.rows, 0] = torch.from_numpy(np.where(popular, 0, 1))
        hits, here = torch.zeros(2, self.market.users, dtype=torch.bool)
        hits[moment.rows], here[moment.rows] = torch.from_numpy(liked), torch.from_numpy(stays)
        self.retention.note(self.items, lists, hits[:, None], here)


class RuleOfThumb:
    """Popular items to those who had no luck lately."""

    def __init__(self, users: int) -> None:
        self.since = np.zeros(users)  # showings since the last like

    def values(self, moment: Moment) -> NDArray[np.float64]:
        found: NDArray[np.float64] = (moment.p - moment.q) * (1 + self.since[moment.rows])
        return found

    def tell(self, moment: Moment, _popular: Bools, liked: Bools, _stays: Bools) -> None:
        self.since[moment.rows] = np.where(liked, 0, self.since[moment.rows] + 1)


def gains(
    market: TabularMarket, settings: RetentionConfig, pretraining_runs: int, seeds: range
) -> list[float]:
    """In percent of the likes of the myopic allocation."""
    learner = RetentionPlayer(market, GAMMA, settings)
    learner.pretrain(pretraining_runs)
    likes = np.zeros((5, len(seeds)))
    for n, seed in enumerate(seeds):
        answers, thumb = SeeingAnswers(market), RuleOfThumb(market.users)
        likes[:, n] = (
            play(market, myopic, seed)[0],
            play(market, seeing_patience(market), seed)[0],
            play(market, answers.values, seed, answers.tell)[0],
            learner.play(seed),
            play(market, thumb.values, seed, thumb.tell)[0],
        )
    base, *others = likes.mean(1)
    return [100 * (float(one) / float(base) - 1) for one in others]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--users", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--pretraining-runs", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--markets", type=int, default=len(MARKETS))
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--width", type=int, default=SETTINGS.hidden[0])
    options = parse(parser, users=200, steps=5, pretraining_runs=1, seeds=1, markets=1)
    torch.set_num_threads(1)
    settings = RetentionConfig(presence=SETTINGS.presence) if options.plain else SETTINGS
    settings = settings.model_copy(update={"hidden": (options.width, options.width)})
    print(
        "M        limit   sees patience   sees answers   learned   of patience   of answers  "
        "rule of thumb"
    )
    for most, share in MARKETS[: options.markets]:
        market = TabularMarket(options.users, options.steps, most, share)
        seeds = range(FIRST, FIRST + options.seeds)
        patience, answers, learned, thumb = gains(market, settings, options.pretraining_runs, seeds)
        parts = (100 * learned / patience, 100 * learned / answers)
        print(
            f"{'/'.join(map(str, most)):8s} {share:5.2f}  {patience:+12.1f} %  {answers:+12.1f} %  "
            f"{learned:+6.1f} %  {parts[0]:9.0f} %  {parts[1]:9.0f} %  {thumb:+12.1f} %",
            flush=True,
        )


if __name__ == "__main__":
    main()
