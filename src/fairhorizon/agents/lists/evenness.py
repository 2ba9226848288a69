"""How evenly lists spread exposure: like the most even of the accurate rankers behind them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from fairhorizon.allocation.group_budget import Candidates
from fairhorizon.allocation.joint_lists import joint_lists
from fairhorizon.exposure.place_rule import PlaceRule
from fairhorizon.metrics.fairness import gini
from fairhorizon.policy.menus import SignalMenus

ACCURATE = 0.9  # times the NDCG of the best ranker


@dataclass(frozen=True)
class Evenness:
    """A Gini index to aim at, between that of plain lists and that of single rankers."""

    share: float  # of the Gini index of the most even ranker
    rankers: tuple[int, ...] | None = None  # which to look at; None: all
    part: float = 1.0  # of the way from the Gini index of plain lists

    def aim(
        self, plain: Tensor, menus: SignalMenus, sensitive: Tensor, length: int, rule: PlaceRule
    ) -> float:
        """The Gini index for lists that would plainly be `plain`, under a rule on the group."""
        own = gini_of_lists(plain, len(sensitive))
        return self.between(own, self._least(menus, sensitive, length, rule))

    def between(self, own: float, least: float) -> float:
        """The same from the Gini index of plain lists and the smallest of a single ranker."""
        if self.rankers is not None:  # chosen as accurate, which the plain lists are too
            least = min(own, least)
        return own - self.part * max(0.0, own - self.share * least)

    def _least(self, menus: SignalMenus, sensitive: Tensor, length: int, rule: PlaceRule) -> float:
        """The smallest Gini index of the single rankers, each served under the same rule."""
        signals, least = menus.signals[..., :-1].cpu(), 1.0
        for number in self.numbers(signals.shape[2]):
            alone = Candidates(menus.items.cpu(), signals[..., number])
            lists = joint_lists(alone, sensitive, length=length, rule=rule).lists
            least = min(least, gini_of_lists(lists, len(sensitive)))
        return least

    def numbers(self, rankers: int) -> Sequence[int]:
        """Which of so many rankers to look at."""
        return range(rankers) if self.rankers is None else self.rankers


def accurate(ndcg: tuple[float, ...]) -> tuple[int, ...] | None:
    """The rankers that are nearly as accurate as the best; None where that is not known."""
    if not ndcg:
        return None
    return tuple(number for number, value in enumerate(ndcg) if value >= ACCURATE * max(ndcg))


def gini_of_lists(lists: Tensor, n_items: int) -> float:
    return gini(np.bincount(lists[lists >= 0].numpy(), minlength=n_items))
