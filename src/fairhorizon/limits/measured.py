"""Measures whether lists keep limits, and says so in one line per limit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Self
from typing import Protocol as Interface

import numpy as np
from numpy.typing import NDArray

from fairhorizon.limits.language import GroupOf, Limit
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.limits.resolved import ResolvedLimit
from fairhorizon.metrics.accuracy import discount
from fairhorizon.metrics.fairness import gini
from fairhorizon.metrics.shares import ROUNDING
from fairhorizon.vocabulary import Scope

PLACES = (1, 5, 10, 20)  # first places, in which the share is reported too
NO_PRICES: Mapping[str, float] = MappingProxyType({})
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Showings:
    """Everything that was shown: list, place from 0 and item of each showing, list by list."""

    lists: Counts  # (n,) rising
    places: Counts  # (n,) rising within a list
    items: Counts  # (n,)
    length: int  # places of a list, K

    @classmethod
    def from_lists(cls, lists: Counts) -> Self:
        """Of lists (n_lists, K) with -1 for an empty place."""
        rows, places = np.nonzero(lists >= 0)
        return cls(rows, places, lists[rows, places], lists.shape[1])

    @property
    def n_lists(self) -> int:
        """Lists that show anything."""
        return len(np.unique(self.lists))


@dataclass(frozen=True)
class LimitReached:
    """A limit, and the share or index that lists reached.

    reached: of a limit on all showings, the share as the limit counts it; of one on every list or
        every beginning of one, the share of the group in the worst list; of gini, the index.
    excess: how far the share is on the wrong side of the limit, negative on the right side. Of a
        limit on lists, by how many items the worst list (the worst beginning) is, as a share of
        its places.
    broken: lists that break a limit on lists; None of other limits.
    violations: of a limit on all showings, how many showings of the group are too many (of a floor:
        too few); by place, in showings of weight 1. Of a limit on lists, `broken`. None of gini.
    price: what the method subtracted from the value of every item of the group (of a floor: of
        every other item) to keep the limit; None where it has no price or it is not known.
    at, weighed: the share among the first 1, 5, 10, 20 places that lists have, and the share with
        every showing counted as 1 / log2(1 + rank), whatever the limit counts. Empty and None of
        gini.
    lists_above: the share of lists with more than ceil(share K) items of the group, K being the
        places that the limit is for; of a floor, of lists with more than ceil((1 - share) K) other
        items, which for full lists means less than floor(share K) of the group. None of gini.
    """

    limit: str
    asked: float
    is_floor: bool
    reached: float
    kept: bool
    excess: float
    n_lists: int
    broken: int | None = None
    at: dict[int, float] = field(default_factory=dict)
    weighed: float | None = None
    lists_above: float | None = None
    violations: int | None = None
    price: float | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"at": {str(k): share for k, share in self.at.items()}}


def limit_reached(
    bound: ResolvedLimit, shown: Showings | Counts, prices: Mapping[str, float] = NO_PRICES
) -> LimitReached:
    """Measures one limit on what was shown.

    Without any showing there is nothing to exceed: the share is 0 and the limit is kept.

    shown: showings, or lists (n_lists, K) of item codes with -1 for an empty place.
    prices: by the text of a limit, the price under which the method made the lists.
    """
    found = _measured(bound, shown)
    return replace(found, price=prices.get(found.limit))


def _measured(bound: ResolvedLimit, shown: Showings | Counts) -> LimitReached:
    if not isinstance(shown, Showings):
        shown = Showings.from_lists(shown)
    limit, inside = bound.limit, bound.members[shown.items]
    if limit.is_gini:
        index = gini(np.bincount(shown.items, minlength=len(bound.members)))
        return _result(limit, shown, reached=index, excess=index - limit.share)
    places = shown.length if limit.first is None else min(limit.first, shown.length)
    of_lists, of_prefixes = _beyond(limit, inside, shown, places)
    # Reported for every limit, whatever it counts: a limit kept by whole lists may be broken where
    # people look first.
    first = {k: np.arange(shown.length) < k for k in PLACES if k <= shown.length}
    measures = {
        "at": {k: _share(shown, inside, weights) for k, weights in first.items()},
        "weighed": _share(shown, inside, discount(np.arange(1, shown.length + 1))),
        "lists_above": float((of_lists > 0).mean()) if len(of_lists) else 0.0,
    }
    if limit.scope is Scope.ALL:
        weights = PlaceRule.from_limit(limit).place_weights(shown.length)
        share = _share(shown, inside, weights)
        away = limit.share - share if limit.is_floor else share - limit.share
        excess = away if len(shown.items) else 0.0
        # The excess is a share of the total weight; times that weight it is in showings of weight
        # 1. Less than a whole showing is still one that had to go.
        too_many = math.ceil(max(0.0, excess) * float(weights[shown.places].sum()) - ROUNDING)
        return _result(limit, shown, reached=share, excess=excess, violations=too_many, **measures)
    beyond = of_lists if limit.scope is Scope.LIST else of_prefixes
    if not len(beyond):
        return _result(limit, shown, reached=0.0, excess=0.0, broken=0, violations=0, **measures)
    # Back from "beyond what is allowed" to the share of the worst list.
    most = float(of_lists.max()) + _allowed(limit, places)[places] / places
    broken = int((beyond > 0).sum())
    return _result(
        limit,
        shown,
        reached=1 - most if limit.is_floor else most,
        excess=float(beyond.max()),
        broken=broken,
        violations=broken,
        **measures,
    )


def _allowed(limit: Limit, length: int) -> Floats:
    """(length + 1,) how many of the first 0, 1, ... places a list may have of the group.

    Of a floor: of all other items.
    """
    share = 1 - limit.share if limit.is_floor else limit.share
    allowed: Floats = np.ceil(share * np.arange(length + 1) - ROUNDING)
    return allowed


def _beyond(
    limit: Limit, inside: NDArray[np.bool_], shown: Showings, places: int
) -> tuple[Floats, Floats]:
    """(lists,) how many items each list has beyond what it may have, as a share of its places.

    And the same of the beginning of the list in which this is most.
    """
    # Lists without showings have no rows here, so lists are numbered anew: `of` maps showings to
    # lists, and `begin` is the first showing of each.
    _, begin, of = np.unique(shown.lists, return_index=True, return_inverse=True)
    # A floor counts the items outside the group, of which a list may have at most 1 - share.
    counted = (inside != limit.is_floor) & (shown.places < places)
    allowed = _allowed(limit, places)
    whole = (np.bincount(of[counted], minlength=len(begin)) - allowed[places]) / max(1, places)
    # One running count over all lists, less what it was at the beginning of the own list. The count
    # at `begin` includes the first showing itself, hence `- counted`.
    so_far = np.cumsum(counted)
    running = (so_far - (so_far - counted)[begin][of])[counted]  # from the beginning of the list
    ranks = shown.places[counted] + 1
    prefixes = whole.copy()
    # `maximum.at` and not indexing: a list has several prefixes, and each may be the worst.
    np.maximum.at(prefixes, of[counted], (running - allowed[ranks]) / ranks)
    return whole, prefixes


def _result(limit: Limit, shown: Showings, **values: Any) -> LimitReached:
    return LimitReached(
        limit=str(limit),
        asked=limit.share,
        is_floor=limit.is_floor,
        kept=not values["excess"] > ROUNDING,
        n_lists=shown.n_lists,
        **values,
    )


def _share(shown: Showings, inside: NDArray[np.bool_], weights: NDArray[Any]) -> float:
    """The share of the group, with these weights of places (K,)."""
    counted = weights[shown.places].astype(np.float64)
    total = float(counted.sum())
    return float(counted[inside].sum()) / total if total else 0.0


# Verdicts.


DECIMALS = range(1, 7)
CLOSE = 0.05  # of what is printed to what it is, relatively
FEW_POINTS = 0.05  # a share of first places that is off by more is worth a word
MANY = 5  # values of one column that have a line each; of more, one line is about all


class LimitOutcome(Interface):
    """A limit and what lists made of it: of one method (`LimitReached`), or over several seeds."""

    @property
    def limit(self) -> str: ...
    @property
    def asked(self) -> float: ...
    @property
    def is_floor(self) -> bool: ...
    @property
    def reached(self) -> float | None: ...
    @property
    def kept(self) -> bool: ...
    @property
    def n_lists(self) -> int: ...
    @property
    def broken(self) -> int | None: ...
    @property
    def at(self) -> Mapping[int, float]: ...
    @property
    def weighed(self) -> float | None: ...
    @property
    def lists_above(self) -> float | None: ...
    @property
    def violations(self) -> int | None: ...
    @property
    def price(self) -> float | None: ...
    def to_json(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Verdict:
    """A rule and whether it was kept: a limit, or the same limit on many values of a column."""

    limit: str
    kept: bool
    verdict: str
    limits: int = 1  # how many the rule stands for
    at_the_bottom: bool = False  # kept, but the first places alone would not keep it

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def verdicts_of(found: Sequence[LimitOutcome], families: Sequence[str]) -> tuple[Verdict, ...]:
    """A verdict per limit, in order; the limits of a large family have one between them.

    families: of each limit, what the limit on all values of its column would be called.
    """
    members: dict[str, list[LimitOutcome]] = {}
    for one, family in zip(found, families, strict=True):
        # A dict keeps the order in which families first appear.
        members.setdefault(family, []).append(one)
    verdicts: list[Verdict] = []
    for family, limits in members.items():
        if len(limits) > MANY:
            verdicts.append(_of_family(family, limits))
        else:
            verdicts += [
                Verdict(one.limit, one.kept, verdict_of(one), at_the_bottom=kept_at_the_bottom(one))
                for one in limits
            ]
    return tuple(verdicts)


def families_of(limits: Sequence[ResolvedLimit]) -> list[str]:
    """Of each limit, the one on each value of its column; of one on other groups, itself."""
    return [
        str(replace(one.limit, group=GroupOf(one.limit.group.column, each=True)))
        if len(one.limit.group.values) == 1
        else str(one)
        for one in limits
    ]


def verdict_lines(verdicts: Sequence[Verdict]) -> list[str]:
    """As in "popular<=0.4  kept: 38.2 % of at most 40 %", one below the other."""
    widest = max((len(one.limit) for one in verdicts), default=0)
    return [f"{one.limit:<{widest}}  {one.verdict}" for one in verdicts]


def rules_sentence(verdicts: Sequence[Verdict]) -> str:
    """How many rules were kept; those that were not, or that the first places do not keep.

    As in "All 4 rules (660 limits) were kept." where one rule stands for many limits.
    """
    total = sum(one.limits for one in verdicts)
    rules = "limit" if total == len(verdicts) else "rule"
    counted = f"{len(verdicts)} {rules}{'s' * (len(verdicts) > 1)}"
    if total > len(verdicts):
        counted += f" ({total:,} limits)"
    broken = [one for one in verdicts if not one.kept]
    hidden = [one for one in verdicts if one.at_the_bottom]
    if broken:
        named = f"{broken[0].limit} ({broken[0].verdict.removeprefix('not kept').lstrip(': ')})"
        more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
        kept = len(verdicts) - len(broken)
        said = f"{kept} of {counted} {'was' if kept == 1 else 'were'} kept; not {named}{more}."
    elif len(verdicts) == 1:
        said = f"The {counted.removeprefix('1 ')} was kept."
    else:
        said = f"All {counted} were kept."
    if hidden and not broken:
        named = f"{hidden[0].limit}: {hidden[0].verdict.removeprefix('kept: ')}"
        more = f"; {len(hidden) - 1} more like it" if len(hidden) > 1 else ""
        return f"{said.removesuffix('.')}, but not by the first places ({named}{more})."
    return said


def kept_at_the_bottom(found: LimitOutcome) -> bool:
    """Whether a limit is kept by whole lists, and not where people look first.

    That is, the share weighed by place breaks it, and the share of first places does so clearly.
    """
    first, weighed = found.at.get(1), found.weighed
    if first is None or weighed is None or not found.kept:
        return False
    sign = -1 if found.is_floor else 1
    # A few points, or a tenth of a small limit: 1.2 % of first places under a limit of 1 % is off
    # by 0.2 points and yet by a fifth.
    clearly = min(FEW_POINTS, found.asked / 10)
    return sign * (weighed - found.asked) > 0 and sign * (first - found.asked) > clearly


def verdict_of(found: LimitOutcome) -> str:
    """As in "kept: 38.2 % of at most 40 %" or "not kept in 12 of 943 lists, ...".

    Then where in the lists the group is: "kept: 30.0 % of at least 30 %, but 6.6 % of first places
    and 24.1 % weighed by place" says that it is at the bottom of the lists.
    """
    if found.at and not found.n_lists:  # lists whose places are known, and all of them are empty
        return "kept, but nothing was shown: all lists are empty"
    return _verdict(found) + _by_place(found)


def _verdict(found: LimitOutcome) -> str:
    if found.broken is not None:
        if found.kept:
            return f"kept in all of {found.n_lists:,} lists: {_asked(found)} of each"
        lists = f"not kept in {found.broken:,} of {found.n_lists:,} lists"
        # Under a limit on prefixes a list may break it at the top and keep it as a whole; then
        # there is no share of the worst list to name.
        worst = f", the worst has {_reached(found)} of {_asked(found)}"
        return lists + worst if _away(found) > 0 else lists
    if found.kept:
        return f"kept: {_reached(found)} of {_asked(found)}"
    return f"not kept: {_reached(found)} of {_asked(found)}, {_points(found)}"


def _of_family(family: str, limits: Sequence[LimitOutcome]) -> Verdict:
    broken = [one for one in limits if not one.kept]
    if not broken:
        closest = max(limits, key=_away)
        text = f"kept by all {len(limits):,} values, closest {closest.limit}: {_reached(closest)}"
        return Verdict(family, True, text, len(limits))
    worst = max(broken, key=_away)
    how = f"not kept by {len(broken):,} of {len(limits):,} values"
    found = _verdict(worst).removeprefix("not kept: ")
    return Verdict(family, False, f"{how}, worst {worst.limit}: {found}", len(limits))


def _by_place(found: LimitOutcome) -> str:
    """The share of the first places, and the share weighed by place where it is another one."""
    first, weighed, reached = found.at.get(1), found.weighed, found.reached
    if first is None or weighed is None or first == weighed:  # lists of one place
        return ""
    parts = [f"{_percent(first)} of first places"]
    if reached is None or not math.isclose(weighed, reached):
        parts.append(f"{_percent(weighed)} weighed by place")
    return f"{', but' if kept_at_the_bottom(found) else ';'} {' and '.join(parts)}"


def _percent(share: float) -> str:
    return f"{100 * share:.{_decimals(100 * share)}f} %"


def _away(found: LimitOutcome) -> float:
    """How far the share is on the wrong side of the limit; negative on the right side."""
    beyond = (found.reached or 0.0) - found.asked
    return -beyond if found.is_floor else beyond


def _asked(found: LimitOutcome) -> str:
    return f"at {'least' if found.is_floor else 'most'} {100 * found.asked:.6g} %"


def _reached(found: LimitOutcome) -> str:
    """With one decimal, and more where these would hide on which side of the limit it is."""
    reached, asked = 100 * (found.reached or 0.0), round(100 * found.asked, 9)
    # "not kept: 40.0 % of at most 40 %" would be a riddle: more decimals until the two differ.
    for decimals in range(_decimals(reached), DECIMALS[-1] + 1):
        text = f"{reached:.{decimals}f}"
        if found.kept or float(text) != asked:
            break
    return f"{text} %"


def _points(found: LimitOutcome) -> str:
    away = 100 * _away(found)
    return f"{away:.{_decimals(away)}f} points too {'few' if found.is_floor else 'many'}"


def _decimals(percent: float) -> int:
    """One decimal; below 1 %, as many as it takes to print the number to 5 % of itself."""
    near = (d for d in DECIMALS if abs(round(percent, d) - percent) <= CLOSE * percent)
    return DECIMALS[0] if percent > 1 else next(near, DECIMALS[-1])
