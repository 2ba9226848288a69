"""Logs of interactions: reading, named sets, splits and a synthetic market."""

from fairhorizon.data.columns import Origin
from fairhorizon.data.interactions import Interactions, NoTimestampsWarning
from fairhorizon.data.readers import Columns, ReaderOptions, read_interactions, read_item_attribute
from fairhorizon.data.sources import NAMED, cache_folder, load, market_of, synthetic_market
from fairhorizon.data.splits import (
    Split,
    Statistics,
    split,
    split_by_time,
    statistics,
    with_feedback,
    write_split,
)
from fairhorizon.data.synthetic import SyntheticMarket, synthetic

__all__ = [
    "NAMED",
    "Columns",
    "Interactions",
    "NoTimestampsWarning",
    "Origin",
    "ReaderOptions",
    "Split",
    "Statistics",
    "SyntheticMarket",
    "cache_folder",
    "load",
    "market_of",
    "read_interactions",
    "read_item_attribute",
    "split",
    "split_by_time",
    "statistics",
    "synthetic",
    "synthetic_market",
    "with_feedback",
    "write_split",
]
