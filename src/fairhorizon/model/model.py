"""`Model`: fit or open one, recommend and explain by ids, observe new rows, refresh, save."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import polars as pl
import torch

from fairhorizon.allocation.conflicts import check_before_fit
from fairhorizon.allocation.guard import ExposureGuard
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.items import ItemTable, log_attribute, merged_tables
from fairhorizon.data.loading import load, load_items
from fairhorizon.data.locations import AREA, AREA_KM, coordinates_among
from fairhorizon.data.response_log import ResponseLog, load_responses
from fairhorizon.data.splits import Ties, split, uncut, with_ties
from fairhorizon.datasets import DataSpec
from fairhorizon.errors import ConfigError, ModelError, path_of
from fairhorizon.fcpo.retention.replay import FittedRetention, check_weighs, learn_from_answers
from fairhorizon.limits.groups import popular_group
from fairhorizon.limits.language import Limit, parsed_limits
from fairhorizon.limits.supported import check_supported
from fairhorizon.methods import Method, build
from fairhorizon.model.card import LogInfo
from fairhorizon.model.cold_start import Catalogue
from fairhorizon.model.explain import Explanation, explained
from fairhorizon.model.folder import (
    ITEMS,
    LOG,
    OBSERVED,
    ModelFolder,
    items_frame,
    log_frame,
    observed_frame,
)
from fairhorizon.model.observe import ObservedRows, described, joined
from fairhorizon.model.serving import (
    Group,
    Histories,
    RepeatRule,
    Requests,
    ServingState,
    UserHistories,
    check_table,
    checked_length,
    excluded_items,
    find_users,
    level_limit,
    limited_items,
    lists_frame,
    members_of,
    request_scenario,
    resolve_for,
    serve,
    warn_if_broken,
    with_ties_in_order,
)
from fairhorizon.recommenders.base import Recommender
from fairhorizon.recommenders.progress import SILENT, Listener, shown_to_people
from fairhorizon.settings import Given
from fairhorizon.vocabulary import ListValue


class Model:
    """A method fitted on the whole log, made by `fit` or `open_model`. Ids go in, frames come out.

    Several threads may call it at once. A call sees the model as it was before an `observe` or a
    `refresh`, or as it is afterwards, never in between.
    """

    def __init__(
        self,
        recommender: Recommender,
        method: str,
        log: Interactions,
        *,
        limits: Sequence[Limit] = (),
        table: ItemTable | None = None,
        ties: Ties = "auto",
        area_km: float = AREA_KM,
        retention: FittedRetention | None = None,
        ordered: Interactions | None = None,
    ) -> None:
        """method: its name as given to the fit.  ordered: the log with ties in order, if known."""
        self._log, self._table, self._ties = log, table, ties
        self._limits, self._method, self._area_km = tuple(limits), method, area_km
        self._retention = retention
        self._rows: list[ObservedRows] = []  # observed since the fit
        # One `observe`, `refresh` or `save` at a time; `recommend` needs no lock, as it reads
        # `_state` once and that object never changes.
        self._changing = threading.Lock()
        users = UserHistories(with_ties_in_order(log, ties) if ordered is None else ordered)
        catalogue = Catalogue.from_log(users.log, table, area_km=area_km)
        self._state = ServingState.from_recommender(recommender, users, catalogue, self._limits)

    def __repr__(self) -> str:
        state = self._state
        limits = ", ".join(self.limits) or "no limits"
        return (
            f"<fairhorizon.Model {self._method}: {len(self.users):,} users, {state.n_items:,} "
            f"items, {limits}>"
        )

    @property
    def state(self) -> ServingState:
        """Everything that lists are made from at this moment."""
        return self._state

    @property
    def method(self) -> str:
        """The name of the method."""
        return self._method

    @property
    def limits(self) -> tuple[str, ...]:
        """The limits that all lists of one call keep together, as they were written."""
        return tuple(map(str, self._limits))

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the method, as they can be given to `fit`."""
        return self._state.recommender.all_settings()

    @property
    def users(self) -> list[Any]:
        """The ids of all users; those who came after the fit are last."""
        return self._state.users.ids

    @property
    def items(self) -> list[Any]:
        """The ids of all items that can be shown; those that came after the fit are last."""
        state = self._state
        ids: list[Any] = state.catalogue.ids[: state.n_items].tolist()
        return ids

    @property
    def retention(self) -> FittedRetention | None:
        """What a like is worth for later, learned from answers; None: there were none."""
        return self._retention

    def recommend(
        self,
        users: Iterable[Any] | None = None,
        k: int = 10,
        *,
        histories: Histories | None = None,
        exclude: Iterable[Any] | None = None,
        candidates: Iterable[Any] | None = None,
        repeats: str | None = None,
        limits: Iterable[str] | None = None,
        value: str = ListValue.NDCG,
    ) -> pl.DataFrame:
        """Lists of at most `k` items; together they keep the limits of the model.

        users: ids of users of the log, or observed since; None: all of them, or nobody where
            histories are given.
        k: the length of a list.
        histories: for people who are not in the log, the items that they took, oldest first, by a
            name of your choice. An empty history gets the most popular items, under the limits.
        exclude: ids of items that nobody is shown, such as those out of stock.
        candidates: ids of the items that may be shown; None: all. Of both, unknown ids are ignored,
            and a warning says so.
        repeats: whether somebody may be shown what they took: "no" (the default), "yes", or "after
            7 days" since they took it last, counted back from the newest time in the log.
        limits: that these lists keep in place of those of the model, as in ["popular<=0.3"].
        value: what the lists make as much of as they can under the limits. "ndcg": what users like
            now. "long": a user's values are multiplied by what a like of theirs is worth for later,
            so that scarce items go to users who stay because of them; needs a model that was fitted
            with answers.

        Returns a frame with a row per place: user, rank (from 1), item, score (the chance that the
        user takes the item next, where the method calibrates it, else the score of its ranker) and
        value (what the showing is worth, in units of the user's NDCG); null where a method has
        none. `to_pandas()` makes it a pandas frame.
        """
        state = self._state
        if limits is not None:
            asked = parsed_limits(limits)
            columns = _columns_of_log(self._log, self._table, asked)
            state = state.with_limits(asked, merged_tables(self._table, columns))
        excluded = excluded_items(state, exclude, candidates)
        requests = Requests(
            find_users(state, users, histories), excluded, RepeatRule.parse(repeats)
        )
        served = serve(state, requests, checked_length(k), self.retention_for(value))
        warn_if_broken(state, served)
        return lists_frame(state, requests.users, served)

    def retention_for(self, value: str) -> FittedRetention | None:
        """What lists of this `value` need of retention; ConfigError if nothing was learned."""
        if value == ListValue.NDCG:
            return None
        if value != ListValue.LONG:
            raise ConfigError(f'value={value!r} (give "ndcg" or "long")')
        if self._retention is None:
            raise ConfigError(
                "value=long: the model has learned from no answers (fit it with a record of them: "
                "fairhorizon fit ... --answers FILE, fh.fit(..., answers=...))"
            )
        return self._retention

    def explain(
        self,
        user: Any = None,
        k: int = 10,
        *,
        history: Sequence[Any] | None = None,
        value: str = ListValue.NDCG,
    ) -> Explanation:
        """Why somebody is shown these items, what the limits changed, and at what price.

        user: the id of a user.
        k: the length of the list, which is that of `recommend([user], k)`.
        history: for somebody who is not in the log, the items that they took, oldest first.
        value: as in `recommend`.

        Returns an explanation: `frame` has a row per item, `text` says it in words.
        """
        state = self._state
        if history is None:
            (person,) = find_users(state, [user], None)
        else:
            (person,) = find_users(state, None, {"" if user is None else user: history})
        return explained(state, person, checked_length(k), self.retention_for(value))

    def observe(self, rows: Any) -> "Model":
        """Add new interactions: histories change at once, the fit itself with the next `refresh`.

        rows: a frame with the columns of the log, later than what it has. Users and items may be
            new; a new item is scored like those that share its attributes until the next refresh.
            Columns that limits are about, or that the table of items has, describe new items.

        Returns the model.
        """
        with self._changing:
            new = ObservedRows.from_frame(rows, self._log)
            self._table = merged_tables(self._table, described(rows, self._log, self._table))
            state = self._state
            if unknown := state.catalogue.find(new.items)[1]:
                state = state.with_items(unknown, self._table, self._limits)
            self._rows.append(new)
            # One assignment, so that no other thread sees new histories with old items.
            self._state = replace(state, users=state.users.after(new, state.catalogue.codes))
        return self

    def refresh(self, *, listener: Listener = SILENT) -> "Model":
        """Fit again, on the log with everything observed since, with the settings chosen before.

        Rankers in closed form (all of fcpo's preset fast) are then the same as if they had been
        fitted from scratch on the longer log with these settings.

        listener: receives the progress.

        Returns the model.
        """
        with self._changing:
            log = joined(self._rows).after(self._log) if self._rows else self._log
            users = UserHistories(with_ties_in_order(log, self._ties))
            catalogue = Catalogue.from_log(users.log, self._table, area_km=self._area_km)
            before = self._state.recommender
            # Items that only the table has stay behind those of the log: the fit does not see them.
            items = limited_items(catalogue, self._limits, before.popular_share)
            group = items[: catalogue.n_fitted]
            fitted = before.refitted(uncut(users.log), sensitive=group, listener=listener)
            self._state = ServingState.from_recommender(fitted, users, catalogue, self._limits)
            self._log, self._rows = log, []
        return self

    def server(
        self, guard: ExposureGuard | None = None, *, value: str = ListValue.NDCG
    ) -> "ModelServer":
        """A server of single requests, whose limits hold over all of them at any moment.

        guard: has counted the showings so far, such as one of `ExposureGuard.load`; None: nothing
            was shown yet.
        value: as in `recommend`.

        Returns a server with a `recommend` for one user. It follows later calls of `observe` and
        `refresh`.
        """
        return ModelServer(self, guard, value=value)

    def save(self, folder: str | Path) -> None:
        """Write the model to a run folder, for `open_model` and `fairhorizon recommend`.

        folder: a new folder, or one that `save` wrote.
        """
        with self._changing:
            log, folder = self._log, path_of(folder)
            if folder.exists() and not folder.is_dir():
                raise ModelError(f"{folder}: is no folder (name a new one)")
            # Only what `save` wrote has a copy of its log; anything else is not ours to replace.
            if folder.exists() and any(folder.iterdir()) and not (folder / LOG).exists():
                raise ModelError(f"{folder}: holds something else (name a new folder)")
            frames = {LOG: log_frame(log)}
            if self._table is not None:
                frames[ITEMS] = items_frame(self._table)
            if self._rows:
                frames[OBSERVED] = observed_frame(self._rows)
            ModelFolder(folder).write(
                self._state.recommender,
                DataSpec(source=LOG, area_km=self._area_km, cut="none", ties=self._ties),
                limits=self.limits,
                item_table=ITEMS if ITEMS in frames else None,
                retention=self._retention,
                asked=self._method,
                log=LogInfo.from_log(log),
                frames=frames,
            )


class ModelServer:
    """Serves the users of a model one by one, made by `Model.server`.

    After every request the limits hold for everything that was shown so far. May be called from
    several threads.
    """

    def __init__(
        self,
        model: Model,
        guard: ExposureGuard | None = None,
        *,
        value: str = ListValue.NDCG,
    ) -> None:
        recommender = model._state.recommender
        if not recommender.capabilities.requests:
            raise ConfigError(
                f"{recommender.method} does not serve one request after the other (use fcpo)"
            )
        # Refuses a value that the model has not learned.
        model.retention_for(value)
        self._model, self._guard, self._making, self._value = model, guard, threading.Lock(), value

    @property
    def guard(self) -> ExposureGuard | None:
        """The guard that counts showings and keeps limits; None before the first request."""
        return self._guard

    def recommend(
        self,
        user: Any = None,
        k: int = 10,
        *,
        history: Sequence[Any] | None = None,
        exclude: Iterable[Any] | None = None,
        candidates: Iterable[Any] | None = None,
        repeats: str | None = None,
    ) -> pl.DataFrame:
        """The list of one user. Its showings are counted, and later requests get what is left.

        user: the id of a user of the log, or observed since.
        k: the length of the list.
        history: for somebody who is not in the log, the items that they took, oldest first.
        exclude, candidates, repeats: as in `Model.recommend`.

        Returns a frame as `Model.recommend` does.
        """
        state = self._model._state
        if history is None:
            asked = find_users(state, [user], None)
        else:
            asked = find_users(state, None, {"" if user is None else user: history})
        excluded = excluded_items(state, exclude, candidates)
        requests = Requests(asked, excluded, RepeatRule.parse(repeats))
        length = min(checked_length(k), state.n_items)
        guard = self._guarding(state.serving, length)
        with torch.inference_mode():
            scenario = request_scenario(state, requests, self._model.retention_for(self._value))
            served = state.serving.rank_one_by_one(scenario, length, guard)
        return lists_frame(state, asked, served)

    def _guarding(self, recommender: Recommender, length: int) -> ExposureGuard:
        """The one guard of this server; its first prices are for the first length asked."""
        # Two first requests at once must not get a guard each: one would not be counted.
        with self._making:
            if self._guard is None:
                self._guard = recommender.request_guard(length)
            return self._guard


def fit_whole(
    draft: Recommender,
    log: Interactions,
    *,
    group: Group | None = None,
    listener: Listener = SILENT,
) -> Recommender:
    """Fit a method on every row of the log, with settings that suit its newest part.

    A first fit leaves out the last item of every user and makes all choices (settings and weights
    of rankers, epochs, the policy, the calibration of scores, prices), on that item and the last
    fifth of those before it. Then what is estimated from the log is estimated again, from all of
    it. Methods that are trained on a log from beginning to end (lird, fcpo:paper) are trained a
    second time.

    draft: the method before its fit.
    log: the log, ties in the order wanted.
    group: (n_items,) bool, whose exposure the method limits; None: the popular items.
    listener: receives the progress.
    """
    newest = split(log, test_share=0.0, ties="keep")
    chosen = draft.fit(newest, sensitive=group, listener=listener)
    if group is None:
        # Of the whole log: without the last items, others may have been popular.
        group = popular_group(log.item_counts(), draft.popular_share)
    return chosen.refitted(uncut(log), sensitive=group, listener=listener)


def with_level(method: Method, limits: Sequence[Limit]) -> tuple[Limit, ...]:
    """The limits, with that in the name of the method: `fcpo@0.4` has `popular<=0.4`."""
    if method.level is None or not method.capabilities.level_is_share:
        return tuple(limits)
    level = Limit.popular(method.level)
    for limit in limits:
        if limit.group == level.group and limit.is_plain and not limit.is_floor:
            method.limited_to(limit.share)  # refuses two shares that differ
            return tuple(limits)
    return (level, *limits)


def at_level_of(method: Method, limits: Sequence[Limit]) -> Method:
    """The method at the share of its `level_limit`, unless it has a level already."""
    own = level_limit(limits)
    if own is None or method.level is not None or not method.capabilities.level_is_share:
        return method
    # A level is above 0; a limit of 0 is kept by the list engine alone.
    return method.limited_to(own.share) if own.share > 0 else method


AWAY = 14.0  # days


@dataclass(frozen=True)
class RetentionData:
    """What retention is learned from: responses to showings, and the log of the fit."""

    record: ResponseLog
    log: Interactions
    # days without a showing at the end of the record, after which a user has left
    away: float = AWAY

    def __str__(self) -> str:
        left = int(self.record.left(self.away).sum())
        return (
            f"{len(self.record):,} answers of {len(self.record.ids):,} users, of whom {left:,} left"
        )

    @classmethod
    def read(cls, source: Any, away: float, draft: Recommender, log: Interactions) -> Self:
        """From a frame or a file with a row per showing (see `load_responses`).

        away: days without a showing, after which a user has left.
        draft: the method before its fit.
        """
        # Refused before the fit, which may take hours, and not after it.
        check_weighs(draft)
        if not away > 0:
            raise ConfigError(f"away for {away:g} days (give a number above 0)")
        record = load_responses(source, log)
        record.check(away)
        return cls(record, log, away)

    def learned(self, model: Recommender) -> FittedRetention:
        """What a like is worth for later, by a model that was fitted on the log."""
        return learn_from_answers(model, self.log, self.record, away=self.away, seed=model.seed)


NOTHING: Given = {}


def fit(
    log: Any,
    method: str = "fcpo",
    *,
    limits: Sequence[str] = (),
    items: Any = None,
    area_km: float = AREA_KM,
    settings: Given = NOTHING,
    seed: int = 0,
    ties: Ties = "auto",
    answers: Any = None,
    away: float = AWAY,
    listener: Listener | None = None,
) -> Model:
    """Fit a method on the whole log, to serve users with.

    Settings and weights are chosen on the newest part of the log, and then the method is fitted on
    all of it. Nothing is left to test on: for a study use `split` and `evaluate`.

    log: a log of `load`, or anything that `load` takes.
    method: a name of `fairhorizon methods`: "fcpo", "fcpo:strong", "ease+lists", "ease" ... A
        level in it, as in "fcpo@0.4", is a limit on the popular items.
    limits: kept by all lists of one call together, as in ["popular<=0.4",
        "seller_size=small>=0.3"] (docs/limits.md). Not every method can keep every limit.
    items: a frame or the path of a file with a row per item, for limits on its columns; its item
        column is called as that of the log, or by a usual name. Items that are not in the log can
        be shown too: they are scored like those that share their attributes, and are the group
        `new`.
    area_km: width in kilometres of the areas of a limit on `area`, for items with the columns
        latitude and longitude.
    settings: of the method, by name, as in {"rounds": 50, "ease": {"l2": 500}}.
    seed: the same seed gives the same lists.
    ties: the order of a user's interactions at one time, as in `split`.
    answers: a frame or the path of a file with a row per showing: user, item, time and liked (1
        or 0). From it the model learns what a like is worth, for `value="long"`.
    away: days. A user who was shown nothing in the last `away` days of the answers has left.
    listener: receives the progress. None: it is printed in a terminal or a notebook, to standard
        error; `Listener()` is silent, `PrintedProgress()` always prints.

    Returns the model: `recommend`, `explain`, `observe`, `refresh`, `server`, `save`.
    """
    if not isinstance(log, Interactions):
        log = load(log)
    named = Method.parse(method)
    asked = with_level(named, parsed_limits(limits))
    table = None if items is None else load_items(items, item=log.columns.get("item"))
    check_table(log, table, asked)
    table = merged_tables(table, _columns_of_log(log, table, asked))
    ordered = with_ties(log, ties)
    catalogue = Catalogue.from_log(ordered, table, area_km=area_km)
    chosen = at_level_of(named, asked)
    draft = build(chosen, settings, seed)
    group = _fitted_for(draft, asked, catalogue)
    responses = None if answers is None else RetentionData.read(answers, away, draft, ordered)
    listener = shown_to_people() if listener is None else listener
    recommender = fit_whole(draft, ordered, group=group, listener=listener)
    retention = None if responses is None else responses.learned(recommender)
    return Model(
        recommender,
        str(chosen),
        log,
        limits=asked,
        table=table,
        ties=ties,
        area_km=area_km,
        retention=retention,
    )


def _fitted_for(draft: Recommender, limits: Sequence[Limit], catalogue: Catalogue) -> Group | None:
    """(n_items,) the group to fit for; None: the popular items. Refuses unsupported limits."""
    resolved = resolve_for(limits, catalogue, draft.popular_share)
    # The fit knows the items of the log alone; new items come behind them.
    group = limited_items(catalogue, limits, draft.popular_share)[: catalogue.n_fitted]
    fitted = [type(one)(one.limit, one.members[: len(group)]) for one in resolved]
    check_supported(draft.method, draft.supported_limits, fitted, group)
    check_before_fit(resolved)
    return members_of(level_limit(limits), fitted)


def open_model(folder: str | Path, *, cache_dir: str | Path | None = None) -> Model:
    """The model of a folder that `Model.save` or `fairhorizon fit --all` has written.

    folder: the run folder. A run that was fitted without --all is refused: it knows a part of its
        log only.
    cache_dir: where named sets are kept, as in `load`.

    Returns the model as it was, with everything that it had observed.
    """
    stored = ModelFolder(path_of(folder))
    stored.check_whole()
    card, data = stored.card(), stored.data()
    log = stored.log(None if cache_dir is None else Path(cache_dir))
    ordered, recommender = with_ties_in_order(log, data.ties), stored.recommender()
    # A named data set or a file outside the folder may have changed since.
    if recommender.fingerprint_ != ordered.fingerprint():
        raise ModelError(f"{folder}: its log has changed since the fit (fit it again)")
    limits, items = stored.limits(), stored.items()
    model = Model(
        recommender,
        card.asked or card.method,
        log,
        limits=limits,
        table=merged_tables(items, _columns_of_log(log, items, limits)),
        ties=data.ties,
        area_km=data.area_km,
        retention=stored.retention(),
        ordered=ordered,
    )
    observed = stored.observed(log)
    return model if observed is None else model.observe(observed)


def _columns_of_log(
    log: Interactions, table: ItemTable | None, limits: Sequence[Limit]
) -> ItemTable | None:
    """A table of the log's own columns that limits name and the table of items does not have."""
    known = () if table is None else tuple(table.columns)
    in_log = (*log.attributes, *log.further)
    names = {limit.group.column for limit in limits if not limit.group.reserved}
    if AREA in names and AREA not in in_log:
        names |= set(coordinates_among(in_log) or ())
    there = [name for name in sorted(names) if name in in_log]
    cells = {name: log_attribute(log, name) for name in there if name not in known}
    return ItemTable(log.item_ids, cells) if cells else None
