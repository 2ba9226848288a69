"""How many places of each user's list go to a group of items, under a limit on the total.

v: value of showing an item to a user;  w: weights of the places, which never rise
c: how many items of the group a user is shown;  f_u(c): the best total of u's list at that c

The best list with c items of the group has the best c of them and the best of the rest, ordered by
v. f_u is concave: f_u(c) = sum_j (w_j - w_(j+1)) T_j(c), where T_j(c), the sum of the j best
values in the list, is the maximum of a concave function over an interval that slides with c. So
it is exact to give the places for the group to the highest gains f_u(c) - f_u(c - 1) of all users
until the budget is spent; of equal gains, the first. The price is the first gain that is refused
(sharded/bids.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fairhorizon.allocation.exchange import exchange_gains
from fairhorizon.errors import ModelError
from fairhorizon.metrics.shares import whole_showings
from fairhorizon.ranking import best_first, some_at_a_time, top


@dataclass(frozen=True)
class Candidates:
    """The items that each user may be shown."""

    items: Tensor  # (b, C) int64 item codes, distinct within a row, -1 where there is none
    values: Tensor  # (b, C) float32: of showing the item to its user; ignored at -1


@dataclass(frozen=True)
class Spent:
    """Showings that are already fixed, weighed by place where the limit weighs them."""

    shown: float
    of_group: float


@dataclass(frozen=True)
class Sides:
    """Each user's best candidates of the group (first) and of the rest, best first."""

    columns: Tensor  # (2, b, n) where they stand among the candidates
    values: Tensor  # (2, b, n); -inf where there is none

    @classmethod
    def of(cls, values: Tensor, in_group: Tensor, most: int) -> "Sides":
        """From values (b, C), which are -inf where there is no candidate."""
        both = [top(values.masked_fill(out, -torch.inf), most) for out in (~in_group, in_group)]
        best, columns = zip(*both, strict=True)
        return cls(torch.stack(columns), torch.stack(best))

    @classmethod
    def join(cls, parts: "list[Sides]") -> "Sides":
        return cls(
            torch.cat([part.columns for part in parts], dim=1),
            torch.cat([part.values for part in parts], dim=1),
        )

    @cached_property
    def n(self) -> Tensor:
        """(2, b) how many there are."""
        return known(self.values).sum(2)

    @cached_property
    def sizes(self) -> Tensor:
        """(b,) the lengths of lists of at most n items without a limit."""
        return self.n.sum(0).clamp(max=self.values.shape[2])

    @cached_property
    def forced(self) -> Tensor:
        """(b, n) bool: places for the group without which a list would be shorter."""
        return places_of(self.values) < (self.sizes - self.n[1])[:, None]

    def pick(self, table: Tensor, of_group: Tensor) -> Tensor:
        """(b, 2 n) of a table (2, b, n): the best (b,) so many of the group, the rest; else -1."""
        of_rest = self.n[1].minimum(self.sizes - of_group)
        beyond = places_of(table) >= torch.stack([of_group, of_rest])[..., None]
        return torch.cat(tuple(table.masked_fill(beyond, -1)), dim=1)


def offers(candidates: Candidates, sensitive: Tensor, weights: Tensor) -> tuple[Sides, Tensor]:
    """Each user's best of both sides and the gains of places, some users at a time."""
    sides, gains = [], []
    for part in best_sides(candidates, sensitive, len(weights)):
        sides.append(part)
        gains.append(gains_of(part, weights))
    return Sides.join(sides), torch.cat(gains)


def best_sides(candidates: Candidates, sensitive: Tensor, most: int) -> Iterator[Sides]:
    """The best of both sides, some users at a time."""
    for items, values in some_at_a_time(candidates.items, candidates.values):
        if not (values.isfinite() | (items < 0)).all():
            raise ModelError(
                "the value of a candidate is not a finite number: the model that scores has"
                " diverged (train it anew; what may not be shown is marked by the item -1)"
            )
        known_values = values.detach().masked_fill(items < 0, -torch.inf)
        yield Sides.of(known_values, sensitive[items], most)


def gains_of(sides: Sides, weights: Tensor) -> Tensor:
    """(b, L) f_u(c) - f_u(c - 1) for c = 1, ..., L; -inf where there is no such list."""
    group, rest = sides.values.double()
    before_group = (rest[:, None, :] >= group[:, :, None]).sum(2)  # (b, L) of the rest
    before_rest = (group[:, None, :] > rest[:, :, None]).sum(2)
    group, rest = (side.where(known(side), 0.0) for side in (group, rest))
    places, last = places_of(group), len(weights) - 1
    totals = []
    for c in range(len(weights) + 1):
        of_rest = sides.n[1].minimum(sides.sizes - c).clamp(min=0)[:, None]
        at = places[:c] + before_group[:, :c].minimum(of_rest)
        total = (weights[at] * group[:, :c]).sum(1)
        at = (places + before_rest.clamp(max=c)).clamp(max=last)
        totals.append(total + (weights[at] * rest).where(places < of_rest, 0.0).sum(1))
    gains = torch.stack(totals, dim=1).diff(dim=1)
    # They fall, but for rounding and but for items of negative value in lists that the limit cuts
    # short; and the c-th place can only come after those before it.
    forced = sides.forced
    falling = gains.masked_fill(forced, torch.inf).cummin(1).values
    falling = gains.cummin(1).values.where(forced, falling)
    return falling.masked_fill(places >= sides.n[0][:, None], -torch.inf)


def plain_gains(sides: Sides) -> Tensor:
    """The same if all places weigh 1: an item of the group replaces the last other."""
    values: Tensor = sides.values.double()
    group, rest = values.cpu().numpy()
    gains = torch.from_numpy(exchange_gains(group, rest, sides.sizes.cpu().numpy()))
    return values[0].where(sides.forced, gains.to(values.device))


@dataclass(frozen=True)
class Budget:
    """How many places the bids for the group can have.

    of_forced: even the places that fill the lists are too many, and they alone bid.
    """

    places: int
    of_forced: bool

    @classmethod
    def of(cls, share: float, others: Spent, *, shown: int, forced: int) -> "Budget":
        """Of lists with so many showings, if so many of them have to be of the group.

        The limit is one on these users and the others together.
        """
        free = whole_showings(share * (others.shown + shown)) - int(others.of_group) - forced
        if free >= 0:
            return cls(free, of_forced=False)
        return cls(_most_forced(share, others, shown - forced, forced), of_forced=True)


def _most_forced(share: float, others: Spent, of_rest: int, needed: int) -> int:
    """The most places for the group within the limit where each makes a list longer; < needed."""
    fits, too_many = 0, needed
    while too_many - fits > 1:
        middle = (fits + too_many) // 2
        within = others.of_group + middle <= whole_showings(
            share * (others.shown + of_rest + middle)
        )
        fits, too_many = (middle, too_many) if within else (fits, middle)
    return fits


def best_value_first(candidates: Candidates, columns: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """(b, length) values and items of the candidates in these columns; -inf and -1 for none."""
    none, columns = columns < 0, columns.clamp(min=0)
    values = candidates.values.detach().gather(1, columns).masked_fill(none, -torch.inf)
    items = candidates.items.gather(1, columns).masked_fill(none, -1)
    values, items = best_first(values, items)
    return values[:, :length], items[:, :length]


def known(values: Tensor) -> Tensor:
    return values > -torch.inf


def places_of(values: Tensor) -> Tensor:
    return torch.arange(values.shape[-1], device=values.device)
