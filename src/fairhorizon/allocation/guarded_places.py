"""Lists of single requests under a rule that counts by place, or in every list."""

from dataclasses import dataclass, replace

import numpy as np

from fairhorizon.allocation.contenders import Contenders
from fairhorizon.allocation.merges import Counts, Flags, Merges
from fairhorizon.allocation.place_budget import largest_value, within_budget
from fairhorizon.allocation.placed_lists import each_by_itself
from fairhorizon.exposure.place_rule import PlaceRule
from fairhorizon.metrics.accuracy import discount
from fairhorizon.metrics.shares import ROUNDING

EXACT = 10  # places of a list; the best of longer ones within a budget would take some 20 ms


@dataclass(frozen=True)
class Decision:
    """The list of one request."""

    of_group: Flags  # (length,) which places the group has
    size: int
    shown: float  # what all its showings count
    limited: float  # and those of the group
    excess: (
        float  # over the share, of the list before the cap, as a part of what a full list counts
    )


class PlacesOfRequests:
    """Values count by the discount of DCG, w_k = 1 / log2(1 + k), and showings by the rule.

    rule: a limit, no floor.
    """

    def __init__(self, rule: PlaceRule, contenders: Contenders, length: int) -> None:
        self.counted = rule.place_weights(length)
        self.rule, self.counts = rule, contenders.counts
        others, members = contenders.values.transpose(1, 2, 0)  # (2, length, b)
        self.merges = Merges(
            group=members,
            rest=others,
            weights=discount(np.arange(1, length + 1)),
            use=np.stack([(1 - rule.share) * self.counted, -rule.share * self.counted]),
            caps=rule.most(length)[:, None],
            sizes=np.array(self.counts, dtype=np.int64).reshape(-1, 2).sum(1).clip(max=length),
        )

    def each_by_itself(self) -> tuple[Flags, Counts]:
        """(b, length) the places of the group, and the sizes of the lists."""
        shown, _ = each_by_itself(self.merges, largest_value(self.merges))
        return shown.of_group.T, shown.sizes

    def best(self, row: int, budget: float, price: float) -> Decision:
        """The best list at the price, or if it uses more than the budget the best within it.

        `budget` is how far the limited showings are below the share. The list is the longest that
        keeps it. Where none does, it is the list that uses the least. The best within the budget is
        exact for short lists; of a longer one, part of the budget may be left for later requests.
        """
        one = self.merges.of(np.array([row]))
        size, budget = self._longest(row, budget)
        if size < one.sizes[0]:
            one = replace(one, sizes=np.array([size]))
        wanted = one.best(price)
        shown = wanted
        if wanted.use[0] > budget + ROUNDING:
            shown, _ = within_budget(one, budget, exact=len(self.counted) <= EXACT)
        of_group = shown.of_group[:, 0]
        excess = float(wanted.use[0] / self.counted.sum())
        limited = float(self.counted[of_group].sum())
        return Decision(of_group, size, float(self.counted[:size].sum()), limited, excess)

    def _longest(self, row: int, budget: float) -> tuple[int, float]:
        """The size of the longest list within the budget, and the budget that it has to keep."""
        others = self.counts[row][0]
        least = []  # that a list of 0, 1, ... items uses
        for size in range(int(self.merges.sizes[row]) + 1):
            counted = self.counted[:size]
            forced = np.sort(counted)[: max(0, size - others)]  # the cheapest places
            least.append(float(forced.sum() - self.rule.share * counted.sum()))
        budget = max(budget, min(least))
        return max(n for n, use in enumerate(least) if use <= budget + ROUNDING), budget
