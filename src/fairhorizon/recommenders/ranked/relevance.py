"""The relevance of items by the calibrated scores of a ranker, for online re-rankers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.data.splits import LATER
from fairhorizon.ranking import some_at_a_time, top
from fairhorizon.recommenders.lists.chances import item_values
from fairhorizon.recommenders.ranked.fitted import CANDIDATES, FittedRanker
from fairhorizon.rerank.online import GroupMenus

SCORES_AT_ONCE = 2**20  # of float32, 4 MiB


@dataclass(frozen=True)
class BestOfGroups:
    """Each user's best items of the limited group (first) and of the rest, best first."""

    columns: Tensor  # (2, b, n) item codes
    values: Tensor  # (2, b, n) scores; -inf where there is none


@dataclass(frozen=True)
class Relevance:
    """The value of showing an item, as joint allocation has it: in units of a user's NDCG.

    The chance that a user takes an item next is a softmax of the standardised scores, over the best
    items of each group.
    """

    sharpness: float
    histories: Tensor  # (n_users,) how many training items each user has
    length: int  # of the lists whose NDCG is meant

    @classmethod
    def of(cls, fitted: FittedRanker, length: int) -> "Relevance":
        return cls(fitted.calibration.sharpness, fitted.calibration.histories, length)

    def menus(self, scores: Tensor, users: Tensor, sensitive: Tensor, most: int) -> GroupMenus:
        """From standardised scores (b, n_items), -inf where an item may not be shown."""
        count = max(most, CANDIDATES)
        sides = best_of_groups(scores, sensitive, count)
        menus = self.on_sides(sides, users, self.totals(sides))
        return GroupMenus(*(tensor[:, :, :most] for tensor in vars(menus).values()))

    def totals(self, sides: BestOfGroups) -> Tensor:
        """(b,) log of the sum in the softmax over the best items of both groups."""
        return (self.sharpness * sides.values.double()).logsumexp(2).logsumexp(0)

    def on_sides(self, sides: BestOfGroups, users: Tensor, totals: Tensor) -> GroupMenus:
        """Menus of the items of the sides, with the totals of an earlier time."""
        scores = sides.values
        there = scores > -torch.inf
        chances = (self.sharpness * scores.double() - totals[None, :, None]).exp()
        chances = chances.where(there, 0.0)
        likes = (self.histories[users].double() / (LATER - 1)).clamp(min=1.0)
        values = torch.stack([item_values(side, likes, self.length) for side in chances])
        items = sides.columns.masked_fill(~there, -1)
        return GroupMenus(items, scores, values.masked_fill(~there, -torch.inf))


def best_of_groups(scores: Tensor, sensitive: Tensor, most: int) -> BestOfGroups:
    """The best items of each group, padded to `most`."""
    chunks = some_at_a_time(scores, cells=SCORES_AT_ONCE)
    columns, values = [], []
    for (some,) in chunks:
        both = [top(some.masked_fill(out, -torch.inf), most) for out in (~sensitive, sensitive)]
        values.append(torch.stack([found for found, _ in both]))
        columns.append(torch.stack([at for _, at in both]))
    missing = (0, most - values[0].shape[2])
    pad = torch.nn.functional.pad
    return BestOfGroups(
        pad(torch.cat(columns, dim=1), missing),
        pad(torch.cat(values, dim=1), missing, value=-torch.inf),
    )


def scale_of(menus: GroupMenus) -> float:
    """The relevance of the best item of the average user; 1 where nobody can be shown anything."""
    best = menus.relevances[:, :, 0].amax(0)
    there = best[best > 0]
    return float(there.mean()) if len(there) else 1.0


def scaled(menus: GroupMenus, scale: float) -> GroupMenus:
    return GroupMenus(menus.items, menus.scores, menus.relevances / scale)
