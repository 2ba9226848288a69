"""Lists for all users at once, under a limit on the exposure of a group of items.

    maximise sum_u sum_k w_k v_u(item at place k)
    subject to   the rule on showings of the group,  Gini(showings of items) <= limit

A rule on all showings that count alike is kept by giving the places for the group to the users who
gain the most by them (group_budget.py). Rules that count by place, or in every list, also choose
which places these are (placed_lists.py). The Gini limit is kept by a price on crowded items
(gini_price.py). All users are one shard here; more of them make the same lists (sharded/joint.py).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.allocation.group_budget import Candidates, Spent
from fairhorizon.allocation.sharded.calls import ShardsHere
from fairhorizon.allocation.sharded.joint import NOTHING, JointOver
from fairhorizon.allocation.sharded.user_shard import UserShard
from fairhorizon.errors import ConfigError
from fairhorizon.exposure.place_rule import Floats, PlaceRule


@dataclass(frozen=True)
class JointLists:
    """What each user is shown, and the prices of the limits.

    Lists are ordered by value, best first; where the rule counts by place, within the group and
    within the rest.
    """

    lists: Tensor  # (b, length) int64, -1 at the end where nothing is left
    price: float  # of a showing of the group that counts 1, in value; 0 if the rule does not bind
    spread_price: float  # mu in standard deviations of value; 0 where no Gini limit binds


def joint_lists(
    candidates: Candidates,
    sensitive: Tensor,
    *,
    length: int,
    rule: PlaceRule,
    gini_limit: float | None = None,
    position_weights: Tensor | None = None,
    begun: Tensor | None = None,
    settled: Spent = NOTHING,
) -> JointLists:
    """The lists of the highest total value that keep the rule on the group.

    sensitive: (n_items,) bool, the group.  gini_limit: in 0..1, over the whole catalogue.
    position_weights: (length,), by default the discount of DCG, 1 / log2(1 + k)
    begun: (b, t) what the first t places of the lists hold already, -1 for nothing. `length` and
        `position_weights` are those of the places behind them; the rule holds for all places.
    settled: what was shown besides, weighed as the rule does; a rule on all showings counts it too.
    Lists are as long as candidates and rule allow: a user with too few items outside the group is
    the first to be shown some of it, and has a shorter list where that would break the rule.
    For a floor, group and rest change their parts. The price is then that of a showing outside the
    group. If the scope is every list, the price is the value that a list loses on average.
    """
    _check(candidates, sensitive, length, gini_limit)
    shard = UserShard([candidates], sensitive, begun)
    prices = JointOver(ShardsHere([shard]), sensitive).make(
        rule,
        length,
        gini_limit=gini_limit,
        position_weights=_weights(position_weights, length),
        settled=settled,
    )
    short = length - shard.lists.shape[1]
    lists = torch.nn.functional.pad(shard.lists, (0, short), value=-1)
    return JointLists(lists, prices.price, prices.spread_price)


def _weights(position_weights: Tensor | None, length: int) -> Floats | None:
    if position_weights is None:
        return None
    weights = position_weights.double()
    if weights.shape != (length,) or not weights.isfinite().all():
        raise ConfigError(f"position_weights must be {length} finite numbers, one for each place")
    if (weights < 0).any() or (weights.diff() > 0).any():
        raise ConfigError(
            "position_weights must not rise or be negative (lists show the best value first, so the"
            " first place is the most seen)"
        )
    given: Floats = weights.cpu().numpy()
    return given


def _check(
    candidates: Candidates, sensitive: Tensor, length: int, gini_limit: float | None
) -> None:
    if length < 1:
        raise ConfigError(f"length = {length} must be at least 1")
    if gini_limit is not None and not 0 <= gini_limit <= 1:
        raise ConfigError(
            f"gini_limit = {gini_limit} is not between 0 and 1 (give a fraction, not %)"
        )
    items, values = candidates.items, candidates.values
    if items.dim() != 2 or items.shape != values.shape:
        raise ValueError(f"items have shape {tuple(items.shape)}, values {tuple(values.shape)}")
    if items.numel() and not -1 <= int(items.min()) <= int(items.max()) < len(sensitive):
        raise ValueError(f"a candidate is neither -1 nor one of the {len(sensitive)} items")
