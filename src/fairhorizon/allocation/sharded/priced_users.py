"""All users under several rules, as sums over the shards that have them (`RulesShard`)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairhorizon.allocation.exact_sums import rounded
from fairhorizon.allocation.several.best_lists import BestLists, Offers
from fairhorizon.allocation.several.terms import Counts, Floats, Terms
from fairhorizon.allocation.sharded.calls import UserShards
from fairhorizon.allocation.sharded.rules_shard import Alternatives, Looked, Typical
from fairhorizon.metrics.accuracy import discount


@dataclass(frozen=True)
class Tried:
    """The best lists at some prices, which the shards have, and what they come to."""

    number: int
    merit: float  # sum of w v, the bonus of filled places, less charges
    use: Floats  # (m,) of each rule


class PricedUsers:
    """Makes the best lists at any prices.

    unit: of values, a typical one in a list.  largest: absolute value, in units.
    bonus: of a filled place.  filled: places that lists can fill.
    """

    def __init__(self, shards: UserShards, terms: Terms) -> None:
        self.shards, self.terms = shards, terms
        self.weights = discount(np.arange(1, terms.length + 1))
        typical: list[Typical] = shards.ask("open")
        self.users = [one.users for one in typical]
        self.columns = max(one.columns for one in typical)
        count, total = (sum(getattr(one, name) for one in typical) for name in ("count", "total"))
        self.unit = (rounded(total, count) if count else 0.0) or 1.0
        self.largest = max(shards.ask("scale", self.unit))
        before = np.cumsum([0, *self.users[:-1]]).tolist()
        own = [(first, self.n_users, self.largest) for first in before]
        self.filled = sum(shards.tell("begin", own))
        self.bonus = 1 + 4 * self.largest * float(self.weights.sum())
        self.looks = 0

    @property
    def n_users(self) -> int:
        return sum(self.users)

    def at_prices(
        self, prices: Floats, reach: Floats, kept: Sequence[Tried], *, step: int = 1
    ) -> Tried:
        """The best lists at the prices (m,) of the rules, as of `BestLists`.

        kept: lists that are needed later, too.  step: of every such user only.
        """
        self.looks += 1
        numbers = tuple(one.number for one in kept)
        parts: list[Looked] = self.shards.ask("look", self.looks, prices, reach, step, numbers)
        use = [rounded(sum(units)) for units in zip(*(part.use for part in parts), strict=True)]
        return Tried(self.looks, rounded(sum(part.merit for part in parts)), np.array(use))

    def planes(self, tried: Tried, ends: Sequence[int]) -> tuple[Floats, Floats]:
        """(p,) the worth and (p, m) the use of the users up to each end, from the one before."""
        parts = zip(*self.shards.ask("planes", tried.number, tuple(ends)), strict=True)
        sums = [
            (
                rounded(sum(worth for worth, _ in part)),
                [rounded(sum(units)) for units in zip(*(use for _, use in part), strict=True)],
            )
            for part in parts
        ]
        return np.array([worth for worth, _ in sums]), np.array([use for _, use in sums])

    def alternatives(
        self, tried: Sequence[Tried], prices: Floats, most: int
    ) -> tuple[int, Alternatives]:
        """How many lists differ from the last ones, and those of the users that lose the least."""
        numbers = tuple(one.number for one in tried)
        counts, parts = zip(*self.shards.ask("alternatives", numbers, prices, most), strict=True)
        return sum(counts), Alternatives.join(parts, most)

    def exchange(self, tried: Sequence[Tried], chosen: Alternatives | None = None) -> Floats:
        """Settle on the last lists, with the chosen alternatives; (m,) their use."""
        nobody = np.zeros(0, dtype=np.int64)
        users, places = (nobody, nobody) if chosen is None else (chosen.users, chosen.numbers)
        numbers = tuple(one.number for one in tried)
        parts = self.shards.ask("exchange", numbers, users, places)
        return np.array([rounded(sum(units)) for units in zip(*parts, strict=True)])

    def gathered(self) -> BestLists:
        """All users in one place: of few, for programs over all of their lists."""
        parts: list[Offers] = self.shards.ask("offered")
        values, classes = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("values", "classes")
        )
        return BestLists(Offers(values, classes), self.terms, self.weights)

    def settle(self, at: Counts) -> None:
        """Settle on lists (b, L) that were found in one place."""
        self.shards.ask("settle", at)

    def measured(self) -> tuple[float, Floats, int]:
        """The worth of the lists settled on, their use, and how many places are filled."""
        worth, use, filled = zip(*self.shards.ask("measure"), strict=True)
        used = np.array([rounded(sum(units)) for units in zip(*use, strict=True)])
        return rounded(sum(worth)), used, sum(filled)
