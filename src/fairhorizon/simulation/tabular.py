"""A small market of users who leave, solved exactly: the yardstick of policies with a horizon.

Each step offers everybody a popular item, liked with chance p, and another, liked with chance q.
A like adds 1 to the patience of a user, up to M, anything else takes 1 away, and at 0 the user is
gone. At most a share of the showings may be of popular items.

The optimum that sees patience follows from the Lagrangian of that limit. With a price of lambda for
a popular showing, of which every showing earns `share`,

    L_t(m) = lambda share + E max(p - lambda + C(p), q + C(q)),
    C(c) = c L_{t+1}(min(M, m + 1)) + (1 - c) L_{t+1}(m - 1),    L(0) = 0,

by dynamic programming for every type of user. So popular showings go to those with the highest
(p - q) (1 + L_{t+1}(m + 1) - L_{t+1}(m - 1)); lambda is the price at which the limit holds in
expectation over a whole run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TYPES = 8  # classes of users by how much they like
DRAWS = 1000  # of users of each type, for expectations
HALVINGS = 16
POPULAR, OTHER = 0, 1  # the two items


@dataclass(frozen=True)
class TabularMarket:
    """Settings of the market; `most` are the values of M, which users have with equal chance."""

    users: int = 4000
    steps: int = 60
    most: tuple[int, ...] = (4,)
    share: float = 0.2

    def likings(self, generator: np.random.Generator, users: int) -> Floats:
        """(users,) how much they like in general."""
        return generator.beta(2, 3, users)

    def offers(self, liking: Floats, generator: np.random.Generator) -> tuple[Floats, Floats]:
        """The chances p and q of one step."""
        p = np.clip(0.9 * liking + 0.25 * generator.random(len(liking)), 0, 0.98)
        return p, np.clip(p - 0.35 * generator.random(len(liking)), 0.02, 0.98)

    def types_of(self, liking: Floats) -> Ints:
        """(users,) what a recommender may know of them."""
        return np.minimum(TYPES - 1, (liking * TYPES * 1.2).astype(np.int64))

    @cached_property
    def solution(self) -> "Solution":
        return solve(self)


@dataclass(frozen=True)
class Solution:
    """price: lambda; likes: per user, of the policy that sees patience; worth: of a like."""

    price: float
    likes: float
    share: float  # of popular items in its showings
    worth: dict[int, Floats]  # by M: (types, steps, M + 1) 1 + L_{t+1}(m + 1) - L_{t+1}(m - 1)


def start_of(most: Ints) -> Ints:
    """The patience that users begin with."""
    return most // 2 + 1


def solve(market: TabularMarket) -> Solution:
    """The optimum that sees patience, by dynamic programming and bisection of the price."""
    # The expectation over offers is a mean over fixed draws, the same for every price, so that the
    # share of popular showings is a function of the price that bisection can work on.
    generator = np.random.default_rng(0)
    liking = market.likings(generator, DRAWS * TYPES)
    kind = market.types_of(liking)
    p, q = market.offers(liking, generator)
    samples = [(p[kind == k], q[kind == k]) for k in range(TYPES)]
    chances = np.bincount(kind, minlength=TYPES) / len(kind)
    low, high = 0.0, 2.0
    for _ in range(HALVINGS):
        price = (low + high) / 2
        parts = [_at_price(market, most, price, samples, chances) for most in market.most]
        popular, showings = (sum(float(part[n]) for part in parts) for n in (1, 2))
        # Too many popular showings: the price has to rise.
        low, high = (price, high) if popular > market.share * showings else (low, price)
    likes = sum(float(part[0]) for part in parts) / len(market.most)
    worth = {most: part[3] for most, part in zip(market.most, parts, strict=True)}
    return Solution(price, likes, popular / showings, worth)


def _at_price(
    market: TabularMarket,
    most: int,
    price: float,
    samples: list[tuple[Floats, Floats]],
    chances: Floats,
) -> tuple[float, float, float, Floats]:
    """Likes, popular showings and showings per user of patience M; and the worth of a like."""
    worth = np.ones((TYPES, market.steps, most + 1))
    totals = np.zeros(3)
    for k, (p, q) in enumerate(samples):
        if not len(p):
            continue
        # Backwards in time: L_{t+1} is known before L_t. The row of patience 0 stays 0: who has
        # left likes nothing any more.
        ahead = np.zeros(most + 1)  # L of the step after
        liked, shown = np.zeros((2, market.steps, most + 1))
        for t in reversed(range(market.steps)):
            now = np.zeros(most + 1)
            for m in range(1, most + 1):
                up, down = ahead[min(most, m + 1)], ahead[m - 1]
                worth[k, t, m] = 1 + up - down
                # The maximum of the Lagrangian: the popular item where (p - q) (1 + up - down)
                # exceeds lambda.
                popular = (p - q) * worth[k, t, m] > price
                chance = np.where(popular, p, q).mean()
                liked[t, m], shown[t, m] = chance, popular.mean()
                # A like is worth 1 and leads to m + 1; anything else leads to m - 1.
                now[m] = chance * (1 + up) + (1 - chance) * down
                now[m] += price * (market.share - shown[t, m])
            ahead = now
        # Forwards in time: where users of this type are under that policy, for its share and its
        # likes.
        there = np.zeros(most + 1)
        there[start_of(np.array(most))] = 1
        for t in range(market.steps):
            totals += chances[k] * np.array([there @ liked[t], there @ shown[t], there[1:].sum()])
            there = _moved(there, liked[t])
    likes, popular_showings, showings = totals.tolist()
    return likes, popular_showings, showings, worth


def _moved(there: Floats, liked: Floats) -> Floats:
    """How many users have each patience after a step, without those who left."""
    after = np.zeros_like(there)
    for m in range(1, len(there)):
        after[min(len(there) - 1, m + 1)] += there[m] * liked[m]
        after[m - 1] += there[m] * (1 - liked[m])
    after[0] = 0.0
    return after


@dataclass(frozen=True)
class Moment:
    """One step, as a policy sees it: rows of users who are there."""

    step: int
    rows: Ints
    kind: Ints
    p: Floats
    q: Floats
    patience: Ints  # only for policies that may see it
    most: Ints


Values = Callable[[Moment], Floats]  # (rows,) of a popular item in place of the other
Answers = Callable[[Moment, NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]], object]


def play(
    market: TabularMarket, values: Values, seed: int, tell: Answers = lambda *_: None
) -> tuple[float, float]:
    """Likes per user, and the share of users still there at the end.

    Of those who are there, the share with the highest values gets the popular item. `tell` gets
    who was shown it, who liked what they were shown, and who is still there after it.
    """
    generator = np.random.default_rng(seed)
    liking = market.likings(generator, market.users)
    kind = market.types_of(liking)
    most = generator.choice(np.array(market.most), market.users)
    patience, here, likes = start_of(most), np.ones(market.users, dtype=np.bool_), 0
    for t in range(market.steps):
        p, q = market.offers(liking, generator)
        luck, rows = generator.random(market.users), np.flatnonzero(here)
        moment = Moment(t, rows, kind[rows], p[rows], q[rows], patience[rows], most[rows])
        popular = np.zeros(len(rows), dtype=np.bool_)
        # The limit holds in every step: exactly this share of those who are there.
        popular[np.argsort(-values(moment), kind="stable")[: int(market.share * len(rows))]] = True
        liked = luck[rows] < np.where(popular, moment.p, moment.q)
        patience[rows] = np.minimum(most[rows], patience[rows] + np.where(liked, 1, -1))
        here[rows[patience[rows] <= 0]] = False
        likes += int(liked.sum())
        tell(moment, popular, liked, here[rows].copy())
    return likes / market.users, float(here.mean())


def myopic(moment: Moment) -> Floats:
    """The exact allocation without a horizon."""
    return moment.p - moment.q


def seeing_patience(market: TabularMarket) -> Values:
    """The optimum."""
    worth = market.solution.worth

    def values(moment: Moment) -> Floats:
        found = np.ones(len(moment.rows))
        for most, table in worth.items():
            own = moment.most == most
            found[own] = table[moment.kind[own], moment.step, moment.patience[own]]
        return (moment.p - moment.q) * found

    return values


class SeeingAnswers:
    """The same for one who sees answers only, and averages over the M that they leave possible.

    With a single M the answers tell the patience, and this is the optimum.
    """

    def __init__(self, market: TabularMarket) -> None:
        self.market = market
        mosts = np.array(market.most)
        self.patience = np.tile(start_of(mosts), (market.users, 1))  # (users, values of M)
        self.possible = np.ones(self.patience.shape, dtype=np.bool_)

    def values(self, moment: Moment) -> Floats:
        possible = self.possible[moment.rows]
        worth = np.zeros(possible.shape)
        for n, most in enumerate(self.market.most):
            at = self.patience[moment.rows, n].clip(0, most)
            worth[:, n] = self.market.solution.worth[most][moment.kind, moment.step, at]
        mean: Floats = (worth * possible).sum(1) / possible.sum(1)
        return (moment.p - moment.q) * mean

    def tell(
        self,
        moment: Moment,
        popular: NDArray[np.bool_],  # noqa: ARG002
        liked: NDArray[np.bool_],
        stays: NDArray[np.bool_],
    ) -> None:
        change = np.where(liked, 1, -1)[:, None]
        now = np.minimum(np.array(self.market.most), self.patience[moment.rows] + change)
        self.patience[moment.rows] = now
        # A value of M is possible as long as it predicts who left and who stayed; the true one
        # always does.
        still = (now > 0) == stays[:, None]
        self.possible[moment.rows] &= still | ~still.any(1, keepdims=True)
