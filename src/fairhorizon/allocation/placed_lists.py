"""Lists under a rule that counts by place, or in every list: which places go to the group."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fairhorizon.allocation.group_budget import Spent, known
from fairhorizon.allocation.merges import Counts, Flags, Floats, Merged, Merges
from fairhorizon.allocation.place_budget import within_budget
from fairhorizon.exposure.place_rule import PlaceRule
from fairhorizon.vocabulary import Scope


@dataclass(frozen=True)
class Places:
    """The places that are to be filled, what they are worth, and what the rule says of them.

    rule: a limit, no floor (`PlaceRule.mirrored`).  length: of whole lists
    weights: (L,) of the value at the places to be filled
    begun: (b, t) bool, the t places before these: an item of the group is there already
    """

    rule: PlaceRule
    length: int
    weights: Floats
    begun: Flags

    def of(self, rows: slice) -> "Places":
        return replace(self, begun=self.begun[rows])

    @property
    def counted(self) -> Floats:
        """(L,) what a showing at each place counts."""
        start = self.begun.shape[1]
        return self.rule.place_weights(self.length)[start : start + len(self.weights)]

    @property
    def caps(self) -> Counts:
        """(L + 1, b) or (L + 1, 1): how many more of the group the first k places may have."""
        width, start = len(self.weights), self.begun.shape[1]
        if self.rule.scope == Scope.ALL:
            return np.arange(width + 1)[:, None]
        most = self.rule.most(self.length)[start : start + width + 1, None]
        return most if start == 0 else np.maximum(0, most - self.begun.sum(1))


@dataclass(frozen=True)
class Placed:
    """Which places of each list hold the group, and which are filled."""

    of_group: Tensor  # (b, L) bool
    filled: Tensor  # (b, L) bool: the first ones of each list

    @classmethod
    def of(cls, of_group: Flags, sizes: Counts, device: torch.device) -> "Placed":
        """Lists of these lengths (b,), with these places (b, L) for the group."""
        filled = np.arange(of_group.shape[1]) < sizes[:, None]
        return cls(
            torch.from_numpy(of_group.copy()).to(device), torch.from_numpy(filled).to(device)
        )

    def pick(self, table: Tensor) -> Tensor:
        """(b, L) of a table (2, b, n): the next of the group or of the rest at every place."""
        number = self.of_group.long().cumsum(1)
        places = torch.arange(self.of_group.shape[1], device=table.device)
        group = table[0].gather(1, (number - 1).clamp(min=0))
        rest = table[1].gather(1, (places - number).clamp(min=0))
        return torch.where(self.of_group, group, rest).masked_fill(~self.filled, -1)


def merges_of(values: Tensor, places: Places) -> Merges:
    """All lists of the best values (2, b, L) of the group and of the rest, best first."""
    sizes = known(values).sum((0, 2)).clamp(max=values.shape[2])
    group, rest = (side.double().cpu().numpy().T.copy() for side in values)
    share, counted = places.rule.share, places.counted
    return Merges(
        group=group,
        rest=rest,
        weights=places.weights,
        use=np.stack([counted * (1 - share), -share * counted]),
        caps=places.caps,
        sizes=sizes.cpu().numpy(),
    )


def together(
    merges: Merges, share: float, spent: Spent, *, exact: bool = True
) -> tuple[Merged, float]:
    """The lists of the highest total value that keep a rule on all showings, and its price.

    spent: what was shown besides.  exact: as in `within_budget`.
    """
    return within_budget(merges, share * spent.shown - spent.of_group, exact=exact)


def each_by_itself(merges: Merges, largest: float) -> tuple[Merged, Floats]:
    """The longest lists within the caps, and of these the best; and (b,) what they lose.

    largest: no value at any place is above it.
    """
    shown = merges.best(0.0)
    unlimited = np.arange(len(merges.weights) + 1)[:, None]
    losses = replace(merges, caps=unlimited).best(0.0).values - shown.values
    (short,) = (shown.sizes < merges.sizes).nonzero()
    if len(short):
        bonus = 1 + 2 * largest * len(merges.weights)
        shown.put(short, replace(merges.of(short), may_end=True, bonus=bonus).best(0.0))
    return shown, losses
