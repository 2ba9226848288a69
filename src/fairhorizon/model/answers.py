"""From ids to requests, and from lists to frames."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from fairhorizon.errors import ConfigError, DataError
from fairhorizon.fcpo.retention.replay import FittedRetention, with_user_weights
from fairhorizon.limits.bound import BoundLimit
from fairhorizon.limits.measured import limit_reached
from fairhorizon.model.people import Person, stranger
from fairhorizon.model.requests import Requests
from fairhorizon.model.state import ServingState
from fairhorizon.recommenders.served import Served
from fairhorizon.simulation.feedback import Scenario

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
        found.append(stranger(key, codes))
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
    state: ServingState, requests: Requests, outlook: FittedRetention | None
) -> Scenario:
    """What is asked for; with an outlook, users count by what a like of theirs is worth."""
    scenario = requests.scenario(state.people, state.n_items, state.serving.queue_length)
    if outlook is None:
        return scenario
    return with_user_weights(state.serving, scenario, outlook, [one.id for one in requests.persons])


@torch.inference_mode()
def serve(
    state: ServingState, requests: Requests, length: int, outlook: FittedRetention | None = None
) -> Served:
    """Lists under the limits, for nobody an empty one."""
    if not requests.persons:
        return Served(np.empty((0, length), dtype=np.int64))
    scenario = scenario_of(state, requests, outlook)
    return state.serving.served(scenario, length=min(length, state.n_items))


def warn_if_broken(state: ServingState, served: Served) -> None:
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


def kept_in_whole_showings(bound: BoundLimit, lists: NDArray[np.int64]) -> bool:
    """Whether a limit on all showings is exceeded by less than one of them."""
    if not bound.limit.is_plain:
        return False
    shown = lists[lists >= 0]
    beyond = float(bound.members[shown].sum()) - bound.limit.share * len(shown)
    return abs(beyond) < 1


def clearly_kept(bound: BoundLimit, lists: NDArray[np.int64]) -> bool:
    """Whether a count shows that a limit on all showings is kept; a fast way to yes."""
    if not bound.limit.is_plain:
        return False
    shown = lists[lists >= 0]
    inside, allowed = int(bound.members[shown].sum()), bound.limit.share * len(shown)
    return inside >= allowed if bound.limit.is_floor else inside <= allowed


def frame_of(state: ServingState, asked: Sequence[Person], served: Served) -> pl.DataFrame:
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
