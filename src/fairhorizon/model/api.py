"""`fit` and `open_model`: the two ways to a model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairhorizon.data.interactions import Interactions
from fairhorizon.data.item_columns import ItemTable, log_attribute, merged_tables
from fairhorizon.data.loading import load, load_items
from fairhorizon.data.locations import AREA, AREA_KM, coordinates_among
from fairhorizon.data.splits import Ties, with_ties
from fairhorizon.errors import ModelError
from fairhorizon.limits.kept_by_lists import check_kept
from fairhorizon.limits.language import Limit
from fairhorizon.methods import Method, build
from fairhorizon.model.answered import AWAY, GivenAnswers
from fairhorizon.model.catalogue import Catalogue
from fairhorizon.model.fitting import (
    Group,
    at_level,
    fit_whole,
    group_of,
    own_limit,
    with_level,
)
from fairhorizon.model.folder import StoredModel, read_model, read_observed
from fairhorizon.model.model import Model
from fairhorizon.model.state import bound_to, check_table, group_in, in_order
from fairhorizon.recommenders.base import Recommender
from fairhorizon.recommenders.progress import SILENT, Listener
from fairhorizon.settings import Given

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
    listener: Listener = SILENT,
) -> Model:
    """Fit a method on the whole log, to serve people with.

    Settings and weights are chosen on the newest part of the log, and then the method is fitted on
    all of it. Nothing is left to test on: for a study use `split` and `evaluate`.

    log: a log of `load`, or anything that `load` takes.
    method: a name of `fairhorizon methods`: "fcpo", "fcpo:strong", "ease+lists", "ease" ... A
        level in it, as in "fcpo@0.4", is a limit on the popular items.
    limits: what the lists of every call keep together, as in ["popular<=0.4",
        "seller_size=small>=0.3"] (docs/limits.md). Not every method keeps every limit.
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
    away: days at the end of the answers in which somebody who left was shown nothing.
    listener: receives the progress; `PrintedProgress()` prints it.

    Returns the model: `recommend`, `explain`, `observe`, `refresh`, `server`, `save`.
    """
    if not isinstance(log, Interactions):
        log = load(log)
    named = Method.parse(method)
    asked = with_level(named, [Limit.parse(text) for text in limits])
    table = None if items is None else load_items(items, item=log.columns.get("item"))
    check_table(log, table, asked)
    table = merged_tables(table, _columns_of_log(log, table, asked))
    ordered = with_ties(log, ties)
    catalogue = Catalogue.of(ordered, table, area_km=area_km)
    chosen = at_level(named, asked)
    draft = build(chosen, settings, seed)
    group = _fitted_for(draft, asked, catalogue)
    given = None if answers is None else GivenAnswers.read(answers, away, draft, ordered)
    recommender = fit_whole(draft, ordered, group=group, listener=listener)
    outlook = None if given is None else given.learned(recommender)
    stored = StoredModel(recommender, str(chosen), asked, ties, area_km, outlook)
    return Model(stored, log=log, table=table)


def _fitted_for(draft: Recommender, limits: Sequence[Limit], catalogue: Catalogue) -> Group | None:
    """The group that a method is fitted for, if it can keep the limits; None: the popular items."""
    bound = bound_to(limits, catalogue, draft.popular_share)
    group = group_in(catalogue, limits, draft.popular_share)[: catalogue.n_fitted]
    fitted = [type(one)(one.limit, one.members[: len(group)]) for one in bound]
    check_kept(draft.method, draft.kept_in_lists, fitted, group)
    return group_of(own_limit(limits), fitted)


def open_model(folder: str | Path) -> Model:
    """The model of a folder that `Model.save` or `fairhorizon fit --all` has written.

    folder: the run folder. A run that was fitted without --all is refused: it knows a part of its
        log only.

    Returns the model as it was, with everything that it had observed.
    """
    folder = Path(folder)
    stored, log, table = read_model(folder)
    ordered = in_order(log, stored.ties)
    if stored.recommender.fingerprint_ != ordered.fingerprint():
        raise ModelError(f"{folder}: its log has changed since the fit (fit it again)")
    table = merged_tables(table, _columns_of_log(log, table, stored.limits))
    model = Model(stored, log=log, table=table, ordered=ordered)
    observed = read_observed(folder, log)
    return model if observed is None else model.observe(observed)


def _columns_of_log(
    log: Interactions, table: ItemTable | None, limits: Sequence[Limit]
) -> ItemTable | None:
    """The columns of the log that limits are about, where the table of items has none of them."""
    known = () if table is None else tuple(table.columns)
    in_log = (*log.attributes, *log.further)
    names = {limit.group.column for limit in limits if not limit.group.reserved}
    if AREA in names and AREA not in in_log:
        names |= set(coordinates_among(in_log) or ())
    there = [name for name in sorted(names) if name in in_log]
    cells = {name: log_attribute(log, name) for name in there if name not in known}
    return ItemTable(log.item_ids, cells) if cells else None
