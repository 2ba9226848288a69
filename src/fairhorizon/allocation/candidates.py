"""The items that users may be shown, with what showing each is worth, and the best among them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fairhorizon.allocation.limit_matrix import Counts, Flags, Floats, LimitMatrix
from fairhorizon.errors import ModelError

# The value of an item that may not be shown. Finite, so that sums with it stay numbers.
NEVER = -1e30

Values = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Candidates:
    """The items that each user may be shown.

    items: (b, n) item codes, different within a row, or (1, n) where they are the same for all.
    values: (b, n) of showing the item to its user; NEVER where it may not be shown.
    """

    items: Counts
    values: Values

    @classmethod
    def checked(cls, items: Counts, values: Values) -> "Candidates":
        """From items that are -1, or values that are -inf, where there is nothing to show."""
        there = np.broadcast_to(items >= 0, values.shape)
        if np.isnan(values[there]).any() or np.isposinf(values[there]).any():
            raise not_finite()
        shown = there & (values > NEVER)
        if not shown.all():
            values = np.where(shown, values, values.dtype.type(NEVER))
        return cls(np.maximum(items, 0), values)

    @property
    def n_users(self) -> int:
        return len(self.values)

    @property
    def there(self) -> Flags:
        """(b, n) whether a candidate may be shown."""
        shown: Flags = self.values > NEVER
        return shown

    @property
    def codes(self) -> Counts:
        """(b, n) the items, -1 where there is none."""
        return np.where(self.there, self.items, -1)

    @property
    def same_items(self) -> bool:
        """Whether all users have the same candidates."""
        return len(self.items) == 1

    def take_users(self, rows: Counts | slice) -> "Candidates":
        return Candidates(self.items if self.same_items else self.items[rows], self.values[rows])

    def take(self, columns: Counts) -> "Candidates":
        """Those in the columns (b, n') of each user, -1 for none."""
        at = columns.clip(0)
        values = np.take_along_axis(self.values, at, axis=1).astype(np.float64)
        items = self.items[0][at] if self.same_items else np.take_along_axis(self.items, at, 1)
        return Candidates(items, np.where(columns < 0, NEVER, values))

    def lists(self, columns: Counts) -> Counts:
        """(b, L) the items in some columns, -1 for none."""
        at = columns.clip(0)
        items = self.items[0][at] if self.same_items else np.take_along_axis(self.items, at, 1)
        return np.where(columns < 0, -1, items)

    @property
    def largest(self) -> float:
        """The largest absolute value."""
        known = self.values[self.values > NEVER]
        return float(np.abs(known).max()) if len(known) else 0.0


def not_finite() -> ModelError:
    """What is wrong where a value is no number."""
    return ModelError(
        "the value of a candidate is not a finite number: the model that scores has diverged"
        " (train it again)"
    )


def best_columns(values: Values, most: int) -> Counts:
    """(b, most) the columns of the highest values of each row, best first; of equals the first."""
    n = values.shape[1]
    if most >= n:
        return np.argsort(-values, axis=1, kind="stable")
    if most < 1:
        return np.zeros((len(values), 0), dtype=np.int64)
    # Of wide tables, torch finds the highest in a third of the time of a partition by numpy.
    table = torch.from_numpy(values if values.flags.writeable else values.copy())
    some = np.sort(table.topk(most, dim=1, sorted=False).indices.numpy(), axis=1)
    own = np.take_along_axis(values, some, axis=1)
    least = own.min(1, keepdims=True)
    # Ties with the last one are cut anywhere: of such rows, the first columns are taken.
    crowded = ((values >= least).sum(1) > most) & (least[:, 0] > NEVER)
    for row in crowded.nonzero()[0]:
        some[row] = np.sort(np.argsort(-values[row], kind="stable")[:most])
        own[row] = values[row, some[row]]
    order = np.argsort(-own, axis=1, kind="stable")
    return np.take_along_axis(some, order, axis=1)


def highest(values: Values, most: int) -> Counts:
    """The places of the highest of (n,) values, best first; of equals the first."""
    falling = -values
    if len(values) <= most:
        return falling.argsort(kind="stable")
    # With those that tie with the last one.
    (some,) = (falling <= np.partition(falling, most - 1)[most - 1]).nonzero()
    best: Counts = some[falling[some].argsort(kind="stable")[:most]]
    return best


@dataclass(frozen=True, eq=False)
class Offer:
    """What one user may be shown; here an item is worth what it is ordered by.

    order: (n,) rises with the value of showing an item; NEVER where it may not be shown.
    codes: (n,) the items; None: all items, in order.
    """

    order: Values
    codes: Counts | None = None

    def values(self, columns: Counts) -> Floats:
        """Of showing the candidates in some columns, none of them NEVER."""
        return self.order[columns].astype(np.float64)

    def items(self, columns: Counts) -> Counts:
        return columns if self.codes is None else self.codes[columns]

    def kinds(self, limits: LimitMatrix) -> Counts:
        """(n,) the class of each candidate."""
        return limits.of_item if self.codes is None else limits.of_item[self.codes]

    def table(self) -> Candidates:
        """With all values, for limits that need them."""
        codes = np.arange(len(self.order)) if self.codes is None else self.codes
        values = np.full(len(codes), NEVER)
        (there,) = (self.order > NEVER).nonzero()
        values[there] = self.values(there)
        return Candidates.checked(codes[None], values[None])


FIRST_LOOK = 8  # times the length of a list: of so many, most classes have as many as they need
FEW = 300  # candidates, which are sorted faster than parted
FEW_CLASSES = 32  # of which each can be looked through


def best_of_each_class(order: Values, kinds: Counts, limits: LimitMatrix) -> Counts:
    """The columns of the best `length` candidates of every class, best first, of one user.

    order: (n,) rises with value; NEVER for what may not be shown.  kinds: (n,) classes.
    No list needs any other candidate, whatever the prices are.
    """
    length, n_classes = limits.length, limits.n_classes
    looked = max(FEW, FIRST_LOOK * length)
    (some,) = _not_below(order, looked).nonzero()
    if len(order) > looked:
        missing = (np.bincount(kinds[some], minlength=n_classes) < length).nonzero()[0]
        if len(missing) and n_classes > FEW_CLASSES:
            (some,) = (order > NEVER).nonzero()
        elif len(missing):
            parts = [some[~np.isin(kinds[some], missing)]]
            for kind in missing:
                (own,) = (kinds == kind).nonzero()
                parts.append(own[_not_below(order[own], length)])
            some = np.concatenate(parts)
            some.sort()
    own, of = order[some], kinds[some]
    # Of equal values those in the fewest limited groups come first, then the first columns.
    ranked = np.lexsort((limits.n_caps[of], -own))
    of = of[ranked]
    if n_classes <= FEW_CLASSES:
        place = (of[:, None] == np.arange(n_classes)).cumsum(0)[np.arange(len(of)), of]
    else:
        by_class, counts = of.argsort(kind="stable"), np.bincount(of, minlength=n_classes)
        place = np.empty_like(of)
        place[by_class] = 1 + np.arange(len(of)) - np.repeat(counts.cumsum() - counts, counts)
    best: Counts = some[ranked[place <= length]]
    return best


def _not_below(order: Values, most: int) -> Flags:
    """(n,) which are among the highest, with all that tie with the last of them."""
    if len(order) > most:
        last = np.partition(order, len(order) - most)[len(order) - most]
        if last > NEVER:
            among: Flags = order >= last
            return among
    there: Flags = order > NEVER
    return there


def undominated(
    values: Values, kinds: Counts, least: Floats, most: Floats, weights: Floats
) -> Counts:
    """(b, n') the columns of candidates that may be in a best list, best value first; -1: none.

    kinds: (b, n) or (1, n) classes.  least, most: (C,) between which the charges of classes are.
    A candidate is in no best list if as many others as a list has places have a higher value v, and
    also a higher w_L v - charge, w_L being the weight of the last place: at any place, each of them
    would do better. Others are looked for among the best by either only, so some more may stay.
    """
    length, n = len(weights), values.shape[1]
    keep = values > NEVER
    if n > length:
        last = weights[-1]
        at_worst = last * values - most.astype(values.dtype)[kinds]
        at_best = last * values - least.astype(values.dtype)[kinds]
        for by, other, own_by, own in (
            (values, at_worst, values, at_best),
            (at_worst, values, at_best, values),
        ):
            deepest = min(4 * length, n)
            first = best_columns(by, deepest)
            ranked = np.take_along_axis(by, first, axis=1)
            others = np.take_along_axis(other, first, axis=1)
            for count in (length, 2 * length, 4 * length):
                if count > deepest:
                    break
                edge = ranked[:, count - 1, None]
                bar = np.partition(others[:, :count], count - length, axis=1)[:, count - length]
                keep &= (own_by >= edge) | (own >= bar[:, None])
    counts = keep.sum(1)
    columns = np.full((len(keep), max(1, int(counts.max(initial=1)))), -1, dtype=np.int64)
    rows, at = keep.nonzero()
    columns[rows, np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)] = at
    own_values = np.where(columns < 0, NEVER, np.take_along_axis(values, columns.clip(0), axis=1))
    order = np.argsort(-own_values, axis=1, kind="stable")
    return np.take_along_axis(columns, order, axis=1)
