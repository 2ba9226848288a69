"""Lists for all users at once, under a limit on the exposure of a group of items.

    maximise sum_u sum_k w_k v_u(item at place k)
    subject to   showings of the group <= share * all showings,  Gini(showings of items) <= limit

The first limit is kept exactly, by giving the places for the group to the users who gain the most
by them (group_budget.py); the second by a price on crowded items (gini_price.py).
"""

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from fairhorizon.allocation.gini_price import Spreading, gini_of, showings
from fairhorizon.allocation.group_budget import Candidates, Spent, allot, best_value_first, offers
from fairhorizon.errors import ConfigError
from fairhorizon.ranking import discount

NOTHING = Spent(0, 0)


@dataclass(frozen=True)
class JointLists:
    """What each user is shown, and the prices of the limits."""

    lists: Tensor  # (b, length) int64, best value first, -1 at the end where nothing is left
    price: float  # of one place for the group, in value; 0 where the limit does not bind
    spread_price: float  # mu in standard deviations of value; 0 where no Gini limit binds


def joint_lists(
    candidates: Candidates,
    sensitive: Tensor,
    *,
    length: int,
    share: float,
    gini_limit: float | None = None,
    position_weights: Tensor | None = None,
    settled: Spent = NOTHING,
) -> JointLists:
    """The lists of the highest total value in which the group has at most `share` of the showings.

    sensitive: (n_items,) bool, the group.  gini_limit: in 0..1, over the whole catalogue.
    position_weights: (length,), by default the discount of DCG, 1 / log2(1 + k)
    settled: what was shown before; the limit on the group counts it too.
    Lists are as long as candidates and limit allow: a user with too few items outside the group is
    the first to be shown some of it, and has a shorter list where that would break the limit.
    """
    _check(candidates, sensitive, length, share, gini_limit)
    weights = _weights(position_weights, length).to(candidates.items.device)
    b, width = len(candidates.items), min(length, candidates.items.shape[1])
    if 0 in (b, width, len(sensitive)):
        return JointLists(candidates.items.new_full((b, length), -1), 0.0, 0.0)
    sides, gains = offers(candidates, sensitive, weights[:width])
    of_group, price = allot(sides, gains, share, settled)
    columns = sides.pick(sides.columns, of_group)
    _, lists = best_value_first(candidates, columns, width)
    mu = 0.0
    if gini_limit is not None and gini_of(showings(lists, len(sensitive))) > gini_limit:
        spreading = Spreading(candidates, sensitive, share, weights[:width], columns, settled)
        best = spreading.within(gini_limit, price)
        lists, price, mu = best.lists, best.price, best.mu
        if best.gini > gini_limit:
            warnings.warn(
                f"no lists with a Gini index of at most {gini_limit:g} were found; these have"
                f" {best.gini:.4f} (raise the limit or give more candidates)",
                stacklevel=2,
            )
    return JointLists(torch.nn.functional.pad(lists, (0, length - width), value=-1), price, mu)


def _weights(position_weights: Tensor | None, length: int) -> Tensor:
    if position_weights is None:
        return discount(torch.arange(1, length + 1, dtype=torch.float64))
    weights = position_weights.double()
    if weights.shape != (length,) or not weights.isfinite().all():
        raise ConfigError(f"position_weights must be {length} finite numbers, one for each place")
    if (weights < 0).any() or (weights.diff() > 0).any():
        raise ConfigError(
            "position_weights must not rise or be negative (lists show the best value first, so the"
            " first place is the most seen)"
        )
    return weights


def _check(
    candidates: Candidates, sensitive: Tensor, length: int, share: float, gini_limit: float | None
) -> None:
    if length < 1:
        raise ConfigError(f"length = {length} must be at least 1")
    for name, number in (("share", share), ("gini_limit", gini_limit)):
        if number is not None and not 0 <= number <= 1:
            raise ConfigError(f"{name} = {number} is not between 0 and 1 (give a fraction, not %)")
    items, values = candidates.items, candidates.values
    if items.dim() != 2 or items.shape != values.shape:
        raise ValueError(f"items have shape {tuple(items.shape)}, values {tuple(values.shape)}")
    if items.numel() and not -1 <= int(items.min()) <= int(items.max()) < len(sensitive):
        raise ValueError(f"a candidate is neither -1 nor one of the {len(sensitive)} items")
