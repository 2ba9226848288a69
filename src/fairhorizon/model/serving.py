"""From ids to lists under limits, and from lists to frames.

`UserHistories` and `Requests` hold who asks for what, `ServingState` is everything that a list is
made from, and `serve` and `lists_frame` make the answer.
"""

import copy
import re
import warnings
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch import Tensor

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.items import ItemTable
from fairhorizon.data.splits import Ties, with_ties
from fairhorizon.errors import ConfigError, DataError, of_type, whole_number
from fairhorizon.fcpo.retention.replay import FittedRetention, with_user_weights
from fairhorizon.histories import UserItems
from fairhorizon.limits.groups import popular_group
from fairhorizon.limits.language import POPULAR, GroupOf, Limit
from fairhorizon.limits.measured import limit_reached
from fairhorizon.limits.resolved import ResolvedLimit, resolve_limits
from fairhorizon.limits.supported import check_supported
from fairhorizon.model.cold_start import Catalogue, ColdStartItems, ColdStartRanker
from fairhorizon.model.observe import ObservedRows
from fairhorizon.recommenders.base import RankedLists, Recommender
from fairhorizon.simulation.feedback import Scenario

Codes = NDArray[np.int64]
Times = NDArray[np.float64]
Group = NDArray[np.bool_]  # (n_items,)


@dataclass(frozen=True, eq=False)
class UserHistory:
    """A user and the items that they have taken."""

    id: Any
    code: int  # of the user in the log that the model was fitted on; -1: not in it
    items: Codes  # (n,) taken so far, in time order
    times: Times | None = None  # (n,) when each was taken last, in seconds

    @classmethod
    def from_items(cls, user: Any, items: Sequence[int] | Codes) -> Self:
        """Somebody who is not in the log; an item that is repeated counts once."""
        return cls(user, -1, np.array(list(dict.fromkeys(items)), dtype=np.int64))


class UserHistories:
    """The users of a log and what they have taken, with the rows that were observed since."""

    def __init__(self, log: Interactions) -> None:
        self.log = log  # ties in the order that the model was fitted on
        self._indptr, self._items = log.by_user()
        self._times: Times | None = None
        times = log.timestamps if log.last_times is None else log.last_times
        if times is not None:
            order = np.argsort(log.users, kind="stable")
            self._times = times[order].astype(np.float64)
        self._codes = {str(one): code for code, one in enumerate(log.user_ids.tolist())}
        # users who were observed since the fit, with their whole history: looked up before the log
        self._since: dict[str, UserHistory] = {}
        self.last_time = float(self._times.max()) if self._times is not None else 0.0

    @property
    def ids(self) -> list[Any]:
        """The ids of all users, in the order of the log, then those who are new."""
        known = self.log.user_ids.tolist()
        return [*known, *(one.id for key, one in self._since.items() if key not in self._codes)]

    def find(self, user: Any) -> UserHistory | None:
        """The history of a user; None for an unknown id."""
        key = str(user)
        if key in self._since:
            return self._since[key]
        code = self._codes.get(key)
        if code is None:
            return None
        rows = slice(self._indptr[code], self._indptr[code + 1])
        times = None if self._times is None else self._times[rows]
        return UserHistory(self.log.user_ids[code], code, self._items[rows], times)

    def after(self, rows: ObservedRows, codes: Mapping[str, int]) -> "UserHistories":
        """New histories that include later rows.

        rows: in time order.
        codes: the code of every item in the rows, by the text of its id.
        """
        # a copy, so that lists that are being made from the present histories do not see half of it
        later = copy.copy(self)
        later._since = dict(self._since)
        times: Sequence[float | None] = rows.times or [None] * len(rows)
        for user, item, time in zip(rows.users, rows.items, times, strict=True):
            later._add(user, codes[str(item)], time)
        return later

    def _add(self, user: Any, item: int, time: float | None) -> None:
        known = self.find(user) or UserHistory(user, -1, np.empty(0, dtype=np.int64), np.empty(0))
        items, times = known.items, known.times
        again = np.flatnonzero(items == item)
        # as a reader of the log merges repeats: "last" moves the item to the end of the history,
        # "first" leaves it where it is and only notes the time
        if len(again) and self.log.repeats == "last":
            items = np.delete(items, again)
            times = None if times is None else np.delete(times, again)
            again = again[:0]
        if len(again):
            if times is not None and time is not None:
                times = times.copy()
                times[again] = np.maximum(times[again], time)
        else:
            items = np.append(items, item)
            times = None if times is None or time is None else np.append(times, time)
        self._since[str(user)] = UserHistory(known.id, known.code, items, times)
        if time is not None:
            self.last_time = max(self.last_time, time)

    def most_like(self, items: Codes) -> int:
        """The code of the user with the most similar items (cosine); 0 if no user shares any.

        Methods that learn a vector for every user have none for somebody new, who gets that of the
        most similar user instead.
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


DAY = 86_400.0  # seconds
AFTER = re.compile(r"after\s+(\d+(?:\.\d+)?)\s+days?", re.IGNORECASE)


@dataclass(frozen=True)
class RepeatRule:
    """When an item may be shown to somebody who took it."""

    days: float | None = None  # that must have passed since then; None: never again. 0: at once

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

    def blocked(self, user: UserHistory, now: float) -> Codes:
        """The items of a history that may not be shown again at the time `now`, in seconds."""
        if self.days is None:
            return user.items
        if self.days == 0:
            return user.items[:0]
        if user.times is None:
            # a history that was given with the request never has times: its items stay blocked
            if len(user.items) and user.code >= 0:
                raise ConfigError(
                    f"repeats after {self.days:g} days: the log has no times (name its column: "
                    'fh.load(..., time=...), or give repeats="yes")'
                )
            return user.items
        return user.items[user.times > now - self.days * DAY]


NO_ITEMS = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Requests:
    """The users who lists are made for, and what they may be shown."""

    users: Sequence[UserHistory]
    excluded: NDArray[np.bool_] | None  # (n_items,) shown to nobody; None: nothing
    repeats: RepeatRule

    def scenario(self, known: UserHistories, n_items: int, queue_length: int) -> Scenario:
        """The state of every user, as recommenders take it.

        known: the users of the log.
        n_items: that the recommender can show; those of the log come first.
        queue_length: the longest history that the recommender looks at, in items.
        """
        blocked = [self.repeats.blocked(one, known.last_time) for one in self.users]
        pointers = np.zeros(len(blocked) + 1, dtype=np.int64)
        pointers[1:] = np.cumsum([len(items) for items in blocked])
        # concatenate refuses an empty list, which no users would give
        flat = np.concatenate([*blocked, NO_ITEMS])
        # nothing is held out: what a user will like is not known here
        nothing = UserItems(
            torch.from_numpy(np.zeros_like(pointers)), torch.from_numpy(NO_ITEMS), n_items
        )
        codes = [one.code if one.code >= 0 else known.most_like(one.items) for one in self.users]
        return Scenario(
            self._queue(known.log.n_items, queue_length),
            nothing,
            UserItems(torch.from_numpy(pointers), torch.from_numpy(flat), n_items),
            codes=torch.from_numpy(np.array(codes, dtype=np.int64)),
            taken=torch.from_numpy(np.array([len(one.items) for one in self.users], np.int64)),
            never_shown=None if self.excluded is None else torch.from_numpy(self.excluded),
        )

    def _queue(self, n_fitted: int, longest: int) -> Tensor:
        """(b, N) the most recent items that the model knows; as wide as the longest history."""
        # items that are new to the model are in nobody's features: rankers have no column for them
        recent = [one.items[one.items < n_fitted][-longest:] for one in self.users]
        width = max(1, *(len(items) for items in recent))
        # padded on the left with the code behind the last item, as rankers expect it
        queue = np.full((len(recent), width), n_fitted, dtype=np.int64)
        for row, items in enumerate(recent):
            if len(items):
                queue[row, -len(items) :] = items
        return torch.from_numpy(queue)


NO_COLUMN = "name one, or give the table of items that has it: fh.fit(..., items=...)"


@dataclass(frozen=True, eq=False)
class ServingState:
    """Everything that lists are made from. It never changes: a new one replaces it."""

    recommender: Recommender  # as it was fitted
    users: UserHistories
    catalogue: Catalogue
    limits: tuple[ResolvedLimit, ...]
    unlimited: Recommender  # the same over new items too, without the limits
    serving: Recommender  # under the limits

    @classmethod
    def from_recommender(
        cls,
        recommender: Recommender,
        users: UserHistories,
        catalogue: Catalogue,
        limits: Sequence[Limit],
    ) -> "ServingState":
        """A fitted recommender, extended to the new items of the catalogue, under the limits."""
        counts, unlimited = catalogue.log.item_counts(), recommender
        resolved = resolve_for(limits, catalogue, recommender.popular_share)
        if recommender.rankers:
            cold_start = ColdStartItems.from_catalogue(catalogue)
            rankers = [ColdStartRanker(one, cold_start, counts) for one in recommender.rankers]
            group = torch.from_numpy(limited_items(catalogue, limits, recommender.popular_share))
            new = group[catalogue.n_fitted :].to(recommender.sensitive_)
            unlimited = recommender.with_rankers(rankers, torch.cat([recommender.sensitive_, new]))
        else:
            # a recommender without rankers cannot score new items, so it does not show any
            resolved = [ResolvedLimit(one.limit, one.members[: len(counts)]) for one in resolved]
        serving = unlimited.with_limits(resolved) if resolved else unlimited
        return cls(recommender, users, catalogue, tuple(resolved), unlimited, serving)

    @cached_property
    def n_items(self) -> int:
        """Number of items that can be shown."""
        return len(self.unlimited.sensitive_)

    @cached_property
    def queue_length(self) -> int:
        """How many of a user's recent items lists are made from."""
        return self.serving.queue_length

    def with_limits(self, limits: Sequence[Limit], table: ItemTable | None) -> "ServingState":
        """Under other limits, or under none.

        table: of items, with all columns that the limits are about.
        """
        now, fitted = self.catalogue, self.recommender
        catalogue = Catalogue.from_log(now.log, table, now.new, area_km=now.area_km)
        resolved = [
            ResolvedLimit(one.limit, one.members[: self.n_items])
            for one in resolve_for(limits, catalogue, fitted.popular_share)
        ]
        group = self.unlimited.sensitive_.cpu().numpy()
        check_supported(fitted.method, fitted.supported_limits, resolved, group)
        if resolved:
            serving = self.unlimited.with_limits(resolved)
        else:
            # The level of fcpo@0.4 or ease+quota@0.4 is a limit, too.
            has_level = self.unlimited.capabilities.level_is_share
            serving = self.unlimited.with_level(1.0) if has_level else self.unlimited
        return replace(self, catalogue=catalogue, limits=tuple(resolved), serving=serving)

    def log_with_new_ids(self) -> Interactions:
        """The log of the fit, with the ids of users and items that came later behind its own."""
        log, ids, items = self.users.log, self.users.ids, self.catalogue.ids[: self.n_items]
        texts = any(isinstance(one, str) for one in ids)
        users = np.array(list(map(str, ids)) if texts else ids, dtype=object)
        return replace(log, user_ids=users, item_ids=items, attributes={})

    def with_items(
        self, ids: Iterable[Any], table: ItemTable | None, limits: Sequence[Limit]
    ) -> "ServingState":
        """With further new items, and a table that may describe them."""
        now = self.catalogue
        more = Catalogue.from_log(now.log, table, (*now.new, *ids), area_km=now.area_km)
        return ServingState.from_recommender(self.recommender, self.users, more, limits)


def resolve_for(
    limits: Sequence[Limit], catalogue: Catalogue, popular_share: float
) -> list[ResolvedLimit]:
    """The limits with the members of their groups among the items of a catalogue.

    popular_share: the share of items that count as popular. Items that are new are not popular,
        and what is popular stays as it was at the fit.
    """
    resolved = resolve_limits(limits, catalogue.counts, catalogue.attribute, elsewhere=NO_COLUMN)
    popular = _with_new(popular_group(catalogue.log.item_counts(), popular_share), catalogue)
    return [ResolvedLimit(one.limit, popular) if one.is_dynamic else one for one in resolved]


def limited_items(
    catalogue: Catalogue, limits: Sequence[Limit], popular_share: float
) -> NDArray[np.bool_]:
    """(n_items,) the group that a method is fitted for: that of `level_limit`, else the popular."""
    own = level_limit(limits)
    group = members_of(own, resolve_for([] if own is None else [own], catalogue, popular_share))
    if group is None:
        group = _with_new(popular_group(catalogue.log.item_counts(), popular_share), catalogue)
    return group


def level_limit(limits: Sequence[Limit]) -> Limit | None:
    """The limit whose share is the level of a method, if there is one.

    It is a largest share of all showings: the one on the popular items, else the first.
    """
    levels = [limit for limit in limits if limit.is_plain and not limit.is_floor]
    on_popular = [limit for limit in levels if limit.group == GroupOf(POPULAR)]
    return next(iter(on_popular or levels), None)


def members_of(limit: Limit | None, resolved: Sequence[ResolvedLimit]) -> Group | None:
    """The members of the group of one of the limits; None: the popular items."""
    if limit is None or limit.group == GroupOf(POPULAR):
        return None
    return next((one.members for one in resolved if one.limit == limit), None)


def with_ties_in_order(log: Interactions, ties: Ties) -> Interactions:
    """The log with the interactions of one time in the order that `ties` gives."""
    # the fit has warned about ties already
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
NAMED_IDS = 3  # unknown ids that a warning names


class LimitsNotKeptWarning(UserWarning):
    """The lists of a call could not keep a limit."""


def find_users(
    state: ServingState, users: Iterable[Any] | None, histories: Histories | None
) -> list[UserHistory]:
    """The histories of the users whom lists are asked for, each once; DataError for unknown ids.

    users: ids; None: all users of the log, or none where histories are given.
    histories: of users who are not in the log, ids of items by a name.
    """
    if users is None and histories is None:
        users = state.users.ids
    found = []
    for user in dict.fromkeys(as_list(() if users is None else users)):
        known = state.users.find(user)
        if known is None:
            raise DataError(
                f"user {user!r} is not in {state.users.log.name or 'the log'}",
                remedy='give what they took: histories={"' + str(user) + '": [...]}',
            )
        found.append(known)
    if histories is not None:
        of_type(histories, Mapping, "histories", "give {name: [items], ...}, oldest first")
    for key, items in (histories or {}).items():
        codes, unknown = state.catalogue.find(as_list(items))
        warn_of_unknown(f"histories of {key!r}", unknown)
        found.append(UserHistory.from_items(key, codes))
    return found


def warn_of_unknown(what: str, unknown: Sequence[Any]) -> None:
    """Warn of ids that are not those of any item."""
    if unknown:
        some = ", ".join(map(repr, unknown[:NAMED_IDS])) + (
            ", ..." if len(unknown) > NAMED_IDS else ""
        )
        warnings.warn(f"{what}: no item is called {some}: ignored", stacklevel=4)


def as_list(ids: Iterable[Any]) -> Iterable[Any]:
    """Ids; one alone is a list of one, not of its letters."""
    if isinstance(ids, str | int):
        return [ids]
    of_type(ids, Iterable, "what should be ids", "give a list of them")
    ids = list(ids)
    if wrong := [one for one in ids if not isinstance(one, Hashable)]:
        raise DataError(f"{wrong[0]!r} is no id", remedy="give a list of ids, as in ['u17', 'u4']")
    return ids


def excluded_items(
    state: ServingState, exclude: Iterable[Any] | None, candidates: Iterable[Any] | None
) -> NDArray[np.bool_] | None:
    """(n_items,) bool, true for items that nobody may be shown; None: all may be shown."""
    if exclude is None and candidates is None:
        return None
    excluded = np.zeros(state.catalogue.n_items, dtype=np.bool_)
    if candidates is not None:
        codes, unknown = state.catalogue.find(as_list(candidates))
        warn_of_unknown("candidates", unknown)
        excluded[:] = True
        excluded[codes] = False
    if exclude is not None:
        codes, unknown = state.catalogue.find(as_list(exclude))
        warn_of_unknown("exclude", unknown)
        excluded[codes] = True
    # the catalogue may know items that the recommender cannot show
    return excluded[: state.n_items]


def checked_length(k: int) -> int:
    """The length of a list, if it is one."""
    k = whole_number(k, "k", "give 1 or more")
    if k < 1:
        raise ConfigError(f"k = {k}: a list has at least one item (give 1 or more)")
    return k


def request_scenario(
    state: ServingState, requests: Requests, retention: FittedRetention | None
) -> Scenario:
    """The states of the users who lists are made for.

    retention: with it, a user's values are multiplied by what a like of theirs is worth for later.
    """
    scenario = requests.scenario(state.users, state.n_items, state.queue_length)
    if retention is None:
        return scenario
    return with_user_weights(state.serving, scenario, retention, [one.id for one in requests.users])


@torch.inference_mode()
def serve(
    state: ServingState, requests: Requests, length: int, retention: FittedRetention | None = None
) -> RankedLists:
    """Lists of at most `length` items per user, which together keep the limits."""
    if not requests.users:
        return RankedLists(np.empty((0, length), dtype=np.int64))
    scenario = request_scenario(state, requests, retention)
    return state.serving.rank(scenario, length=min(length, state.n_items))


def warn_if_broken(state: ServingState, served: RankedLists) -> None:
    """Warn of every limit that these lists miss, once for all that are missed by a rounding."""
    rounded = []
    for limit in state.limits:
        # measuring a limit takes longer than making a list for one user: a count comes first
        if clearly_kept(limit, served.lists):
            continue
        reached = limit_reached(limit, served.lists)
        if reached.kept:
            continue
        if kept_in_whole_showings(limit, served.lists):
            rounded.append(limit)
            continue
        warnings.warn(
            f"{limit}: not kept by these {len(served.lists):,} lists, which reach "
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


def kept_in_whole_showings(limit: ResolvedLimit, lists: NDArray[np.int64]) -> bool:
    """Whether a limit on all showings is exceeded by less than one of them."""
    if not limit.limit.is_plain:
        return False
    shown = lists[lists >= 0]
    beyond = float(limit.members[shown].sum()) - limit.limit.share * len(shown)
    return abs(beyond) < 1


def clearly_kept(limit: ResolvedLimit, lists: NDArray[np.int64]) -> bool:
    """Whether a mere count shows that a limit on all showings is kept; False: measure it."""
    if not limit.limit.is_plain:
        return False
    shown = lists[lists >= 0]
    inside, allowed = int(limit.members[shown].sum()), limit.limit.share * len(shown)
    return inside >= allowed if limit.limit.is_floor else inside <= allowed


def lists_frame(
    state: ServingState, asked: Sequence[UserHistory], served: RankedLists
) -> pl.DataFrame:
    """A row per place of a list: user, rank (from 1), item, score and value (null: unknown)."""
    rows, places = np.nonzero(served.lists >= 0)
    names = [one.id for one in asked]
    # a column has one type: with one id that is text, all are
    if any(isinstance(one, str) for one in names):
        names = [str(one) for one in names]
    items = state.catalogue.ids[served.lists[rows, places]]
    nothing = np.full(len(rows), np.nan)
    numbers = {
        name: nothing if some is None else some[rows, places]
        for name, some in (("score", served.scores), ("value", served.values))
    }
    # columns that are added to the first are not checked again, which a call for one user notices
    return (
        pl.Series("user", [names[row] for row in rows.tolist()])
        .to_frame()
        .hstack(
            [
                pl.Series("rank", places + 1),
                pl.Series("item", items.tolist() if items.dtype == object else items),
                *(pl.Series(name, cells, nan_to_null=True) for name, cells in numbers.items()),
            ]
        )
    )
