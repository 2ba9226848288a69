"""From ids to lists under limits, and from lists to frames.

`People` and `Requests` say who asks for what, `ServingState` is everything that answers, and
`serve` and `frame_of` make the answer.
"""

import copy
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.items import ItemTable
from fairhorizon.data.splits import Ties, with_ties
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.fcpo.retention.replay import FittedRetention, with_user_weights
from fairhorizon.histories import UserItems
from fairhorizon.limits.groups import popular_group
from fairhorizon.limits.language import POPULAR, GroupOf, Limit
from fairhorizon.limits.measured import limit_reached
from fairhorizon.limits.resolved import ResolvedLimit, resolve_limits
from fairhorizon.model.cold_start import Catalogue, ColdStartItems, ColdStartRanker
from fairhorizon.model.observe import ObservedRows
from fairhorizon.recommenders.base import RankedLists, Recommender
from fairhorizon.simulation.feedback import Scenario

Codes = NDArray[np.int64]
Times = NDArray[np.float64]
Group = NDArray[np.bool_]  # (n_items,)


@dataclass(frozen=True, eq=False)
class Person:
    """Somebody who asks for a list."""

    id: Any
    code: int  # of the user in the log that the model was fitted on; -1: not in it
    items: Codes  # (n,) taken so far, in time order
    times: Times | None = None  # (n,) when each was taken last


class People:
    """The users of a log and what they have taken; `observe` adds to it."""

    def __init__(self, log: Interactions) -> None:
        self.log = log  # ties in the order that the model was fitted on
        self._indptr, self._items = log.by_user()
        self._times: Times | None = None
        times = log.timestamps if log.last_times is None else log.last_times
        if times is not None:
            order = np.argsort(log.users, kind="stable")
            self._times = times[order].astype(np.float64)
        self._codes = {str(one): code for code, one in enumerate(log.user_ids.tolist())}
        self._since: dict[str, Person] = {}  # who was observed since the fit
        self.last_time = float(self._times.max()) if self._times is not None else 0.0

    @property
    def ids(self) -> list[Any]:
        """Of everybody, in the order of the log; then those who are new."""
        known = self.log.user_ids.tolist()
        return [*known, *(one.id for key, one in self._since.items() if key not in self._codes)]

    def find(self, user: Any) -> Person | None:
        """Somebody by id; None if nobody has it."""
        key = str(user)
        if key in self._since:
            return self._since[key]
        code = self._codes.get(key)
        if code is None:
            return None
        rows = slice(self._indptr[code], self._indptr[code + 1])
        times = None if self._times is None else self._times[rows]
        return Person(self.log.user_ids[code], code, self._items[rows], times)

    def after(self, rows: ObservedRows, codes: Mapping[str, int]) -> "People":
        """With later rows of these item codes; the present ones stay as they are."""
        people = copy.copy(self)
        people._since = dict(self._since)
        times: Sequence[float | None] = rows.times or [None] * len(rows)
        for user, item, time in zip(rows.users, rows.items, times, strict=True):
            people._add(user, codes[str(item)], time)
        return people

    def _add(self, user: Any, item: int, time: float | None) -> None:
        known = self.find(user) or Person(user, -1, np.empty(0, dtype=np.int64), np.empty(0))
        items, times = known.items, known.times
        again = np.flatnonzero(items == item)
        if len(again) and self.log.repeats == "last":
            items = np.delete(items, again)
            times = None if times is None else np.delete(times, again)
            again = again[:0]
        if len(again):  # the first stays, but it was taken again
            if times is not None and time is not None:
                times = times.copy()
                times[again] = np.maximum(times[again], time)
        else:
            items = np.append(items, item)
            times = None if times is None or time is None else np.append(times, time)
        self._since[str(user)] = Person(known.id, known.code, items, times)
        if time is not None:
            self.last_time = max(self.last_time, time)

    def most_like(self, items: Codes) -> int:
        """The user of the log with the most similar items (cosine); 0 where none shares any.

        For methods with a vector of every user: somebody new has that of the most similar one.
        """
        known = items[items < self.log.n_items]
        if not len(known):
            return 0
        shared = np.asarray(self._taken_by[known].sum(0)).ravel()
        return int((shared / np.sqrt(np.maximum(1, np.diff(self._indptr)))).argmax())

    @cached_property
    def _taken_by(self) -> csr_array:
        """(n_items, n_users): 1 where a user took an item."""
        ones = np.ones(len(self._items), dtype=np.float32)
        taken = csr_array(
            (ones, self._items, self._indptr), shape=(self.log.n_users, self.log.n_items)
        )
        return taken.T.tocsr()


def anonymous_user(key: Any, items: Sequence[int] | Codes) -> Person:
    """Somebody who is not in the log, by history; an item that is repeated counts once."""
    return Person(key, -1, np.array(list(dict.fromkeys(items)), dtype=np.int64))


DAY = 86_400.0
AFTER = re.compile(r"after\s+(\d+(?:\.\d+)?)\s+days?", re.IGNORECASE)


@dataclass(frozen=True)
class RepeatRule:
    """When an item may be shown to somebody who took it."""

    days: float | None = None  # since it was taken last; None: never. 0: at any time

    @classmethod
    def parse(cls, text: str | None) -> "RepeatRule":
        """ "no" (also None), "yes" or "after N days"."""
        if text is None or text.strip().lower() == "no":
            return cls()
        if text.strip().lower() == "yes":
            return cls(0.0)
        found = AFTER.fullmatch(text.strip())
        if found is None:
            raise ConfigError(f'repeats={text!r} (give "no", "yes" or "after 7 days")')
        return cls(float(found[1]))

    def closed(self, person: Person, now: float) -> Codes:
        """What may not be shown again."""
        if self.days is None:
            return person.items
        if self.days == 0:
            return person.items[:0]
        if person.times is None:
            if len(person.items) and person.code >= 0:
                raise ConfigError(
                    f"repeats after {self.days:g} days: the log has no times (name its column: "
                    'fh.load(..., time=...), or give repeats="yes")'
                )
            return person.items
        return person.items[person.times > now - self.days * DAY]


@dataclass(frozen=True, eq=False)
class Requests:
    """What lists are asked for."""

    persons: Sequence[Person]
    barred: NDArray[np.bool_] | None  # (n_items,) that nobody may be shown
    repeats: RepeatRule

    def scenario(self, people: People, n_items: int, queue_length: int) -> Scenario:
        """For recommenders that can show `n_items`, those of the log first."""
        closed = [self.repeats.closed(one, people.last_time) for one in self.persons]
        pointers = np.cumsum([0, *(len(items) for items in closed)])
        shut = np.concatenate([*closed, np.empty(0, dtype=np.int64)])
        nothing = UserItems(
            torch.zeros(len(self.persons) + 1, dtype=torch.int64), torch.empty(0).long(), n_items
        )
        codes = [one.code if one.code >= 0 else people.most_like(one.items) for one in self.persons]
        return Scenario(
            self._queue(people.log.n_items, queue_length),
            nothing,
            UserItems(torch.from_numpy(pointers), torch.from_numpy(shut), n_items),
            codes=torch.tensor(codes, dtype=torch.int64),
            taken=torch.tensor([len(one.items) for one in self.persons]),
            barred=None if self.barred is None else torch.from_numpy(self.barred),
        )

    def _queue(self, n_fitted: int, longest: int) -> Tensor:
        """(b, N) the most recent items that the model knows; as wide as the longest history."""
        recent = [one.items[one.items < n_fitted][-longest:] for one in self.persons]
        width = max(1, *(len(items) for items in recent))
        queue = np.full((len(recent), width), n_fitted, dtype=np.int64)
        for row, items in enumerate(recent):
            if len(items):
                queue[row, -len(items) :] = items
        return torch.from_numpy(queue)


NO_COLUMN = "name one, or give the table of items that has it: fh.fit(..., items=...)"


@dataclass(frozen=True, eq=False)
class ServingState:
    """A fitted recommender with its people, items and limits."""

    recommender: Recommender  # as it was fitted
    people: People
    catalogue: Catalogue
    bound: tuple[ResolvedLimit, ...]
    free: Recommender  # the same over new items too, without the limits
    serving: Recommender  # under the limits

    @classmethod
    def of(
        cls,
        recommender: Recommender,
        people: People,
        catalogue: Catalogue,
        limits: Sequence[Limit],
    ) -> "ServingState":
        """The recommender, opened for the new items of the catalogue, under the limits."""
        counts, free = catalogue.log.item_counts(), recommender
        bound = bound_to(limits, catalogue, recommender.popular_share)
        if recommender.rankers:
            cold_start = ColdStartItems.of(catalogue)
            rankers = [ColdStartRanker(one, cold_start, counts) for one in recommender.rankers]
            group = torch.from_numpy(group_in(catalogue, limits, recommender.popular_share))
            new = group[catalogue.n_fitted :].to(recommender.sensitive_)
            free = recommender.with_rankers(rankers, torch.cat([recommender.sensitive_, new]))
        else:  # what is not made of rankers shows no new items
            bound = [ResolvedLimit(one.limit, one.members[: len(counts)]) for one in bound]
        serving = free.with_limits(bound) if bound else free
        return cls(recommender, people, catalogue, tuple(bound), free, serving)

    @property
    def n_items(self) -> int:
        """Items that can be shown."""
        return len(self.free.sensitive_)

    def known(self) -> Interactions:
        """The log with the ids of everybody and everything that lists are made of."""
        log, people, items = self.people.log, self.people.ids, self.catalogue.ids[: self.n_items]
        texts = any(isinstance(one, str) for one in people)
        users = np.array(list(map(str, people)) if texts else people, dtype=object)
        return replace(log, user_ids=users, item_ids=items, attributes={})

    def with_items(
        self, ids: Iterable[Any], table: ItemTable | None, limits: Sequence[Limit]
    ) -> "ServingState":
        """With further new items, and a table that may describe them."""
        now = self.catalogue
        more = Catalogue.of(now.log, table, (*now.new, *ids), area_km=now.area_km)
        return ServingState.of(self.recommender, self.people, more, limits)


def bound_to(
    limits: Sequence[Limit], catalogue: Catalogue, popular_share: float
) -> list[ResolvedLimit]:
    """The limits on the items of a catalogue; a new item is not popular."""
    bound = resolve_limits(limits, catalogue.counts, catalogue.attribute, elsewhere=NO_COLUMN)
    popular = _with_new(popular_group(catalogue.log.item_counts(), popular_share), catalogue)
    return [ResolvedLimit(one.limit, popular) if one.is_dynamic else one for one in bound]


def group_in(
    catalogue: Catalogue, limits: Sequence[Limit], popular_share: float
) -> NDArray[np.bool_]:
    """(n_items,) the group that a method is fitted for: of its own limit, else the popular."""
    own = own_limit(limits)
    group = group_of(own, bound_to([] if own is None else [own], catalogue, popular_share))
    if group is None:
        group = _with_new(popular_group(catalogue.log.item_counts(), popular_share), catalogue)
    return group


def own_limit(limits: Sequence[Limit]) -> Limit | None:
    """The limit that is the level of a method: on the popular items, else the first of its kind.

    Of its kind are largest shares of all showings.
    """
    levels = [limit for limit in limits if limit.is_plain and not limit.is_floor]
    on_popular = [limit for limit in levels if limit.group == GroupOf(POPULAR)]
    return next(iter(on_popular or levels), None)


def group_of(own: Limit | None, bound: Sequence[ResolvedLimit]) -> Group | None:
    """The members of the group of a method's own limit; None: the popular items."""
    if own is None or own.group == GroupOf(POPULAR):
        return None
    return next((one.members for one in bound if one.limit == own), None)


def in_order(log: Interactions, ties: Ties) -> Interactions:
    """The log with its ties in order; the fit has warned already."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return with_ties(log, ties)


def _with_new(group: NDArray[np.bool_], catalogue: Catalogue) -> NDArray[np.bool_]:
    return np.append(group, np.zeros(len(catalogue.new), dtype=np.bool_))


def check_table(log: Interactions, table: ItemTable | None, limits: Sequence[Limit]) -> None:
    """Refuse a table without a row for some item of the log, where a limit needs its columns."""
    for limit in limits:
        if table is not None and not limit.group.reserved and limit.group.column in table.columns:
            table.attribute(limit.group.column, log.item_ids.tolist())


Histories = Mapping[Any, Sequence[Any]]
MANY = 3  # unknown ids that a warning names


class LimitsNotKeptWarning(UserWarning):
    """The lists of a call could not keep a limit."""


def persons_of(
    state: ServingState, users: Iterable[Any] | None, histories: Histories | None
) -> list[Person]:
    """Who lists are asked for, each once."""
    if users is None and histories is None:
        users = state.people.ids
    found = []
    for user in dict.fromkeys(listed(() if users is None else users)):
        person = state.people.find(user)
        if person is None:
            raise DataError(
                f"user {user!r} is not in {state.people.log.name or 'the log'}",
                remedy='give what they took: histories={"' + str(user) + '": [...]}',
            )
        found.append(person)
    for key, items in (histories or {}).items():
        codes, unknown = state.catalogue.find(listed(items))
        ignore(f"histories of {key!r}", unknown)
        found.append(anonymous_user(key, codes))
    return found


def ignore(what: str, unknown: Sequence[Any]) -> None:
    """Say which ids are not those of any item."""
    if unknown:
        some = ", ".join(map(repr, unknown[:MANY])) + (", ..." if len(unknown) > MANY else "")
        warnings.warn(f"{what}: no item is called {some}: ignored", stacklevel=4)


def listed(ids: Iterable[Any]) -> Iterable[Any]:
    """Ids; one alone is a list of one, not of its letters."""
    return [ids] if isinstance(ids, str | int) else ids


def barred(
    state: ServingState, exclude: Iterable[Any] | None, candidates: Iterable[Any] | None
) -> NDArray[np.bool_] | None:
    """(n_items,) what nobody may be shown; None: nothing."""
    if exclude is None and candidates is None:
        return None
    shut = np.zeros(state.catalogue.n_items, dtype=np.bool_)
    if candidates is not None:
        codes, unknown = state.catalogue.find(listed(candidates))
        ignore("candidates", unknown)
        shut[:] = True
        shut[codes] = False
    if exclude is not None:
        codes, unknown = state.catalogue.find(listed(exclude))
        ignore("exclude", unknown)
        shut[codes] = True
    return shut[: state.n_items]


def length_of(k: int) -> int:
    """The length of a list, if it is one."""
    if k < 1:
        raise ConfigError(f"k = {k}: a list has at least one item (give 1 or more)")
    return k


def scenario_of(
    state: ServingState, requests: Requests, retention: FittedRetention | None
) -> Scenario:
    """What is asked for; with a fitted retention, users count by what a like of theirs is worth."""
    scenario = requests.scenario(state.people, state.n_items, state.serving.queue_length)
    if retention is None:
        return scenario
    return with_user_weights(
        state.serving, scenario, retention, [one.id for one in requests.persons]
    )


@torch.inference_mode()
def serve(
    state: ServingState, requests: Requests, length: int, retention: FittedRetention | None = None
) -> RankedLists:
    """Lists under the limits, for nobody an empty one."""
    if not requests.persons:
        return RankedLists(np.empty((0, length), dtype=np.int64))
    scenario = scenario_of(state, requests, retention)
    return state.serving.rank(scenario, length=min(length, state.n_items))


def warn_if_broken(state: ServingState, served: RankedLists) -> None:
    """A warning for every limit that these lists do not keep; one for all that are rounded."""
    rounded = []
    for bound in state.bound:
        if clearly_kept(bound, served.lists):
            continue
        reached = limit_reached(bound, served.lists)
        if reached.kept:
            continue
        if kept_in_whole_showings(bound, served.lists):
            rounded.append(bound)
            continue
        warnings.warn(
            f"{bound}: not kept by these {len(served.lists):,} lists, which reach "
            f"{reached.reached:.4g} (loosen the limit, or allow more candidates)",
            LimitsNotKeptWarning,
            stacklevel=3,
        )
    if rounded:
        shown = int((served.lists >= 0).sum())
        others = f" and {len(rounded) - 1} more" if len(rounded) > 1 else ""
        warnings.warn(
            f"{rounded[0]}{others}: kept in whole showings, as a share of these {shown:,} showings "
            "is a fraction of an item (ask for more users at once to keep it exactly)",
            LimitsNotKeptWarning,
            stacklevel=3,
        )


def kept_in_whole_showings(bound: ResolvedLimit, lists: NDArray[np.int64]) -> bool:
    """Whether a limit on all showings is exceeded by less than one of them."""
    if not bound.limit.is_plain:
        return False
    shown = lists[lists >= 0]
    beyond = float(bound.members[shown].sum()) - bound.limit.share * len(shown)
    return abs(beyond) < 1


def clearly_kept(bound: ResolvedLimit, lists: NDArray[np.int64]) -> bool:
    """Whether a count shows that a limit on all showings is kept; a fast way to yes."""
    if not bound.limit.is_plain:
        return False
    shown = lists[lists >= 0]
    inside, allowed = int(bound.members[shown].sum()), bound.limit.share * len(shown)
    return inside >= allowed if bound.limit.is_floor else inside <= allowed


def frame_of(state: ServingState, asked: Sequence[Person], served: RankedLists) -> pl.DataFrame:
    """user, rank, item, score, value."""
    rows, places = np.nonzero(served.lists >= 0)
    names = [one.id for one in asked]
    if any(isinstance(one, str) for one in names):
        names = [str(one) for one in names]
    items = state.catalogue.ids[served.lists[rows, places]]
    nothing = np.full(len(rows), np.nan)
    numbers = {
        name: nothing if some is None else some[rows, places]
        for name, some in (("score", served.scores), ("value", served.values))
    }
    # a list of series takes half the time of a dictionary, which a call for one user notices
    return pl.DataFrame(
        [
            pl.Series("user", [names[row] for row in rows.tolist()]),
            pl.Series("rank", places + 1),
            pl.Series("item", items.tolist() if items.dtype == object else items),
            *(pl.Series(name, cells, nan_to_null=True) for name, cells in numbers.items()),
        ]
    )
