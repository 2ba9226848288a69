"""Lists for all users at once, under a limit on the exposure of a group of items.

    maximise sum_u sum_k w_k v_u(item at place k)
    subject to   the rule on showings of the group,  Gini(showings of items) <= limit

A rule on all showings that count alike is kept by giving the places for the group to the users who
gain the most by them (group_budget.py). Rules that count by place, or in every list, also choose
which places these are (placed_lists.py). The Gini limit is kept by a price on crowded items
(gini_price.py).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from fairhorizon.allocation.gini_price import Spreading, gini_of, showings
from fairhorizon.allocation.group_budget import (
    Candidates,
    Sides,
    Spent,
    allot,
    best_sides,
    best_value_first,
    offers,
)
from fairhorizon.allocation.placed_lists import Places, place
from fairhorizon.allocation.placed_spreading import PlacedSpreading
from fairhorizon.errors import ConfigError
from fairhorizon.exposure.place_rule import Floats, PlaceRule
from fairhorizon.ranking import discount

NOTHING = Spent(0, 0)


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
    weights = _weights(position_weights, length).to(candidates.items.device)
    b, width = len(candidates.items), min(length, candidates.items.shape[1])
    if 0 in (b, width, len(sensitive)):
        return JointLists(candidates.items.new_full((b, length), -1), 0.0, 0.0)
    if rule.is_floor:
        rule, sensitive = rule.mirrored(), ~sensitive
        settled = Spent(settled.shown, settled.shown - settled.of_group)
    before = candidates.items.new_empty((b, 0)) if begun is None else begun.to(candidates.items)
    whole = before.shape[1] + length
    spent = _spent(settled, before, sensitive, rule.place_weights(whole))
    if rule.is_plain(whole):
        made = _alike(candidates, sensitive, rule.share, weights[:width], spent)
    else:
        in_group = (before >= 0) & sensitive[before.clamp(min=0)]
        places = Places(rule, whole, weights[:width].cpu().numpy(), in_group.cpu().numpy())
        made = _by_place(candidates, sensitive, places, spent)
    lists, price, mu = made.lists, made.price, 0.0
    if gini_limit is not None and gini_of(showings(lists, len(sensitive))) > gini_limit:
        best = made.spreading().within(gini_limit, price)
        lists, price, mu = best.lists, best.price, best.mu
        if best.gini > gini_limit:
            warnings.warn(
                f"no lists with a Gini index of at most {gini_limit:g} were found; these have"
                f" {best.gini:.4f} (raise the limit or give more candidates)",
                stacklevel=2,
            )
    return JointLists(torch.nn.functional.pad(lists, (0, length - width), value=-1), price, mu)


@dataclass(frozen=True)
class _Allocated:
    """Lists under the rule alone, and how they would be spread."""

    lists: Tensor
    price: float
    spreading: Callable[[], Spreading]


def _alike(
    candidates: Candidates, sensitive: Tensor, share: float, weights: Tensor, spent: Spent
) -> _Allocated:
    """Under a limit on all showings, which count alike."""
    sides, gains = offers(candidates, sensitive, weights)
    of_group, price = allot(sides, gains, share, spent)
    columns = sides.pick(sides.columns, of_group)
    _, lists = best_value_first(candidates, columns, len(weights))
    spreading = partial(Spreading, candidates, sensitive, share, weights, columns, spent)
    return _Allocated(lists, price, spreading)


def _by_place(
    candidates: Candidates, sensitive: Tensor, places: Places, spent: Spent
) -> _Allocated:
    """Under a rule that says which places the group may have."""
    sides = Sides.join(list(best_sides(candidates, sensitive, len(places.weights))))
    placed = place(sides, places, spent)
    columns = placed.pick(sides.columns)
    lists = candidates.items.gather(1, columns.clamp(min=0)).masked_fill(columns < 0, -1)
    spreading = partial(PlacedSpreading, candidates, sensitive, places, columns, spent)
    return _Allocated(lists, placed.price, spreading)


def _spent(settled: Spent, begun: Tensor, sensitive: Tensor, counted: Floats) -> Spent:
    """With what the first places of these lists count."""
    filled = (begun >= 0).double().cpu()
    of_group = filled * sensitive[begun.clamp(min=0)].cpu()
    shown, group = (
        float((side.numpy() @ counted[: begun.shape[1]]).sum()) for side in (filled, of_group)
    )
    return Spent(settled.shown + shown, settled.of_group + group)


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
