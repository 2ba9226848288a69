"""From ids to lists under limits, and from lists to frames."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.items import ItemTable
from fairhorizon.data.splits import Ties, with_ties
from fairhorizon.errors import ConfigError, DataError
from fairhorizon.fcpo.retention.replay import FittedRetention, with_user_weights
from fairhorizon.limits.groups import popular_group
from fairhorizon.limits.language import Limit
from fairhorizon.limits.measured import limit_reached
from fairhorizon.limits.resolved import ResolvedLimit, resolve_limits
from fairhorizon.model.cold_start import Catalogue, ColdStartItems, ColdStartRanker
from fairhorizon.model.fitting import group_of, own_limit
from fairhorizon.model.requests import People, Person, Requests, anonymous_user
from fairhorizon.recommenders.base import Recommender
from fairhorizon.recommenders.ranked_lists import RankedLists
from fairhorizon.simulation.feedback import Scenario

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
    return state.serving.served(scenario, length=min(length, state.n_items))


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
