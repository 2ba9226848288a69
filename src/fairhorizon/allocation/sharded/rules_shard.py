"""What a shard of users does for lists under several rules: the calls of the coordinator."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from fairhorizon.allocation.exact_sums import exact_sum, exact_sums
from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.allocation.several.best_lists import NEVER, BestLists, Lists, Offers
from fairhorizon.allocation.several.terms import Counts, Floats, Terms
from fairhorizon.errors import ModelError
from fairhorizon.metrics.accuracy import discount


@dataclass(frozen=True)
class Typical:
    """The best values of some users, as many of each as a list has places."""

    users: int
    columns: int  # of their candidates
    count: int
    total: int  # exact


@dataclass(frozen=True)
class Looked:
    """What lists at some prices come to in one shard, as exact sums."""

    merit: int
    use: list[int]  # (m,)


@dataclass(frozen=True)
class Alternatives:
    """Lists that users could be shown in place of others, those that lose the least first."""

    users: Counts  # among all users
    numbers: Counts  # which of the lists that were tried
    losses: Floats  # at the prices
    worth: Floats  # more than the list in place
    use: Floats  # (n, m)

    @classmethod
    def join(cls, parts: "Sequence[Alternatives]", most: int) -> "Alternatives":
        """The first of all: by loss, then in the order of lists and of users."""
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        every = cls(*(np.concatenate(column) for column in columns))
        return every.at(np.lexsort((every.users, every.numbers, every.losses))[:most])

    def at(self, rows: Counts) -> "Alternatives":
        return Alternatives(*(column[rows] for column in vars(self).values()))


class RulesShard:
    """Candidates of some users, and the best lists of these at any prices of the rules."""

    def __init__(self, candidates: Candidates, terms: Terms) -> None:
        self.items, self.values = candidates.items.cpu(), candidates.values.detach().float().cpu()
        self.terms = terms
        self.weights = discount(np.arange(1, terms.length + 1))
        self.at = np.full((len(self.items), terms.length), -1, dtype=np.int64)  # the lists

    def open(self) -> Typical:
        """Begin anew; what values of lists are like."""
        items, values = self.items, self.values
        if not (values.isfinite() | values.isneginf() | (items < 0)).all():
            raise ModelError(
                "the value of a candidate is not a number: the model that scores has diverged"
                " (train it anew)"
            )
        self.there = (items >= 0) & (values > -torch.inf)
        best = values.where(self.there, 0.0).topk(min(self.terms.length, values.shape[1])).values
        users, columns = items.shape
        return Typical(users, columns, best.numel(), exact_sum(best.double().numpy()))

    def scale(self, unit: float) -> float:
        """Values are in units from now on; the largest of them."""
        table = (self.values / unit).where(self.there, NEVER).numpy()
        same = len(self.items) > 0 and bool((self.items == self.items[:1]).all())
        codes = (self.items[:1] if same else self.items).clamp(min=0).numpy()
        self.offers = Offers(table, self.terms.of_item[codes])
        return self.offers.largest

    def begin(self, first: int, users: int, largest: float) -> int:
        """The number of the first user among all, and of all; how many places lists can fill."""
        self.first, self.tried = first, dict[int, Lists]()
        self.best = {1: BestLists(self.offers, self.terms, self.weights, largest, users)}
        filled = np.minimum((self.offers.values > NEVER).sum(1), self.terms.length)
        return int(filled.sum())

    def look(
        self, number: int, prices: Floats, reach: Floats, step: int, kept: Sequence[int]
    ) -> Looked:
        """The best lists of every `step`-th user at prices; of others, those kept are kept."""
        if step not in self.best:
            rows = np.arange(-self.first % step, len(self.items), step)
            self.best[step] = self.best[1].of(rows)
        lists, merit = self.best[step].at_prices(prices, reach)
        self.tried = {old: self.tried[old] for old in kept if old in self.tried} | {number: lists}
        return Looked(exact_sum(merit), exact_sums(lists.use))

    def planes(self, number: int, ends: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Exact sums of worth and use of the users up to each of the ends, from the one before."""
        own = [min(max(0, end - self.first), len(self.items)) for end in ends]
        lists, starts = self.tried[number], [0, *own[:-1]]
        return [
            (exact_sum(lists.worth[start:end]), exact_sums(lists.use[start:end]))
            for start, end in zip(starts, own, strict=True)
        ]

    def alternatives(
        self, numbers: Sequence[int], prices: Floats, most: int
    ) -> tuple[int, Alternatives]:
        """How many lists of these differ from the last of them, and those that lose the least."""
        *others, base = (self.tried[number] for number in numbers)
        merit = base.worth - (base.use * prices).sum(1)
        found: list[tuple[int, int]] = []  # users and which of the others
        seen: set[tuple[int, bytes]] = set()
        for place, other in enumerate(others):
            for user in (other.at != base.at).any(1).nonzero()[0].tolist():
                key = (user, other.at[user].tobytes())
                if key not in seen:
                    seen.add(key)
                    found.append((user, place))
        users, places = np.array(found, dtype=np.int64).reshape(-1, 2).T
        worth, use = np.empty(len(found)), np.empty((len(found), len(prices)))
        for place in np.unique(places):
            some = places == place
            worth[some] = others[place].worth[users[some]]
            use[some] = others[place].use[users[some]]
        losses = merit[users] - worth + (use * prices).sum(1)
        worth, use = worth - base.worth[users], use - base.use[users]
        every = Alternatives(users + self.first, places, losses, worth, use)
        return len(found), Alternatives.join([every], most)

    def exchange(self, numbers: Sequence[int], users: Counts, places: Counts) -> list[int]:
        """The last of the lists, some users with another one; the exact sums of their use."""
        own = (users >= self.first) & (users < self.first + len(self.items))
        self.at = self.tried[numbers[-1]].at.copy()
        for user, place in zip(users[own] - self.first, places[own], strict=True):
            self.at[user] = self.tried[numbers[place]].at[user]
        return exact_sums(self.best[1].lists(self.at).use)

    def offered(self) -> Offers:
        """All there is: of few users."""
        return Offers(self.offers.values, np.broadcast_to(self.offers.classes, self.values.shape))

    def settle(self, at: Counts) -> None:
        """Lists that were found elsewhere, for all users."""
        self.at = at[self.first : self.first + len(self.items)]

    def measure(self) -> tuple[int, list[int], int]:
        """Of the lists: exact sums of worth and use, and how many places are filled."""
        made = self.best[1].lists(self.at)
        return exact_sum(made.worth), exact_sums(made.use), int((self.at >= 0).sum())

    @property
    def lists(self) -> torch.Tensor:
        """(b, L) the items of the lists, -1 for none."""
        at = torch.from_numpy(self.at)
        return self.items.gather(1, at.clamp(min=0)).masked_fill(at < 0, -1)
