"""What kind of log it is, in sentences: weights, repeats, sessions, coordinates."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import polars as pl

from fairhorizon.data.columns import Origin
from fairhorizon.data.example_logs import checkins, sessions, shop
from fairhorizon.data.frames import counted, warn_of_missing_attribute
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.locations import AREA_KM, Locations, coordinates_among

EXAMPLES: dict[str, Callable[..., pl.DataFrame]] = {
    "shop": lambda seed: shop(seed=seed).frame,
    "checkins": lambda seed: checkins(seed=seed).frame,
    "sessions": lambda seed: sessions(seed=seed).frame,
}


def with_coordinates(log: Interactions) -> Interactions:
    """The log with latitude and longitude as attributes, if columns are called so."""
    columns = coordinates_among(log.further) or ()
    for column in columns:
        warn_of_missing_attribute(log.further[column], column, Origin(log.name))
    return replace(log, attributes={**log.attributes, **{c: log.further[c] for c in columns}})


def kind_notes(
    log: Interactions, *, session: str | int | None = None, area_km: float = AREA_KM
) -> list[str]:
    """Sentences about what there is; none of a plain log."""
    notes = []
    if log.parts is not None:
        parts = counted(log.parts.read + log.parts.kept, "part", "parts")
        notes.append(f"{parts}: {log.parts.read:,} read, {log.parts.kept:,} from the cache.")
    if session is not None:
        notes.append(f"Users are sessions, of column {session}: the next one is a new user.")
    totals = log.total_weights()
    if totals is not None:
        repeats = 0 if log.repeated is None else len(log.repeated.users)
        again = counted(repeats, "row repeats another", "rows repeat others")
        adding = f"; {again}, and their weights add up" if repeats else ""
        typical = f"{np.median(totals):.6g} at the median of a user and item"
        notes.append(f"Weights: {totals.sum():,.10g} in all, {typical}{adding}.")
    if coordinates_among(log.attributes) is not None:
        locations = Locations.of(log.attributes, log.name)
        areas = [area for area in locations.areas(area_km) if area]
        notes.append(
            f"Coordinates: of {len(areas):,} of {log.n_items:,} items, in {len(set(areas)):,} areas"
            f" of {area_km:g} km."
        )
    return notes
