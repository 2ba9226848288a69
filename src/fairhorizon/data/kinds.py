"""What kind of log it is, in sentences: weights, repeats, sessions, coordinates."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl

from fairhorizon.data.contents import UTF_8
from fairhorizon.data.frames import counted
from fairhorizon.data.generated.checkins import checkins
from fairhorizon.data.generated.sessions import sessions
from fairhorizon.data.generated.shop import shop
from fairhorizon.data.interactions import Interactions
from fairhorizon.data.locations import AREA_KM, Locations, coordinates_among
from fairhorizon.data.readers import ReaderOptions, columns_of
from fairhorizon.data.sources import is_named

EXAMPLES: dict[str, Callable[..., pl.DataFrame]] = {
    "shop": lambda seed: shop(seed=seed).frame,
    "checkins": lambda seed: checkins(seed=seed).frame,
    "sessions": lambda seed: sessions(seed=seed).frame,
}


def coordinate_columns(source: str, reading: ReaderOptions) -> tuple[str, ...]:
    """The columns of latitude and longitude of a file, by their names; none of named sets."""
    if is_named(source) or not Path(source).exists():
        return ()
    how = {name: reading.get(name) for name in ("header", "separator")}
    columns = columns_of(source, encoding=reading.get("encoding", UTF_8), **how)
    return coordinates_among(columns) or ()


def kind_notes(
    log: Interactions, *, session: str | int | None = None, area_km: float = AREA_KM
) -> list[str]:
    """Sentences about what there is; none of a plain log."""
    notes = []
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
