"""The first fill of a database: tables, the items and limits of a model, and first labels."""

import logging
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy.engine import Connection

from fairhorizon.data.named_sets import NamedColumns
from fairhorizon.errors import ConfigError, FairHorizonError
from fairhorizon.limits.language import Limit
from fairhorizon.model.model import Model
from fairhorizon.service.admin.bulk_load import add_labels
from fairhorizon.service.budget.rules import UNIT, Window, check_served
from fairhorizon.service.replica.snapshot import SnapshotLoader, check_bound, loaded, popular_now
from fairhorizon.service.settings import ServiceSettings
from fairhorizon.service.store.catalogue import Item, add_missing_items
from fairhorizon.service.store.database import Database
from fairhorizon.service.store.migrating import prepare
from fairhorizon.service.store.state import (
    all_limits,
    begin_epoch,
    end_limit,
    find_model,
    insert_limit,
    limits_in_force,
    lock_state,
    model_row,
    promote_model,
    read_state,
    register_model,
    showings_by_item,
)
from fairhorizon.vocabulary import ListValue

LOG = logging.getLogger("fairhorizon.service")


class LimitInForceError(ConfigError):
    """The same limit is kept already."""


def set_up(
    database: Database,
    settings: ServiceSettings,
    *,
    run: Path | None = None,
    asked: Sequence[str] = (),
    described: Sequence[Item] = (),
) -> list[str]:
    """Prepare a database, serve a run if none is served, and create limits that are asked for.

    described: items of a table, with labels that limits may be about.
    asked: limits; where a new database is given none, those of the run.
    Returns notes on what was done or left.
    """
    prepare(database)
    notes = []
    with database.reading() as connection:
        state, there = read_state(database, connection), all_limits(connection)
    if run is not None:
        folder = str(run.resolve())
        # Only in a new database: limits that were ended by hand must not come back with a restart.
        if not asked and not there:
            asked = loaded(folder).limits
        number = _number_of(database, folder)
        if state.model_id is None:
            with database.writing() as connection:
                promote_model(database, connection, number)
        elif state.model_id != number:
            notes.append(
                f"model {state.model_id} goes on being served; {run} is model {number} "
                f"(POST /v1/models/{number}/promote)"
            )
    # After those of the model, which are only added where items are new; before the limits.
    add_labels(database, described)
    check_value(database, settings)
    if state.epoch == 0:
        relabel(database)
    notes += _ask(database, settings, asked)
    return notes


def check_value(database: Database, settings: ServiceSettings) -> None:
    """Refuse a value of lists that the model which is served has not learned."""
    if settings.value is ListValue.NDCG:
        return
    with database.reading() as connection:
        number = read_state(database, connection).model_id
        folder = None if number is None else model_row(connection, number).folder
    if folder is not None:
        loaded(folder).retention_for(settings.value)


def _number_of(database: Database, folder: str) -> int:
    """The number of a model, which is registered if it is new; one that is known is not loaded."""
    with database.reading() as connection:
        known = find_model(connection, folder)
    if known is not None:
        return known
    model = loaded(folder)
    with database.writing() as connection:
        return register(database, connection, folder, model)


def register(database: Database, connection: Connection, folder: str, model: Model) -> int:
    """The number of a model; its items are added where the service does not know them."""
    add_missing_items(database, connection, items_of(model))
    return register_model(database, connection, folder, model.method)


def items_of(model: Model) -> list[Item]:
    """The items of a model, with the columns of its table, or of its named set, as labels."""
    catalogue = model.state.catalogue
    names = [str(one) for one in catalogue.ids[: model.state.n_items].tolist()]
    described = catalogue.log.further if catalogue.table is None else catalogue.table.columns
    columns = {}
    if catalogue.table is not None or isinstance(described, NamedColumns):
        try:
            columns = {name: catalogue.attribute(name)[: len(names)] for name in described}
        except (FairHorizonError, OSError) as error:
            # Titles are welcome, but not needed.
            LOG.warning("the items are not described: %s", error)
    return [
        Item(one, labels={name: _values(cells[n]) for name, cells in columns.items() if cells[n]})
        for n, one in enumerate(names)
    ]


def _values(cell: str) -> str | list[str]:
    return cell.split("|") if "|" in cell else cell


def relabel(database: Database) -> int:
    """Begin an epoch with the labels of now; its number."""
    loader = SnapshotLoader(database)
    while True:
        with database.reading() as connection:
            snapshot = loader.load(connection)
        with database.writing() as connection:
            # Loading takes long, so it is done without the lock; what changed meanwhile is loaded
            # again.
            if lock_state(database, connection).generation != snapshot.generation:
                continue
            popular = popular_now(snapshot, showings_by_item(connection))
            return begin_epoch(database, connection, popular)


def _ask(database: Database, settings: ServiceSettings, asked: Sequence[str]) -> list[str]:
    """Create limits that are not in force yet; notes on those that are, but were not asked for."""
    texts = [str(Limit.parse(text)) for text in asked]
    with database.reading() as connection:
        present = [row.text for row in limits_in_force(connection)]
    for text in texts:
        if text not in present:
            create_limit(database, text, settings)
    others = [text for text in present if texts and text not in texts]
    return [f"{text} stays in force (end it: DELETE /v1/limits/ID)" for text in others]


def create_limit(
    database: Database,
    text: str,
    settings: ServiceSettings,
    *,
    window: str | None = None,
    counts: str | None = None,
    slack: int | None = None,
    instead_of: int | None = None,
) -> int:
    """Create a limit that the items can keep, and return its number.

    window, counts, slack: of this limit; None: those of the settings. The slack is in showings.
    instead_of: the number of a limit that ends in the same transaction.

    Raises a FairHorizonError that says what is wrong with the limit.
    """
    limit = Limit.parse(text)
    check_served(limit)
    asked = str(limit)
    counted = str(Window.parse(window or settings.window))
    loader = SnapshotLoader(database)
    # Without the lock, as loading the items takes long.
    with database.reading() as connection:
        check_bound(loader.load(connection), limit)
    with database.writing() as connection:
        lock_state(database, connection)
        # Ended first: the new one may be the same text with another window.
        if instead_of is not None:
            end_limit(database, connection, instead_of)
        if any(row.text == asked for row in limits_in_force(connection)):
            raise LimitInForceError(f"{asked} is in force already")
        return insert_limit(
            database,
            connection,
            asked,
            window=counted,
            counts=counts or settings.counts.value,
            slack=UNIT * (slack or settings.slack),
        )
