"""Limits on exposure that hold after every single request, whatever comes next.

A list is the best one at a price for each limit. The prices follow the demand of the lists (an
online dual), so that the room goes to the requests that gain the most by it; hard caps give the
guarantee. docs/guarantee.md has the proofs:

    showings of a limited group  <=  share * all showings            wherever a full list fits
    showings of a limited group  <=  share * all showings + slack    at every moment
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Literal, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from torch import Tensor

from fairhorizon.allocation.candidates import NEVER, Candidates, Offer, highest
from fairhorizon.allocation.limit_matrix import Counts, Flags, Floats, GroupRule, LimitMatrix
from fairhorizon.allocation.one_limit import GroupAndRest, within_each_list
from fairhorizon.allocation.one_list import Caps, Request
from fairhorizon.errors import ConfigError, DataError, ModelError
from fairhorizon.files import write_text
from fairhorizon.limits.place_rule import PlaceRule
from fairhorizon.metrics.shares import ROUNDING
from fairhorizon.vocabulary import Scope

LARGEST = 1e29  # value or price: what is never shown has a value of NEVER, -1e30
MEMORY = 1000  # requests that the spread of values is averaged over
STEP = 0.1  # how fast prices move, without a unit
MOST_LENGTHS = 8  # of lists, whose limit matrices are kept

Array = TypeVar("Array", Tensor, NDArray[Any])


@dataclass(frozen=True, eq=False)
class GuardedList:
    """A list, and where else its places could have gone.

    Items of one class are in the same groups.
    """

    offer: Offer
    columns: Counts  # of the list among the candidates, best first
    kinds: Counts  # (n,) the classes of the candidates

    @property
    def items(self) -> Counts:
        return self.offer.items(self.columns)

    @property
    def classes(self) -> Counts:
        return self.kinds[self.columns]

    def spares(self, kind: int, most: int) -> Counts:
        """The best candidates of a class that are not in the list."""
        left = (self.kinds == kind) & (self.offer.order > NEVER)
        left[self.columns] = False
        (own,) = left.nonzero()
        return self.offer.items(own[highest(self.offer.order[own], most)])


class StoredGuard(BaseModel):
    """What a guard is at one moment, between two requests."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kind: Literal["exposure-guard"] = "exposure-guard"
    version: Literal[2] = 2
    rule: PlaceRule | None  # of one limit, whose group comes with each request
    rules: tuple[str, ...]
    step: float = Field(ge=0, le=LARGEST)
    slack: float | None = Field(ge=0)
    prices: tuple[float, ...]
    spread: float = Field(ge=0)
    requests: int = Field(ge=0)
    shown: tuple[float, ...]
    inside: tuple[float, ...]

    @model_validator(mode="after")
    def _groups_are_parts(self) -> Self:
        sizes = {len(part) for part in (self.rules, self.prices, self.shown, self.inside)}
        if len(sizes) > 1:
            raise ValueError("prices and counts are not those of as many rules")
        for inside, shown in zip(self.inside, self.shown, strict=True):
            if not 0 <= inside <= shown + ROUNDING:
                raise ValueError(f"{inside:g} showings of the group among {shown:g} in all")
        return self


class ExposureGuard:
    """Serves one request after the other; after each, every limit holds for all showings so far.

    rules: the share of one limit, or a rule that is a floor, counts by place or holds in every
        list; or several rules with their groups of items.
    price: initial price of a showing of a limited group, in units of the values; one for each of
        several rules.
    step: how fast prices move, without a unit: at a share of 0, a list wholly of the group raises
        the price by `step` spreads of the values.
    slack: how much more than its share a group may have been shown where no full list fits into
        the share; None: what all places of a list count. 0: never, and lists are shorter.
    shown, sensitive: showings so far, and those of the group among them, weighed as the rule does.
        If these start above the share, nothing of the group is shown until the share is kept.

    All methods may be called from several threads. Candidates are prepared in parallel; a request
    is decided and counted under a lock, before the next one is decided.
    """

    def __init__(
        self,
        rules: PlaceRule | float | Sequence[GroupRule],
        *,
        price: float | Sequence[float] | Floats = 0.0,
        step: float = STEP,
        slack: float | None = None,
        shown: float = 0,
        sensitive: float = 0,
    ) -> None:
        if isinstance(rules, Sequence):
            self.groups: Flags | None = np.array([one.members for one in rules], dtype=np.bool_)
            self.rules = tuple(rules)
        else:
            rule = rules if isinstance(rules, PlaceRule) else PlaceRule(float(rules))
            self.groups, self.rules = None, (GroupRule(rule, np.zeros(0, dtype=np.bool_)),)
        prices = np.broadcast_to(np.asarray(price, dtype=np.float64), len(self.rules)).copy()
        slacks = [] if slack is None else [slack]
        for name, numbers in (("price", prices), ("step", [step]), ("slack", slacks)):
            for number in numbers:
                _check_level(name, float(number))
        if not 0 <= sensitive <= shown:
            raise ConfigError(
                f"{sensitive} showings of the group among {shown} in all"
                " (give both as counted so far)"
            )
        self.prices, self.step, self.slack = prices, float(step), slack
        self.spread, self.requests = 0.0, 0  # of the values, a running mean over requests
        self._shown = np.full(len(self.rules), float(shown))
        self._inside = np.full(len(self.rules), float(sensitive))
        self._floors = np.array([one.rule.is_floor for one in self.rules], dtype=np.bool_)
        self._matrices: dict[int, LimitMatrix] = {}
        self._make_locks()

    def _make_locks(self) -> None:
        self._deciding = Lock()  # held from reading the counts to writing them
        self._saving = Lock()  # so that an older state never replaces a newer one in a file

    def __getstate__(self) -> dict[str, Any]:
        """For copies and other processes: the state of one moment, without the locks."""
        with self._deciding:
            state = {k: v for k, v in vars(self).items() if k not in ("_deciding", "_saving")}
            return state | {"prices": self.prices.copy(), "_shown": self._shown.copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._make_locks()

    @property
    def share(self) -> float:
        """Of the first limit: the largest share of its group; of a floor, the smallest."""
        return self.rules[0].rule.share

    @property
    def price(self) -> float:
        """Of the first limit."""
        return float(self.prices[0])

    @property
    def shown(self) -> float:
        """Showings so far, as the first limit weighs them."""
        return _count(float(self._shown[0]))

    @property
    def sensitive(self) -> float:
        """Those of its group among them."""
        return _count(float(self._inside[0]))

    @property
    def excess(self) -> Floats:
        """(m,) showings of each group beyond its share; of a floor, those that are missing."""
        shares = np.array([one.rule.share for one in self.rules])
        beyond = self._inside - shares * self._shown
        missing: Floats = np.where(self._floors, -beyond, beyond)
        return missing

    def prices_by_name(self) -> dict[str, float]:
        """The present price of each limit."""
        return dict(zip(map(str, self.rules), self.prices.tolist(), strict=True))

    def serve(self, items: Array, values: Array, group: Array, length: int) -> Array:
        """(length,) the list for one request, best value first; -1 where nothing may be shown.

        items (C,) different candidates, values (C,) of showing each, group (C,) bool their labels
        at this moment. A value of -inf or an item of -1 is never shown.
        """
        lists = self._serve_rows(items[None], values[None], np.asarray(group)[None], length)
        one: Array = lists[0]
        return one

    def serve_all(
        self, items: Array, values: Array, sensitive: Array | None = None, length: int = 10
    ) -> Array:
        """(b, length) lists for the rows of items (b, C) and values (b, C), one after the other.

        sensitive (n_items,) bool holds for all of them; None: the groups of the rules. The same
        lists as from `serve`, faster. Requests of other threads may come in between.
        """
        group = None if sensitive is None else np.asarray(sensitive)[np.asarray(items)]
        return self._serve_rows(items, values, group, length)

    def answer(self, offer: Offer, length: int, group: Flags | None = None) -> Counts:
        """The columns of the list of one request, counted.

        group: (n_items,) of one rule whose group comes with each request; None: those of the rules.
        """
        if self.rules[0].rule.scope is not Scope.ALL:
            table = offer.table()
            flags = (self.rules[0].members if group is None else group)[table.items]
            (at,) = self._each_list(table, flags, length)
            shown: Counts = at[at >= 0]
            return shown
        limits = self._matrix(length)
        kinds = None
        if group is not None:
            capped = group ^ self._floors[0]
            kinds = (capped if offer.codes is None else capped[offer.codes]).astype(np.int64)
        request = Request(offer, limits, kinds)
        columns: Counts = request.columns[self._counted(request, limits)]
        return columns

    def decide(self, offer: Offer, caps: Caps, length: int) -> GuardedList:
        """The list of one request under caps, by a list's length, that somebody else counts."""
        if not self.rules or not length:
            best = highest(offer.order, length)
            one_class = np.zeros(len(offer.order), dtype=np.int64)
            return GuardedList(offer, best[offer.order[best] > NEVER], one_class)
        limits = self._matrix(length)
        kinds = offer.kinds(limits)
        request = Request(offer, limits, kinds)
        with self._deciding:
            at = self._decided(request, caps, limits)
        return GuardedList(offer, request.columns[at], kinds)

    def save(self, path: str | Path) -> None:
        """Write everything that `load` needs; the file is replaced as a whole or not at all.

        It holds the state between two requests, whatever other threads serve at the same time.
        """
        with self._saving:
            write_text(Path(path), self._snapshot().model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> "ExposureGuard":
        """The guard of one limit that was saved here; it continues as if it had never stopped."""
        state = _read(Path(path))
        if state.rule is None:
            raise ModelError(
                f"{path}: a guard of rules with their own groups, {', '.join(state.rules)} (make a"
                " guard of these rules and call its restore)"
            )
        return cls(state.rule).restore(path)

    def restore(self, path: str | Path) -> "ExposureGuard":
        """Continue from a file that a guard of the same rules has written."""
        state = _read(Path(path))
        if list(state.rules) != [_text(one) for one in self.rules]:
            raise ModelError(
                f"{path}: the guard of other rules, {', '.join(state.rules)} (give the same)"
            )
        with self._deciding:
            self.prices, self.step = np.array(state.prices), state.step
            self.slack, self.spread, self.requests = state.slack, state.spread, state.requests
            self._shown, self._inside = np.array(state.shown), np.array(state.inside)
        return self

    def _snapshot(self) -> StoredGuard:
        with self._deciding:
            return StoredGuard(
                rule=self.rules[0].rule if self.groups is None else None,
                rules=tuple(_text(one) for one in self.rules),
                step=self.step,
                slack=self.slack,
                prices=tuple(self.prices.tolist()),
                spread=self.spread,
                requests=self.requests,
                shown=tuple(self._shown.tolist()),
                inside=tuple(self._inside.tolist()),
            )

    def _serve_rows(self, items: Array, values: Array, group: Flags | None, length: int) -> Array:
        if length < 0:
            raise ConfigError(f"a list of {length} items (take 0 or more)")
        codes, worth = np.asarray(items), np.asarray(values, dtype=np.float64)
        worth = np.where((codes >= 0) & (worth != -np.inf), worth, NEVER)
        if np.isnan(worth).any() or (np.abs(worth[worth > NEVER]) > LARGEST).any():
            raise DataError(
                "the value of a candidate is nan or more than 1e29",
                remedy="give finite values, and -inf to what may not be shown",
            )
        shown = np.full((len(codes), length), -1, dtype=np.int64)
        if length and codes.shape[1]:
            at = self._lists(Candidates(codes, worth), group, length)
            shown = np.where(at < 0, -1, np.take_along_axis(codes, at.clip(0), axis=1))
        if isinstance(items, Tensor):
            return torch.from_numpy(shown).to(items)
        return shown

    def _lists(self, table: Candidates, group: Flags | None, length: int) -> Counts:
        """(b, length) columns of the lists of some requests, one after the other, counted."""
        if self.rules[0].rule.scope is not Scope.ALL:
            flags = self.rules[0].members[table.items] if group is None else group
            return self._each_list(table, flags, length)
        limits = self._matrix(length)
        lists = np.full((table.n_users, length), -1, dtype=np.int64)
        # Without groups of the rules there are two classes: outside the group, and the group.
        kinds = limits.of_item[table.items] if group is None else (group ^ self._floors[0])
        for row, values in enumerate(table.values):
            request = Request(Offer(values), limits, kinds[row].astype(np.int64))
            at = self._counted(request, limits)
            lists[row, : len(at)] = request.columns[at]
        return lists

    def _counted(self, request: Request, limits: LimitMatrix) -> Counts:
        """The list of a request within what is left; its showings are counted."""
        # Two requests that saw the same counts could use the room twice.
        with self._deciding:
            at = self._decided(request, self._caps(limits), limits)
            self._add(request.counted(at), limits.weights[:, : len(at)].sum(1))
        return at

    def _decided(self, request: Request, caps: Caps, limits: LimitMatrix) -> Counts:
        """The list of a request; the prices follow its demand."""
        best = request.best(self.prices, request.size)
        at = request.within(caps, self.prices, best)
        if len(best):
            demand = request.counted(best) - limits.shares * limits.weights[:, : len(best)].sum(1)
            self._follow(request.spread, demand / np.maximum(limits.full_list, ROUNDING))
        return at

    def _follow(self, spread: float, excess: Floats) -> None:
        """A subgradient step by what the list at the present prices would use.

        excess: (m,) over the share, as a part of a list. What a cap refuses belongs to it: a price
        moved by what is shown would hardly move while the cap binds.
        """
        if not np.isnan(spread):
            self.requests += 1
            self.spread += (spread - self.spread) / min(self.requests, MEMORY)
        move = min(self.step * self.spread, LARGEST) * excess
        self.prices = np.clip(self.prices + move, 0.0, LARGEST)

    def _caps(self, limits: LimitMatrix) -> Caps:
        """Within the share; rounded up to the next whole showing; within share and slack."""
        slack = limits.full_list if self.slack is None else np.full(len(limits), self.slack)
        used = np.where(self._floors, self._shown - self._inside, self._inside)

        def by_length(size: int) -> Sequence[Floats]:
            share = limits.shares * (self._shown + limits.weights[:, :size].sum(1)) - used
            if not slack.any():
                return (share,)
            return share, np.minimum(np.ceil(share - ROUNDING), share + slack), share + slack

        return by_length

    def _add(self, capped: Floats, shown: Floats) -> None:
        self._shown = self._shown + shown
        self._inside = self._inside + np.where(self._floors, shown - capped, capped)

    def _each_list(self, table: Candidates, group: Flags, length: int) -> Counts:
        """Columns of lists that each keep a rule on every list; all showings are counted alike."""
        rule, limits = self.rules[0].rule, self._matrix(length)
        sides = GroupAndRest.from_candidates(table, group ^ rule.is_floor, length)
        at = within_each_list(sides, limits, None)
        filled = at >= 0
        inside = filled & np.take_along_axis(group, at.clip(0), axis=1)
        with self._deciding:
            self._shown = self._shown + filled.sum()
            self._inside = self._inside + inside.sum()
        return at

    def _matrix(self, length: int) -> LimitMatrix:
        """The limits on lists of a length."""
        if length not in self._matrices:
            if len(self._matrices) >= MOST_LENGTHS:
                self._matrices.clear()
            rules = self.rules
            if self.groups is None:  # the group comes with each request: class 1 is limited
                limited = np.array([False, True]) ^ bool(self._floors[0])
                rules = (GroupRule(rules[0].rule, limited),)
            self._matrices[length] = LimitMatrix.from_rules(rules, length)
        return self._matrices[length]


def _text(rule: GroupRule) -> str:
    return str(rule) if rule.name else repr(rule.rule)


def _check_level(name: str, number: float) -> None:
    if not 0 <= number <= LARGEST:
        raise ConfigError(f"a {name} of {number} (take a number, 0 or above)")


def _read(path: Path) -> StoredGuard:
    """The content of a file; a ModelError if it is missing, truncated or something else."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{path}: cannot be read: {error.strerror} (guard.save writes it)"
        ) from error
    try:
        return StoredGuard.model_validate_json(content)
    except ConfigError as error:
        raise ModelError(f"{path}: not the file of a guard: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = "".join(f"{part}: " for part in first["loc"][:1])
        raise ModelError(
            f"{path}: truncated, or not the file of a guard: {where}{first['msg']}"
            " (give a file that guard.save has written)"
        ) from error


def _count(showings: float) -> float:
    """A whole number where it is one, so that it prints as one."""
    return int(showings) if showings == int(showings) else float(showings)
